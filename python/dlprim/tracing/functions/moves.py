"""Functions that move elements: shapes, axes, joins, parts, padding."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dlprim.graph.graph import Value
from dlprim.tracing.array import FUNCTIONS, TracedArray, implements
from dlprim.tracing.functions.reductions import axes_within, shape_of
from dlprim.tracing.functions.ufuncs import copied
from dlprim.tracing.refusals import node_name, refuse, user_line
from dlprim.tracing.tracer import Tracer, made, named_type, result_type, tracer_of


def seen(x: Any, make: Callable[[], Value]) -> Any:
    """A view, which shares memory with the array that it is of."""
    y = made(x.tracer, make, x.is_weak)
    x.is_shared = y.is_shared = True
    return y


def _traced(x: Any, tracer: Tracer) -> Any:
    return x if isinstance(x, TracedArray) else TracedArray(tracer, tracer.value(x))


# ---------------------------------------------------------------- shapes and axes


@implements(np.reshape)
def _reshape(a: Any, shape: Any, order: str = "C", *, copy: Any = None) -> Any:
    if order not in ("C", "A"):
        refuse(f"np.reshape is called with order={order!r}", "'C'")
    due = list(shape_of(shape))
    free = [place for place, extent in enumerate(due) if extent == -1]
    if len(free) > 1:
        raise ValueError(f"{user_line()}: can only specify one unknown dimension")
    if free:
        rest = math.prod(it for place, it in enumerate(due) if place != free[0])
        if rest == 0 or a.size % rest:
            listed = f"{list(a.shape)} into shape {due}"
            raise ValueError(f"{user_line()}: cannot reshape array of {listed}")
        due[free[0]] = a.size // rest
    return seen(a, lambda: a.tracer.build.reshape(a.value, tuple(due)))


@implements(np.ravel)
def _ravel(a: Any, order: str = "C") -> Any:
    return _reshape(a, -1 if a.size else 0, order)


@implements(np.transpose, np.permute_dims)
def _transpose(a: Any, axes: Any = None) -> Any:
    order = tuple(range(a.ndim))[::-1] if axes is None else axes_within(axes, a.ndim)
    if len(order) != a.ndim:
        raise ValueError(f"{user_line()}: axes {axes!r} don't match an array of {list(a.shape)}")
    return seen(a, lambda: a.tracer.build.transpose(a.value, order))


@implements(np.swapaxes)
def _swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    one, other = (axes_within(it, a.ndim)[0] for it in (axis1, axis2))
    order = list(range(a.ndim))
    order[one], order[other] = order[other], order[one]
    return _transpose(a, tuple(order))


@implements(np.matrix_transpose)
def _matrix_transpose(x: Any) -> Any:
    return _swapaxes(x, -1, -2)


@implements(np.moveaxis)
def _moveaxis(a: Any, source: Any, destination: Any) -> Any:
    sources, targets = (axes_within(it, a.ndim) for it in (source, destination))
    order = [it for it in range(a.ndim) if it not in sources]
    for to, axis in sorted(zip(targets, sources, strict=True)):
        order.insert(to, axis)
    return _transpose(a, tuple(order))


@implements(np.rollaxis)
def _rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    (axis,) = axes_within(axis, a.ndim)
    start = start + a.ndim if start < 0 else start
    return _moveaxis(a, axis, start - (axis < start))


@implements(np.expand_dims)
def _expand_dims(a: Any, axis: Any) -> Any:
    count = a.ndim + (len(axis) if isinstance(axis, tuple | list) else 1)
    new, old = axes_within(axis, count), iter(a.shape)
    return _reshape(a, tuple(1 if it in new else next(old) for it in range(count)))


@implements(np.squeeze)
def _squeeze(a: Any, axis: Any = None) -> Any:
    if axis is None:
        return _reshape(a, tuple(it for it in a.shape if it != 1))
    axes = axes_within(axis, a.ndim)
    if any(a.shape[it] != 1 for it in axes):
        raise ValueError(
            f"{user_line()}: cannot select an axis to squeeze out which has size not equal to one"
        )
    return _reshape(a, tuple(n for it, n in enumerate(a.shape) if it not in axes))


def _at_least(rank: int) -> Any:
    def apply(*arrays: Any) -> Any:
        tracer = tracer_of(arrays)
        made = [_lifted(_traced(it, tracer), rank) for it in arrays]
        return made[0] if len(made) == 1 else tuple(made)

    return apply


def _lifted(x: Any, rank: int) -> Any:
    shape = x.shape
    if rank == 3 and len(shape) == 2:
        return _reshape(x, (*shape, 1))
    if rank == 3 and len(shape) == 1:
        return _reshape(x, (1, *shape, 1))
    return _reshape(x, (1,) * (rank - len(shape)) + shape)


FUNCTIONS[np.atleast_1d], FUNCTIONS[np.atleast_2d] = _at_least(1), _at_least(2)
FUNCTIONS[np.atleast_3d] = _at_least(3)


@implements(np.broadcast_to)
def _broadcast_to(array: Any, shape: Any, subok: bool = False) -> Any:
    due = shape_of(shape)
    return seen(array, lambda: array.tracer.build.expand(array.value, due))


@implements(np.broadcast_arrays)
def _broadcast_arrays(*arrays: Any, subok: bool = False) -> Any:
    tracer = tracer_of(arrays)
    shape = np.broadcast_shapes(*map(np.shape, arrays))
    return tuple(_broadcast_to(_traced(it, tracer), shape) for it in arrays)


# ---------------------------------------------------------------- joins


@implements(np.concatenate, np.concat)
def _concatenate(
    arrays: Any, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind"
) -> Any:
    arrays = list(arrays)
    if axis is None:
        arrays, axis = [np.ravel(it) for it in arrays], 0
    tracer = tracer_of(arrays)
    due = result_type(arrays)[0] if dtype is None else named_type(dtype)
    values = [tracer.value(it, due) for it in arrays]
    if any(len(it.shape) != len(values[0].shape) or not it.shape for it in values):
        listed = " and ".join(str(list(it.shape)) for it in values)
        raise ValueError(f"{user_line()}: arrays of {listed} cannot be joined along an axis")
    (place,) = axes_within(axis, len(values[0].shape))
    y = made(tracer, lambda: tracer.build.concat(values, place))
    return copied(y)


@implements(np.stack)
def _stack(
    arrays: Any, axis: int = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind"
) -> Any:
    tracer = tracer_of(arrays := list(arrays))
    parts = [_traced(it, tracer) for it in arrays]
    if any(it.shape != parts[0].shape for it in parts):
        raise ValueError(f"{user_line()}: all input arrays must have the same shape")
    due = result_type(arrays)[0] if dtype is None else dtype
    return _concatenate([np.expand_dims(it, axis) for it in parts], axis, dtype=due)


def _joined(rank: int, axis: int) -> Any:
    def apply(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
        tracer = tracer_of(tup := list(tup))
        parts = [_lifted(_traced(it, tracer), rank) for it in tup]
        place = 0 if rank == 1 and parts[0].ndim == 1 else axis
        due = result_type(tup)[0] if dtype is None else dtype
        return _concatenate(parts, place, dtype=due)

    return apply


FUNCTIONS[np.vstack], FUNCTIONS[np.hstack] = _joined(2, 0), _joined(1, 1)
FUNCTIONS[np.dstack] = _joined(3, 2)


@implements(np.column_stack)
def _column_stack(tup: Any) -> Any:
    tracer = tracer_of(tup := list(tup))
    parts = [_traced(it, tracer) for it in tup]
    return _concatenate([it if it.ndim > 1 else _reshape(it, (-1, 1)) for it in parts], 1)


@implements(np.append)
def _append(arr: Any, values: Any, axis: Any = None) -> Any:
    return _concatenate((arr, values), axis)


@implements(np.array_split)
def _array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    (place,) = axes_within(axis, ary.ndim)
    extent = ary.shape[place]
    if isinstance(indices_or_sections, int):
        least, more = divmod(extent, indices_or_sections)
        counts = [least + (it < more) for it in range(indices_or_sections)]
        ends = [sum(counts[: it + 1]) for it in range(indices_or_sections - 1)]
    else:
        ends = list(indices_or_sections)
    begins, lead = [0, *ends], (slice(None),) * place
    return [
        ary[(*lead, slice(begin, end))] for begin, end in zip(begins, [*ends, extent], strict=True)
    ]


@implements(np.split)
def _split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    (place,) = axes_within(axis, ary.ndim)
    if isinstance(indices_or_sections, int) and ary.shape[place] % indices_or_sections:
        raise ValueError(f"{user_line()}: array split does not result in an equal division")
    return _array_split(ary, indices_or_sections, place)


FUNCTIONS[np.vsplit] = lambda ary, parts: _split(ary, parts, 0)
FUNCTIONS[np.hsplit] = lambda ary, parts: _split(ary, parts, 1 if ary.ndim > 1 else 0)


@implements(np.tile)
def _tile(A: Any, reps: Any) -> Any:
    repeats = shape_of(reps)
    rank = max(len(repeats), A.ndim)
    repeats = (1,) * (rank - len(repeats)) + repeats
    shape = (1,) * (rank - A.ndim) + A.shape
    spread = [it for pair in zip(repeats, shape, strict=True) for it in pair]
    alone = [it for extent in shape for it in (1, extent)]
    whole = _broadcast_to(_reshape(A, tuple(alone)), tuple(spread))
    return copied(_reshape(whole, tuple(n * r for n, r in zip(shape, repeats, strict=True))))


@implements(np.repeat)
def _repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    if isinstance(repeats, TracedArray):
        refuse("np.repeat takes a traced array for repeats", "integers")
    x, place = (np.ravel(a), 0) if axis is None else (a, axes_within(axis, a.ndim)[0])
    places = np.repeat(np.arange(x.shape[place]), repeats)
    return _take(x, places, place)


@implements(np.flip)
def _flip(m: Any, axis: Any = None) -> Any:
    axes = axes_within(axis, m.ndim)
    return m[tuple(slice(None, None, -1 if it in axes else 1) for it in range(m.ndim))]


FUNCTIONS[np.flipud], FUNCTIONS[np.fliplr] = lambda m: _flip(m, 0), lambda m: _flip(m, 1)


@implements(np.rot90)
def _rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    for _ in range(k % 4):
        m = _swapaxes(_flip(m, axes[1]), *axes)
    return m


@implements(np.roll)
def _roll(a: Any, shift: Any, axis: Any = None) -> Any:
    if axis is None:
        return _reshape(_roll(np.ravel(a), shift, 0), a.shape)
    for one, place in zip(
        shape_of(shift) * (1 if isinstance(shift, tuple) else len(shape_of(axis))),
        shape_of(axis),
        strict=True,
    ):
        (it,) = axes_within(place, a.ndim)
        if a.shape[it]:
            places = (np.arange(a.shape[it]) - one) % a.shape[it]
            lead = (slice(None),) * it
            cut = int(places[0])
            a = _concatenate([a[(*lead, slice(cut, None))], a[(*lead, slice(0, cut))]], it)
    return a


# ---------------------------------------------------------------- parts


@implements(np.take)
def _take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    if mode != "raise":
        refuse(f"np.take is called with mode={mode!r}", "'raise'")
    tracer = tracer_of((a, indices))
    x = _traced(a, tracer)
    x, place = (np.ravel(x), 0) if axis is None else (x, axes_within(axis, x.ndim)[0])
    return x[(*(slice(None),) * place, indices)]


@implements(np.take_along_axis)
def _take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Any:
    tracer = tracer_of((arr, indices))
    x, places = _traced(arr, tracer), _traced(indices, tracer)
    if axis is None:
        x, places, axis = np.ravel(x), np.ravel(places), 0
    (place,) = axes_within(axis, x.ndim)
    shape = np.broadcast_shapes(
        *((*it.shape[:place], 1, *it.shape[place + 1 :]) for it in (x, places))
    )
    x = _broadcast_to(x, (*shape[:place], x.shape[place], *shape[place + 1 :]))
    places = _broadcast_to(places, (*shape[:place], places.shape[place], *shape[place + 1 :]))
    values = [x.value, tracer.cast(places.value, np.dtype(np.int64))]
    results = [(places.shape, x.dtype)]
    return made(
        tracer, lambda: tracer.build.call("gather_elements", values, results, axis=place)[0]
    )


@implements(np.diagonal)
def _diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    x = _moveaxis(a, (axis1, axis2), (-2, -1))
    rows, columns = x.shape[-2:]
    first = -offset * columns if offset < 0 else offset
    count = max(0, min(rows - max(0, -offset), columns - max(0, offset)))
    flat = _reshape(x, (*x.shape[:-2], rows * columns))
    last = first + (count - 1) * (columns + 1) + 1
    return flat[..., first : max(first, last) : columns + 1]


@implements(np.trace)
def _trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Any:
    return np.sum(_diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype)


@implements(np.diag)
def _diag(v: Any, k: int = 0) -> Any:
    if v.ndim == 2:
        return _diagonal(v, k)
    return np.where(np.eye(len(v), dtype=bool), v[:, None], 0) if k == 0 else _refuse_diag()


def _refuse_diag() -> Any:
    refuse("np.diag makes a matrix of a traced vector beside the diagonal", "k = 0")


def _triangle(function: Any) -> Any:
    def apply(m: Any, k: int = 0) -> Any:
        return np.where(function(np.ones(m.shape[-2:], bool), k), m, 0)

    return apply


FUNCTIONS[np.tril], FUNCTIONS[np.triu] = _triangle(np.tril), _triangle(np.triu)


@implements(np.pad)
def _pad(array: Any, pad_width: Any, mode: str = "constant", **named: Any) -> Any:
    known = {"constant", "edge", "reflect", "wrap"}
    value = named.pop("constant_values", 0)
    if mode not in known or named or isinstance(value, tuple | list):
        refuse(f"np.pad is called with mode={mode!r} or other arguments", ", ".join(sorted(known)))
    widths = np.broadcast_to(np.asarray(pad_width), (array.ndim, 2))
    if isinstance(pad_width, Sequence) and len(pad_width) == 1 and np.ndim(pad_width) == 2:
        widths = np.broadcast_to(np.asarray(pad_width[0]), (array.ndim, 2))
    listed = tuple((int(a), int(b)) for a, b in widths)
    tracer = array.tracer
    values = [array.value]
    if mode == "constant":
        values.append(tracer.value(value, array.dtype))
    return made(tracer, lambda: tracer.build.emit("pad", values, widths=listed, mode=mode)[0])


# ---------------------------------------------------------------- methods of arrays


def _astype(x: Any, dtype: Any, *given: Any, **named: Any) -> Any:
    return TracedArray(x.tracer, x.tracer.cast(x.value, named_type(dtype)))


def _flatten(x: Any, order: str = "C") -> Any:
    return copied(_ravel(x, order))


def _reshaped(x: Any, *shape: Any, **named: Any) -> Any:
    return _reshape(x, shape[0] if len(shape) == 1 else shape, **named)


def _transposed(x: Any, *axes: Any) -> Any:
    return _transpose(x, None if not axes else axes[0] if len(axes) == 1 else axes)


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
