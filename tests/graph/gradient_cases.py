"""For every operator that has a gradient, nodes of it with drawn extents.

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


# ---------------------------------------------------------------- products


@of("matmul")
def matrix_products(b: Builder, dtype: str) -> list[Value]:
    n, m, k, p = extents(4)
    shapes = some(
        ((m, k), (k, p)),
        ((n, m, k), (k, p)),
        ((n, m, k), (n, k, p)),
        ((1, m, k), (n, k, p)),
        ((2, 1, m, k), (n, k, p)),
        ((k,), (n, k, p)),
        ((n, m, k), (k,)),
        ((k,), (k,)),
    )
    return [b.matmul(*given(b, dtype, *shapes))]


CASES["matmul"] *= 6


@of("matmul")
def finished_products(b: Builder, dtype: str) -> list[Value]:
    n, k, p = extents(3)
    inputs = given(b, dtype, (n, k), (k, p), (p,))
    return [b.emit("matmul", inputs, activation=it)[0] for it in ("gelu", "relu", None)]


@of("einsum")
def sums_of_products(b: Builder, dtype: str) -> list[Value]:
    """Letters that one term has alone, that it repeats, and axes of one element."""
    i, j, k = extents(3, 2, 4)
    x, y, z = given(b, dtype, (i, j), (j, k), (j, j, i))
    w = b.slice(y, (0, 0), (1, k), (1, 1))
    made = [
        ("ij,jk->ki", [x, y]),
        ("ij,jk,jja->ia", [x, y, z]),
        ("ij->j", [x]),
        ("jji->ij", [z]),
        ("ij,kl->il", [x, y]),
        ("ij,jk->ik", [x, w]),
    ]
    return [b.emit("einsum", values, equation=equation)[0] for equation, values in made]


def _geometry(spatial: int) -> dict[str, Any]:
    return {
        "strides": tuple(extents(spatial, 1, 2)),
        "dilations": tuple(extents(spatial, 1, 2)),
        "padding": tuple((number(0, 2), number(0, 2)) for _ in range(spatial)),
    }


@of("convolution", "convolution_weights_gradient")
def convolutions(b: Builder, dtype: str) -> list[Value]:
    spatial, groups = number(1, 3), number(1, 2)
    kernel = extents(spatial, 1, 3)
    c, k = groups * number(1, 3), groups * number(1, 3)
    how = _geometry(spatial)
    covered = [d * (r - 1) + 1 for d, r in zip(how["dilations"], kernel, strict=True)]
    images = [n + number(0, 4) for n in covered]
    x, w, bias = given(b, dtype, (2, c, *images), (k, c // groups, *kernel), (k,))
    y = b.emit("convolution", [x, w, bias], groups=groups, **how)[0]
    by = b.emit("convolution_weights_gradient", [x, y], groups=groups, kernel=tuple(kernel), **how)
    return [y, *by]


CASES["convolution"] *= 4


@of("convolution")
def a_whole_block(b: Builder, dtype: str) -> list[Value]:
    """Bias, residual and activation in one node, of the sizes of a network's stem."""
    x, w, bias = given(b, dtype, (1, 3, 23, 23), (4, 3, 7, 7), (4,))
    how = {"groups": 1, "strides": (2, 2), "dilations": (1, 1), "padding": ((3, 3), (3, 3))}
    y = b.emit("convolution", [x, w, bias], **how)[0]
    return [b.emit("convolution", [x, w, bias, y], activation="swish", **how)[0]]


@of("convolution")
def channels_by_themselves(b: Builder, dtype: str) -> list[Value]:
    x, w = given(b, dtype, (2, 6, 7, 7), (6, 1, 3, 3))
    how = {"groups": 6, "strides": (1, 1), "dilations": (1, 1), "padding": ((1, 1), (1, 1))}
    return list(b.emit("convolution", [x, w], **how))


@of("transposed_convolution")
def transposed_convolutions(b: Builder, dtype: str) -> list[Value]:
    spatial, groups = number(1, 3), number(1, 2)
    kernel = extents(spatial, 2, 3)
    c, k = groups * number(1, 2), number(1, 2)
    how = _geometry(spatial)
    how["padding"] = tuple((number(0, 1), number(0, 1)) for _ in range(spatial))
    pairs = zip(how["strides"], how["dilations"], strict=True)
    how["output_padding"] = tuple(number(0, max(pair) - 1) for pair in pairs)
    images = extents(spatial, 2, 4)
    x, w, bias = given(b, dtype, (2, c, *images), (c, k, *kernel), (k * groups,))
    return list(b.emit("transposed_convolution", [x, w, bias], groups=groups, **how))


CASES["transposed_convolution"] *= 4


@of("attention")
def attentions(b: Builder, dtype: str) -> list[Value]:
    """Heads that share keys; masks that are added or say where, one row of them without any key."""
    shared, heads = number(1, 2), number(1, 2)
    rows, keys, depth, out = extents(4, 2, 5)
    scores = (1, shared * heads, rows, keys)
    q, k, v, added = given(
        b, dtype, (2, *scores[1:3], depth), (2, shared, keys, depth), (2, shared, keys, out), scores
    )
    said = RNG.random((rows, keys)) > 0.3
    said[0] = False
    made = []
    for mask in (None, added, b.constant(said)):
        inputs = [q, k, v] if mask is None else [q, k, v, mask]
        how = {"scale": 0.6, "causal": bool(number(0, 1)), "softcap": some(0.0, 1.5)}
        made += b.emit("attention", inputs, **how)
    return made


@of("formula")
def formulas(b: Builder, dtype: str) -> list[Value]:
    x, w = given(b, dtype, (2, 3, 7), (4, 3, 3))
    text = "def f(float(N,C,W) x, float(K,C,R) w) -> (y) { y(n,k,i) +=! x(n,c,i+r) * w(k,c,r) }"
    return list(b.emit("formula", [x, w], text=text, sizes=(), shapes=()))


# ---------------------------------------------------------------- windows and time


@of("pool", "pool_gradient")
def pools(b: Builder, dtype: str) -> list[Value]:
    spatial = number(1, 3)
    how = _geometry(spatial) | {"kernel": tuple(extents(spatial, 1, 3))}
    images = extents(spatial, 3, 6)
    how["padding"] = tuple((number(0, k // 2), number(0, k // 2)) for k in how["kernel"])
    (x,) = given(b, dtype, (2, 2, *images))
    rows = zip(
        images, *(how[it] for it in ("kernel", "strides", "dilations", "padding")), strict=True
    )
    counts = tuple(max(1, (n + sum(p) - d * (k - 1) - 1) // s + 1) for n, k, s, d, p in rows)
    how |= {"counts": counts, "counts_padding": bool(number(0, 1))}
    made = [b.emit("pool", [x], function=it, **how)[0] for it in ("max", "mean")]
    made += b.emit("pool_gradient", [made[1], None], function="mean", extents=x.shape[2:], **how)
    return made


CASES["pool"] *= 4


def _recurrent(cell: str, gates: int) -> Case:
    def case(b: Builder, dtype: str) -> list[Value]:
        steps, samples, channels, hidden = extents(4, 1, 4)
        rows, state = gates * hidden, (samples, hidden)
        shapes = [(steps, samples, channels), (rows, channels), (rows, hidden), (rows,), (rows,)]
        x, w, r, *rest = given(b, dtype, *shapes, state, state)
        bias_x, bias_h, h, c = some(rest, [None] * 4)
        lengths = b.constant(RNG.integers(0, steps + 1, samples)) if number(0, 1) else None
        inputs = [x, w, r, bias_x, bias_h, h, c if cell == "lstm" else None, lengths]
        return list(b.emit("recurrent", inputs, cell=cell, reverse=bool(number(0, 1))))

    return case


CASES["recurrent"] = [_recurrent(cell, n) for cell, n in (("lstm", 4), ("gru", 3), ("rnn", 1)) * 3]


# ---------------------------------------------------------------- calls


def call(
    b: Builder, function: str, inputs: Sequence[Any], shape: Shape, **attributes: Any
) -> Value:
    return b.call(function, inputs, [(tuple(shape), inputs[0].dtype)], **attributes)[0]


@of("gather_elements", "scatter_elements")
def elements_at_places(b: Builder, dtype: str) -> list[Value]:
    rows, count = number(1, 3), number(2, 4)
    x, updates = given(b, dtype, (rows, count), (rows, 3))
    places = b.constant(RNG.integers(-count, count, (rows, 3)))
    written = [
        call(b, "scatter_elements", [x, places, updates], x.shape, axis=1, how=how)
        for how in ("none", "add")
    ]
    return [call(b, "gather_elements", [x, places], (rows, 3), axis=1), *written]


@of("gather_nd", "scatter_nd")
def parts_at_places(b: Builder, dtype: str) -> list[Value]:
    p, q, r = extents(3, 1, 3)
    x, updates = given(b, dtype, (p, q, r), (4, r))
    both = np.stack([RNG.integers(-p, p, 4), RNG.integers(-q, q, 4)], axis=1)
    places, inner = b.constant(both), b.constant(RNG.integers(-q, q, (p, 2, 1)))
    return [
        call(b, "gather_nd", [x, places], (4, r), batch_dims=0),
        call(b, "gather_nd", [x, inner], (p, 2, r), batch_dims=1),
        *(call(b, "scatter_nd", [x, places, updates], x.shape, how=how) for how in ("none", "add")),
    ]


@of("scatter_steps")
def steps_that_are_written(b: Builder, dtype: str) -> list[Value]:
    x, updates = given(b, dtype, (2, 3, 5, 2), (2, 3, 2, 2))
    places = b.constant(np.array([2, 4]))
    return [
        call(b, "scatter_steps", [x, updates], x.shape, axis=2, circular=False),
        call(b, "scatter_steps", [x, updates, places], x.shape, axis=2, circular=True),
    ]


@of("reverse_sequence")
def reversed_sequences(b: Builder, dtype: str) -> list[Value]:
    (x,) = given(b, dtype, (4, 3, 2))
    lengths = b.constant(RNG.integers(0, 5, 3))
    return [call(b, "reverse_sequence", [x, lengths], x.shape, batch_axis=1)]


@of("top_k")
def greatest_elements(b: Builder, dtype: str) -> list[Value]:
    (x,) = given(b, dtype, (3, 5))
    results = [((3, 2), x.dtype), ((3, 2), np.dtype(np.int64))]
    return [b.call("top_k", [x], results, axis=1, k=2, largest=bool(number(0, 1)))[0]]


@of("running_sum", "running_product")
def running_ones(b: Builder, dtype: str) -> list[Value]:
    shape, axis = extents(3, 1, 4), number(0, 2)
    (x,) = given(b, dtype, shape)
    return [
        call(b, function, [x], shape, axis=axis, exclusive=exclusive, reverse=reverse)
        for function in ("running_sum", "running_product")
        for exclusive in (False, True)
        for reverse in (False, True)
    ]


@of("fourier")
def transforms(b: Builder, dtype: str) -> list[Value]:
    n, length = number(2, 6), number(3, 8)
    reals, numbers, spectrum = given(b, dtype, (2, n, 1), (2, n, 2), (2, length // 2 + 1, 2))
    half, how = length // 2 + 1, {"axis": 1, "length": length}
    return [
        call(b, "fourier", [reals], (2, half, 2), inverse=False, onesided=True, **how),
        call(b, "fourier", [reals], (2, length, 2), inverse=False, onesided=False, **how),
        call(b, "fourier", [numbers], (2, length, 2), inverse=False, onesided=False, **how),
        call(b, "fourier", [numbers], (2, length, 2), inverse=True, onesided=False, **how),
        call(b, "fourier", [spectrum], (2, length, 1), inverse=True, onesided=True, **how),
    ]


@of("determinant", "inverse")
def matrices(b: Builder, dtype: str) -> list[Value]:
    (x,) = given(b, dtype, (2, 3, 3))
    whole = b.apply("add", x, b.constant(3 * np.eye(3, dtype=dtype)))
    return [call(b, "determinant", [whole], (2,)), call(b, "inverse", [whole], x.shape)]


@of("negative_log_likelihood")
def losses(b: Builder, dtype: str) -> list[Value]:
    scores, weights = given(b, dtype, (3, 4, 2), (4,))
    labels = b.constant(RNG.integers(-4, 4, (3, 2)))
    positive = b.apply("exp", weights)
    made = []
    for reduction in ("mean", "sum", "none"):
        inputs = [scores, labels, some(positive, None)]
        how = {"reduction": reduction, "ignored": some(None, 1)}
        made.append(
            call(b, "negative_log_likelihood", inputs, (3, 2) if reduction == "none" else (), **how)
        )
    return made


@of("max_pool_places", "max_unpool")
def pools_with_places(b: Builder, dtype: str) -> list[Value]:
    (x,) = given(b, dtype, (2, 3, 4, 6))
    results = [((2, 3, 2, 3), x.dtype), ((2, 3, 2, 3), np.dtype(np.int64))]
    names = ("kernel", "strides", "dilations", "padding", "counts")
    rows = ((2, 2), (2, 2), (1, 1), ((0, 0), (0, 0)), (2, 3))
    how = dict(zip(names, rows, strict=True))
    y, places = b.call("max_pool_places", [x], results, order="C", **how)
    back = b.call("max_unpool", [y, places], [((2, 3, 5, 6), x.dtype)], shape=x.shape)
    return [y, *back]


@of("repeated_ngrams")
def scores_without_repeats(b: Builder, dtype: str) -> list[Value]:
    (scores,) = given(b, dtype, (2, 5))
    tokens = b.constant(np.array([[1, 2, 3, 1, 2], [0, 4, 0, 4, 0]]))
    form = [(scores.shape, scores.dtype)]
    return [
        b.map(
            ("maximum", operand(0), ("number", -9.0)),
            *b.call("repeated_ngrams", [tokens, scores], form, size=3),
        )
    ]
