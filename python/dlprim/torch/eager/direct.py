"""Calls of operators past PyTorch's dispatcher, which takes longer than a small product does.

A kernel is called itself where nobody else wants to know of the call. Compilers, modes of PyTorch,
transformations of functions, autocast, profilers, and other classes of tensors see the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

_CLASSES = (torch.Tensor, torch.nn.Parameter)
_FLOATS = (torch.float32, torch.bfloat16)
_core: Any = torch._C


def _is_seen() -> bool:
    return bool(
        torch.compiler.is_compiling()
        or _core._len_torch_dispatch_stack()
        or _core._len_torch_function_stack()
        or _core._are_functorch_transforms_active()
        or _core._is_tracing()
        or torch.is_autocast_enabled("cpu")
        or forward_ad._current_level >= 0
        or _core._autograd._profiler_enabled()
    )


def _are_plain(tensors: Sequence[Any]) -> bool:
    """Dense tensors of floats on the CPU; some may not be there."""
    for it in tensors:
        if it is not None and (
            type(it) not in _CLASSES
            or it.dtype not in _FLOATS
            or not it.is_cpu
            or it.layout is not torch.strided
            or it.is_neg()
        ):
            return False
    return True


def is_direct(*tensors: Any) -> bool:
    """Whether a kernel may be called itself with these operands."""
    return not _is_seen() and _are_plain(tensors)


def without_graph(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel, in which autograd looks at nothing, views included, as in an operator."""

    def run(*args: Any) -> Any:
        with _core._AutoDispatchBelowADInplaceOrView():
            return kernel(*args)

    return run


def function_of(
    run: Callable[..., Any], keep: Callable[..., None], gradient: Callable[..., Any]
) -> Callable[..., Any]:
    """A kernel with a gradient, given as `torch.library.register_autograd` takes it."""

    # One forward for both: PyTorch looks at signatures in every call of the other form.
    def forward(ctx: Any, *args: Any) -> Any:
        made = run(*args)
        keep(ctx, args, made)
        return made

    def backward(ctx: Any, *grads: Any) -> Any:
        return gradient(ctx, *grads)

    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    made: Any = type("Function", (torch.autograd.Function,), members)
    applied: Callable[..., Any] = made.apply
    return applied
