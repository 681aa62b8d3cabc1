"""What operators of PyTorch share: how they are registered, and which tensors they take.

They are defined by schemas, which costs a call a quarter of what `torch.library.custom_op` does.
Functions look at the device and the dtype of what they are given; operators, which see tensors
behind autocast, at shapes and at whether dtypes agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import dlprim
from dlprim.torch.forms import array_of, tensor_of

_library: Any = torch.library
_LIBRARY = _library.Library("dlprim", "FRAGMENT")
_FLOATS = (torch.float32, torch.bfloat16)


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
        threads = torch.get_num_threads()
        if threads == dlprim.get_num_threads():
            return kernel(*args)
        with dlprim.threads(threads):
            return kernel(*args)

    name = schema.partition("(")[0]
    _LIBRARY.define(schema, tags=torch.Tag.pt2_compliant_tag)
    _LIBRARY.impl(name, run, "CPU")
    _library.register_fake(f"dlprim::{name}", fake, lib=_LIBRARY)
    return getattr(torch.ops.dlprim, name).default


def differentiate(
    forward: Any, gradient: Callable[..., Any], keep: Callable[..., None], backward: Any
) -> None:
    """Gives an operator its gradient.

    Parameters
    ----------
    forward : torch._ops.OpOverload
    gradient, keep : callable
        ``backward`` and ``setup_context`` of `torch.library.register_autograd`.
    backward : torch._ops.OpOverload
        What ``gradient`` calls, which has no gradient of its own.
    """
    name = forward.name()

    def refuse(context: Any, *_: Any) -> None:
        function = name.replace("::", ".torch.")
        raise RuntimeError(
            f"a gradient of {function} is differentiated once more, expected one derivative: "
            "dlprim has no second ones"
        )

    _library.register_autograd(name, gradient, setup_context=keep, lib=_LIBRARY)
    _library.register_autograd(backward.name(), refuse, lib=_LIBRARY)


def lower(forward: Any) -> None:
    """Has autocast give an operator bfloat16."""
    _library.register_autocast(forward.name(), "cpu", torch.bfloat16, lib=_LIBRARY)


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


def require_alike(first: str, dtype: torch.dtype, **operands: torch.Tensor | None) -> None:
    """Refuses an operand of another dtype than the first one."""
    for name, it in operands.items():
        if it is not None and it.dtype != dtype:
            raise TypeError(f"{name} is of {it.dtype}, expected {dtype} as {first} is")


def require_shape(name: str, it: torch.Tensor | None, shape: Sequence[Any], why: str) -> None:
    """Refuses an operand of another shape; there may be none."""
    if it is not None and tuple(it.shape) != tuple(shape):
        expected = tuple(shape)
        raise ValueError(f"{name} has shape {tuple(it.shape)}, expected {expected}: {why}")


def array_or_none(tensor: torch.Tensor | None) -> Any:
    """The memory of a tensor as an array, where there is one."""
    return None if tensor is None else array_of(tensor)


def chosen(arrays: Sequence[Any], mask: Sequence[bool], dtype: torch.dtype) -> list[torch.Tensor]:
    """Those gradients that are asked for, of a dtype."""
    asked = [it for it, wanted in zip(arrays, mask, strict=True) if wanted]
    return [tensor_of(it).to(dtype) for it in asked]


def placed(tensors: Sequence[Any], mask: Sequence[bool]) -> list[Any]:
    """The gradients of `chosen` at the places of their operands."""
    found = iter(tensors)
    return [next(found) if wanted else None for wanted in mask]
