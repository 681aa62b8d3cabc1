"""Shapes, places, distances, inverses and hashes: what ONNX has otherwise, later or not at all."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Array, Node, Value
from dlprim.graph.operators.operator import Arrays, Attributes, Values, callee, there
from dlprim.onnx.operators import by_elements, places, signals
from dlprim.onnx.operators.images.grids import grid_sample_2d
from dlprim.onnx.operators.microsoft.checks import (
    MICROSOFT,
    require_at_least,
    require_floats,
    require_integers,
    require_rank,
    require_shape,
)
from dlprim.onnx.operators.shapes import one_integer
from dlprim.onnx.registry import Call, RefusedError, operator

_X, _Y = operand(0), operand(1)

operator("Trilu", domain=MICROSOFT)(places.trilu)
operator("GridSample", domain=MICROSOFT)(grid_sample_2d)


# ---------------------------------------------------------------- shapes and places


@operator("ExpandDims", domain=MICROSOFT)
def expand_dims(build: Builder, x: Value, axis: Value) -> Value:
    place, rank = one_integer(build, axis), len(x.shape)
    if not -rank - 1 <= place <= rank:
        raise RefusedError(f"axis is {place}, expected {-rank - 1} to {rank}")
    place %= rank + 1
    return build.reshape(x, (*x.shape[:place], 1, *x.shape[place:]))


@operator("GatherND", domain=MICROSOFT)
def gather_nd(build: Builder, x: Value, at: Value) -> Value:
    require_integers(indices=at)
    return places.gather_nd(build, x, at)


@operator("Pad", domain=MICROSOFT)
def pad(
    build: Builder, x: Value, pads: Value, value: Value | None = None, *, mode: str = "constant"
) -> Value:
    """As Pad of ONNX; the pads may have an axis of extent 1 in front."""
    if value is not None:
        require_at_least(1, value=value.size)
        value = build.reshape(value, ()) if value.size == 1 else value
    return places.pad(build, x, build.reshape(pads, (pads.size,)), value, mode=mode)


@operator("Range", domain=MICROSOFT)
def indices(build: Builder, start: Value, limit: Value, delta: Value | None = None) -> Value:
    step = build.constant(np.ones((), start.dtype)) if delta is None else delta
    return by_elements.range_11(build, start, limit, step)


@operator("Range", domain=MICROSOFT, on_values=True)
def indices_of_arrays(call: Call, start: Array, limit: Array, delta: Array | None = None) -> Array:
    step = np.ones((), start.dtype) if delta is None else delta
    return by_elements.range_of_arrays(call, start, limit, step)


@operator("Unique", domain=MICROSOFT)
def unique(build: Builder, x: Value) -> tuple[Value, ...]:
    """Elements in the order in which they come first, the place of each, and how many there are."""
    require_rank(1, "one axis", x=x)
    found, _, inverse, counts = by_elements.unique(build, x, sorted=0)
    return found, inverse, counts


@operator("Unique", domain=MICROSOFT, on_values=True)
def unique_of_array(call: Call, x: Array) -> tuple[Array, ...]:
    found, _, inverse, counts = by_elements.unique_of_array(call, x, sorted=0)
    return found, inverse, counts


def _ngrams_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    chosen: Expression = ("where", ("is_inf", operand(1)), number(0.0), operand(0))
    return [None, b.map(chosen, there(diffs[0]), node.output)]


@callee("repeated_ngrams", _ngrams_gradient)
def repeated_ngrams(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """Scores, minus infinity for what would end a run of tokens that was there before."""
    tokens, scores = arrays[0], arrays[1].copy()
    behind = attributes["size"] - 1
    for row, line in enumerate(tokens):
        runs = np.lib.stride_tricks.sliding_window_view(line, attributes["size"])
        again = (runs[:, :behind] == line[len(line) - behind :]).all(axis=1)
        found = runs[again, behind]
        if found.size and not 0 <= found.min() <= found.max() < scores.shape[1]:
            raise IndexError(f"a token is expected inside of {scores.shape[1]} scores")
        scores[row, found] = -np.inf
    return [scores]


@operator("NGramRepeatBlock", domain=MICROSOFT)
def block_repeated_ngrams(
    build: Builder, tokens: Value, scores: Value, *, ngram_size: int
) -> Value:
    require_integers(input_ids=tokens)
    require_floats(scores=scores)
    require_rank(2, "(N, S)", input_ids=tokens, scores=scores)
    require_at_least(1, ngram_size=ngram_size)
    require_shape((tokens.shape[0], scores.shape[1]), scores=scores)
    if ngram_size > tokens.shape[1]:
        return scores
    result = (scores.shape, scores.dtype)
    return build.call("repeated_ngrams", [tokens, scores], [result], size=ngram_size)[0]


# ---------------------------------------------------------------- matrices


@operator("Inverse", domain=MICROSOFT)
def inverse(build: Builder, x: Value) -> Value:
    require_floats(X=x)
    if len(x.shape) < 2 or x.shape[-1] != x.shape[-2]:
        raise RefusedError(f"X is of {list(x.shape)}, expected square matrices")
    return build.call("inverse", [x], [(x.shape, x.dtype)])[0]


@operator("CDist", domain=MICROSOFT)
def distances(build: Builder, a: Value, b: Value, *, metric: str = "sqeuclidean") -> Value:
    """From each row of a to each of b: the squares of both less twice their product."""
    require_floats(A=a, B=b)
    require_rank(2, "(rows, C)", A=a, B=b)
    require_shape((b.shape[0], a.shape[1]), B=b)
    if metric not in ("euclidean", "sqeuclidean"):
        raise RefusedError(f"metric is {metric!r}, expected euclidean or sqeuclidean")
    squares = [
        build.reduce("sum", build.map(("multiply", _X, _X), it), [1], keepdims=True)
        for it in (a, b)
    ]
    squares[1] = build.transpose(squares[1], (1, 0))
    product = build.matmul(a, build.transpose(b, (1, 0)))
    summed: Expression = ("add", _Y, operand(2))
    squared = ("subtract", summed, ("multiply", number(2.0), _X))
    least = ("maximum", squared, number(0.0))
    return build.map(("sqrt", least) if metric == "euclidean" else least, product, *squares)


# ---------------------------------------------------------------- signals


def _check_signal(signal_ndim: int, normalized: int, onesided: int) -> None:
    if (signal_ndim, normalized, onesided) != (1, 0, 1):
        raise RefusedError(
            f"signal_ndim, normalized and onesided are {signal_ndim}, {normalized} and {onesided}, "
            "expected 1, 0 and 1"
        )


@operator("Rfft", domain=MICROSOFT)
def rfft(
    build: Builder, x: Value, *, signal_ndim: int, normalized: int = 0, onesided: int = 1
) -> Value:
    _check_signal(signal_ndim, normalized, onesided)
    require_floats(X=x)
    return signals.fourier(build, build.reshape(x, (*x.shape, 1)), -2, None, 0, 1)


@operator("Irfft", domain=MICROSOFT)
def irfft(
    build: Builder, x: Value, *, signal_ndim: int, normalized: int = 0, onesided: int = 1
) -> Value:
    _check_signal(signal_ndim, normalized, onesided)
    require_floats(X=x)
    y = signals.fourier(build, x, -2, None, 1, 1)
    return build.reshape(y, y.shape[:-1])


# ---------------------------------------------------------------- hashes


def _rotated(x: Array, bits: int) -> Array:
    turned: Array = (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))
    return turned


@callee("murmur3", "its result is integers")
def murmur3(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """MurmurHash3 (x86, 32 bits) of each element's bytes, which are one word or two."""
    x = np.ascontiguousarray(arrays[0])
    words = x.reshape(-1).view(np.uint32).reshape(x.size, x.dtype.itemsize // 4)
    value = np.full(x.size, attributes["seed"], np.uint32)
    with np.errstate(over="ignore"):
        for word in words.T:
            mixed = _rotated(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
            value = _rotated(value ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        value = value ^ np.uint32(x.dtype.itemsize)
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
            value = (value ^ (value >> np.uint32(shift))) * np.uint32(factor)
        value = value ^ (value >> np.uint32(16))
    return [value.view(attributes["results"][0][1]).reshape(x.shape)]


@operator("MurmurHash3", domain=MICROSOFT)
def murmur_hash(build: Builder, x: Value, *, positive: int = 1, seed: int = 0) -> Value:
    if x.dtype.name not in ("int32", "uint32", "int64", "uint64", "float32", "float64"):
        raise RefusedError(f"X is of {x.dtype}, expected elements of 32 or 64 bits")
    if not 0 <= seed < 1 << 32:
        raise RefusedError(f"seed is {seed}, expected 0 to 2^32 - 1")
    result = (x.shape, np.dtype(np.uint32 if positive else np.int32))
    return build.call("murmur3", [x], [result], seed=seed)[0]
