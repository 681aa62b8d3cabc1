"""Attention, MultiHeadAttention: projections in front, masks in every form, and what came before."""

from __future__ import annotations


from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import number, operand
from dlprim.graph.graph import Value
from dlprim.onnx.operators.layers.attention import (
    BIASED,
    Request,
    attend,
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
from dlprim.onnx.registry import RefusedError, operator

_X, _Y = operand(0), operand(1)


class _Extents(NamedTuple):
    """Of the scores: samples, queries, and keys with those that came before."""

    samples: int
    queries: int
    keys: int


def part_of(build: Builder, x: Value, axis: int, start: int, count: int) -> Value:
    """Elements from ``start`` along an axis."""
    starts, counts = [0] * len(x.shape), list(x.shape)
    starts[axis], counts[axis] = start, count
    return build.slice(x, starts, counts, [1] * len(x.shape))


def parts_of(build: Builder, x: Value, axis: int, sizes: Sequence[int]) -> list[Value]:
    """What lies one after the other along an axis."""
    places = [sum(sizes[:at]) for at in range(len(sizes))]
    return [part_of(build, x, axis, at, n) for at, n in zip(places, sizes, strict=True)]


# ---------------------------------------------------------------- masks


def _looked_at(build: Builder, mask: Value, extents: _Extents) -> Value:
    """Whether a key is looked at, for scores of four axes."""
    samples, queries, keys = extents
    if mask.shape in ((samples,), (2 * samples,)):
        ends = build.reshape(part_of(build, mask, 0, 0, samples), (samples, 1, 1, 1))
        columns = build.constant(np.arange(keys, dtype=np.int32).reshape(1, 1, 1, keys))
        if mask.shape[0] == samples:
            return build.map(("less", _X, _Y), columns, ends, dtype=bool)
        starts = build.reshape(part_of(build, mask, 0, samples, samples), (samples, 1, 1, 1))
        inside = ("and", ("less", _X, _Y), ("greater_equal", _X, operand(2)))
        return build.map(inside, columns, ends, starts, dtype=bool)
    if mask.shape == (samples, keys):
        mask = build.reshape(mask, (samples, 1, 1, keys))
    elif mask.shape == (samples, queries, keys):
        mask = build.reshape(mask, (samples, 1, queries, keys))
    elif len(mask.shape) == 4 and mask.shape[:2] == (samples, 1) and keys <= mask.shape[3]:
        if not keys - queries <= keys <= mask.shape[2]:
            raise RefusedError(f"the mask is of {list(mask.shape)}, expected {keys} rows at least")
        mask = part_of(build, part_of(build, mask, 3, 0, keys), 2, keys - queries, queries)
    else:
        raise RefusedError(
            f"the mask is of {list(mask.shape)}, expected [{samples}], [{2 * samples}], "
            f"[{samples}, {keys}] or [{samples}, {queries}, {keys}]"
        )
    return build.map(("not_equal", _X, number(0)), mask, dtype=bool)


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
    seen = _looked_at(build, mask, extents)
    if bias is None:
        return build.map(("where", _X, number(0.0), number(filtered)), seen, dtype=dtype)
    return build.map(("where", _Y, _X, ("add", _X, number(filtered))), bias, seen)


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
    width = w.shape[1] if len(w.shape) == 2 else 0
    sizes = (width // 3,) * 3 if qkv_hidden_sizes is None else qkv_hidden_sizes
    if len(sizes) != 3 or sizes[0] != sizes[1] or any(it % num_heads for it in sizes):
        raise RefusedError(
            f"hidden sizes are {list(sizes)}, expected three multiples of {num_heads} heads, "
            "the first two of them alike"
        )
    q, k, v = (
        split_heads(build, name, it, num_heads)
        for name, it in zip("QKV", _projected(build, x, w, bias, sizes), strict=True)
    )
    before: tuple[Value | None, Value | None] = (None, None)
    if past is not None:
        require_rank(5, "(2, N, H, S, D)", past=past)
        require_shape((2, *k.shape[:2], past.shape[3], k.shape[3]), past=past)
        halves = [part_of(build, past, 0, place, 1) for place in (0, 1)]
        before = tuple(build.reshape(it, past.shape[1:]) for it in halves)  # type: ignore[assignment]
    extents = _Extents(*x.shape[:2], x.shape[1] + (past.shape[3] if past is not None else 0))
    _check_bias(attention_bias, num_heads, extents)
    _check_past(before, k, v)
    added = _added(build, mask, attention_bias, extents, mask_filter_value, x.dtype)
    asked = Request(unidirectional, scale=scale or None)
    y, k, v, _ = attend(build, (q, k, v), added, before, None, asked)
    if k.shape != v.shape:
        return (joined_heads(build, y),)
    halves = [build.reshape(it, (1, *it.shape)) for it in (k, v)]
    return joined_heads(build, y), build.concat(halves, 0)


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


def _biased(
    build: Builder, arrays: Sequence[Value], bias: Value | None, heads: int
) -> list[Value]:
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
