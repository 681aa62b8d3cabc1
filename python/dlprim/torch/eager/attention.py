"""Attention of tensors."""

from __future__ import annotations

from typing import Any

import torch

import dlprim
from dlprim.torch.eager.custom import Layer, registered
from dlprim.torch.eager.operands import (
    array_or_none,
    require_alike,
    require_tensor,
    require_tensors,
    sizes_of,
)
from dlprim.torch.forms import array_of


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """``softmax(scale * query @ key.T + attn_mask) @ value`` for every head.

    `torch.nn.functional.scaled_dot_product_attention`. Scores stay in the caches, and are made
    again for the gradient; under autocast operands become bfloat16.

    Parameters
    ----------
    query : torch.Tensor of float32 or bfloat16, (..., H, Q, D)
        One whose last axis is dense is read in place, as are key and value; where heads lie inside
        of positions, those of the result do, too.
    key : torch.Tensor of the same dtype, (..., Hk, K, D)
    value : torch.Tensor of the same dtype, (..., Hk, K, Dv)
    attn_mask : torch.Tensor, broadcastable to (..., H, Q, K), optional
        Of bool, True where a query sees a key; of float32 or bfloat16, added to the scores; it has
        no gradient.
    dropout_p : float
        0 alone.
    is_causal : bool
        Query i sees the keys 0 to i; beside a mask, both hold.
    scale : float, optional
        ``1 / sqrt(D)`` where it is None.
    enable_gqa : bool
        Hk may be a divisor of H.

    Returns
    -------
    torch.Tensor of the same dtype, (..., H, Q, Dv)
        A query that sees no key has zeros.

    Raises
    ------
    TypeError
        An operand is no dense tensor of float32 or bfloat16 on the CPU, or dtypes differ.
    ValueError
        Shapes do not agree, dropout_p is not 0, or attn_mask requires a gradient.
    """
    require_tensors(query=query, key=key, value=value)
    if attn_mask is not None:
        require_tensor("attn_mask", attn_mask)
        if attn_mask.dtype is not torch.bool:
            require_tensors(attn_mask=attn_mask)
        if attn_mask.requires_grad and torch.is_grad_enabled():
            raise ValueError("attn_mask requires a gradient, expected a mask without one")
    if dropout_p != 0:
        raise ValueError(f"dropout_p is {dropout_p}, expected 0: weights are not kept")
    if query.dim() > 2 and not enable_gqa and query.shape[-3] != key.shape[-3]:
        raise ValueError(
            f"key has {key.shape[-3]} heads and query has {query.shape[-3]}, expected as many, or "
            "enable_gqa=True"
        )
    return _call(query, key, value, attn_mask, is_causal, scale)


def _fake(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, *how: Any
) -> torch.Tensor:
    """Heads lie where those of the query do."""
    require_alike(query=query, key=key, value=value)
    has_heads = query.dim() > 2
    front = ("... H ", "... G ") if has_heads else ("", "")
    q, k, v = (front[0] + "Q D", front[1] + "K D", front[1] + "K E")
    found = sizes_of({}, query=(query, q), key=(key, k), value=(value, v))
    own, shared, count = (found.get(it, 1) for it in "HGQ")
    if own != shared and (shared == 0 or own % shared):
        raise ValueError(f"key has {shared} heads, expected a divisor of the {own} of query")
    scores = (*query.shape[:-1], found["K"])
    if mask is not None:
        pairs = zip(reversed(mask.shape), reversed(scores), strict=False)
        if mask.dim() > len(scores) or any(it not in (1, n) for it, n in pairs):
            shape = tuple(mask.shape)
            raise ValueError(f"attn_mask has shape {shape}, expected what broadcasts to {scores}")
    if has_heads and query.stride(-3) < query.stride(-2):
        inside = (*found["..."], count, own, found["E"])
        return query.new_empty(inside).transpose(-3, -2)
    return query.new_empty((*scores[:-1], found["E"]))


def _forward(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, *how: Any
) -> torch.Tensor:
    made = _fake(query, key, value, mask)
    if not key.numel() or not made.numel():
        return made.zero_()
    is_causal, scale = how
    operands = array_of(query), array_of(key), array_of(value), array_or_none(mask)
    dlprim.attention(*operands, causal=is_causal, scale=scale, out=array_of(made))
    return made


def _gradients(grad: torch.Tensor, *operands: Any) -> Any:
    *tensors, mask, is_causal, scale, _ = operands
    if not tensors[1].numel():
        return None
    arrays = (*map(array_of, (grad, *tensors)), array_or_none(mask))
    return dlprim.attention_backward(*arrays, causal=is_causal, scale=scale)


_call = registered(
    Layer(
        "attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, bool is_causal, "
        "float? scale)",
        *(_forward, _fake, _gradients),
        lambda *operands: [it.new_empty(it.shape) for it in operands[:3]],
    ),
    is_lowered=True,
)
