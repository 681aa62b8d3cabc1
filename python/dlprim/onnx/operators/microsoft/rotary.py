"""Rotary embeddings: pairs of elements of a head, turned by an angle of the position."""

from __future__ import annotations

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import operand
from dlprim.graph.extents import derived
from dlprim.graph.graph import Value
from dlprim.onnx.operators.layers.attention import joined_heads, split_heads
from dlprim.onnx.operators.layers.positions import rotary_embedding
from dlprim.onnx.operators.microsoft.checks import (
    MICROSOFT,
    require_floats,
    require_integers,
    require_rank,
    require_shape,
)
from dlprim.onnx.operators.microsoft.parts import part_of
from dlprim.onnx.registry import RefusedError, operator


def turned(
    build: Builder, x: Value, tables: tuple[Value, Value], at: Value | int, mode: int
) -> Value:
    """x (N, H, S, D), turned by rows of tables of cosines and sines: (N, S), or the first one."""
    samples, _, rows, _ = x.shape
    most, half = tables[0].shape
    positions = at if isinstance(at, Value) else None
    cosines, sines = tables
    if not isinstance(at, Value):
        if at + rows > most:
            raise RefusedError(f"cos_cache has {most} rows, expected {at + rows} or more")
        lines = (build.reshape(part_of(build, it, 0, at, rows), (1, rows, half)) for it in tables)
        cosines, sines = (build.expand(it, (samples, rows, half)) for it in lines)
    return rotary_embedding(
        build, x, cosines, sines, positions, interleaved=mode, rotary_embedding_dim=2 * half
    )


def check_tables(cosines: Value, sines: Value, size: int) -> None:
    require_rank(2, "(positions, D / 2)", cos_cache=cosines)
    require_shape(cosines.shape, sin_cache=sines)
    if not 0 < 2 * cosines.shape[1] <= size or not cosines.shape[0]:
        raise RefusedError(
            f"cos_cache is of {list(cosines.shape)}, expected rows of at most {size // 2}"
        )


def tables_of(cosines: Value | None, sines: Value | None, q: Value) -> tuple[Value, Value]:
    if cosines is None or sines is None:
        raise RefusedError("cos_cache or sin_cache is left out, expected both with do_rotary")
    require_floats(query=q, cos_cache=cosines, sin_cache=sines)
    check_tables(cosines, sines, q.shape[3])
    return cosines, sines


def positions_of(
    build: Builder, given: Value | None, before: int | Value, rows: tuple[int, int]
) -> int | Value:
    """Which rows of the tables belong to each position (N, S), or which is the first of all."""
    if given is not None:
        require_integers(position_ids=given)
        require_shape(rows, position_ids=given)
        return given
    if isinstance(before, Value):
        return build.apply("add", before, build.constant(derived(np.arange, rows[1])[None]))
    return before


# ---------------------------------------------------------------- operators


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
    check_tables(cosines, sines, whole.shape[3])
    if rotary_embedding_dim not in (0, size):
        raise RefusedError(f"rotary_embedding_dim is {rotary_embedding_dim}, expected {size}")
    rows = (x.shape[0], whole.shape[2])
    if positions.shape == (1,):
        steps = build.constant(derived(np.arange, rows[1])[None])
        first = build.cast(positions, np.int64)
        positions = build.expand(build.apply("add", steps, first), rows)
    require_shape(rows, position_ids=positions)
    y = turned(build, whole, (cosines, sines), positions, interleaved)
    return joined_heads(build, y) if len(x.shape) == 3 else y


@operator("GemmaRotaryEmbedding", domain=MICROSOFT)
def gemma_rotary_embedding(
    build: Builder, angles: Value, q: Value, q_turned: Value, k: Value, k_turned: Value
) -> tuple[Value, Value]:
    """Heads and the same with their halves exchanged, by the cosines and sines of angles."""
    require_floats(q=q, q_rot=q_turned, k=k, k_rot=k_turned)
    require_floats(emb=angles)
    require_rank(3, "(N, S, D)", emb=angles)
    require_rank(4, "(N, H, S, D)", q=q, k=k)
    require_shape(q.shape, q_rot=q_turned)
    require_shape(k.shape, k_rot=k_turned)
    samples, rows, size = angles.shape
    spread = build.reshape(angles, (samples, 1, rows, size))
    cosines, sines = (build.apply(it, spread, dtype=q.dtype) for it in ("cos", "sin"))
    products = ("multiply", operand(0), operand(2)), ("multiply", operand(1), operand(3))
    y_q, y_k = (
        build.map(("add", *products), x, turned, cosines, sines)
        for x, turned in ((q, q_turned), (k, k_turned))
    )
    return y_q, y_k
