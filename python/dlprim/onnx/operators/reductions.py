"""Reductions: one number of each row, or the places of the least and the greatest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dlprim.graph import Builder, Value
from dlprim.graph.expressions import operand
from dlprim.onnx.operators.shapes import axes_of, axis_of, numbers, one_integer
from dlprim.onnx.registry import RefusedError, operator

X, Y = operand(0), operand(1)

Reduction = Callable[[Builder, Value, tuple[int, ...], bool], Value]


def _plain(function: str) -> Reduction:
    def reduced(builder: Builder, x: Value, axes: tuple[int, ...], keeps: bool) -> Value:
        return builder.reduce(function, x, axes, keeps)

    return reduced


def _l1(builder: Builder, x: Value, axes: tuple[int, ...], keeps: bool) -> Value:
    return builder.reduce("sum", builder.apply("abs", x), axes, keeps)


def _sum_square(builder: Builder, x: Value, axes: tuple[int, ...], keeps: bool) -> Value:
    return builder.reduce("sum", builder.map(("multiply", X, X), x), axes, keeps)


def _l2(builder: Builder, x: Value, axes: tuple[int, ...], keeps: bool) -> Value:
    return builder.apply("sqrt", _sum_square(builder, x, axes, keeps))


def _log_sum(builder: Builder, x: Value, axes: tuple[int, ...], keeps: bool) -> Value:
    return builder.apply("log", builder.reduce("sum", x, axes, keeps))


def _log_sum_exp(builder: Builder, x: Value, axes: tuple[int, ...], keeps: bool) -> Value:
    """The greatest is taken away first, unless it is infinite."""
    highest = builder.reduce("max", x, axes, True)
    finite = builder.map(
        ("where", ("less", ("abs", X), ("number", np.inf)), X, ("number", 0.0)), highest
    )
    power = builder.map(("exp", ("subtract", X, Y)), x, finite)
    total = builder.apply("log", builder.reduce("sum", power, axes, True))
    result = builder.map(("add", X, Y), total, finite)
    return result if keeps else builder.reduce("sum", result, axes, False)


_REDUCTIONS: dict[str, tuple[Reduction, int]] = {
    "ReduceL1": (_l1, 18),
    "ReduceL2": (_l2, 18),
    "ReduceLogSum": (_log_sum, 18),
    "ReduceLogSumExp": (_log_sum_exp, 18),
    "ReduceMax": (_plain("max"), 18),
    "ReduceMean": (_plain("mean"), 18),
    "ReduceMin": (_plain("min"), 18),
    "ReduceProd": (_plain("product"), 18),
    "ReduceSum": (_plain("sum"), 13),
    "ReduceSumSquare": (_sum_square, 18),
}


def _reduced(
    builder: Builder, reduction: Reduction, x: Value, axes: Sequence[int] | None, keeps: int
) -> Value:
    """Halves are reduced in float32, and rounded once."""
    rank = len(x.shape)
    within = tuple(range(rank)) if axes is None else tuple(sorted(axes_of(axes, rank)))
    is_half = x.dtype.name in ("float16", "bfloat16")
    result = reduction(builder, builder.cast(x, "float32") if is_half else x, within, bool(keeps))
    return builder.cast(result, x.dtype)


def _register(name: str, reduction: Reduction, since: int) -> None:
    @operator(name, since=since)
    def with_input(
        builder: Builder,
        x: Value,
        axes: Value | None = None,
        *,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Value:
        listed = None if axes is None else numbers(builder, axes)
        if not listed:
            listed = () if noop_with_empty_axes else None
        return _reduced(builder, reduction, x, listed, keepdims)

    @operator(name)
    def with_attribute(
        builder: Builder, x: Value, *, axes: tuple[int, ...] | None = None, keepdims: int = 1
    ) -> Value:
        return _reduced(builder, reduction, x, axes, keepdims)


for _name, (_reduction, _since) in _REDUCTIONS.items():
    _register(_name, _reduction, _since)


# ---------------------------------------------------------------- places


def _register_places(name: str, function: str) -> None:
    @operator(name, since=12)
    def places(
        builder: Builder,
        x: Value,
        *,
        axis: int = 0,
        keepdims: int = 1,
        select_last_index: int = 0,
    ) -> Value:
        axis = axis_of(axis, len(x.shape))
        if x.shape[axis] == 0:
            raise RefusedError(f"axis {axis} of {list(x.shape)} has no elements")
        kept = (1,) if keepdims else ()
        shape = x.shape[:axis] + kept + x.shape[axis + 1 :]
        return builder.call(
            function, [x], [(shape, np.int64)], axis=axis, last=bool(select_last_index)
        )[0]

    @operator(name)
    def places_1(builder: Builder, x: Value, *, axis: int = 0, keepdims: int = 1) -> Value:
        return places(builder, x, axis=axis, keepdims=keepdims)


_register_places("ArgMax", "argmax")
_register_places("ArgMin", "argmin")


@operator("TopK", since=11)
def top_k(
    builder: Builder, x: Value, k: Value, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Value, ...]:
    """The results are sorted whether that is asked for or not."""
    axis = axis_of(axis, len(x.shape))
    count = one_integer(builder, k)
    if not 0 <= count <= x.shape[axis]:
        raise RefusedError(f"k is {count}, expected 0 to {x.shape[axis]}")
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    results = [(shape, x.dtype), (shape, np.dtype(np.int64))]
    return builder.call("top_k", [x], results, axis=axis, k=count, largest=bool(largest))


@operator("TopK", since=10)
def top_k_10(builder: Builder, x: Value, k: Value, *, axis: int = -1) -> tuple[Value, ...]:
    return top_k(builder, x, k, axis=axis)


def _register_running(name: str, function: str, since: int) -> None:
    @operator(name, since=since)
    def running(
        builder: Builder, x: Value, axis: Value, *, exclusive: int = 0, reverse: int = 0
    ) -> Value:
        place = one_integer(builder, axis)
        return builder.call(
            function,
            [x],
            [(x.shape, x.dtype)],
            axis=axis_of(place, len(x.shape)),
            exclusive=bool(exclusive),
            reverse=bool(reverse),
        )[0]


_register_running("CumSum", "running_sum", 11)
_register_running("CumProd", "running_product", 26)
