"""Methods of arrays, which are functions of NumPy but for how they are called."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlprim.tracing.array import FUNCTIONS, TracedArray
from dlprim.tracing.functions.moves import ravel, reshape, transpose
from dlprim.tracing.functions.ufuncs import copied
from dlprim.tracing.refusals import node_name
from dlprim.tracing.tracer import named_type


def _astype(
    x: Any,
    dtype: Any,
    order: str = "K",
    casting: str = "unsafe",
    subok: bool = True,
    copy: bool = True,
) -> Any:
    """The array itself where NumPy gives it, so that writes into it are seen, or refused."""
    due = named_type(dtype)
    is_same = (
        due == x.dtype and not x.is_weak and (due.name == "bfloat16" or due == np.dtype(dtype))
    )
    if is_same and not copy:
        return x
    return TracedArray(x.tracer, x.tracer.cast(x.value, due))


def _flatten(x: Any, order: str = "C") -> Any:
    return copied(ravel(x, order))


def _reshaped(x: Any, *shape: Any, **named: Any) -> Any:
    return reshape(x, shape[0] if len(shape) == 1 else shape, **named)


def _transposed(x: Any, *axes: Any) -> Any:
    return transpose(x, None if not axes else axes[0] if len(axes) == 1 else axes)


_PLAIN = (
    "all", "any", "argmax", "argmin", "clip", "cumprod", "cumsum", "diagonal", "dot", "max", "mean",
    "min", "prod", "ravel", "repeat", "round", "squeeze", "std", "sum", "swapaxes", "take", "trace",
    "var",
)  # fmt: skip
_METHODS = {
    "astype": _astype,
    "conj": copied,
    "conjugate": copied,
    "copy": lambda x, order="C": copied(x),
    "flatten": _flatten,
    "reshape": _reshaped,
    "transpose": _transposed,
    **{name: None for name in _PLAIN},
}


def _method(name: str, function: Any) -> Any:
    def method(x: Any, *given: Any, **named: Any) -> Any:
        x.tracer.build.name = node_name()
        apply = FUNCTIONS[getattr(np, name)] if function is None else function
        return apply(x, *given, **named)

    method.__name__ = name
    return method


for _name, _function in _METHODS.items():
    setattr(TracedArray, _name, _method(_name, _function))
