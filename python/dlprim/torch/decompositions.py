"""Operators that are taken apart before they reach a rule.

Most are taken apart as PyTorch itself does it, where no rule would compute them faster. PyTorch's
whole layers for inference, which modules call where nobody wants gradients, and fully connected
layers of `dlprim.torch.eager` become what modules compute otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import _core_aten_decompositions_post_autograd, get_decompositions
from torch.nn import functional

from dlprim.torch import eager as eager  # which defines operators
from dlprim.torch.operators import RULES

_aten = torch.ops.aten
_OTHERS = (
    *(_aten.elu, _aten.leaky_relu, _aten.linalg_vector_norm, _aten.masked_fill, _aten.roll),
    *(_aten.slice_scatter, _aten.split, _aten.std, _aten.std_mean, _aten.unbind),
    *(_aten.upsample_linear1d, _aten.upsample_nearest1d),
)
_OF_KEYS = 1  # what PyTorch calls a mask (N, T)


def _kept(mask: Any, mask_type: int | None) -> Any:
    """What is added to scores, or where they count; a mask as given is true where they do not."""
    if mask is None:
        return None
    kept = mask.logical_not() if mask.dtype is torch.bool else mask
    return kept[:, None, None] if mask_type == _OF_KEYS else kept


def _multi_head_attention(
    query: Any, key: Any, value: Any, channels: int, heads: int, *given: Any
) -> Any:
    by_heads, by_result = given[:2], given[2:4]
    defaults: tuple[Any, ...] = (None, True, True, None)
    mask, needs_weights, averages, mask_type = (*given[4:], *defaults[len(given) - 4 :])
    if query is not key or key is not value:
        return NotImplemented
    n, t, _ = query.shape
    joined = functional.linear(query, *by_heads).view(n, t, 3, heads, channels // heads)
    q, k, v = joined.permute(2, 0, 3, 1, 4).unbind(0)
    kept, shares = _kept(mask, mask_type), None
    if needs_weights:
        scores = q @ k.transpose(-2, -1) / math.sqrt(channels // heads)
        if kept is not None:
            scores = scores.where(kept, -math.inf) if kept.dtype is torch.bool else scores + kept
        shares = scores.softmax(-1)
        found = shares @ v
        shares = shares.mean(1) if averages else shares
    else:
        found = functional.scaled_dot_product_attention(q, k, v, kept)
    return functional.linear(found.transpose(1, 2).flatten(2), *by_result), shares


def _encoder_layer(src: Any, channels: int, heads: int, *given: Any) -> Any:
    by_attention, (use_gelu, norm_first, epsilon) = given[:4], given[4:7]
    norms, by_first, by_second = (given[7:9], given[9:11]), given[11:13], given[13:15]
    mask, mask_type = (*given[15:], None, None)[:2]

    def norm(x: Any, at: int) -> Any:
        weight, bias = norms[at]
        return functional.layer_norm(x, (channels,), weight, bias, epsilon)

    def attended(x: Any) -> Any:
        how = (mask, False, True, mask_type)
        return _multi_head_attention(x, x, x, channels, heads, *by_attention, *how)[0]

    def inner(x: Any) -> Any:
        hidden = functional.linear(x, *by_first)
        return functional.linear((functional.gelu if use_gelu else torch.relu)(hidden), *by_second)

    if norm_first:
        x = src + attended(norm(src, 0))
        return x + inner(norm(x, 1))
    x = norm(src + attended(src), 0)
    return norm(x + inner(x), 1)


def _linear_backward(grad: Any, x: Any, w: Any, mask: Sequence[bool]) -> list[Any]:
    rows, inputs = (it.reshape(-1, it.shape[-1]) for it in (grad, x))
    wanted: list[Callable[[], Any]] = [
        lambda: (rows @ w).view(x.shape),
        lambda: rows.t() @ inputs,
        lambda: rows.sum(0),
    ]
    return [make() for make, is_wanted in zip(wanted, mask, strict=True) if is_wanted]


def _listed() -> dict[Any, Callable[..., Any]]:
    """Without what has a rule, and what draws random numbers in another order than PyTorch does."""
    ruled = {it.removeprefix("again.") for it in RULES}
    found: dict[Any, Callable[..., Any]]
    found = {**_core_aten_decompositions_post_autograd(), **get_decompositions(_OTHERS)}
    return {
        it: function
        for it, function in found.items()
        if str(it) not in ruled and torch.Tag.nondeterministic_seeded not in it.tags
    }


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    **_listed(),
    _aten._native_multi_head_attention.default: _multi_head_attention,
    _aten._transformer_encoder_layer_fwd.default: _encoder_layer,
    torch.ops.dlprim.linear.default: functional.linear,
    torch.ops.dlprim.linear_backward.default: _linear_backward,
}
