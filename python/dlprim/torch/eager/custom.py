"""What operators of PyTorch share: how they are registered, and which tensors they take.

They are defined by schemas, which costs a call a quarter of what `torch.library.custom_op` does.
Functions look at the device and the dtype of what they are given; operators, which see tensors
behind autocast, at shapes and at whether dtypes agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.amp.autocast_mode import _cast

from dlprim import _core
from dlprim.torch.eager.direct import function_of, is_direct, without_graph
from dlprim.torch.forms import array_of, tensor_of

_library: Any = torch.library
_LIBRARY = _library.Library("dlprim", "FRAGMENT")
_FLOATS = (torch.float32, torch.bfloat16)
_KERNELS: dict[Any, Callable[..., Any]] = {}


def operator(schema: str, kernel: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    """A new operator.

    Parameters
    ----------
    schema : str
        With its name.
    kernel : callable
        Computes it, of tensors on the CPU.
    fake : callable
        Makes results of the same shapes, strides and dtypes, of tensors without memory.
    """

    def run(*args: Any) -> Any:
        threads = _core.set_threads_of_caller(torch.get_num_threads())
        try:
            return kernel(*args)
        finally:
            _core.set_threads_of_caller(threads)

    name = schema.partition("(")[0]
    _LIBRARY.define(schema, tags=torch.Tag.pt2_compliant_tag)
    _LIBRARY.impl(name, run, "CPU")
    _library.register_fake(f"dlprim::{name}", fake, lib=_LIBRARY)
    made = getattr(torch.ops.dlprim, name).default
    _KERNELS[made] = without_graph(run)
    return made


def differentiate(
    forward: Any, backward: Any, gradient: Callable[..., Any], keep: Callable[..., None]
) -> None:
    """Gives an operator a gradient, which has none itself.

    Parameters
    ----------
    forward, backward : torch._ops.OpOverload
    gradient, keep : callable
        ``backward`` and ``setup_context`` of `torch.library.register_autograd`.
    """
    function = forward.name().replace("::", ".torch.")

    def refuse(context: Any, *_: Any) -> None:
        raise RuntimeError(
            f"a gradient of {function} is differentiated once more, expected one derivative: "
            "dlprim has no second ones"
        )

    _library.register_autograd(forward.name(), gradient, setup_context=keep, lib=_LIBRARY)
    _library.register_autograd(backward.name(), refuse, lib=_LIBRARY)


def differentiate_by_three(forward: Any, backward: Any, kept: int) -> Callable[..., torch.Tensor]:
    """Gives an operator gradients by its first three operands, and returns what calls it.

    ``backward`` takes the gradient of the result, the first ``kept`` operands, all behind them and
    the third one, and which gradients are asked for, and returns those.
    """
    run, run_back = _KERNELS[forward], _KERNELS[backward]

    def keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.save_for_backward(*inputs[:kept])
        ctx.how = inputs[max(3, kept) :]

    def gradient(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        needed = ctx.needs_input_grad
        mask = list(needed[:3])
        saved = ctx.saved_tensors
        # Where the gradient is differentiated once more the operator refuses that.
        is_last = not torch.is_grad_enabled() and is_direct(grad, *saved[:3])
        found = iter((run_back if is_last else backward)(grad, *saved, *ctx.how, mask))
        return (*(next(found) if it else None for it in mask), *[None] * (len(needed) - 3))

    differentiate(forward, backward, gradient, keep)
    apply = function_of(run, keep, gradient)
    names = [it.name for it in forward._schema.arguments[:3]]

    def called(*args: Any) -> torch.Tensor:
        first, second, third = args[:3]
        made: torch.Tensor
        if not is_direct(first, second, third):
            require_tensors(**given(**dict(zip(names, args, strict=False))))
            made = forward(*args)
        elif torch.is_grad_enabled() and any(
            it is not None and it.requires_grad for it in (first, second, third)
        ):
            made = apply(*args)
        else:
            made = run(*args)
        return made

    return called


def lower(forward: Any) -> None:
    """Has autocast give an operator bfloat16.

    As `torch.library.register_autocast` does, which PyTorch 2.6 may lack.
    """
    key = torch._C.DispatchKey.AutocastCPU

    def run(*args: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
            return forward(*_cast(args, "cpu", torch.bfloat16))

    _LIBRARY.impl(forward.name(), run, "AutocastCPU")


# ---------------------------------------------------------------- operands


def require_tensors(**operands: Any) -> None:
    """Refuses what is no tensor of floats on the CPU, by the name of the argument."""
    for name, it in operands.items():
        require_tensor(name, it)
        if it.dtype not in _FLOATS:
            raise TypeError(f"{name} is of {it.dtype}, expected torch.float32 or torch.bfloat16")


def given(**operands: Any) -> dict[str, Any]:
    """Those of optional operands that there are."""
    return {name: it for name, it in operands.items() if it is not None}


def require_tensor(name: str, it: Any) -> None:
    """Refuses what is no dense tensor on the CPU."""
    if not isinstance(it, torch.Tensor):
        raise TypeError(f"{name} is of type {type(it).__name__}, expected a torch.Tensor")
    if it.device.type not in ("cpu", "meta"):
        raise TypeError(f"{name} is on {it.device}, expected a tensor on the CPU")
    if it.layout is not torch.strided:
        raise TypeError(f"{name} is {it.layout}, expected a dense tensor")


def require_alike(**operands: torch.Tensor | None) -> None:
    """Refuses operands of another dtype than the first one."""
    (first, one), *rest = operands.items()
    for name, it in rest:
        if one is not None and it is not None and it.dtype != one.dtype:
            raise TypeError(f"{name} is of {it.dtype}, expected {one.dtype} as {first} is")


def sizes_of(known: dict[str, Any], **operands: tuple[torch.Tensor | None, str]) -> dict[str, Any]:
    """Extents by the letters of axes, in which all operands are found to agree.

    An operand is given with its axes, such as ``"... C"``; there may be none. ``known`` are extents
    that are known before.
    """
    found = dict(known)
    for name, (it, text) in operands.items():
        if it is None:
            continue
        axes = text.split()
        shape: list[Any] = list(it.shape)
        if axes[0] == "..." and len(shape) >= len(axes) - 1:
            count = len(shape) - len(axes) + 1
            shape = [tuple(shape[:count]), *shape[count:]]
        expected = [found.get(axis, n) for axis, n in zip(axes, shape, strict=False)]
        if len(shape) != len(axes) or shape != expected:
            said = ", ".join(f"{axis} = {found[axis]}" for axis in axes if axis in found)
            raise ValueError(
                f"{name} has shape {tuple(it.shape)}, expected ({', '.join(axes)})"
                f"{' with ' if said else ''}{said}"
            )
        found |= zip(axes, shape, strict=True)
    return found


def array_or_none(tensor: torch.Tensor | None) -> Any:
    """The memory of a tensor as an array, where there is one."""
    return None if tensor is None else array_of(tensor)


def asked(gradients: Sequence[Any], mask: Sequence[bool]) -> list[torch.Tensor]:
    """Those gradients that are asked for."""
    return [it for it, wanted in zip(gradients, mask, strict=True) if wanted]


def tensors_of(arrays: Sequence[Any], mask: Sequence[bool], dtype: Any) -> list[torch.Tensor]:
    """Those gradients that are asked for, as tensors of a dtype."""
    return [tensor_of(it).to(dtype) for it in asked(arrays, mask)]
