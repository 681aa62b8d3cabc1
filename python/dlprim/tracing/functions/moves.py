"""Functions that move elements: shapes, axes, joins, parts, padding."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dlprim.graph.graph import Value
from dlprim.tracing.array import FUNCTIONS, TracedArray, implements
from dlprim.tracing.functions.reductions import axes_within, shape_of
from dlprim.tracing.refusals import refuse, user_line
from dlprim.tracing.tracer import Tracer, made, tracer_of


def seen(x: Any, make: Callable[[], Value]) -> Any:
    """A view, which shares memory with the array that it is of."""
    y = made(x.tracer, make, x.is_weak)
    x.is_shared = y.is_shared = True
    return y


def lifted(x: Any, tracer: Tracer) -> Any:
    return x if isinstance(x, TracedArray) else TracedArray(tracer, tracer.value(x))


# ---------------------------------------------------------------- shapes and axes


@implements(np.reshape)
def reshape(a: Any, shape: Any, order: str = "C", *, copy: Any = None) -> Any:
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
def ravel(a: Any, order: str = "C") -> Any:
    return reshape(a, -1 if a.size else 0, order)


@implements(np.transpose, "permute_dims")
def transpose(a: Any, axes: Any = None) -> Any:
    order = tuple(range(a.ndim))[::-1] if axes is None else axes_within(axes, a.ndim)
    if len(order) != a.ndim:
        raise ValueError(f"{user_line()}: axes {axes!r} don't match an array of {list(a.shape)}")
    return seen(a, lambda: a.tracer.build.transpose(a.value, order))


@implements(np.swapaxes)
def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    one, other = (axes_within(it, a.ndim)[0] for it in (axis1, axis2))
    order = list(range(a.ndim))
    order[one], order[other] = order[other], order[one]
    return transpose(a, tuple(order))


@implements("matrix_transpose")
def _matrix_transpose(x: Any) -> Any:
    return swapaxes(x, -1, -2)


@implements(np.moveaxis)
def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    sources, targets = (axes_within(it, a.ndim) for it in (source, destination))
    order = [it for it in range(a.ndim) if it not in sources]
    for to, axis in sorted(zip(targets, sources, strict=True)):
        order.insert(to, axis)
    return transpose(a, tuple(order))


@implements(np.rollaxis)
def _rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    (axis,) = axes_within(axis, a.ndim)
    start = start + a.ndim if start < 0 else start
    return moveaxis(a, axis, start - (axis < start))


@implements(np.expand_dims)
def _expand_dims(a: Any, axis: Any) -> Any:
    count = a.ndim + (len(axis) if isinstance(axis, tuple | list) else 1)
    new, old = axes_within(axis, count), iter(a.shape)
    return reshape(a, tuple(1 if it in new else next(old) for it in range(count)))


@implements(np.squeeze)
def _squeeze(a: Any, axis: Any = None) -> Any:
    if axis is None:
        return reshape(a, tuple(it for it in a.shape if it != 1))
    axes = axes_within(axis, a.ndim)
    if any(a.shape[it] != 1 for it in axes):
        raise ValueError(
            f"{user_line()}: cannot select an axis to squeeze out which has size not equal to one"
        )
    return reshape(a, tuple(n for it, n in enumerate(a.shape) if it not in axes))


def _at_least(rank: int) -> Any:
    def apply(*arrays: Any) -> Any:
        tracer = tracer_of(arrays)
        made = [of_rank(lifted(it, tracer), rank) for it in arrays]
        return made[0] if len(made) == 1 else tuple(made)

    return apply


def of_rank(x: Any, rank: int) -> Any:
    shape = x.shape
    if rank == 3 and len(shape) == 2:
        return reshape(x, (*shape, 1))
    if rank == 3 and len(shape) == 1:
        return reshape(x, (1, *shape, 1))
    return reshape(x, (1,) * (rank - len(shape)) + shape)


FUNCTIONS[np.atleast_1d], FUNCTIONS[np.atleast_2d] = _at_least(1), _at_least(2)
FUNCTIONS[np.atleast_3d] = _at_least(3)


@implements(np.broadcast_to)
def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Any:
    due = shape_of(shape)
    return seen(array, lambda: array.tracer.build.expand(array.value, due))


@implements(np.broadcast_arrays)
def _broadcast_arrays(*arrays: Any, subok: bool = False) -> Any:
    tracer = tracer_of(arrays)
    shape = np.broadcast_shapes(*map(np.shape, arrays))
    return tuple(broadcast_to(lifted(it, tracer), shape) for it in arrays)
