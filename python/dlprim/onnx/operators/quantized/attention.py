"""Attention and embeddings of weights in 8 bits: those of floats, of what the bytes stand for.

Passes make integer products of the projections, as they do between pairs of a model itself.
"""

from __future__ import annotations

from dlprim.graph.builder import Builder
from dlprim.graph.graph import Value
from dlprim.onnx.operators.microsoft.attention import attention
from dlprim.onnx.operators.microsoft.norms import embed_layer_norm
from dlprim.onnx.operators.quantized.conversions import MICROSOFT, dequantized
from dlprim.onnx.registry import RefusedError, operator


@operator("QAttention", domain=MICROSOFT)
def qattention(
    build: Builder,
    x: Value,
    w: Value,
    bias: Value,
    x_scale: Value,
    w_scale: Value,
    mask: Value | None = None,
    x_zero: Value | None = None,
    w_zero: Value | None = None,
    past: Value | None = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    past_present_share_buffer: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Value, ...]:
    """The products of the input in integers, those of queries, keys and values in floats."""
    return attention(
        build,
        dequantized(build, x, x_scale, x_zero),
        dequantized(build, w, w_scale, w_zero, 1),
        bias,
        mask,
        past,
        num_heads=num_heads,
        do_rotary=do_rotary,
        mask_filter_value=mask_filter_value,
        past_present_share_buffer=past_present_share_buffer,
        rotary_embedding_dim=rotary_embedding_dim,
        scale=scale,
        unidirectional=unidirectional,
    )


@operator("QEmbedLayerNormalization", domain=MICROSOFT)
def qembed_layer_norm(
    build: Builder,
    words: Value,
    segments: Value | None,
    word_table: Value,
    position_table: Value,
    segment_table: Value | None,
    gamma: Value,
    beta: Value,
    mask: Value | None,
    word_scale: Value,
    position_scale: Value,
    segment_scale: Value | None,
    gamma_scale: Value,
    beta_scale: Value,
    word_zero: Value,
    position_zero: Value,
    segment_zero: Value | None,
    gamma_zero: Value,
    beta_zero: Value,
    *,
    epsilon: float = 1e-12,
) -> tuple[Value, ...]:
    if segment_table is not None and segment_scale is None:
        raise RefusedError("segment_embedding_scale is left out, expected one")
    tables = (
        (word_table, word_scale, word_zero),
        (position_table, position_scale, position_zero),
        (segment_table, segment_scale, segment_zero),
        (gamma, gamma_scale, gamma_zero),
        (beta, beta_scale, beta_zero),
    )
    word, position, segment, norm, shift = (
        None if q is None or scale is None else dequantized(build, q, scale, zero)
        for q, scale, zero in tables
    )
    arrays = (words, segments, word, position, segment, norm, shift, mask)
    y, counts, _ = embed_layer_norm(build, *arrays, epsilon=epsilon)
    return y, counts
