"""GroupQueryAttention: fewer heads of keys than of queries, rotary embeddings, a cache, windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import number, operand
from dlprim.graph.graph import Value
from dlprim.graph.operators.attention import attention_scale
from dlprim.onnx.operators.layers.attention import (
    Request,
    counted,
    joined_heads,
    split_heads,
    to_filled,
    window,
)
from dlprim.onnx.operators.microsoft.caches import (
    Arrays,
    cache_of,
    extended,
    rows_before,
    scattered,
)
from dlprim.onnx.operators.microsoft.checks import (
    MICROSOFT,
    require_at_least,
    require_floats,
    require_rank,
    require_shape,
)
from dlprim.onnx.operators.microsoft.parts import part_of, parts_of
from dlprim.onnx.operators.microsoft.rotary import positions_of, tables_of, turned
from dlprim.onnx.registry import RefusedError, operator

_X, _Y = operand(0), operand(1)


class _Reach(NamedTuple):
    """What queries see.

    Attributes
    ----------
    asked : Request
    bias : Value or None
        What is added to scores.
    sink : Value or None
        A score of each head that takes a share of the softmax, and has no value.
    """

    asked: Request
    bias: Value | None
    sink: Value | None


# ---------------------------------------------------------------- what is attended to


def _attended(
    build: Builder, q: Value, cache: Sequence[Value], seen: Value | None, reach: _Reach
) -> Value:
    """Attention to those of the rows of a cache of keys and values that may be seen."""
    mask = seen if reach.bias is None else reach.bias
    if reach.bias is not None and seen is not None:
        mask = build.map(("where", _Y, _X, number(-np.inf)), reach.bias, seen)
    k, v = cache
    if reach.sink is not None:
        mask, k, v = _with_sink(build, (q, k, v), mask, reach.sink)
    asked = reach.asked
    scale = attention_scale(q.shape[3]) if asked.scale is None else asked.scale
    how = {"scale": scale, "softcap": asked.softcap, "causal": bool(asked.is_causal)}
    return build.emit("attention", [q, k, v, mask], **how)[0]


def _with_sink(
    build: Builder, arrays: Sequence[Value], mask: Value | None, sink: Value
) -> tuple[Value, Value, Value]:
    """The sink is the score of a key of zeros, in front of all others, whose value is zeros."""
    q, *cache = arrays
    heads, queries, keys = q.shape[1], q.shape[2], cache[0].shape[2]
    none = build.constant(np.zeros((1, 1, 1, 1), q.dtype))
    score = none if mask is None else mask
    if score.dtype == bool:
        score = build.map(("where", _Y, _X, number(-np.inf)), none, score)
    samples = score.shape[0]
    score = build.expand(score, (samples, heads, queries, keys))
    column = build.reshape(build.cast(sink, q.dtype), (1, heads, 1, 1))
    column = build.expand(column, (samples, heads, queries, 1))
    zeros = (build.constant(np.zeros((*it.shape[:2], 1, it.shape[3]), it.dtype)) for it in cache)
    k, v = (build.concat([zero, it], 2) for zero, it in zip(zeros, cache, strict=True))
    return build.concat([column, score], 3), k, v


# ---------------------------------------------------------------- one sample


def _of_one_sample(
    build: Builder, arrays: Arrays, reach: _Reach, before: int
) -> tuple[Value, Value, Value]:
    """Everything is where shapes say: y, and the new cache."""
    q, k, v, past_k, past_v = arrays
    asked, queries = reach.asked, q.shape[2]
    present_k, present_v = (
        extended(build, it, was, before) for it, was in ((k, past_k), (v, past_v))
    )
    keys = before + k.shape[2]
    first = 0
    if queries == 1 and asked.left >= 0:  # which looks back so far, and at nothing else
        first = max(0, keys - 1 - asked.left)
    seen = None
    if queries > 1 and (asked.left >= 0 or before > 0 or reach.sink is not None):
        seen = window(build, asked, (queries, keys), before)
    is_causal = bool(asked.is_causal) and queries > 1 and seen is None
    bias = reach.bias
    if bias is not None:
        bias = part_of(build, bias, 3, first, keys - first)
    reach = reach._replace(asked=asked._replace(is_causal=is_causal), bias=bias)
    cache = [part_of(build, it, 2, first, keys - first) for it in (present_k, present_v)]
    return _attended(build, q, cache, seen, reach), present_k, present_v


def _seen(build: Builder, asked: Request, extents: tuple[int, int], offset: Value) -> Value:
    """Which of the places queries see that are behind so many others."""
    queries, most = extents
    seen = window(build, asked, extents, offset)
    if seen is not None:
        return seen
    filled = ("less", _X, ("add", _Y, number(queries)))
    first = build.cast(offset, np.int32)
    return build.map(filled, counted(build, most), first, dtype=bool)


# ---------------------------------------------------------------- caches that stay


def _of_cache(
    build: Builder, arrays: Arrays, reach: _Reach, before: Value
) -> tuple[Value, Value, Value]:
    """``before`` (N, 1): how many places of the cache are filled, in a run; it keeps its size."""
    q, k, v, past_k, past_v = arrays
    samples, queries, places = q.shape[0], q.shape[2], past_k.shape[2]
    first = build.reshape(before, (samples,))
    present = [
        build.emit("placed_rows", [was, it, first])[0] for it, was in ((k, past_k), (v, past_v))
    ]
    asked = reach.asked
    if reach.sink is None:
        fill = build.map(("add", _X, number(queries)), first, dtype=np.int64)
        scale = attention_scale(q.shape[3]) if asked.scale is None else asked.scale
        y = to_filled(build, (q, present[0], present[1], fill), reach.bias, scale, asked)
    else:
        offset = build.reshape(before, (samples, 1, 1, 1))
        seen = _seen(build, asked, (queries, places), offset)
        y = _attended(build, q, present, seen, reach._replace(asked=asked._replace(is_causal=0)))
    return y, present[0], present[1]


# ---------------------------------------------------------------- several samples


def _of_samples(
    build: Builder, arrays: Arrays, reach: _Reach, before: Value, most: int
) -> tuple[Value, Value, Value]:
    """``before`` (N, 1): how many rows of the cache each sample has; ``most`` with those of x."""
    q, k, v, past_k, past_v = arrays
    samples, _, queries, _ = q.shape
    whole = (scattered(build, it, was, before) for it, was in ((k, past_k), (v, past_v)))
    room = max(past_k.shape[2], most)
    present_k, present_v = (part_of(build, it, 2, 0, room) for it in whole)
    offset = build.reshape(before, (samples, 1, 1, 1))
    seen = _seen(build, reach.asked, (queries, most), offset)
    reach = reach._replace(asked=reach.asked._replace(is_causal=False))
    cache = [part_of(build, it, 2, 0, most) for it in (present_k, present_v)]
    return _attended(build, q, cache, seen, reach), present_k, present_v


# ---------------------------------------------------------------- the operator


def _separate(
    build: Builder, query: Value, key: Value | None, value: Value | None, heads: tuple[int, int]
) -> tuple[Value, Value, Value]:
    """(N, H, S, D) of each, also where they lie one after the other in the query."""
    require_at_least(1, num_heads=heads[0], kv_num_heads=heads[1])
    if heads[0] % heads[1]:
        raise RefusedError(f"num_heads is {heads[0]}, expected a multiple of {heads[1]}")
    require_rank(3, "(N, S, H*D)", query=query, key=key, value=value)
    if key is None and value is None:
        size = query.shape[2] // (heads[0] + 2 * heads[1])
        sizes = [heads[0] * size, heads[1] * size, heads[1] * size]
        if not size or sum(sizes) != query.shape[2]:
            raise RefusedError(
                f"query is of {list(query.shape)}, expected {heads[0] + 2 * heads[1]} heads"
            )
        query, key, value = parts_of(build, query, 2, sizes)
    if key is None or value is None:
        raise RefusedError("key or value is left out, expected both of them or none")
    q = split_heads(build, "query", query, heads[0])
    k, v = (split_heads(build, "key", it, heads[1]) for it in (key, value))
    require_shape((q.shape[0], heads[1], q.shape[2], q.shape[3]), key=k, value=v)
    return q, k, v


def _refuse(
    k_scale: Value | None, v_scale: Value | None, qk_output: int, sliding_window_cache: int
) -> None:
    if k_scale is not None or v_scale is not None or qk_output or sliding_window_cache:
        raise RefusedError(
            "k_scale, v_scale, qk_output or sliding_window_cache is given, expected a cache of "
            "floats for all positions, and no scores as a result"
        )


def _normalized(
    build: Builder, q: Value, k: Value, weights: tuple[Value | None, Value | None], epsilon: float
) -> tuple[Value, Value]:
    """Each head of queries and of keys over its root mean square."""
    if weights == (None, None):
        return q, k
    require_shape(q.shape[3:], q_norm_weight=weights[0], k_norm_weight=weights[1])
    how = {"axes": 1, "epsilon": epsilon, "rms": True}
    rows = zip((q, k), weights, strict=True)
    q, k = (build.emit("normalize", [it, weight, None], **how)[0] for it, weight in rows)
    return q, k


@operator("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(
    build: Builder,
    query: Value,
    key: Value | None = None,
    value: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    lengths: Value | None = None,
    total: Value | None = None,
    cosines: Value | None = None,
    sines: Value | None = None,
    positions: Value | None = None,
    attention_bias: Value | None = None,
    sink: Value | None = None,
    k_scale: Value | None = None,
    v_scale: Value | None = None,
    q_norm: Value | None = None,
    k_norm: Value | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    causal: int = 1,
    do_rotary: int = 0,
    local_window_size: int = -1,
    qk_norm_epsilon: float = 1e-6,
    qk_output: int = 0,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
    sliding_window_cache: int = 0,
    smooth_softmax: int = -1,
    softcap: float = 0.0,
) -> tuple[Value, ...]:
    """The results are y, and keys and values with those that came before.

    ``total``, the positions of the longest sample, is a number that must be known. A lone sample
    has as many positions; of several, ``lengths`` says how many each of them has, less one. It says
    so in a run where the past is a cache that stays, with room for all.
    """
    _refuse(k_scale, v_scale, qk_output, sliding_window_cache)
    require_floats(query=query, key=key, value=value, past_key=past_key, past_value=past_value)
    q, k, v = _separate(build, query, key, value, (num_heads, kv_num_heads))
    arrays = Arrays(q, k, v, *cache_of(build, k, past_key, past_value))
    before, most = rows_before(build, lengths, total, arrays)
    q, k = _normalized(build, q, k, (q_norm, k_norm), qk_norm_epsilon)
    if do_rotary:
        tables = tables_of(cosines, sines, q)
        at = positions_of(build, positions, before, (q.shape[0], q.shape[2]))
        q, k = (turned(build, it, tables, at, rotary_interleaved) for it in (q, k))
    left = max(-1, local_window_size - 1)
    asked = Request(causal, scale=scale or None, softcap=softcap, left=left)
    reach = _Reach(asked, attention_bias, _sink_of(build, q, sink, smooth_softmax))
    return _attention(build, arrays._replace(q=q, k=k), reach, before, most)


def _attention(
    build: Builder, arrays: Arrays, reach: _Reach, before: int | Value, most: int
) -> tuple[Value, ...]:
    _check_reach(reach, arrays.q, most)
    if isinstance(before, Value) and arrays.past_k in build.kept:
        y, *present = _of_cache(build, arrays, reach, before)
    elif isinstance(before, Value):
        y, *present = _of_samples(build, arrays, reach, before, most)
    else:
        y, *present = _of_one_sample(build, arrays, reach, before)
    return joined_heads(build, y), *present


def _sink_of(build: Builder, q: Value, sink: Value | None, smooth: int) -> Value | None:
    require_shape(q.shape[1:2], head_sink=sink)
    if sink is None and smooth == 1:
        return build.constant(np.zeros(q.shape[1], q.dtype))
    return sink


def _check_reach(reach: _Reach, q: Value, most: int) -> None:
    asked, bias = reach.asked, reach.bias
    if asked.softcap < 0 or not np.isfinite(asked.softcap):
        raise RefusedError(f"softcap is {asked.softcap}, expected a number from 0 on")
    if asked.left >= 0 and not asked.is_causal:
        raise RefusedError("local_window_size is there without causal, expected -1")
    if bias is None:
        return
    require_rank(4, "(N, H, S, T)", attention_bias=bias)
    fits = bias.shape[0] in (1, q.shape[0]) and bias.shape[1] in (1, q.shape[1])
    if not fits or bias.shape[2:] != (q.shape[2], most):
        raise RefusedError(
            f"attention_bias is of {list(bias.shape)}, expected one that can be broadcast to "
            f"{[*q.shape[:3], most]}"
        )
