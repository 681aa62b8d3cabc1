"""Functions along axes: sums, means, extremes, running sums, places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dlprim.tracing.array import FUNCTIONS, METHODS, TracedArray, implements
from dlprim.tracing.refusals import refuse, user_line
from dlprim.tracing.tracer import is_float, made, named_type, result_type

_MISSING = np._NoValue
_INT, _UNSIGNED = np.dtype(np.int64), np.dtype(np.uint64)


def axes_within(axis: Any, ndim: int) -> tuple[int, ...]:
    """Axes counted from the front, as NumPy checks them."""
    axes = range(ndim) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    found = []
    for it in axes:
        if isinstance(it, TracedArray):
            refuse("an axis is a traced array", "an int")
        if not -ndim <= it < ndim:
            raise np.exceptions.AxisError(
                f"{user_line()}: axis {it} is out of bounds for array of dimension {ndim}"
            )
        found.append(int(it) % ndim)
    if len(set(found)) < len(found):
        raise ValueError(f"{user_line()}: duplicate value in 'axis'")
    return tuple(found)


def reduced(function: str, x: Any, axis: Any, keepdims: Any, dtype: Any = None) -> Any:
    """The reduction of an array, in its type or another."""
    axes = axes_within(axis, x.ndim)
    keeps = keepdims is not _MISSING and bool(keepdims)
    tracer = x.tracer
    value = x.value if dtype is None else tracer.cast(x.value, dtype)
    if not axes:
        return TracedArray(tracer, value)
    if function in ("max", "min") and math.prod(x.shape[it] for it in axes) == 0:
        raise ValueError(f"{user_line()}: {function} of zero elements has no identity")
    return made(tracer, lambda: tracer.build.reduce(function, value, axes, keeps))


def _refuse_more(name: str, where: Any = True, initial: Any = _MISSING) -> None:
    if where is not True and where is not _MISSING:
        refuse(f"{name} is called with where", "np.where in front of it")
    if initial is not _MISSING:
        refuse(f"{name} is called with initial", "the operation behind it")


def _sum_type(a: Any, dtype: Any) -> np.dtype[Any]:
    """That of sums and products, which have 64 bits where they are of integers or bool."""
    if dtype is not None:
        return named_type(dtype)
    found: np.dtype[Any] = a.dtype
    return _INT if found.kind in "bi" else _UNSIGNED if found.kind == "u" else found


def _summed(function: str) -> Any:
    def apply(
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: Any = False,
        initial: Any = _MISSING,
        where: Any = True,
    ) -> Any:
        _refuse_more(f"np.{function}", where, initial)
        return reduced(function, a, axis, keepdims, _sum_type(a, dtype))

    return apply


FUNCTIONS[np.sum] = _summed("sum")
FUNCTIONS[np.prod] = _summed("product")


def _extreme(function: str) -> Any:
    def apply(
        a: Any,
        axis: Any = None,
        out: Any = None,
        keepdims: Any = False,
        initial: Any = _MISSING,
        where: Any = True,
    ) -> Any:
        _refuse_more(f"np.{function}", where, initial)
        return reduced(function, a, axis, keepdims)

    return apply


FUNCTIONS[np.max] = FUNCTIONS[np.amax] = _extreme("max")
FUNCTIONS[np.min] = FUNCTIONS[np.amin] = _extreme("min")


def _truth(function: str) -> Any:
    def apply(
        a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, where: Any = True
    ) -> Any:
        _refuse_more("np.any or np.all", where)
        if math.prod(a.shape[it] for it in axes_within(axis, a.ndim)) == 0:
            whole = reduced("sum", a, axis, keepdims, _INT)
            return np.not_equal(whole, 0) if function == "max" else np.equal(whole, 0)
        return reduced(function, a, axis, keepdims, np.dtype(bool))

    return apply


FUNCTIONS[np.any], FUNCTIONS[np.all] = _truth("max"), _truth("min")


@implements(np.count_nonzero)
def _count_nonzero(a: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
    return reduced("sum", np.not_equal(a, 0), axis, keepdims, _INT)


def _float_type(a: Any, dtype: Any) -> np.dtype[Any]:
    if dtype is not None:
        return named_type(dtype)
    found: np.dtype[Any] = a.dtype if is_float(a.dtype) else np.dtype(np.float32)
    return found


@implements(np.mean)
def _mean(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    *,
    where: Any = True,
) -> Any:
    _refuse_more("np.mean", where)
    return reduced("mean", a, axis, keepdims, _float_type(a, dtype))


def _above_least(a: Any, axes: tuple[int, ...]) -> Any:
    """Integers less the least of them: exact, and as small as floats of them are fine."""
    return (a - reduced("min", a, axes, True)).astype(f"uint{8 * a.dtype.itemsize}")


@implements(np.var)
def _var(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: Any = False,
    *,
    where: Any = True,
    mean: Any = _MISSING,
    correction: Any = _MISSING,
) -> Any:
    _refuse_more("np.var", where)
    axes, due = axes_within(axis, a.ndim), _float_type(a, dtype)
    if mean is _MISSING and a.dtype.kind in "iu" and a.size:
        a = _above_least(a, axes)
    known = _mean(a, axes, due, keepdims=True) if mean is _MISSING else mean
    away = a.astype(due) - known
    count = math.prod(a.shape[it] for it in axes)
    rest = count - (ddof if correction is _MISSING else correction)
    if rest == count:
        return reduced("mean", away * away, axes, keepdims)
    total = reduced("sum", away * away, axes, keepdims)
    return total * (1 / rest if rest > 0 else math.nan)


@implements(np.std)
def _std(a: Any, *given: Any, **named: Any) -> Any:
    return np.sqrt(_var(a, *given, **named))


@implements(np.ptp)
def _ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    return reduced("max", a, axis, keepdims) - reduced("min", a, axis, keepdims)


@implements(np.average)
def _average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = False
) -> Any:
    if returned:
        refuse("np.average is called with returned", "np.sum of the weights")
    if weights is None:
        return _mean(a, axis, keepdims=keepdims)
    if axis is not None and np.ndim(weights) == 1 and np.ndim(a) > 1:
        weights = np.reshape(
            weights, [-1 if it == axis % np.ndim(a) else 1 for it in range(np.ndim(a))]
        )
    common = result_type((a, weights))[0]
    due = common if is_float(common) else np.dtype(np.float32)
    spread = np.broadcast_to(weights, np.shape(a))
    total = np.sum(spread, axis=axis, keepdims=keepdims, dtype=due)
    return np.sum(np.multiply(a, spread, dtype=due), axis=axis, keepdims=keepdims) / total


def _place(function: str) -> Any:
    def apply(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
        x = a.reshape(-1) if axis is None else a
        (place,) = (0,) if axis is None else axes_within(axis, x.ndim)
        if x.shape[place] == 0:
            raise ValueError(f"{user_line()}: attempt to get {function} of an empty sequence")
        kept = tuple(1 if it == place else n for it, n in enumerate(x.shape))
        shape = kept if keepdims is True else (*x.shape[:place], *x.shape[place + 1 :])
        if axis is None and keepdims is True:
            shape = (1,) * a.ndim
        build = x.tracer.build
        how = {"axis": place, "last": False}
        return made(x.tracer, lambda: build.call(function, [x.value], [(shape, _INT)], **how)[0])

    return apply


FUNCTIONS[np.argmax], FUNCTIONS[np.argmin] = _place("argmax"), _place("argmin")


def _running(function: str) -> Any:
    def apply(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        x = a.reshape(-1) if axis is None else a
        (place,) = (0,) if axis is None else axes_within(axis, x.ndim)
        due = _sum_type(a, dtype)
        tracer = x.tracer
        value = tracer.cast(x.value, due)
        how = {"axis": place, "exclusive": False, "reverse": False}
        return made(
            tracer, lambda: tracer.build.call(function, [value], [(x.shape, due)], **how)[0]
        )

    return apply


FUNCTIONS[np.cumsum] = _running("running_sum")
FUNCTIONS[np.cumprod] = _running("running_product")


@implements(np.diff)
def _diff(
    a: Any, n: int = 1, axis: int = -1, prepend: Any = _MISSING, append: Any = _MISSING
) -> Any:
    if prepend is not _MISSING or append is not _MISSING:
        refuse("np.diff is called with prepend or append", "np.concatenate in front of it")
    (place,) = axes_within(axis, a.ndim)
    for _ in range(n):
        lead = (slice(None),) * place
        a = a[(*lead, slice(1, None))] - a[(*lead, slice(None, -1))]
    return a


@implements(np.linalg.norm)
def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    x = x.astype(_float_type(x, None))
    axes = axes_within(axis, x.ndim)
    is_plain = ord is None or (ord == 2 and len(axes) == 1) or (ord == "fro" and len(axes) == 2)
    if is_plain:
        return np.sqrt(np.sum(x * x, axis=axes, keepdims=keepdims))
    if len(axes) == 1 and ord in (1, math.inf):
        function = np.sum if ord == 1 else np.max
        return function(np.abs(x), axis=axes, keepdims=keepdims)
    refuse(f"np.linalg.norm is called with ord={ord!r}", "None, 1, 2 or inf of vectors, 'fro'")


_METHODS: dict[np.ufunc, Any] = {
    np.add: np.sum,
    np.multiply: np.prod,
    np.maximum: np.max,
    np.minimum: np.min,
    np.logical_and: np.all,
    np.logical_or: np.any,
}


def _reduce(function: Any) -> Any:
    def reduce(
        array: Any, axis: Any = 0, dtype: Any = None, keepdims: Any = False, **named: Any
    ) -> Any:
        how = {} if dtype is None else {"dtype": dtype}
        return FUNCTIONS[function](array, axis=axis, keepdims=keepdims, **how, **named)

    return reduce


METHODS.update({(ufunc, "reduce"): _reduce(it) for ufunc, it in _METHODS.items()})
METHODS[np.add, "accumulate"] = lambda array, axis=0, dtype=None: np.cumsum(array, axis, dtype)
METHODS[np.multiply, "accumulate"] = lambda array, axis=0, dtype=None: np.cumprod(
    array, axis, dtype
)


def shape_of(sequence: Sequence[Any] | int) -> tuple[Any, ...]:
    """A shape as functions take it: a number or several."""
    if isinstance(sequence, TracedArray):
        refuse("a shape is a traced array", "integers")
    return tuple(sequence) if isinstance(sequence, tuple | list) else (sequence,)
