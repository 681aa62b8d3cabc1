"""Operators that are taken apart before they reach a rule.

Most are taken apart as PyTorch itself does it. PyTorch's whole layers for inference, which modules
call where nobody wants gradients, become what the modules compute otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch.nn import functional

_aten = torch.ops.aten
# Named where a rule would not compute them faster. None draws random numbers.
_NAMES = (
    *("_fused_rms_norm", "_fused_rms_norm_backward", "_prelu_kernel", "_prelu_kernel_backward"),
    *("addcdiv", "addcmul", "addr", "aminmax", "arange.default"),
    *("arange.start", "binary_cross_entropy", "binary_cross_entropy_backward"),
    *("binary_cross_entropy_with_logits", "celu", "channel_shuffle", "clamp_max.Tensor"),
    *("clamp_min.Tensor", "cumprod_backward", "diag_embed", "diagonal_backward", "dot", "elu"),
    *("elu_backward", "eye", "fill.Scalar", "fill.Tensor", "frac", "glu", "glu_backward"),
    *("hardshrink", "hardsigmoid_backward", "hardswish_backward", "hardtanh_backward", "heaviside"),
    *("huber_loss", "huber_loss_backward", "index_add", "index_copy", "index_fill", "isfinite"),
    *("leaky_relu", "leaky_relu_backward", "lerp", "linalg_vector_norm", "log_sigmoid_backward"),
    *("log_sigmoid_forward", "logaddexp", "logit", "logit_backward", "logsumexp", "mse_loss"),
    *("mse_loss_backward", "nan_to_num", "native_dropout_backward", "new_full", "new_ones"),
    *("new_zeros", "ones.default", "ones_like", "pixel_shuffle"),
    *("pixel_unshuffle", "reflection_pad1d_backward", "reflection_pad2d_backward"),
    *("rsub", "select_scatter"),
    *("slice_scatter", "smooth_l1_loss", "smooth_l1_loss_backward", "softplus"),
    *("softplus_backward", "softshrink", "softshrink_backward", "stack", "std", "std_mean"),
    *("threshold", "trace", "tril", "triu", "unfold_backward", "upsample_linear1d.vec"),
    *("upsample_nearest1d.vec", "vdot", "xlogy", "zeros.default", "zeros_like"),
)
_OF_KEYS = 1  # what PyTorch calls a mask (N, T)


def _heads_of(x: Any, heads: int, weights: Sequence[Any]) -> tuple[Any, ...]:
    """Queries, keys and values (N, heads, T, C / heads) of one tensor (N, T, C)."""
    n, t, channels = x.shape
    joined = functional.linear(x, *weights).view(n, t, 3, heads, channels // heads)
    return tuple(joined.permute(2, 0, 3, 1, 4).unbind(0))


def _added(mask: Any, mask_type: int | None) -> Any:
    """What is added to scores, or where they count; a mask as given is true where they do not."""
    if mask is None:
        return None
    kept = mask.logical_not() if mask.dtype is torch.bool else mask
    return kept[:, None, None] if mask_type == _OF_KEYS else kept


def _joined(found: Any, weights: Sequence[Any]) -> Any:
    return functional.linear(found.transpose(1, 2).flatten(2), *weights)


def _multi_head_attention(
    query: Any, key: Any, value: Any, channels: int, heads: int, *given: Any
) -> Any:
    by_heads, by_result = given[:2], given[2:4]
    defaults: tuple[Any, ...] = (None, True, True, None)
    mask, needs_weights, averages, mask_type = (*given[4:], *defaults[len(given) - 4 :])
    if query is not key or key is not value:
        return NotImplemented
    q, k, v = _heads_of(query, heads, by_heads)
    kept = _added(mask, mask_type)
    if not needs_weights:
        return _joined(functional.scaled_dot_product_attention(q, k, v, kept), by_result), None
    scores = q @ k.transpose(-2, -1) / math.sqrt(channels // heads)
    if kept is not None:
        scores = scores.where(kept, -math.inf) if kept.dtype is torch.bool else scores + kept
    shares = scores.softmax(-1)
    return _joined(shares @ v, by_result), shares.mean(1) if averages else shares


def _encoder_layer(src: Any, channels: int, heads: int, *given: Any) -> Any:
    by_heads, by_result, (use_gelu, norm_first, epsilon) = given[:2], given[2:4], given[4:7]
    norms, by_first, by_second = given[7:11], given[11:13], given[13:15]
    kept = _added(*(*given[15:], None, None)[:2])

    def norm(x: Any, at: int) -> Any:
        weight, bias = norms[2 * at : 2 * at + 2]
        return functional.layer_norm(x, (channels,), weight, bias, epsilon)

    def attended(x: Any) -> Any:
        q, k, v = _heads_of(x, heads, by_heads)
        return _joined(functional.scaled_dot_product_attention(q, k, v, kept), by_result)

    def inner(x: Any) -> Any:
        hidden = functional.linear(x, *by_first)
        return functional.linear((functional.gelu if use_gelu else torch.relu)(hidden), *by_second)

    if norm_first:
        x = src + attended(norm(src, 0))
        return x + inner(norm(x, 1))
    x = norm(src + attended(src), 0)
    return norm(x + inner(x), 1)


def _listed() -> dict[Any, Callable[..., Any]]:
    found: list[Any] = []
    for name in _NAMES:
        packet, _, overload = name.partition(".")
        operator = getattr(_aten, packet, None)
        if operator is not None:
            found.append(getattr(operator, overload) if overload else operator)
    return {
        **get_decompositions(found),
        _aten._native_multi_head_attention.default: _multi_head_attention,
        _aten._transformer_encoder_layer_fwd.default: _encoder_layer,
    }


DECOMPOSITIONS = _listed()
