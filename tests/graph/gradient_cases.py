"""For every operator that has a gradient, nodes of it with drawn extents: elements, rows, moves.

A case makes its inputs (floats of the type that is asked for) and results with a `Builder`; what
it draws it draws from `drawing.RNG`, which its caller seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dlprim.graph import Builder, Value
from dlprim.graph.expressions import FUNCTIONS, operand
from drawing import RNG

Case = Callable[[Builder, str], list[Value]]
CASES: dict[str, list[Case]] = {}
Shape = Sequence[int]


def of(*operators: str) -> Callable[[Case], Case]:
    """Makes a function a case of operators, or of functions of `call`."""

    def listed(case: Case) -> Case:
        for operator in operators:
            CASES.setdefault(operator, []).append(case)
        return case

    return listed


def number(low: int, high: int) -> int:
    return int(RNG.integers(low, high + 1))


def extents(count: int, low: int = 1, high: int = 5) -> list[int]:
    return [number(low, high) for _ in range(count)]


def given(b: Builder, dtype: str, *shapes: Shape) -> list[Value]:
    return [b.input(f"x{place}", shape, dtype) for place, shape in enumerate(shapes)]


def some(*values: Any) -> Any:
    return values[number(0, len(values) - 1)]


# ---------------------------------------------------------------- elements


def _spread(shape: Shape) -> list[int]:
    """A shape that is broadcast to this one."""
    cut = list(shape[number(0, len(shape)) :])
    return [some(1, extent) for extent in cut]


def map_case(function: str, count: int) -> Case:
    """Of operands that are broadcast, within where the function has a derivative."""

    def case(b: Builder, dtype: str) -> list[Value]:
        whole = extents(3)
        values = given(b, dtype, whole, *(_spread(whole) for _ in range(count - 1)))
        operands: list[Any] = [operand(place) for place in range(count)]
        if function in ("acos", "asin", "atanh"):
            operands = [("multiply", ("number", 0.9), ("tanh", it)) for it in operands]
        elif function in ("acosh", "log", "power", "sqrt"):
            operands = [("add", ("number", 1.1), ("abs", it)) for it in operands]
        elif function in ("fmod", "remainder", "divide", "reciprocal"):
            away = (
                "where",
                ("less", operands[-1], ("number", 0.0)),
                ("number", -0.7),
                ("number", 0.7),
            )
            operands[-1] = ("add", operands[-1], away)
        elif function == "where":
            operands[0] = ("less", operands[0], ("number", 0.2))
        return [b.map((function, *operands), *values)]

    return case


def differentiable_functions() -> list[tuple[str, int]]:
    """Those whose derivative is not zero, with how many operands they have."""
    texts = {name: row.text for name, row in FUNCTIONS.items() if row.text and not row.is_condition}
    steps = ("ceil", "floor", "round", "sign")
    counts = {
        name: 1 + max(int(it) for it in "012" if f"{{{it}}}" in text)
        for name, text in texts.items()
    }
    return [(name, count) for name, count in counts.items() if name not in steps]


@of("map")
def several_functions(b: Builder, dtype: str) -> list[Value]:
    """One expression of many, that reads an operand more than once."""
    x, y = given(b, dtype, (3, 4), (4,))
    sums = ("add", ("multiply", operand(0), operand(1)), ("tanh", operand(0)))
    return [b.map(("maximum", ("power", sums, ("number", 2.0)), ("exp", operand(1))), x, y)]


@of("map")
def a_conversion_and_numbers(b: Builder, dtype: str) -> list[Value]:
    (x,) = given(b, dtype, extents(2))
    wide = b.map(("subtract", ("number", 3.0), operand(0)), x, dtype="float64")
    return [b.map(("power", operand(0), ("number", 3.0)), b.cast(wide, dtype))]


@of("reduce")
def reductions(b: Builder, dtype: str) -> list[Value]:
    shape = extents(4)
    (x,) = given(b, dtype, shape)
    made = []
    for function in ("sum", "mean", "max", "min", "product"):
        axes = [axis for axis in range(4) if number(0, 1)]
        made.append(b.reduce(function, x, axes, keepdims=bool(number(0, 1))))
    return made


@of("reduce")
def products_with_zeros(b: Builder, dtype: str) -> list[Value]:
    (x,) = given(b, dtype, (3, 4))
    kept = np.ones((3, 4))
    kept[0, 1] = kept[1, 0] = kept[1, 3] = 0
    return [b.reduce("product", b.apply("multiply", x, b.constant(kept.astype(dtype))), (1,))]


@of("softmax")
def softmaxes(b: Builder, dtype: str) -> list[Value]:
    (x,) = given(b, dtype, extents(3, 1, 7))
    return [b.emit("softmax", [x], axis=number(-3, 2), log=log)[0] for log in (False, True)]


@of("normalize")
def row_norms(b: Builder, dtype: str) -> list[Value]:
    shape, axes = extents(3, 2, 6), number(1, 2)
    x, weight, bias = given(b, dtype, shape, shape[3 - axes :], shape[3 - axes :])
    how = {"axes": axes, "epsilon": 1e-3}
    return [
        b.emit("normalize", [x, weight, bias], rms=False, **how)[0],
        b.emit("normalize", [x, weight, None], rms=True, **how)[0],
        b.emit("normalize", [x, None, None], rms=bool(number(0, 1)), **how)[0],
    ]


@of("add_normalize")
def norms_of_sums(b: Builder, dtype: str) -> list[Value]:
    shape = extents(2, 2, 6)
    x, residual, weight = given(b, dtype, shape, shape, shape[1:])
    inputs = [x, residual, weight, None]
    return list(b.emit("add_normalize", inputs, axes=1, epsilon=1e-3, rms=bool(number(0, 1))))


@of("softmax_gradient")
def gradients_of_softmaxes(b: Builder, dtype: str) -> list[Value]:
    shape = extents(3, 1, 7)
    how = {"axis": number(-3, 2), "log": bool(number(0, 1))}
    return list(b.emit("softmax_gradient", given(b, dtype, shape, shape), **how))


@of("normalize_gradient")
def gradients_of_norms(b: Builder, dtype: str) -> list[Value]:
    """With a weight and what is added, or without."""
    shape, axes = extents(3, 2, 6), number(1, 2)
    diff, x, weight, addend = given(b, dtype, shape, shape, shape[3 - axes :], shape)
    how = {"axes": axes, "epsilon": 1e-3}
    return [
        *b.emit("normalize_gradient", [diff, x, weight, addend], rms=False, **how),
        *b.emit("normalize_gradient", [diff, x, weight, None], rms=True, **how),
        b.emit("normalize_gradient", [diff, x, None, addend], rms=bool(number(0, 1)), **how)[0],
    ]


@of("cross_entropy")
def losses_of_classes(b: Builder, dtype: str) -> list[Value]:
    """Of which the gradient is a result, too; some rows do not count."""
    shape = extents(number(1, 2), 2, 4)
    logits, weight = given(b, dtype, (*shape, 5), (5,))
    drawn = RNG.integers(0, 5, shape)
    drawn.reshape(-1)[0] = 7
    targets = b.constant(drawn, "targets")
    weight = b.apply("exp", weight)
    made = []
    for reduction in ("none", "mean", "sum"):
        inputs = [logits, targets, some(weight, None)]
        how = {"ignored": 7, "reduction": reduction, "smoothing": some(0.0, 0.3)}
        made += b.emit("cross_entropy", inputs, **how)
    return [made[0], *made[2:]]


@of("cross_entropy")
def losses_alone(b: Builder, dtype: str) -> list[Value]:
    (logits,) = given(b, dtype, (6, 9))
    targets = b.constant(RNG.integers(0, 9, 6), "targets")
    how = {"ignored": -100, "smoothing": 0.1}
    reductions = ("none", "mean", "sum")
    inputs = [logits, targets]
    return [b.emit("cross_entropy", inputs, reduction=it, **how)[0] for it in reductions]


@of("dropout")
def dropped_elements(b: Builder, dtype: str) -> list[Value]:
    (x,) = given(b, dtype, extents(2, 1, 12))
    offset = b.constant(np.array(number(-3, 3)), "offset")
    return [b.emit("dropout", [x, offset], p=it, seed=2**63 + 5)[0] for it in (0.0, 0.4, 1.0)]


@of("group_norm")
def group_norms(b: Builder, dtype: str) -> list[Value]:
    groups, each = number(1, 3), number(2, 3)
    channels = groups * each
    x, weight, bias = given(
        b, dtype, (2, channels, *extents(number(1, 2))), (channels,), (channels,)
    )
    inputs = [x, *some((weight, bias), (None, None), (weight, None))]
    return [b.emit("group_norm", inputs, groups=groups, epsilon=1e-3)[0]]


@of("batch_norm")
def batch_norms(b: Builder, dtype: str) -> list[Value]:
    """Statistics are results, too."""
    channels = number(1, 4)
    x, weight, bias = given(
        b, dtype, (3, channels, *extents(number(0, 2))), (channels,), (channels,)
    )
    return list(b.emit("batch_norm", [x, *some((weight, bias), (None, None))], epsilon=1e-3))


@of("batch_norm_gradient")
def gradients_of_batch_norms(b: Builder, dtype: str) -> list[Value]:
    """With a residual and relu behind the norm, of a gradient that is a sum."""
    channels = number(1, 4)
    shape = (3, channels, *extents(number(0, 2)))
    diff, x, y, addend, mean, root, weight = given(b, dtype, *[shape] * 4, *[(channels,)] * 3)
    variance = b.map(("add", ("multiply", operand(0), operand(0)), ("number", 0.5)), root)
    inputs = [diff, x, mean, variance, some(weight, None), some(y, None), some(addend, None)]
    has_residual = inputs[-1] is not None or bool(number(0, 1))
    return list(b.emit("batch_norm_gradient", inputs, epsilon=1e-3, residual=has_residual))


@of("batch_norm")
def batch_norms_with_what_follows(b: Builder, dtype: str) -> list[Value]:
    channels = number(1, 4)
    shape = (3, channels, *extents(2))
    x, weight, bias, residual = given(b, dtype, shape, (channels,), (channels,), shape)
    inputs = [x, weight, bias, residual]
    return list(b.emit("batch_norm", inputs, epsilon=1e-3, activation=some("relu", None)))


CASES["batch_norm_gradient"] *= 4


# ---------------------------------------------------------------- moves


@of("reshape", "transpose", "expand", "concat")
def moves(b: Builder, dtype: str) -> list[Value]:
    p, q, r = extents(3)
    x, y = given(b, dtype, (p, q, 1), (1, p, r))
    turned = b.transpose(x, [int(it) for it in RNG.permutation(3)])
    wide = b.expand(y, (2, q, p, r))
    joined = b.concat([wide, b.reshape(wide, (2, q, p, r)), b.expand(y, (2, 1, p, r))], 1)
    return [b.reshape(turned, (q * p,)), joined]


def _range(extent: int) -> tuple[int, int, int]:
    """Start, count and step within an axis."""
    step, count = number(1, 3), number(1, extent)
    count = min(count, (extent - 1) // step + 1)
    start = number(0, extent - 1 - (count - 1) * step)
    return some((start, count, step), (start + (count - 1) * step, count, -step))


@of("slice")
def slices(b: Builder, dtype: str) -> list[Value]:
    shape = extents(3, 1, 7)
    (x,) = given(b, dtype, shape)
    made = [b.slice(x, *zip(*map(_range, shape), strict=True)) for _ in range(3)]
    return [*made, b.slice(x, (0, 0, 0), (0, *shape[1:]), (1, 1, 1))]


@of("pad")
def pads(b: Builder, dtype: str) -> list[Value]:
    x, value = given(b, dtype, extents(2, 3, 5), (1,))
    made = []
    for mode in ("constant", "edge", "reflect", "wrap"):
        widths = tuple((number(-1, 2), number(-1, 2)) for _ in range(2))
        inputs = [x, value] if mode == "constant" else [x]
        made.append(b.emit("pad", inputs, mode=mode, widths=widths)[0])
    return made


@of("gather", "scatter_add")
def gathers(b: Builder, dtype: str) -> list[Value]:
    """Places below zero, and some that are taken more than once."""
    shape, axis = extents(3, 1, 4), number(0, 2)
    (x,) = given(b, dtype, shape)
    drawn = RNG.integers(-shape[axis], shape[axis], extents(number(0, 2)))
    places = b.constant(np.asarray(drawn, np.int64))
    taken = b.gather(x, places, axis)
    return [taken, *b.emit("scatter_add", [places, taken], axis=axis, extent=shape[axis] + 1)]


@of("resample")
def resamplings(b: Builder, dtype: str) -> list[Value]:
    shape, axis, taps = extents(3, 1, 4), number(0, 2), (number(1, 5), 2)
    x, weights = given(b, dtype, shape, taps)
    places = b.constant(RNG.integers(0, shape[axis], taps))
    return list(b.emit("resample", [x, places, weights], axis=axis))
