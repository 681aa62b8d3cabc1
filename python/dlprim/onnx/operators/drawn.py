"""Random numbers from a seed: every run of a model draws the same ones.

They are those of NumPy's `RandomState` of the seed, cut to an integer, as in ONNX's reference. What
has no seed would differ from run to run, and is refused.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import number, operand
from dlprim.graph.graph import Value
from dlprim.graph.operators.elements import converted
from dlprim.graph.operators.operator import Arrays, Attributes, callee
from dlprim.onnx.operators.places import require_small
from dlprim.onnx.operators.shapes import one_number
from dlprim.onnx.proto import dtype_of
from dlprim.onnx.registry import RefusedError, operator

X, Y = operand(0), operand(1)


def _whole(seed: float) -> int:
    if not (math.isfinite(seed) and 0 <= seed < 1 << 32):
        raise RefusedError(f"seed is {seed}, expected a number from 0 to 2^32")
    return int(seed)


@callee("draw", "its numbers are drawn")
def draw(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """Uniform from 0 to 1, or normal."""
    shape, dtype = attributes["results"][0]
    state = np.random.RandomState(attributes["seed"])
    numbers = state.standard_normal(shape) if attributes["normal"] else state.random_sample(shape)
    return [converted(np.asarray(numbers), np.dtype(dtype))]


@callee("draw_true", "its numbers are drawn")
def draw_true(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """1 with the probability that the element is, else 0."""
    x = arrays[0].astype(np.float64)
    if not np.all((x >= 0) & (x <= 1)):
        raise ValueError("an element of Bernoulli's input is no probability from 0 to 1")
    numbers = np.random.RandomState(attributes["seed"]).binomial(1, x)
    return [converted(np.asarray(numbers), np.dtype(attributes["results"][0][1]))]


@callee("draw_classes", "its numbers are drawn")
def draw_classes(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """Of rows of logarithms of probabilities, which need not sum to 1: classes so likely."""
    x = arrays[0].astype(np.float64)
    (rows, count), dtype = attributes["results"][0]
    shares = np.cumsum(np.exp(x - x.max(axis=1, keepdims=True)), axis=1)
    numbers = np.random.RandomState(attributes["seed"]).random_sample((rows, count))
    at = numbers * shares[:, -1:]
    found = [
        np.searchsorted(share, row, side="right") for share, row in zip(shares, at, strict=True)
    ]
    classes = np.minimum(np.reshape(found, (rows, count)), x.shape[1] - 1)
    return [classes.astype(dtype)]


def _drawn(
    build: Builder, like: Value | tuple[int, ...], dtype: Any, seed: float, is_normal: bool
) -> Value:
    """Of a shape, or that of a value, which then a run draws."""
    is_value = isinstance(like, Value)
    shape = like.shape if isinstance(like, Value) else like
    if not is_value:
        if min(shape, default=0) < 0:
            raise RefusedError(f"shape is {list(shape)}, expected extents of 0 or more")
        require_small(math.prod(shape), np.dtype(np.float64))
    kind = np.dtype(dtype)
    if kind.kind != "f" and kind.name != "bfloat16":
        raise RefusedError(f"dtype is {kind}, expected one of floats")
    operands = [like] if isinstance(like, Value) else []
    named = {"seed": _whole(seed), "normal": is_normal}
    return build.call("draw", operands, [(shape, kind)], **named)[0]


def _scaled(build: Builder, drawn: Value, factor: float, shift: float) -> Value:
    return build.map(("add", ("multiply", X, number(factor)), number(shift)), drawn)


@operator("RandomNormal")
def random_normal(
    build: Builder,
    *,
    dtype: int = 1,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float,
    shape: tuple[int, ...],
) -> Value:
    return _scaled(build, _drawn(build, shape, dtype_of(dtype), seed, True), scale, mean)


@operator("RandomNormalLike")
def random_normal_like(
    build: Builder,
    x: Value,
    *,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float,
) -> Value:
    kind = x.dtype if dtype is None else dtype_of(dtype)
    return _scaled(build, _drawn(build, x, kind, seed, True), scale, mean)


@operator("RandomUniform")
def random_uniform(
    build: Builder,
    *,
    dtype: int = 1,
    high: float = 1.0,
    low: float = 0.0,
    seed: float,
    shape: tuple[int, ...],
) -> Value:
    return _scaled(build, _drawn(build, shape, dtype_of(dtype), seed, False), high - low, low)


@operator("RandomUniformLike")
def random_uniform_like(
    build: Builder,
    x: Value,
    *,
    dtype: int | None = None,
    high: float = 1.0,
    low: float = 0.0,
    seed: float,
) -> Value:
    kind = x.dtype if dtype is None else dtype_of(dtype)
    return _scaled(build, _drawn(build, x, kind, seed, False), high - low, low)


@operator("Bernoulli", since=15)
def bernoulli(build: Builder, x: Value, *, dtype: int | None = None, seed: float) -> Value:
    kind = x.dtype if dtype is None else dtype_of(dtype)
    return build.call("draw_true", [x], [(x.shape, kind)], seed=_whole(seed))[0]


@operator("Multinomial", since=7)
def multinomial(
    build: Builder, x: Value, *, dtype: int = 6, sample_size: int = 1, seed: float
) -> Value:
    kind = dtype_of(dtype)
    if len(x.shape) != 2 or not x.shape[1] or kind.name not in ("int32", "int64"):
        raise RefusedError(
            f"x of {list(x.shape)} and dtype {kind}, expected rows of classes, and int32 or int64"
        )
    if not 0 <= sample_size <= 1 << 24:
        raise RefusedError(f"sample_size is {sample_size}, expected 0 to 2^24")
    results = [((x.shape[0], sample_size), kind)]
    return build.call("draw_classes", [x], results, seed=_whole(seed))[0]


# ---------------------------------------------------------------- Dropout


def _all_kept(build: Builder, x: Value) -> Value:
    return build.expand(build.constant(np.ones((), bool)), x.shape)


@operator("Dropout", since=7)
def dropout_alone(build: Builder, x: Value, *, ratio: float = 0.5, outputs: int = 1) -> Value:
    if outputs > 1:
        raise RefusedError(f"{outputs} outputs, expected 1 below opset 10")
    return x


@operator("Dropout", since=10)
def dropout_with_mask(build: Builder, x: Value, *, ratio: float = 0.5) -> tuple[Value, ...]:
    return x, _all_kept(build, x)


@operator("Dropout", since=12)
def dropout(
    build: Builder,
    x: Value,
    ratio: Value | None = None,
    training: Value | None = None,
    *,
    seed: int | None = None,
) -> tuple[Value, ...]:
    """In training what is dropped follows from the seed alone."""
    share = 0.5 if ratio is None else float(one_number(build, ratio))
    if training is None or not share or not build.array(training).any():
        return x, _all_kept(build, x)
    if seed is None or not 0 < share < 1:
        raise RefusedError(
            f"training_mode with a ratio of {share} and seed {seed}, expected a seed, which makes "
            "runs the same, and a ratio from 0 to 1"
        )
    drawn = _drawn(build, x, np.float64, seed, False)
    mask = build.map(("greater_equal", X, number(share)), drawn, dtype=bool)
    kept = ("where", Y, ("multiply", X, number(1 / (1 - share))), number(0))
    return build.map(kept, x, mask), mask
