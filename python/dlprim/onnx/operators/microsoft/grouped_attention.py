"""GroupQueryAttention: fewer heads of keys than of queries, rotary embeddings, a cache, windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import number, operand
from dlprim.graph.graph import Value
from dlprim.graph.operators.products import attention_scale
from dlprim.onnx.operators.layers.attention import (
    Request,
    joined_heads,
    split_heads,
    window,
)
from dlprim.onnx.operators.layers.positions import rotary_embedding
from dlprim.onnx.operators.microsoft.attention import part_of, parts_of
from dlprim.onnx.operators.microsoft.checks import (
    MICROSOFT,
    require_at_least,
    require_floats,
    require_integers,
    require_rank,
    require_shape,
)
from dlprim.onnx.operators.shapes import numbers
from dlprim.onnx.registry import RefusedError, operator

_X, _Y = operand(0), operand(1)


class _Arrays(NamedTuple):
    """Queries (N, H, S, D), new keys and values (N, Hk, S, D), and those that came before."""

    q: Value
    k: Value
    v: Value
    past_k: Value
    past_v: Value


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


# ---------------------------------------------------------------- RotaryEmbedding


def _turned(
    build: Builder, x: Value, tables: tuple[Value, Value], at: Value | int, mode: int
) -> Value:
    """x (N, H, S, D), turned by rows of tables of cosines and sines: (N, S), or the first one."""
    samples, _, rows, _ = x.shape
    most, half = tables[0].shape
    options = {"interleaved": mode, "rotary_embedding_dim": 2 * half}
    if isinstance(at, Value):
        return rotary_embedding(build, x, *tables, at, **options)
    if at + rows > most:
        raise RefusedError(f"cos_cache has {most} rows, expected {at + rows} or more")
    lines = (build.reshape(part_of(build, it, 0, at, rows), (1, rows, half)) for it in tables)
    cosines, sines = (build.expand(it, (samples, rows, half)) for it in lines)
    return rotary_embedding(build, x, cosines, sines, **options)


def _check_tables(cosines: Value, sines: Value, size: int) -> None:
    require_rank(2, "(positions, D / 2)", cos_cache=cosines)
    require_shape(cosines.shape, sin_cache=sines)
    if not 0 < 2 * cosines.shape[1] <= size or not cosines.shape[0]:
        raise RefusedError(
            f"cos_cache is of {list(cosines.shape)}, expected rows of at most {size // 2}"
        )


@operator("RotaryEmbedding", domain=MICROSOFT)
def microsoft_rotary_embedding(
    build: Builder,
    x: Value,
    positions: Value,
    cosines: Value,
    sines: Value,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Value:
    """One position stands for the first of a row, which the others follow."""
    require_floats(input=x, cos_cache=cosines, sin_cache=sines)
    require_integers(position_ids=positions)
    if is_packed_batching or scale != 1:
        raise RefusedError("is_packed_batching is 1 or scale is not 1, expected 0 and 1")
    if len(x.shape) not in (3, 4):
        raise RefusedError(f"input is of {list(x.shape)}, expected (N, S, H*D) or (N, H, S, D)")
    require_rank(2, "(positions, D / 2)", cos_cache=cosines)
    size = 2 * cosines.shape[1]
    if len(x.shape) == 3:
        heads = num_heads or x.shape[2] // max(1, size)
        whole = split_heads(build, "input", x, heads)
    else:
        whole = x
    _check_tables(cosines, sines, whole.shape[3])
    if rotary_embedding_dim not in (0, size):
        raise RefusedError(f"rotary_embedding_dim is {rotary_embedding_dim}, expected {size}")
    rows = (x.shape[0], whole.shape[2])
    if positions.shape == (1,):
        steps = build.constant(np.arange(rows[1], dtype=np.int64)[None])
        first = build.cast(positions, np.int64)
        positions = build.expand(build.apply("add", steps, first), rows)
    require_shape(rows, position_ids=positions)
    y = _turned(build, whole, (cosines, sines), positions, interleaved)
    return joined_heads(build, y) if len(x.shape) == 3 else y


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


def _extended(build: Builder, x: Value, past: Value, before: int) -> Value:
    """The first ``before`` rows of the past, x, and the rows that the past has behind that."""
    after = before + x.shape[2]
    parts = [part_of(build, past, 2, 0, before)] if before > 0 else []
    parts.append(x)
    if past.shape[2] > after:
        parts.append(part_of(build, past, 2, after, past.shape[2] - after))
    return build.concat(parts, 2)


def _of_one_sample(
    build: Builder, arrays: _Arrays, reach: _Reach, before: int
) -> tuple[Value, Value, Value]:
    """Everything is where shapes say: y, and the new cache."""
    q, k, v, past_k, past_v = arrays
    asked, queries = reach.asked, q.shape[2]
    present_k, present_v = (
        _extended(build, it, was, before) for it, was in ((k, past_k), (v, past_v))
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


# ---------------------------------------------------------------- several samples


def _scattered(build: Builder, x: Value, past: Value, before: Value) -> Value:
    """Of each sample as many rows of the past as ``before`` (N, 1) says, then those of x."""
    samples, heads, rows, size = x.shape
    both = build.concat([past, x], 2)
    known, extent = past.shape[2], both.shape[2]
    columns = build.constant(np.arange(extent, dtype=np.int64)[None])
    is_new = ("and", ("greater_equal", _X, _Y), ("less", _X, ("add", _Y, number(rows))))
    moved = ("add", ("subtract", _X, _Y), number(known))
    places = build.map(("where", is_new, moved, _X), columns, before, dtype=np.int64)
    lines = np.arange(samples * heads, dtype=np.int64).reshape(samples, heads, 1) * extent
    flat = build.apply("add", build.constant(lines), build.reshape(places, (samples, 1, extent)))
    return build.gather(build.reshape(both, (samples * heads * extent, size)), flat, 0)


def _of_samples(
    build: Builder, arrays: _Arrays, reach: _Reach, before: Value, most: int
) -> tuple[Value, Value, Value]:
    """``before`` (N, 1): how many rows of the cache each sample has; ``most`` with those of x."""
    q, k, v, past_k, past_v = arrays
    samples, _, queries, _ = q.shape
    whole = (_scattered(build, it, was, before) for it, was in ((k, past_k), (v, past_v)))
    room = max(past_k.shape[2], most)
    present_k, present_v = (part_of(build, it, 2, 0, room) for it in whole)
    offset = build.reshape(before, (samples, 1, 1, 1))
    seen = window(build, reach.asked, (queries, most), offset)
    if seen is None:
        columns = build.constant(np.arange(most, dtype=np.int64))
        filled = ("less", _X, ("add", _Y, number(queries)))
        seen = build.map(filled, columns, offset, dtype=bool)
    reach = reach._replace(asked=reach.asked._replace(is_causal=False))
    cache = [part_of(build, it, 2, 0, most) for it in (present_k, present_v)]
    return _attended(build, q, cache, seen, reach), present_k, present_v


# ---------------------------------------------------------------- the operator


def _separate(
    build: Builder, query: Value, key: Value | None, value: Value | None, heads: tuple[int, int]
) -> tuple[Value, Value, Value]:
    """(N, H, S, D) of each, also where they lie one after the other in the query."""
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


def _refuse_rest(**given: Value | str | int | None) -> None:
    for name, value in given.items():
        if value not in (None, 0, "NONE"):
            raise RefusedError(f"{name} is given, expected a cache of floats without it")


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
    chunk_lengths: Value | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    causal: int = 1,
    do_rotary: int = 0,
    k_norm_epsilon: float | None = None,
    k_quant_type: str = "NONE",
    kv_cache_bit_width: int = 0,
    local_window_size: int = -1,
    q_norm_epsilon: float | None = None,
    qk_norm_epsilon: float = 1e-6,
    qk_output: int = 0,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
    sliding_window_cache: int = 0,
    smooth_softmax: int = -1,
    softcap: float = 0.0,
    v_quant_type: str = "NONE",
) -> tuple[Value, ...]:
    """The results are y, and keys and values with those that came before.

    ``total``, the positions of the longest sample, is a number that must be known. A lone sample
    has as many positions; of several, ``lengths`` says how many each of them has, less one.
    """
    _refuse_rest(k_scale=k_scale, v_scale=v_scale, query_seqlens=chunk_lengths)
    _refuse_rest(k_quant_type=k_quant_type, v_quant_type=v_quant_type, qk_output=qk_output)
    _refuse_rest(kv_cache_bit_width=kv_cache_bit_width, sliding_window_cache=sliding_window_cache)
    if {k_norm_epsilon, q_norm_epsilon} - {None, qk_norm_epsilon}:
        raise RefusedError("q_norm_epsilon and k_norm_epsilon differ, expected qk_norm_epsilon")
    require_at_least(1, num_heads=num_heads, kv_num_heads=kv_num_heads)
    require_floats(query=query, key=key, value=value, past_key=past_key, past_value=past_value)
    q, k, v = _separate(build, query, key, value, (num_heads, kv_num_heads))
    if num_heads % kv_num_heads:
        raise RefusedError(f"num_heads is {num_heads}, expected a multiple of {kv_num_heads}")
    if lengths is None or total is None:
        raise RefusedError("seqlens_k or total_sequence_length is left out, expected both of them")
    arrays = _Arrays(q, k, v, *_cache(build, k, past_key, past_value))
    before, most = _before(build, lengths, total, arrays)
    q, k = _normalized(build, q, k, (q_norm, k_norm), qk_norm_epsilon)
    if do_rotary:
        tables = _tables(cosines, sines, q)
        at = _positions(build, positions, before, (q.shape[0], q.shape[2]))
        q, k = (_turned(build, it, tables, at, rotary_interleaved) for it in (q, k))
    asked = Request(
        causal, scale=scale or None, softcap=softcap, left=max(-1, local_window_size - 1)
    )
    reach = _Reach(asked, attention_bias, _sink_of(build, q, sink, smooth_softmax))
    _check_reach(reach, q, most)
    arrays = arrays._replace(q=q, k=k)
    if isinstance(before, Value):
        y, *present = _of_samples(build, arrays, reach, before, most)
    else:
        y, *present = _of_one_sample(build, arrays, reach, before)
    return joined_heads(build, y), *present


def _cache(
    build: Builder, k: Value, past_key: Value | None, past_value: Value | None
) -> tuple[Value, Value]:
    """What came before, of no rows where it is left out."""
    if (past_key is None) != (past_value is None):
        raise RefusedError("past_key or past_value is left out, expected both of them or none")
    if past_key is None or past_value is None:
        none = build.constant(np.zeros((*k.shape[:2], 0, k.shape[3]), k.dtype))
        return none, none
    require_rank(4, "(N, H, S, D)", past_key=past_key, past_value=past_value)
    require_shape(
        (*k.shape[:2], past_key.shape[2], k.shape[3]), past_key=past_key, past_value=past_value
    )
    return past_key, past_value


def _before(
    build: Builder, lengths: Value, total: Value, arrays: _Arrays
) -> tuple[int | Value, int]:
    """How many rows of the cache come first, a number if shapes say it; and those that are seen."""
    require_integers(seqlens_k=lengths, total_sequence_length=total)
    samples, rows, known = arrays.q.shape[0], arrays.q.shape[2], arrays.past_k.shape[2]
    if lengths.size != samples or total.size != 1:
        raise RefusedError(
            f"seqlens_k is of {list(lengths.shape)} and total_sequence_length of "
            f"{list(total.shape)}, expected [{samples}] and one number"
        )
    (most,) = numbers(build, build.reshape(total, (1,)))
    if not rows <= most <= known + rows:
        raise RefusedError(
            f"total_sequence_length is {most}, expected {rows} to {known + rows} of {rows} new "
            f"positions and a past of {known}"
        )
    if samples == 1 or most == rows:
        return most - rows, most
    counts = build.cast(build.reshape(lengths, (samples, 1)), np.int64)
    shifted = ("maximum", ("add", _X, number(1 - rows)), number(0))
    return build.map(shifted, counts), most


def _tables(cosines: Value | None, sines: Value | None, q: Value) -> tuple[Value, Value]:
    if cosines is None or sines is None:
        raise RefusedError("cos_cache or sin_cache is left out, expected both with do_rotary")
    require_floats(query=q, cos_cache=cosines, sin_cache=sines)
    _check_tables(cosines, sines, q.shape[3])
    return cosines, sines


def _positions(
    build: Builder, given: Value | None, before: int | Value, rows: tuple[int, int]
) -> int | Value:
    """Which rows of the tables belong to each position (N, S), or which is the first of all."""
    if given is not None:
        require_integers(position_ids=given)
        require_shape(rows, position_ids=given)
        return given
    if isinstance(before, Value):
        return build.apply("add", before, build.constant(np.arange(rows[1], dtype=np.int64)[None]))
    return before


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
