"""Norms of sums and of embeddings, and of groups of channels with an activation behind."""

from __future__ import annotations

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import number, operand
from dlprim.graph.graph import Value
from dlprim.onnx.operators.layers.norms import (
    group_norm,
    over_last_axes,
    root_mean_square,
    statistics,
)
from dlprim.onnx.operators.microsoft.attention import part_of
from dlprim.onnx.operators.microsoft.checks import (
    MICROSOFT,
    require_floats,
    require_integers,
    require_rank,
    require_shape,
)
from dlprim.onnx.operators.places import gather
from dlprim.onnx.registry import RefusedError, operator

_X, _Y = operand(0), operand(1)


# ---------------------------------------------------------------- of sums


def _sum_of(build: Builder, x: Value, skip: Value, bias: Value | None) -> Value:
    """The skip may be without the axis of samples, or have one of them."""
    total = build.apply("add", x, skip)
    total = total if bias is None else build.apply("add", total, bias)
    require_shape(x.shape, skip=total)
    return total


@operator("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_norm(
    build: Builder,
    x: Value,
    skip: Value,
    scale: Value,
    shift: Value | None = None,
    bias: Value | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[Value, ...]:
    total = _sum_of(build, x, skip, bias)
    y = over_last_axes(build, total, scale, shift, -1, epsilon)
    return y, *statistics(build, total, -1, epsilon), total


@operator("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_norm(
    build: Builder,
    x: Value,
    skip: Value,
    scale: Value,
    bias: Value | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[Value, ...]:
    total = _sum_of(build, x, skip, bias)
    y = over_last_axes(build, total, scale, None, -1, epsilon, rms=True)
    mean = statistics(build, total, -1, epsilon)[0]
    return y, mean, root_mean_square(build, total, -1, epsilon), total


# ---------------------------------------------------------------- of embeddings


@operator("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_norm(
    build: Builder,
    words: Value,
    segments: Value | None = None,
    word_table: Value | None = None,
    position_table: Value | None = None,
    segment_table: Value | None = None,
    scale: Value | None = None,
    shift: Value | None = None,
    mask: Value | None = None,
    positions: Value | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 1,
) -> tuple[Value, ...]:
    """The norm of the sum of rows of tables, how many words each sample has, and the sum."""
    if word_table is None or position_table is None or scale is None or shift is None:
        raise RefusedError("word_embedding, position_embedding, gamma or beta is left out")
    if (segments is None) != (segment_table is None):
        raise RefusedError("segment_ids or segment_embedding is left out, expected both or none")
    tables = (word_table, position_table, segment_table)
    require_rank(2, "(N, S)", input_ids=words, segment_ids=segments, mask=mask)
    for name, table in zip(("word", "position", "segment"), tables, strict=True):
        require_rank(2, "(rows, C)", **{f"{name}_embedding": table})
    require_shape(words.shape, segment_ids=segments, mask=mask)
    total = gather(build, word_table, words)
    samples, rows = words.shape
    if positions is None:
        if rows > position_table.shape[0]:
            raise RefusedError(f"position_embedding has fewer rows than {rows} words")
        places = part_of(build, position_table, 0, 0, rows)
    else:
        require_rank(2, "(N, S)", position_ids=positions)
        require_shape((positions.shape[0], rows), position_ids=positions)
        places = gather(build, position_table, positions)
    total = build.apply("add", total, places)
    if segments is not None and segment_table is not None:
        total = build.apply("add", total, gather(build, segment_table, segments))
    require_shape((samples, rows, word_table.shape[1]), embeddings=total)
    y = over_last_axes(build, total, scale, shift, -1, epsilon)
    require_integers(mask=mask)
    counts = build.constant(np.zeros(samples, np.int32)) if mask is None else _count(build, mask)
    return y, counts, total


def _count(build: Builder, mask: Value) -> Value:
    """How many elements of each row are not 0."""
    ones = build.map(("where", ("equal", _X, number(0)), number(0), number(1)), mask)
    return build.cast(build.reduce("sum", ones, [1]), np.int32)


# ---------------------------------------------------------------- of groups of channels


def _images(build: Builder, x: Value, channels_last: int) -> Value:
    """(N, C, H, W), of channels that may come last."""
    return build.transpose(x, (0, 3, 1, 2)) if channels_last else x


def _grouped(
    build: Builder,
    x: Value,
    parameters: tuple[Value, Value],
    groups: int,
    epsilon: float,
    activation: int,
) -> Value:
    if activation not in (0, 1):
        raise RefusedError(f"activation is {activation}, expected 0 for none or 1 for SiLU")
    gamma, beta = (build.cast(it, x.dtype) for it in parameters)
    y = group_norm(build, x, gamma, beta, num_groups=groups, epsilon=epsilon)
    return build.apply("swish", y) if activation else y


@operator("GroupNorm", domain=MICROSOFT)
def channels_last_group_norm(
    build: Builder,
    x: Value,
    gamma: Value,
    beta: Value,
    *,
    activation: int,
    groups: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
) -> Value:
    require_rank(4, "four axes", X=x)
    require_floats(X=x)
    images = _images(build, x, channels_last)
    y = _grouped(build, images, (gamma, beta), groups, epsilon, activation)
    return build.transpose(y, (0, 2, 3, 1)) if channels_last else y


@operator("SkipGroupNorm", domain=MICROSOFT)
def skip_group_norm(
    build: Builder,
    x: Value,
    gamma: Value,
    beta: Value,
    skip: Value,
    bias: Value | None = None,
    *,
    activation: int,
    groups: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
) -> tuple[Value, ...]:
    """Of the sum with a skip like x, or with a number for each channel of a sample, and a bias."""
    require_rank(4, "four axes", X=x)
    require_floats(X=x, skip=skip, bias=bias)
    channel = 3 if channels_last else 1
    spread = tuple(n if axis in (0, channel) else 1 for axis, n in enumerate(x.shape))
    if len(skip.shape) == 2:
        require_shape((x.shape[0], x.shape[channel]), skip=skip)
        skip = build.reshape(skip, spread)
    if skip.shape not in (x.shape, spread):
        raise RefusedError(f"skip is of {list(skip.shape)}, expected {list(x.shape)}")
    total = build.apply("add", x, skip)
    if bias is not None:
        require_shape((x.shape[channel],), bias=bias)
        shape = [x.shape[channel] if axis == channel else 1 for axis in range(4)]
        total = build.apply("add", total, build.reshape(bias, shape))
    images = _images(build, total, channels_last)
    y = _grouped(build, images, (gamma, beta), groups, epsilon, activation)
    return build.transpose(y, (0, 2, 3, 1)) if channels_last else y, total
