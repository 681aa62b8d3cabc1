"""Attention, MultiHeadAttention: projections, masks in every form, and what came before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Value
from dlprim.onnx.operators.layers.attention import (
    BIASED,
    Request,
    attend,
    counted,
    joined_heads,
    split_heads,
)
from dlprim.onnx.operators.microsoft.checks import (
    MICROSOFT,
    require_at_least,
    require_floats,
    require_integers,
    require_rank,
    require_shape,
)
from dlprim.onnx.operators.microsoft.parts import part_of, parts_of
from dlprim.onnx.registry import RefusedError, operator

_X, _Y = operand(0), operand(1)


class _Extents(NamedTuple):
    """Of the scores: samples, queries, and keys with those that came before."""

    samples: int
    queries: int
    keys: int


# ---------------------------------------------------------------- masks


def _looked_at(
    build: Builder, mask: Value, extents: _Extents
) -> tuple[Expression, tuple[Value, ...]]:
    """Whether a key is looked at, for scores of four axes, and the operands of that."""
    samples, queries, keys = extents
    if mask.shape in ((samples,), (2 * samples,)):
        columns = build.reshape(counted(build, keys), (1, 1, 1, keys))
        ends = build.reshape(part_of(build, mask, 0, 0, samples), (samples, 1, 1, 1))
        is_before: Expression = ("less", _X, _Y)
        if mask.shape[0] == samples:
            return is_before, (columns, ends)
        starts = build.reshape(part_of(build, mask, 0, samples, samples), (samples, 1, 1, 1))
        return ("and", is_before, ("greater_equal", _X, operand(2))), (columns, ends, starts)
    if mask.shape == (samples, keys):
        mask = build.reshape(mask, (samples, 1, 1, keys))
    elif mask.shape == (samples, queries, keys):
        mask = build.reshape(mask, (samples, 1, queries, keys))
    elif len(mask.shape) == 4 and mask.shape[:2] == (samples, 1) and keys <= min(mask.shape[2:]):
        mask = part_of(build, part_of(build, mask, 3, 0, keys), 2, keys - queries, queries)
    else:
        raise RefusedError(
            f"the mask is of {list(mask.shape)}, expected [{samples}], [{2 * samples}], "
            f"[{samples}, {keys}] or [{samples}, {queries}, {keys}]"
        )
    return ("not_equal", _X, number(0)), (mask,)


def _added(
    build: Builder,
    mask: Value | None,
    bias: Value | None,
    extents: _Extents,
    filtered: float,
    dtype: np.dtype[np.generic],
) -> Value | None:
    """What is added to scores: a bias, and a number where a key is not looked at."""
    if mask is None:
        return bias
    seen, operands = _looked_at(build, mask, extents)
    expression = ("where", seen, number(0.0), number(filtered))
    added = build.map(expression, *operands, dtype=dtype)
    return added if bias is None else build.apply("add", bias, added)


def _check_bias(bias: Value | None, heads: int, extents: _Extents) -> None:
    if bias is None:
        return
    require_rank(4, "(N, H, S, T)", attention_bias=bias)
    samples, queries, keys = extents
    fits = bias.shape[0] in (1, samples) and bias.shape[1] in (1, heads)
    if not fits or bias.shape[2:] != (queries, keys):
        raise RefusedError(
            f"attention_bias is of {list(bias.shape)}, expected one that can be broadcast to "
            f"{[samples, heads, queries, keys]}"
        )


def _check_past(past: Sequence[Value | None], k: Value, v: Value) -> None:
    """Refuses a past that does not go on with keys and values (N, H, S, D)."""
    if (past[0] is None) != (past[1] is None):
        raise RefusedError("past_key or past_value is left out, expected both of them or none")
    for name, before, now in zip(("past_key", "past_value"), past, (k, v), strict=True):
        if before is not None:
            require_rank(4, "(N, H, S, D)", **{name: before})
            samples, heads, _, size = now.shape
            require_shape((samples, heads, before.shape[2], size), **{name: before})


# ---------------------------------------------------------------- Attention


def _projected(
    build: Builder, x: Value, w: Value, bias: Value | None, sizes: Sequence[int]
) -> list[Value]:
    require_rank(3, "(N, S, C)", input=x)
    require_rank(2, "(C, Q + K + V)", weights=w)
    if w.shape != (x.shape[2], sum(sizes)) or min(sizes) < 1:
        raise RefusedError(
            f"weights of {list(w.shape)}, expected [{x.shape[2]}, the sum of {list(sizes)}]"
        )
    require_shape(w.shape[1:], bias=bias)
    y = build.matmul(x, w)
    y = y if bias is None else build.apply("add", y, bias)
    return parts_of(build, y, 2, sizes)


def _hidden_sizes(w: Value, given: tuple[int, ...] | None, heads: int) -> tuple[int, ...]:
    """Of queries, keys and values together; a third of all each unless they are said."""
    third = w.shape[1] // 3 if len(w.shape) == 2 else 0
    sizes = (third,) * 3 if given is None else given
    if len(sizes) != 3 or sizes[0] != sizes[1] or any(it % heads for it in sizes):
        raise RefusedError(
            f"hidden sizes are {list(sizes)}, expected three multiples of {heads} heads, the first "
            "two of them alike"
        )
    return sizes


def _halves(build: Builder, past: Value | None, k: Value) -> tuple[Value | None, Value | None]:
    """Keys and values (N, H, S, D) of a past that has them one after the other."""
    if past is None:
        return None, None
    require_rank(5, "(2, N, H, S, D)", past=past)
    require_shape((2, *k.shape[:2], past.shape[3], k.shape[3]), past=past)
    keys, values = (
        build.reshape(part_of(build, past, 0, place, 1), past.shape[1:]) for place in (0, 1)
    )
    return keys, values


@operator("Attention", domain=MICROSOFT)
def attention(
    build: Builder,
    x: Value,
    w: Value,
    bias: Value | None = None,
    mask: Value | None = None,
    past: Value | None = None,
    attention_bias: Value | None = None,
    past_length: Value | None = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: tuple[int, ...] | None = None,
    rotary_embedding_dim: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Value, ...]:
    """The results are y, and keys and values of all positions as one array."""
    require_floats(input=x, weights=w, bias=bias, past=past, attention_bias=attention_bias)
    require_integers(mask_index=mask)
    require_at_least(1, num_heads=num_heads)
    if do_rotary or past_present_share_buffer or past_length is not None:
        raise RefusedError("do_rotary or past_present_share_buffer is 1, expected 0 of both")
    sizes = _hidden_sizes(w, qkv_hidden_sizes, num_heads)
    q, k, v = (
        split_heads(build, name, it, num_heads)
        for name, it in zip("QKV", _projected(build, x, w, bias, sizes), strict=True)
    )
    before = _halves(build, past, k)
    _check_past(before, k, v)
    keys = k.shape[2] + (0 if before[0] is None else before[0].shape[2])
    extents = _Extents(x.shape[0], x.shape[1], keys)
    _check_bias(attention_bias, num_heads, extents)
    added = _added(build, mask, attention_bias, extents, mask_filter_value, x.dtype)
    asked = Request(unidirectional, scale=scale or None)
    y, k, v, _ = attend(build, (q, k, v), added, before, None, asked)
    if k.shape != v.shape:
        return (joined_heads(build, y),)
    present = [build.reshape(it, (1, *it.shape)) for it in (k, v)]
    return joined_heads(build, y), build.concat(present, 0)


# ---------------------------------------------------------------- MultiHeadAttention


def _unpacked(build: Builder, x: Value, count: int) -> list[Value]:
    """(N, S, H, count, D) as so many arrays (N, S, H*D)."""
    samples, rows, heads, _, size = x.shape
    parts = parts_of(build, x, 3, [1] * count)
    return [build.reshape(it, (samples, rows, heads * size)) for it in parts]


def _separate(
    build: Builder, q: Value, k: Value | None, v: Value | None, heads: int
) -> tuple[Value, Value, Value]:
    """Queries, keys and values (N, S, H*D), but for keys and values that are (N, H, S, D)."""
    if k is None:
        if v is not None or len(q.shape) != 5 or q.shape[2:4] != (heads, 3):
            raise RefusedError(
                f"query is of {list(q.shape)} without a key, expected (N, S, {heads}, 3, D)"
            )
        one, two, three = _unpacked(build, q, 3)
        return one, two, three
    if v is None:
        if len(k.shape) != 5 or k.shape[2:4] != (heads, 2):
            raise RefusedError(
                f"key is of {list(k.shape)} without a value, expected (N, S, {heads}, 2, D)"
            )
        k, v = _unpacked(build, k, 2)
    require_rank(3, "(N, S, H*D)", query=q)
    for name, it in (("key", k), ("value", v)):
        if len(it.shape) not in (3, 4) or it.shape[0] != q.shape[0]:
            raise RefusedError(f"{name} is of {list(it.shape)}, expected (N, S, H*D)")
    return q, k, v


def _biased(build: Builder, arrays: Sequence[Value], bias: Value | None, heads: int) -> list[Value]:
    """Each with its part of the bias of all; keys and values with four axes have it already."""
    sizes = [it.shape[2] if len(it.shape) == 3 else heads * it.shape[3] for it in arrays]
    if bias is None:
        return list(arrays)
    require_shape((sum(sizes),), bias=bias)
    parts = parts_of(build, bias, 0, sizes)
    return [
        build.apply("add", it, part) if len(it.shape) == 3 else it
        for it, part in zip(arrays, parts, strict=True)
    ]


@operator("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
    build: Builder,
    query: Value,
    key: Value | None = None,
    value: Value | None = None,
    bias: Value | None = None,
    mask: Value | None = None,
    attention_bias: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    past_length: Value | None = None,
    beams: Value | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Value, ...]:
    """The results are y, keys and values of all positions, and the scores."""
    require_floats(query=query, key=key, value=value, bias=bias, attention_bias=attention_bias)
    require_floats(query=query, past_key=past_key, past_value=past_value)
    require_integers(key_padding_mask=mask)
    require_at_least(1, num_heads=num_heads)
    if past_length is not None or beams is not None:
        raise RefusedError("past_sequence_length or cache_indirection is given, expected neither")
    arrays = _biased(build, _separate(build, query, key, value, num_heads), bias, num_heads)
    q, k, v = (
        split_heads(build, name, it, num_heads)
        for name, it in zip(("query", "key", "value"), arrays, strict=True)
    )
    if k.shape[:3] != v.shape[:3] or q.shape[3] != k.shape[3] or k.shape[1] != num_heads:
        raise RefusedError(
            f"heads are of {list(q.shape)}, {list(k.shape)} and {list(v.shape)}, expected keys "
            "and values of one length, as wide as queries"
        )
    _check_past((past_key, past_value), k, v)
    keys = k.shape[2] + (past_key.shape[2] if past_key is not None else 0)
    extents = _Extents(q.shape[0], q.shape[2], keys)
    _check_bias(attention_bias, num_heads, extents)
    added = _added(build, mask, attention_bias, extents, mask_filter_value, q.dtype)
    asked = Request(unidirectional, mode=BIASED, scale=scale or None)
    y, *rest = attend(build, (q, k, v), added, (past_key, past_value), None, asked)
    return joined_heads(build, y), *rest


# ---------------------------------------------------------------- a bias of relative positions


@operator("GatedRelativePositionBias", domain=MICROSOFT)
def gated_relative_position_bias(
    build: Builder,
    query: Value,
    query_bias: Value,
    positions: Value,
    w: Value,
    bias: Value,
    scales: Value,
    offsets: Value | None = None,
    *,
    num_heads: int,
) -> Value:
    """A bias of relative positions, times a gate that follows from the query."""
    require_floats(query_layer=query, query_bias=query_bias, rel_pos=positions)
    require_floats(query_layer=query, weight=w, bias=bias, eco_a=scales)
    require_at_least(1, num_heads=num_heads)
    if offsets is not None:
        raise RefusedError("token_offset is given, expected queries without gaps")
    require_rank(3, "(N, S, H*D)", query_layer=query)
    require_shape(query.shape[2:], query_bias=query_bias)
    q = split_heads(build, "query_layer", build.apply("add", query, query_bias), num_heads)
    samples, heads, rows, size = q.shape
    require_rank(2, "(D, gates)", weight=w)
    require_shape((size, w.shape[1] // 2 * 2), weight=w)
    require_shape(w.shape[1:], bias=bias)
    require_shape((1, heads, 1, 1), eco_a=scales)
    require_shape((1, heads, rows, rows), rel_pos=positions)
    gates = build.apply("add", build.matmul(q, w), bias)
    gates = build.reshape(gates, (samples, heads, rows, 2, w.shape[1] // 2))
    first, second = parts_of(build, build.reduce("sum", gates, [4]), 3, (1, 1))
    reset = ("multiply", ("sigmoid", _Y), operand(2))
    gate = ("multiply", ("sigmoid", _X), ("subtract", reset, number(1.0)))
    gated = ("multiply", ("add", gate, number(2.0)), operand(3))
    return build.map(gated, first, second, scales, positions)
