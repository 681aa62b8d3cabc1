"""What a decoder does to rows of activations, written once: on arrays, and where it is traced.

A layer is anything that has its parts as attributes: products that are called, and norms that have
a weight. Those of `model` hold packed weights and are called token by token; those of `trained` are
modules, whose gradient follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import dlprim
from dlprim.llm.config import Config
from dlprim.llm.rotary import Turn, turned

# Of queries, keys and values (..., T, heads, D): their mixture (..., T, heads, D).
Attend = Callable[[Any, Any, Any], Any]


def block(
    layer: Any, config: Config, rows: tuple[Any, Any], turn: Turn | None, attend: Attend
) -> tuple[Any, Any]:
    """A layer of rows that are the sum of two arrays, (..., T, C); the second may be None."""
    h, x = _after(layer.before_attention, *rows)
    mixed = attend(*_heads(layer, config, h, turn))
    y = normed(layer.after_attention, layer.out(mixed.reshape(*h.shape[:-1], -1)))
    h, x = _after(layer.before_mlp, x, y)
    y = layer.down(_activated(layer.up(h), config))
    return x, normed(layer.after_mlp, y)


def _after(norm: Any, x: Any, delta: Any) -> tuple[Any, Any]:
    """The normalised sum, and the sum."""
    total = x if delta is None else x + delta
    return normed(norm, total), total


def last_norm(norm: Any, rows: tuple[Any, Any]) -> Any:
    """The normalised sum of what the last layer gave."""
    return _after(norm, *rows)[0]


def normed(norm: Any, x: Any) -> Any:
    """x as it is where there is no norm."""
    if norm is None:
        return x
    if getattr(norm, "bias", None) is None:
        return dlprim.rms_norm(x, norm.weight, norm.eps)
    return dlprim.layer_norm(x, norm.weight, norm.bias, norm.eps)


def _heads(layer: Any, config: Config, h: Any, turn: Turn | None) -> tuple[Any, Any, Any]:
    """Queries, keys and values, (..., T, heads, D), normalised and turned."""
    H, Hk, D = config.heads, config.kv_heads, config.D
    parts = layer.qkv(h).reshape(*h.shape[:-1], H + 2 * Hk, D)
    both, v = parts[..., : H + Hk, :], parts[..., H + Hk :, :]
    if config.head_norms is not None:
        q, k = both[..., :H, :], both[..., H:, :]
        if config.head_norms == "all":
            q, k = (it.reshape(*h.shape[:-1], -1) for it in (q, k))
        q, k = normed(layer.q_norm, q), normed(layer.k_norm, k)
        both = np.concatenate(
            [q.reshape(*h.shape[:-1], H, D), k.reshape(*h.shape[:-1], Hk, D)], axis=-2
        )
    if turn is not None:
        both = turned(both, turn).astype(v.dtype, copy=False)  # angles are float32
    return both[..., :H, :], both[..., H:, :], v


_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "swish": dlprim.silu,
    "gelu": dlprim.gelu,
    "gelu_tanh": lambda x: dlprim.gelu(x, approximate="tanh"),
    "relu": dlprim.relu,
}


def _activated(up: Any, config: Config) -> Any:
    f = _ACTIVATIONS[config.activation]
    if not config.gated:
        return f(up)
    return f(up[..., : config.hidden]) * up[..., config.hidden :]


def capped(x: Any, cap: float) -> Any:
    """Logits that stay between -cap and cap."""
    return np.tanh(x / np.float32(cap)) * np.float32(cap) if cap else x
