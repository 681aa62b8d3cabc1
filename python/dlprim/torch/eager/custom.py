"""What operators of PyTorch share: how they are registered and called.

They are defined by schemas, which costs a call a quarter of what `torch.library.custom_op` does.
PyTorch's dispatcher still takes longer than a small product does, so that a kernel is called itself
where nobody else wants to know of the call: compilers, modes of PyTorch, transformations of
functions, autocast, profilers, and other classes of tensors see the operator.

Functions look at the device and the dtype of what they are given; operators, which see tensors
behind autocast, at shapes and at whether dtypes agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.amp.autocast_mode import _cast
from torch.autograd import forward_ad

from dlprim import _core
from dlprim.torch.eager.operands import FLOATS, asked, given, require_tensors
from dlprim.torch.forms import tensor_of

_library: Any = torch.library
_LIBRARY = _library.Library("dlprim", "FRAGMENT")
_CLASSES = (torch.Tensor, torch.nn.Parameter)
_torch: Any = torch._C


class Operator(NamedTuple):
    """One of ``torch.ops.dlprim``.

    Attributes
    ----------
    named : torch._ops.OpOverload
    run : callable
        Its kernel, in which autograd looks at nothing, views included.
    """

    named: Any
    run: Callable[..., Any]


def operator(schema: str, kernel: Callable[..., Any], fake: Callable[..., Any]) -> Operator:
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

    def run_alone(*args: Any) -> Any:
        with _torch._AutoDispatchBelowADInplaceOrView():
            return run(*args)

    name = schema.partition("(")[0]
    _LIBRARY.define(schema, tags=torch.Tag.pt2_compliant_tag)
    _LIBRARY.impl(name, run, "CPU")
    _library.register_fake(f"dlprim::{name}", fake, lib=_LIBRARY)
    return Operator(getattr(torch.ops.dlprim, name).default, run_alone)


def differentiate(
    forward: Operator, backward: Operator, gradient: Callable[..., Any], keep: Callable[..., None]
) -> None:
    """Gives an operator a gradient, which has none itself.

    Parameters
    ----------
    forward, backward : Operator
    gradient, keep : callable
        ``backward`` and ``setup_context`` of `torch.library.register_autograd`.
    """
    name = forward.named.name()
    function = name.replace("::", ".torch.")

    def refuse(context: Any, *_: Any) -> None:
        raise RuntimeError(
            f"a gradient of {function} is differentiated once more, expected one derivative: "
            "dlprim has no second ones"
        )

    _library.register_autograd(name, gradient, setup_context=keep, lib=_LIBRARY)
    _library.register_autograd(backward.named.name(), refuse, lib=_LIBRARY)


def lower(forward: Operator) -> None:
    """Has autocast give an operator bfloat16.

    As `torch.library.register_autocast` does, which PyTorch 2.6 may lack.
    """
    key = torch._C.DispatchKey.AutocastCPU

    def run(*args: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
            return forward.named(*_cast(args, "cpu", torch.bfloat16))

    _LIBRARY.impl(forward.named.name(), run, "AutocastCPU")


# ---------------------------------------------------------------- of three operands


class Layer(NamedTuple):
    """An operator with gradients by its first three operands.

    Attributes
    ----------
    schema : str
    kernel, fake : callable
        As for `operator`.
    gradients : callable
        Their arrays, of the gradient of the result, the operands without a bias, and which are
        asked for; None for zeros.
    alike : callable
        Tensors of the shapes, strides and dtypes of the gradients, of the operands without a bias.
    """

    schema: str
    kernel: Callable[..., Any]
    fake: Callable[..., Any]
    gradients: Callable[..., Any]
    alike: Callable[..., Any]


def registered(layer: Layer, is_lowered: bool = False) -> Callable[..., torch.Tensor]:
    """What calls the operator, by the shortest way; autocast may give it bfloat16."""

    def empty(grad: torch.Tensor, *operands: Any) -> list[torch.Tensor]:
        return asked(layer.alike(*operands[:-1]), operands[-1])

    def run_back(grad: torch.Tensor, *operands: Any) -> list[torch.Tensor]:
        made = empty(grad, *operands)
        arrays = layer.gradients(grad, *operands) if grad.numel() else None
        if arrays is None:
            return [it.zero_() for it in made]
        pairs = zip(asked(arrays, operands[-1]), made, strict=True)
        return [tensor_of(it).to(like.dtype).view(like.shape) for it, like in pairs]

    forward = operator(f"{layer.schema} -> Tensor", layer.kernel, layer.fake)
    name, _, arguments = layer.schema.removesuffix(")").partition("(")
    listed = [it for it in arguments.split(", ") if it != "Tensor? bias"]
    schema = f"{name}_backward(Tensor grad, {', '.join(listed)}, bool[3] output_mask) -> Tensor[]"
    backward = operator(schema, run_back, empty)
    names = [it.name for it in forward.named._schema.arguments]
    bias = names.index("bias") if "bias" in names else len(names)
    count = sum("Tensor" in it for it in listed)

    def keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        own = (*inputs[:bias], *inputs[bias + 1 :])
        ctx.save_for_backward(*own[:count])
        ctx.how = own[count:]

    def gradient(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        needed = ctx.needs_input_grad
        mask = list(needed[:3])
        saved = ctx.saved_tensors
        # Where the gradient is differentiated once more the operator refuses that.
        is_last = not torch.is_grad_enabled() and _is_direct(grad, *saved[:3])
        run = backward.run if is_last else backward.named
        found = iter(run(grad, *saved, *ctx.how, mask))
        return (*(next(found) if it else None for it in mask), *[None] * (len(needed) - 3))

    differentiate(forward, backward, gradient, keep)
    if is_lowered:
        lower(forward)
    return _call_of(forward, _function(forward.run, keep, gradient), names[:3])


def _call_of(
    forward: Operator, apply: Callable[..., Any], names: Sequence[str]
) -> Callable[..., torch.Tensor]:
    def called(*args: Any) -> torch.Tensor:
        first, second, third = args[:3]
        made: torch.Tensor
        if not _is_direct(first, second, third):
            require_tensors(**given(**dict(zip(names, args, strict=False))))
            made = forward.named(*args)
        elif torch.is_grad_enabled() and any(
            it is not None and it.requires_grad for it in (first, second, third)
        ):
            made = apply(*args)
        else:
            made = forward.run(*args)
        return made

    return called


def _function(
    run: Callable[..., Any], keep: Callable[..., None], gradient: Callable[..., Any]
) -> Callable[..., Any]:
    """A kernel with a gradient, given as `torch.library.register_autograd` takes it."""

    # One forward for both: PyTorch looks at signatures in every call of the other form.
    def forward(ctx: Any, *args: Any) -> Any:
        made = run(*args)
        keep(ctx, args, made)
        return made

    members = {"forward": staticmethod(forward), "backward": staticmethod(gradient)}
    made: Any = type("Function", (torch.autograd.Function,), members)
    applied: Callable[..., Any] = made.apply
    return applied


def _is_direct(*tensors: Any) -> bool:
    """Whether a kernel may be called itself, of plain tensors on the CPU or None."""
    is_seen = (
        torch.compiler.is_compiling()
        or _torch._len_torch_dispatch_stack()
        or _torch._len_torch_function_stack()
        or _torch._are_functorch_transforms_active()
        or _torch._is_tracing()
        or torch.is_autocast_enabled("cpu")
        or forward_ad._current_level >= 0
        or _torch._autograd._profiler_enabled()
    )
    return not is_seen and all(
        type(it) in _CLASSES
        and it.dtype in FLOATS
        and it.is_cpu
        and it.layout is torch.strided
        and not it.is_neg()
        for it in tensors
        if it is not None
    )
