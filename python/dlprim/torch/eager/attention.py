"""Attention of tensors."""

from __future__ import annotations

from typing import Any

import torch

import dlprim
from dlprim.torch.eager.custom import (
    array_or_none,
    chosen,
    differentiate,
    lower,
    operator,
    placed,
    require_alike,
    require_tensor,
    require_tensors,
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
    made: torch.Tensor = _FORWARD(query, key, value, attn_mask, is_causal, scale)
    return made


def _require(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any) -> None:
    require_alike("query", query.dtype, key=key, value=value)
    shapes = [tuple(it.shape) for it in (query, key, value)]
    q, k, v = shapes
    if not 2 <= len(q) == len(k) == len(v):
        raise ValueError(
            f"query, key and value have shapes {q}, {k} and {v}, expected (..., H, Q, D), "
            "(..., Hk, K, D) and (..., Hk, K, Dv)"
        )
    if k[-1] != q[-1] or k[:-3] != q[:-3]:
        raise ValueError(f"key has shape {k}, expected leading axes and D of query, {q}")
    if v[:-1] != k[:-1]:
        raise ValueError(f"value has shape {v}, expected all but the last axis of key, {k}")
    if len(q) > 2 and q[-3] != k[-3] and (k[-3] == 0 or q[-3] % k[-3]):
        raise ValueError(f"key has {k[-3]} heads, expected a divisor of the {q[-3]} of query")
    if mask is not None:
        scores = (*q[:-1], k[-2])
        pairs = zip(reversed(mask.shape), reversed(scores), strict=False)
        if mask.dim() > len(scores) or any(it not in (1, n) for it, n in pairs):
            shape = tuple(mask.shape)
            raise ValueError(f"attn_mask has shape {shape}, expected what broadcasts to {scores}")


def _fake(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, *how: Any
) -> torch.Tensor:
    """Heads lie where those of the query do."""
    _require(query, key, value, mask)
    *front, heads, count, _ = query.shape if query.dim() > 2 else (1, *query.shape)
    width = value.shape[-1]
    if query.dim() > 2 and query.stride(-3) < query.stride(-2):
        return query.new_empty((*front, count, heads, width)).transpose(-3, -2)
    return query.new_empty((*query.shape[:-1], width))


def _forward(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, *how: Any
) -> torch.Tensor:
    made = _fake(query, key, value, mask)
    is_causal, scale = how
    if not key.numel() or not made.numel():
        return made.zero_()
    operands = (array_of(query), array_of(key), array_of(value), array_or_none(mask))
    dlprim.attention(*operands, causal=is_causal, scale=scale, out=array_of(made))
    return made


def _backward(
    grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    *how: Any,
) -> list[torch.Tensor]:
    is_causal, scale, wanted = how
    if not key.numel() or not grad.numel():
        made = _fake_backward(grad, query, key, value, mask, *how)
        return [it.zero_() for it in made]
    operands = (array_of(grad), array_of(query), array_of(key), array_of(value))
    found = dlprim.attention_backward(*operands, array_or_none(mask), causal=is_causal, scale=scale)
    return chosen(found, wanted, query.dtype)


def _fake_backward(
    grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    *how: Any,
) -> list[torch.Tensor]:
    operands = zip((query, key, value), how[-1], strict=True)
    return [it.new_empty(it.shape) for it, wanted in operands if wanted]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    query, key, value, mask, *ctx.how = inputs
    ctx.save_for_backward(query, key, value, mask)


def _gradient(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    wanted = list(ctx.needs_input_grad[:3])
    found = _BACKWARD(grad, *ctx.saved_tensors, *ctx.how, wanted)
    return (*placed(found, wanted), None, None, None)


_FORWARD = operator(
    "attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, bool is_causal, "
    "float? scale) -> Tensor",
    _forward,
    _fake,
)
_BACKWARD = operator(
    "attention_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor? attn_mask, "
    "bool is_causal, float? scale, bool[3] output_mask) -> Tensor[]",
    _backward,
    _fake_backward,
)
differentiate(_FORWARD, _gradient, _keep, _BACKWARD)
lower(_FORWARD)
