"""Operators as opsets 1 to 6 say them: operands are broadcast only where attributes say how, and
what later are inputs or other types are attributes.
"""

from __future__ import annotations

import numpy as np

from dlprim.graph import Builder, Value
from dlprim.onnx.operators.activations import prelu, selu
from dlprim.onnx.operators.elements import BROADCAST, cast_6, power, require_alike
from dlprim.onnx.operators.images.resize import upsample_by_attribute
from dlprim.onnx.operators.layers.norms import batch_norm_spatial
from dlprim.onnx.operators.layers.pooling import global_lp_pool, lp_pool
from dlprim.onnx.operators.layers.products import gemm
from dlprim.onnx.operators.places import pad_2
from dlprim.onnx.operators.reductions import top_k
from dlprim.onnx.operators.shapes import (
    axis_of,
    concat,
    numbers,
    one_integer,
    reshape,
    split_2,
    tile,
)
from dlprim.onnx.proto import DTYPES
from dlprim.onnx.registry import RefusedError, operator


def _aligned(builder: Builder, a: Value, b: Value, axis: int | None, broadcast: int) -> Value:
    """b with axes of extent 1 behind it, so that its own begin at that axis of a."""
    rank = len(a.shape)
    if not broadcast:
        if a.shape != b.shape:
            raise RefusedError(
                f"operands of {list(a.shape)} and {list(b.shape)}, expected one shape, or "
                "broadcast=1"
            )
        return b
    start = rank - len(b.shape) if axis is None else axis_of(axis, rank)
    behind = a.shape[start : start + len(b.shape)]
    fits = start >= 0 and len(behind) == len(b.shape)
    if not fits or any(q not in (1, p) for p, q in zip(behind, b.shape, strict=True)):
        raise RefusedError(
            f"B of {list(b.shape)} at axis {start} does not fit A of {list(a.shape)}"
        )
    return builder.reshape(b, (*b.shape, *[1] * (rank - start - len(b.shape))))


def _register(name: str, function: str, dtype: str | None) -> None:
    @operator(name)
    def binary(
        builder: Builder, a: Value, b: Value, *, axis: int | None = None, broadcast: int = 0
    ) -> Value:
        require_alike(a, b)
        return builder.apply(function, a, _aligned(builder, a, b, axis, broadcast), dtype=dtype)


for _name, (_function, _dtype) in BROADCAST.items():
    _register(_name, _function, _dtype)


@operator("Pow")
def power_1(
    builder: Builder, x: Value, exponent: Value, *, axis: int | None = None, broadcast: int = 0
) -> Value:
    return power(builder, x, _aligned(builder, x, exponent, axis, broadcast))


@operator("Gemm")
def gemm_1(
    builder: Builder,
    a: Value,
    b: Value,
    c: Value,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    broadcast: int = 0,
    transA: int = 0,
    transB: int = 0,
) -> Value:
    return gemm(builder, a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)


@operator("PRelu")
def prelu_1(builder: Builder, x: Value, slope: Value) -> Value:
    """A slope for all, or one for each channel."""
    if slope.size == 1 or len(x.shape) < 2:
        return prelu(builder, x, builder.reshape(slope, (slope.size,)))
    if slope.shape != x.shape[1:2]:
        raise RefusedError(f"slope of {list(slope.shape)}, expected [1] or [{x.shape[1]}]")
    return prelu(builder, x, builder.reshape(slope, (slope.size, *[1] * (len(x.shape) - 2))))


@operator("Selu")
def selu_1(builder: Builder, x: Value, *, alpha: float = 1.6732, gamma: float = 1.0507) -> Value:
    return selu(builder, x, alpha=alpha, gamma=gamma)


@operator("BatchNormalization")
def batch_norm_1(
    builder: Builder,
    x: Value,
    gamma: Value,
    beta: Value,
    mean: Value,
    variance: Value,
    *,
    epsilon: float = 1e-5,
    is_test: int = 0,
    momentum: float = 0.9,
    spatial: int = 1,
    outputs: int = 1,
) -> Value:
    if not is_test:
        raise RefusedError("is_test is 0, which is training, expected 1 below opset 7")
    return batch_norm_spatial(
        builder, x, gamma, beta, mean, variance, epsilon=epsilon, spatial=spatial, outputs=outputs
    )


@operator("Dropout")
def dropout_1(
    builder: Builder, x: Value, *, is_test: int = 0, ratio: float = 0.5, outputs: int = 1
) -> Value:
    if (not is_test and ratio) or outputs > 1:
        raise RefusedError(
            f"is_test is {is_test} with {outputs} outputs, expected 1 and no mask below opset 7"
        )
    return x


@operator("Cast")
def cast_1(builder: Builder, x: Value, *, to: str) -> Value:
    """The type by its name, as FLOAT or INT64."""
    named = {"float": "float32", "double": "float64"}.get(to.lower(), to.lower())
    found = [code for code, dtype in DTYPES.items() if dtype.name == named]
    if not found:
        raise RefusedError(f"to is '{to}', expected the name of a type of numbers, as FLOAT")
    return cast_6(builder, x, to=found[0])


@operator("Concat")
def concat_1(builder: Builder, *inputs: Value, axis: int = 1) -> Value:
    return concat(builder, *inputs, axis=axis)


@operator("Pad")
def pad_1(
    builder: Builder,
    x: Value,
    *,
    mode: str = "constant",
    paddings: tuple[int, ...],
    value: float = 0.0,
) -> Value:
    return pad_2(builder, x, pads=paddings, mode=mode, value=value)


@operator("Reshape")
def reshape_1(builder: Builder, x: Value, *, shape: tuple[int, ...] = ()) -> Value:
    return reshape(builder, x, builder.constant(np.array(shape, np.int64)))


@operator("Split")
def split_1(
    builder: Builder,
    x: Value,
    sizes: Value | None = None,
    *,
    axis: int = 0,
    split: tuple[int, ...] | None = None,
    outputs: int = 1,
) -> tuple[Value, ...]:
    listed = split if sizes is None else numbers(builder, sizes)
    return split_2(builder, x, axis=axis, split=listed, outputs=outputs)


@operator("Tile")
def tile_1(builder: Builder, x: Value, tiles: Value, axis: Value) -> Value:
    place = axis_of(one_integer(builder, axis), len(x.shape))
    repeats = [1] * len(x.shape)
    repeats[place] = one_integer(builder, tiles)
    return tile(builder, x, builder.constant(np.array(repeats, np.int64)))


@operator("TopK")
def top_k_1(builder: Builder, x: Value, *, axis: int = -1, k: int) -> tuple[Value, ...]:
    return top_k(builder, x, builder.constant(np.array(k, np.int64)), axis=axis)


@operator("Upsample")
def upsample_1(
    builder: Builder, x: Value, *, height_scale: float, mode: str = "nearest", width_scale: float
) -> Value:
    names = {"bilinear": "linear"}
    scales = (1.0, 1.0, height_scale, width_scale)
    return upsample_by_attribute(builder, x, mode=names.get(mode, mode), scales=scales)


def _whole(p: float) -> int:
    if p not in range(1, 1 << 16):
        raise RefusedError(f"p is {p}, expected a whole number from 1 on")
    return int(p)


@operator("GlobalLpPool")
def global_lp_pool_1(builder: Builder, x: Value, *, p: float = 2.0) -> Value:
    return global_lp_pool(builder, x, p=_whole(p))


@operator("LpPool")
def lp_pool_1(
    builder: Builder,
    x: Value,
    *,
    auto_pad: str = "NOTSET",
    kernel_shape: tuple[int, ...],
    p: float = 2.0,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Value:
    return lp_pool(
        builder,
        x,
        auto_pad=auto_pad,
        kernel_shape=kernel_shape,
        p=_whole(p),
        pads=pads,
        strides=strides,
    )
