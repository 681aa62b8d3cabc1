"""Keys and values of positions that came before, with room for those that come."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import number, operand
from dlprim.graph.extents import derived
from dlprim.graph.graph import Value
from dlprim.onnx.operators.layers.attention import counted
from dlprim.onnx.operators.microsoft.checks import require_integers, require_rank, require_shape
from dlprim.onnx.operators.microsoft.parts import part_of
from dlprim.onnx.operators.shapes import numbers
from dlprim.onnx.registry import RefusedError

_X, _Y = operand(0), operand(1)


class Arrays(NamedTuple):
    """Queries (N, H, S, D), new keys and values (N, Hk, S, D), and those that came before."""

    q: Value
    k: Value
    v: Value
    past_k: Value
    past_v: Value


def extended(build: Builder, x: Value, past: Value, before: int) -> Value:
    """The first ``before`` rows of the past, x, and the rows that the past has behind that."""
    after = before + x.shape[2]
    parts = [part_of(build, past, 2, 0, before)] if before > 0 else []
    parts.append(x)
    if past.shape[2] > after:
        parts.append(part_of(build, past, 2, after, past.shape[2] - after))
    return build.concat(parts, 2)


def scattered(build: Builder, x: Value, past: Value, before: Value) -> Value:
    """Of each sample as many rows of the past as ``before`` (N, 1) says, then those of x."""
    samples, heads, rows, size = x.shape
    both = build.concat([past, x], 2)
    known, extent = past.shape[2], both.shape[2]
    if rows == 1:
        columns = build.reshape(counted(build, extent), (extent, 1))
        first = build.reshape(build.cast(before, np.int32), (samples, 1, 1, 1))
        is_new = ("equal", operand(2), operand(3))
        return build.map(("where", is_new, _Y, _X), both, x, columns, first)
    columns = build.constant(derived(np.arange, extent)[None])
    is_new = ("and", ("greater_equal", _X, _Y), ("less", _X, ("add", _Y, number(rows))))
    moved = ("add", ("subtract", _X, _Y), number(known))
    places = build.map(("where", is_new, moved, _X), columns, before, dtype=np.int64)
    lines = derived(np.arange, samples * heads).reshape(samples, heads, 1) * extent
    flat = build.apply("add", build.constant(lines), build.reshape(places, (samples, 1, extent)))
    return build.gather(build.reshape(both, (samples * heads * extent, size)), flat, 0)


def cache_of(
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


def rows_before(
    build: Builder, lengths: Value | None, total: Value | None, arrays: Arrays
) -> tuple[int | Value, int]:
    """How many rows of the cache come first, a number if shapes say it; and those that are seen."""
    if lengths is None or total is None:
        raise RefusedError("seqlens_k or total_sequence_length is left out, expected both of them")
    require_integers(seqlens_k=lengths, total_sequence_length=total)
    samples, rows, known = arrays.q.shape[0], arrays.q.shape[2], arrays.past_k.shape[2]
    if lengths.size != samples or total.size != 1:
        raise RefusedError(
            f"seqlens_k is of {list(lengths.shape)} and total_sequence_length of "
            f"{list(total.shape)}, expected [{samples}] and one number"
        )
    if arrays.past_k in build.kept:
        counts = build.cast(build.reshape(lengths, (samples, 1)), np.int64)
        return _shifted(build, counts, rows), known
    (most,) = numbers(build, build.reshape(total, (1,)))
    if not rows <= most <= known + rows:
        raise RefusedError(
            f"total_sequence_length is {most}, expected {rows} to {known + rows} of {rows} new "
            f"positions and a past of {known}"
        )
    if samples == 1 or most == rows:
        return most - rows, most
    counts = build.cast(build.reshape(lengths, (samples, 1)), np.int64)
    return _shifted(build, counts, rows), most


def _shifted(build: Builder, counts: Value, rows: int) -> Value:
    """How many positions came before so many rows, of numbers of all of them, less one."""
    return build.map(("maximum", ("add", _X, number(1 - rows)), number(0)), counts)
