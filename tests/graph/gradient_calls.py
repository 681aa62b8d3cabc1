"""Functions of `call` nodes with drawn extents, whose gradients are tested."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gradient_cases import Shape, extents, given, number, of, some

import dlprim
from dlprim.graph import Builder, Value
from dlprim.graph.expressions import operand
from drawing import RNG


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


@of("weighted_rows")
def rows_between_pixels(b: Builder, dtype: str) -> list[Value]:
    p, q, r = extents(3, 2, 3)
    x, *weights = given(b, dtype, (2, p, q, r), *[(2, 5, 1)] * 4)
    lines = [RNG.integers(-1, end + 1, (2, 5, 1)).astype(x.dtype) for end in (p, p, q, q)]
    pairs = [it for line, by in zip(lines, weights, strict=True) for it in (b.constant(line), by)]
    return [call(b, "weighted_rows", [x, *pairs], (2, 5, r), taps=2)]


@of("panel_product")
def layers_of_few_bits(b: Builder, dtype: str) -> list[Value]:
    """Weights so small that the rounding of x is too."""
    filters, channels = number(1, 9), number(1, 70)
    weights = 0.005 * RNG.standard_normal((filters, channels), np.float32)
    packed = dlprim.quantize_weights(weights, bits=some(4, 8))
    x, bias = given(b, dtype, (*extents(number(0, 2)), channels), (filters,))
    inputs = [x, b.constant(packed._packed), *some([], [bias])]
    how = {"channels": packed.shape, "form": packed._form, "activation": some(None, "sigmoid")}
    return [call(b, "panel_product", inputs, (*x.shape[:-1], filters), **how), bias]


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


class Whole:
    """A population of one part."""

    def moments(self, pixels: int, mean: Any, variance: Any) -> tuple[Any, ...]:
        return pixels, mean, variance

    def sums(self, pixels: int, by_weight: Any, by_bias: Any) -> tuple[Any, ...]:
        return pixels, by_weight, by_bias


@of("population_norm")
def norms_of_populations(b: Builder, dtype: str) -> list[Value]:
    """Whose gradient is that through the statistics, too."""
    channels, more = number(1, 4), extents(number(0, 2))
    x, weight, bias = given(b, dtype, (3, channels, *more), (channels,), (channels,))
    axes = 0, *range(2, len(x.shape))
    mean = b.reduce("mean", x, axes)
    away = b.apply("subtract", x, b.reduce("mean", x, axes, keepdims=True))
    variance = b.reduce("mean", b.apply("multiply", away, away), axes)
    how = {"pixels": x.size // channels, "population": Whole()}
    results = [(it, dtype) for it in ((), mean.shape, mean.shape)]
    _, *known = b.call("moments_of_population", [mean, variance], results, **how)
    return list(b.emit("population_norm", [x, *known, weight, bias], epsilon=1e-3, **how))
