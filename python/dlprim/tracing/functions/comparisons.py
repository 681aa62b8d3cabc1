"""Comparisons, which NumPy makes exactly also of integers that no type has in common."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlprim.graph.expressions import Expression
from dlprim.tracing.array import UFUNCS, TracedArray
from dlprim.tracing.tracer import mapped, result_type

_UNSIGNED = np.dtype(np.uint64)


def _holds(ufunc: np.ufunc, is_less: bool) -> bool:
    """Whether a comparison holds of two numbers of which the first is less, or else greater."""
    one_sided = (np.less, np.less_equal) if is_less else (np.greater, np.greater_equal)
    return ufunc is np.not_equal or ufunc in one_sided


def _compared(ufunc: np.ufunc) -> Any:
    def function(*parts: Expression) -> Expression:
        return (ufunc.__name__, *parts)

    def of_number(x: Any, known: int, is_turned: bool) -> Any:
        limits = np.iinfo(x.dtype)
        if limits.min <= known <= limits.max:
            return None
        name = "equal" if _holds(ufunc, (known > limits.max) != is_turned) else "not_equal"
        return mapped(lambda it: (name, it, it), (x,), "compare")

    def of_signs(a: Any, b: Any, is_turned: bool) -> Any:
        arrays = [it if isinstance(it, TracedArray) else np.asarray(it) for it in (a, b)]
        below = np.less(arrays[is_turned], 0)
        whole = mapped(function, [it.astype(_UNSIGNED) for it in arrays], "compare")
        if _holds(ufunc, not is_turned):
            return np.logical_or(below, whole)
        return np.logical_and(np.logical_not(below), whole)

    def apply(a: Any, b: Any, dtype: Any = None) -> Any:
        (one, is_weak), (other, is_weak_too) = result_type((a,)), result_type((b,))
        found = None
        if type(a) is int or type(b) is int:
            x, known = (b, a) if type(a) is int else (a, b)
            found = of_number(x, known, x is b) if x.dtype.kind in "iu" else None
        elif one.kind + other.kind in ("iu", "ui") and not (is_weak or is_weak_too):
            found = of_signs(a, b, one == _UNSIGNED) if _UNSIGNED in (one, other) else None
        return mapped(function, (a, b), "compare") if found is None else found

    return apply


for _ufunc in (
    np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal,
):  # fmt: skip
    UFUNCS[_ufunc] = _compared(_ufunc)
