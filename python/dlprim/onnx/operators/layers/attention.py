"""Attention: the operator of the graph, with what it may look at as a mask."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import Expression, number, operand, substituted
from dlprim.graph.extents import derived
from dlprim.graph.graph import Array, Value
from dlprim.graph.lowering.formulas import is_computed
from dlprim.graph.operators.attention import attention_scale
from dlprim.onnx.registry import RefusedError, operator

_X = operand(0)
# Of `qk_matmul_output_mode`.
_RAW, _CAPPED, BIASED, _SHARES = range(4)


class Request(NamedTuple):
    """What the operator's attributes ask for."""

    is_causal: int
    kv_num_heads: int | None = None
    q_num_heads: int | None = None
    mode: int = _RAW
    scale: float | None = None
    softcap: float = 0.0
    left: int = -1
    right: int = -1


def split_heads(build: Builder, name: str, x: Value, heads: int | None) -> Value:
    """(N, S, H*D) as (N, H, S, D)."""
    if len(x.shape) == 4:
        return x
    if len(x.shape) != 3 or heads is None or heads < 1 or x.shape[2] % heads:
        raise RefusedError(
            f"{name} of {list(x.shape)} in {heads} heads, expected (N, H, S, D), or (N, S, H*D) "
            "and how many heads there are"
        )
    rows = build.reshape(x, (*x.shape[:2], heads, x.shape[2] // heads))
    return build.transpose(rows, (0, 2, 1, 3))


def joined_heads(build: Builder, y: Value) -> Value:
    """(N, H, S, D) as (N, S, H*D)."""
    samples, heads, rows, size = y.shape
    return build.reshape(build.transpose(y, (0, 2, 1, 3)), (samples, rows, heads * size))


# ---------------------------------------------------------------- what is looked at


def _all_of(conditions: list[Expression]) -> Expression:
    both = conditions[0]
    for condition in conditions[1:]:
        both = ("and", both, condition)
    return both


def counted(build: Builder, count: int) -> Value:
    """0, 1, ... in 32 bits."""
    return build.constant(derived(np.arange, count).astype(np.int32))


def _distances(queries: int, keys: int, offset: int) -> Array:
    """How far each key is behind each query, whose first is behind so many keys."""
    lines = np.arange(queries, dtype=np.int32), np.arange(keys, dtype=np.int32)
    behind: Array = (lines[0][:, None] - lines[1])[None, None] + np.int32(offset)
    return behind


def window(
    build: Builder, asked: Request, extents: tuple[int, int], offset: int | Value
) -> Value | None:
    """Where a query may look for its place: not ahead if causal, and not too far."""
    queries, keys = extents
    conditions: list[Expression] = []
    if asked.is_causal:
        conditions.append(("greater_equal", _X, number(0)))
    if asked.left >= 0:
        conditions.append(("less_equal", _X, number(asked.left)))
    if asked.right >= 0:
        conditions.append(("greater_equal", _X, number(-asked.right)))
    if not conditions:
        return None
    seen = _all_of(conditions)
    if not isinstance(offset, Value):
        behind = build.constant(derived(_distances, queries, keys, offset))
        return build.map(seen, behind, dtype=bool)
    first = build.cast(offset, np.int32)
    rows, columns = (counted(build, it) for it in (queries, keys))
    distance = ("subtract", ("add", operand(1), operand(2)), _X)
    seen = substituted(seen, [distance])
    return build.map(seen, columns, build.reshape(rows, (queries, 1)), first, dtype=bool)


def _filled(build: Builder, mask: Value, keys: int) -> Value:
    """With four axes, and nothing to see behind the keys that it has."""
    mask = build.reshape(mask, (*[1] * (4 - len(mask.shape)), *mask.shape))
    rest = keys - mask.shape[-1]
    if rest <= 0 or mask.shape[-1] == 1:
        return mask
    hidden = build.constant(np.array(False if mask.dtype == bool else -np.inf, mask.dtype))
    widths = ((0, 0), (0, 0), (0, 0), (0, rest))
    return build.emit("pad", [mask, hidden], widths=widths, mode="constant")[0]


def _hidden(build: Builder, mask: Value | None, seen: Value | None) -> Value | None:
    """The mask, with nothing to see where it may not be looked at."""
    if mask is None or seen is None:
        return seen if mask is None else mask
    if mask.dtype == bool:
        return build.map(("and", _X, operand(1)), mask, seen)
    return build.map(("where", operand(1), _X, number(-math.inf)), mask, seen)


# ---------------------------------------------------------------- scores, which few models ask for


def _scores(
    build: Builder, q: Value, k: Value, mask: Value | None, asked: Request, scale: float
) -> Value:
    """What is compared, or the shares that follow from it, as ``qk_matmul_output_mode`` says."""
    samples, heads, queries, size = q.shape
    groups, keys = k.shape[1], k.shape[2]
    dtype = q.dtype
    wide = np.dtype(np.float64 if dtype == np.float64 else np.float32)
    q, k = build.cast(q, wide), build.cast(k, wide)
    left = build.reshape(q, (samples, groups, heads // groups * queries, size))
    raw = build.matmul(left, build.transpose(k, (0, 1, 3, 2)))
    raw = build.reshape(raw, (samples, heads, queries, keys))
    score: Expression = ("multiply", _X, number(scale))
    if asked.softcap and asked.mode != _RAW:
        cap = number(asked.softcap)
        score = ("multiply", cap, ("tanh", ("divide", score, cap)))
    if mask is None or asked.mode in (_RAW, _CAPPED):
        scores = build.map(score, raw)
    elif mask.dtype == bool:
        scores = build.map(("where", operand(1), score, number(-math.inf)), raw, mask)
    else:
        scores = build.map(("add", score, operand(1)), raw, mask)
    if asked.mode == _SHARES:
        highest = build.reduce("max", scores, [3], keepdims=True)
        shares = build.emit("softmax", [scores], axis=3, log=False)[0]
        is_empty = ("equal", operand(1), number(-math.inf))
        scores = build.map(("where", is_empty, number(0.0), _X), shares, highest)
    return build.cast(scores, dtype)


# ---------------------------------------------------------------- the operator


def _is_of_places(asked: Request) -> bool:
    """Whether a query sees all places that are filled, or those up to its own."""
    return max(asked.left, asked.right) < 0 or (bool(asked.is_causal) and asked.right < 1)


def to_filled(
    build: Builder,
    arrays: tuple[Value, Value, Value, Value],
    mask: Value | None,
    scale: float,
    asked: Request,
) -> Value:
    """Attention of q to k and v, of which as many places of each sample count as the fourth says.

    The queries are the last of these.
    """
    how = {"scale": scale, "softcap": asked.softcap, "causal": bool(asked.is_causal)}
    inputs = [*arrays, *([] if mask is None else [mask])]
    return build.emit("filled_attention", inputs, window=asked.left + 1, **how)[0]


def attend(
    build: Builder,
    arrays: tuple[Value, Value, Value],
    mask: Value | None,
    past: tuple[Value | None, Value | None],
    filled: Value | None,
    asked: Request,
) -> tuple[Value, ...]:
    """``filled`` says of how many keys of each sample there are any."""
    is_flat = len(arrays[0].shape) == 3
    q = split_heads(build, "Q", arrays[0], asked.q_num_heads)
    k = split_heads(build, "K", arrays[1], asked.kv_num_heads)
    v = split_heads(build, "V", arrays[2], asked.kv_num_heads)
    before, before_v = past
    if (before is None) != (before_v is None) or (before is not None and filled is not None):
        raise RefusedError("expected both past_key and past_value, or nonpad_kv_seqlen, or none")
    offset: int | Value = 0
    if before is not None and before_v is not None:
        offset = before.shape[2]
        k, v = build.concat([before, k], 2), build.concat([before_v, v], 2)
    if k.shape[1] < 1 or q.shape[1] % k.shape[1]:
        raise RefusedError(f"{q.shape[1]} heads of Q, expected a multiple of K's {k.shape[1]}")
    queries, keys = q.shape[2], k.shape[2]
    mask = None if mask is None else _filled(build, mask, keys)
    scale = attention_scale(q.shape[3]) if asked.scale is None else asked.scale
    seen = y = None
    if filled is not None:
        if _is_of_places(asked) and is_computed(q.dtype):
            counts = build.cast(build.reshape(filled, q.shape[:1]), np.int64)
            y = to_filled(build, (q, k, v, counts), mask, scale, asked)
        counts = build.cast(build.reshape(filled, (q.shape[0], 1, 1, 1)), np.int64)
        columns = build.constant(derived(np.arange, keys)[None, None, None])
        seen = build.map(("less", _X, operand(1)), columns, counts, dtype=bool)
        offset = build.map(("subtract", _X, number(queries)), counts)
    is_plain = not isinstance(offset, Value) and (offset == 0 or queries == 1)
    is_causal = bool(asked.is_causal) and is_plain and max(asked.left, asked.right) < 0
    if not is_causal:
        seen = _hidden(build, seen, window(build, asked, (queries, keys), offset))
    mask = _hidden(build, mask, seen)
    # A lone query behind all that came before may look at everything.
    is_causal = is_causal and offset == 0
    attributes = {"scale": scale, "softcap": asked.softcap, "causal": is_causal}
    if y is None:
        y = build.emit("attention", [q, k, v, mask], **attributes)[0]
    if is_causal:
        mask = _hidden(build, mask, window(build, asked, (queries, keys), offset))
    scores = _scores(build, q, k, mask, asked, scale)
    return joined_heads(build, y) if is_flat else y, k, v, scores


def _checked(asked: Request, softmax_precision: int | None) -> Request:
    if asked.softcap < 0 or not math.isfinite(asked.softcap):
        raise RefusedError(f"softcap is {asked.softcap}, expected a number from 0 on")
    if asked.mode not in range(4):
        raise RefusedError(f"qk_matmul_output_mode is {asked.mode}, expected 0 to 3")
    if min(asked.left, asked.right) < -1:
        raise RefusedError("left_window_size and right_window_size are expected from -1 on")
    if softmax_precision not in (None, 1, 10, 11, 16):
        raise RefusedError(f"softmax_precision is {softmax_precision}, expected 1, 10, 11 or 16")
    return asked


@operator("Attention", since=23)
def attention(
    build: Builder,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    filled: Value | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
) -> tuple[Value, ...]:
    """Softmax is computed in float32 at least, whatever precision is asked for."""
    heads = (kv_num_heads, q_num_heads)
    asked = Request(is_causal, *heads, qk_matmul_output_mode, scale, softcap)
    asked = _checked(asked, softmax_precision)
    return attend(build, (q, k, v), mask, (past_key, past_value), filled, asked)


@operator("Attention", since=25)
def windowed_attention(
    build: Builder,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    filled: Value | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
) -> tuple[Value, ...]:
    heads = (kv_num_heads, q_num_heads)
    sides = (left_window_size, right_window_size)
    asked = Request(is_causal, *heads, qk_matmul_output_mode, scale, softcap, *sides)
    asked = _checked(asked, softmax_precision)
    return attend(build, (q, k, v), mask, (past_key, past_value), filled, asked)
