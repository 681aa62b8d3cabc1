"""Rotary embeddings, and attention whose scores are never compared."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import operand
from dlprim.graph.graph import Value
from dlprim.graph.operators.elements import converted
from dlprim.graph.operators.operator import NO_FUNCTION, Arrays, Attributes, callee
from dlprim.onnx.registry import RefusedError, operator

# ---------------------------------------------------------------- RotaryEmbedding


def _last(build: Builder, x: Value, start: int, count: int, step: int = 1) -> Value:
    """A slice of the last axis."""
    front = len(x.shape) - 1
    starts, steps = (*[0] * front, start), (*[1] * front, step)
    return build.slice(x, starts, (*x.shape[:-1], count), steps)


@operator("RotaryEmbedding", since=23)
def rotary_embedding(
    build: Builder,
    x: Value,
    cosines: Value,
    sines: Value,
    positions: Value | None = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Value:
    """Pairs of elements are turned: the halves of a head, or neighbours if interleaved."""
    heads = x
    if len(x.shape) == 3:
        if num_heads < 1 or x.shape[2] % num_heads:
            raise RefusedError(f"num_heads is {num_heads}, expected a divisor of {x.shape[2]}")
        heads = build.reshape(x, (*x.shape[:2], num_heads, x.shape[2] // num_heads))
    if len(heads.shape) != 4:
        raise RefusedError(f"X of {list(x.shape)}, expected 3 or 4 axes")
    size = heads.shape[3]
    turned = rotary_embedding_dim or size
    if turned % 2 or not 0 < turned <= size:
        raise RefusedError(f"rotary_embedding_dim is {turned}, expected even and at most {size}")
    half = turned // 2
    if positions is not None:
        cosines, sines = (build.gather(it, positions, 0) for it in (cosines, sines))
    rows = x.shape[1] if len(x.shape) == 3 else x.shape[2]
    expected = (x.shape[0], rows, half)
    if cosines.shape != expected or sines.shape != expected:
        raise RefusedError(
            f"caches give {list(cosines.shape)} and {list(sines.shape)}, expected {list(expected)}"
        )
    shape = (x.shape[0], rows, 1, half) if len(x.shape) == 3 else (x.shape[0], 1, rows, half)
    cosines, sines = build.reshape(cosines, shape), build.reshape(sines, shape)
    step, second = (2, 1) if interleaved else (1, half)
    a, b = _last(build, heads, 0, half, step), _last(build, heads, second, half, step)
    products = [("multiply", operand(0), operand(1)), ("multiply", operand(2), operand(3))]
    real = build.map(("subtract", *products), a, cosines, b, sines)
    imaginary = build.map(("add", *products), a, sines, b, cosines)
    if interleaved:
        pairs = [build.reshape(it, (*it.shape, 1)) for it in (real, imaginary)]
        parts = [build.reshape(build.concat(pairs, 4), (*real.shape[:3], turned))]
    else:
        parts = [real, imaginary]
    if turned < size:
        parts.append(_last(build, heads, turned, size - turned))
    return build.reshape(build.concat(parts, 3), x.shape)


# ---------------------------------------------------------------- LinearAttention


@callee("linear_attention", NO_FUNCTION)
def linear_attention_arrays(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """q (N, T, H, D), k (N, T, G, D), v (N, T, G, E), state (N, G, D, E), step by step.

    ``decay`` (N, T, G, D or 1) is what is left of the state as a logarithm; ``beta`` (N, T, G or
    1) how much of the difference between v and what the state says of k is added.
    """
    q, k, v, state, decay, beta = (
        None if array is None else array.astype(np.float64) for array in arrays
    )
    assert q is not None
    assert k is not None
    assert v is not None
    samples, steps, heads = q.shape[:3]
    groups, size, width = k.shape[2], k.shape[3], v.shape[3]
    state = np.zeros((samples, groups, size, width)) if state is None else state
    y = np.zeros((samples, steps, heads, width))
    for step in range(steps):
        if decay is not None:
            state = state * np.exp(decay[:, step])[..., None]
        added = v[:, step]
        if beta is not None:
            said = np.einsum("ngde,ngd->nge", state, k[:, step])
            added = (added - said) * beta[:, step][..., None]
        state = state + k[:, step][..., None] * added[:, :, None]
        whole = np.repeat(state, heads // groups, axis=1)
        y[:, step] = np.einsum("nhde,nhd->nhe", whole, q[:, step]) * attributes["scale"]
    (y_shape, y_type), (state_shape, state_type) = attributes["results"]
    return [
        converted(y.reshape(y_shape), np.dtype(y_type)),
        converted(state.reshape(state_shape), np.dtype(state_type)),
    ]


_RULES = {
    "linear": (False, False),
    "gated": (True, False),
    "delta": (False, True),
    "gated_delta": (True, True),
}


@operator("LinearAttention", since=27)
def linear_attention(
    build: Builder,
    q: Value,
    k: Value,
    v: Value,
    past: Value | None = None,
    decay: Value | None = None,
    beta: Value | None = None,
    *,
    chunk_size: int = 64,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
) -> tuple[Value, ...]:
    if update_rule not in _RULES:
        raise RefusedError(f"update_rule is {update_rule!r}, expected one of {', '.join(_RULES)}")
    if (decay is not None, beta is not None) != _RULES[update_rule]:
        raise RefusedError(f"decay or beta is not what update_rule {update_rule!r} expects")
    if kv_num_heads < 1 or q_num_heads < 1 or q_num_heads % kv_num_heads:
        raise RefusedError(f"{q_num_heads} heads of query, expected a multiple of {kv_num_heads}")

    def parted(name: str, x: Value, heads: int) -> Value:
        if len(x.shape) != 3 or x.shape[2] % heads:
            raise RefusedError(f"{name} of {list(x.shape)}, expected (N, T, {heads} * D)")
        return build.reshape(x, (*x.shape[:2], heads, x.shape[2] // heads))

    q4, k4 = parted("query", q, q_num_heads), parted("key", k, kv_num_heads)
    v4 = parted("value", v, kv_num_heads)
    decay = None if decay is None else parted("decay", decay, kv_num_heads)
    shape = (q.shape[0], kv_num_heads, k4.shape[3], v4.shape[3])
    if q4.shape[3] != k4.shape[3] or (past is not None and past.shape != shape):
        raise RefusedError(f"query, key and past_state do not fit, expected a state of {shape}")
    results = [
        ((*q.shape[:2], q_num_heads * v4.shape[3]), q.dtype),
        (shape, q.dtype if past is None else past.dtype),
    ]
    factor = scale or 1 / math.sqrt(max(1, q4.shape[3]))
    inputs = [q4, k4, v4, past, decay, beta]
    return build.call("linear_attention", inputs, results, scale=factor)
