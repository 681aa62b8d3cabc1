"""Attention of several heads, the blocks of a transformer, and where elements stand.

They stand learned, as waves, or as angles that queries are turned by. Sources: arXiv 1706.03762 and
2104.09864.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, ClassVar

import numpy as np

import dlprim
from dlprim.arguments.instead import LAYER, instead
from dlprim.arguments.names import one_of_names
from dlprim.arguments.scalars import flag, fraction, integer, real
from dlprim.nn.initial import generator_or_own, normal, uniform, zeros
from dlprim.nn.layer import Layer
from dlprim.nn.linear import Dropout, Linear
from dlprim.nn.norm import LayerNorm
from dlprim.nn.parameter import Parameter


class LearnedPositions(Layer):
    """Adds to (..., T, C) a row for each of the first T places.

    Parameters
    ----------
    length : int
        How many places there are.
    C : int
    scale : float
        Standard deviation of the rows at first.
    """

    def __init__(self, length: int, C: int, *, scale: float = 0.02) -> None:
        super().__init__()
        self.length, self.C = integer("length", length, 1), integer("C", C, 1)
        self.scale = real("scale", scale, 0)
        self.weight = Parameter(normal((length, C), generator_or_own(None), scale))

    def forward(self, x: Any) -> Any:
        if x.shape[-2] > self.length:
            raise ValueError(f"x has shape {x.shape}, expected at most {self.length} places")
        return x + self.weight[: x.shape[-2]]


class _Waves(Layer):
    """C / 2 wave lengths."""

    def __init__(self, C: int, *, base: float = 10000.0) -> None:
        super().__init__()
        if integer("C", C, 2) % 2:
            raise ValueError(f"C is {C}, expected an even number")
        self.C, self.base = int(C), real("base", base, 1)

    def _angles(self, x: Any) -> Any:
        """(T, C / 2), in float64."""
        return np.arange(x.shape[-2])[:, None] * self.base ** (-np.arange(0, self.C, 2) / self.C)


class SinusoidalPositions(_Waves):
    """Adds to (..., T, C) sines and cosines of the place, of C / 2 wave lengths.

    Parameters
    ----------
    C : int
        Even.
    base : float
        Of the wave lengths, which grow from 2 pi to ``2 pi base``.
    """

    def forward(self, x: Any) -> Any:
        angles = self._angles(x)
        waves = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
        return x + waves.reshape(x.shape[-2], self.C).astype(np.float32)


class RotaryPositions(_Waves):
    """Turns pairs of elements of (..., T, C) by angles that grow with the place.

    The pairs are the elements of the first half with those of the second, as Llama has them.

    Parameters
    ----------
    C : int
        Even: channels of a head.
    base : float
    """

    def forward(self, x: Any) -> Any:
        angles = self._angles(x)
        cos, sin = (f(angles).astype(np.float32) for f in (np.cos, np.sin))
        one, two = np.split(x, 2, axis=-1)
        return np.concatenate([one * cos - two * sin, two * cos + one * sin], axis=-1)


class MultiheadAttention(Layer):
    """Attention of x to itself or to a memory: parameters of `torch.nn.MultiheadAttention`.

    ``layer(x, memory=None, mask=None)`` takes (N, Q, C), the batch first, and gives that shape; the
    mask is that of `dlprim.attention`, where True lets see.

    Parameters
    ----------
    C : int
    heads : int
        A divisor of C.
    dropout : float
        Of the shares, in [0, 1); where it is not 0 training computes them one by one.
    bias : bool
    causal : bool
        No element sees those behind it.
    positions : Module, optional
        Given queries and keys, (N, heads, Q, C / heads); such as `RotaryPositions`.

    Raises
    ------
    TypeError, ValueError
        A number is no integer or outside its range, heads does not divide C, or a flag is no bool.
    """

    @instead(
        embed_dim="C", num_heads="heads", batch_first="none: the batch is always first", **LAYER
    )
    def __init__(
        self,
        C: int,
        heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        causal: bool = False,
        positions: Any = None,
    ) -> None:
        super().__init__()
        if integer("C", C, 1) % integer("heads", heads, 1):
            raise ValueError(f"heads is {heads}, expected a divisor of C = {C}")
        self.C, self.heads, self.dropout = C, heads, fraction("dropout", dropout, closed=False)
        self.bias, self.causal = flag("bias", bias), flag("causal", causal)
        drawn = uniform((3 * C, C), generator_or_own(None), math.sqrt(6 / (4 * C)))
        self.in_proj_weight = Parameter(drawn)
        self.in_proj_bias = Parameter(zeros(3 * C)) if bias else None
        self.out_proj = Linear(C, C, bias)
        if self.out_proj.bias is not None:
            self.out_proj.bias.value = zeros(C)
        self.positions = positions
        self.drop = Dropout(dropout)

    def forward(self, x: Any, memory: Any = None, mask: Any = None) -> Any:
        q, k, v = (self._split(it) for it in self._projected(x, memory))
        if self.positions is not None:
            q, k = self.positions(q), self.positions(k)
        if self.dropout and self.training:
            y = self._by_shares(q, k, v, mask)
        else:
            y = dlprim.attention(q, k, v, mask, causal=self.causal)
        return self.out_proj(np.swapaxes(y, -3, -2).reshape(x.shape))

    def _projected(self, x: Any, memory: Any) -> list[Any]:
        weight, bias, C = self.in_proj_weight, self.in_proj_bias, self.C
        if memory is None:
            return np.split(dlprim.linear(x, weight, bias), 3, axis=-1)
        own = dlprim.linear(x, weight[:C], None if bias is None else bias[:C])
        others = dlprim.linear(memory, weight[C:], None if bias is None else bias[C:])
        return [own, *np.split(others, 2, axis=-1)]

    def _split(self, x: Any) -> Any:
        return np.swapaxes(x.reshape(*x.shape[:-1], self.heads, self.C // self.heads), -3, -2)

    def _by_shares(self, q: Any, k: Any, v: Any, mask: Any) -> Any:
        scores = q @ np.swapaxes(k, -1, -2) * (self.C // self.heads) ** -0.5
        if self.causal:
            seen = np.tri(*scores.shape[-2:]) > 0
            scores = np.where(seen, scores, np.float32(-np.inf))
        if mask is None:
            return self.drop(dlprim.softmax(scores)) @ v
        if mask.dtype == bool:
            scores = np.where(mask, scores, np.float32(-np.inf))
        else:
            scores = scores + mask
        # Rows that see nothing are 0, as from `dlprim.attention`, and let no gradient through.
        sees = np.max(scores, axis=-1, keepdims=True) != np.float32(-np.inf)
        shares = dlprim.softmax(np.where(sees, scores, np.float32(0)))
        return self.drop(np.where(sees, shares, np.float32(0))) @ v


_ACTIVATIONS = {
    "relu": dlprim.relu,
    "gelu": dlprim.gelu,
    "gelu_tanh": partial(dlprim.gelu, approximate="tanh"),
    "silu": dlprim.silu,
}


class TransformerEncoderLayer(Layer):
    """Attention of x to itself and two linear layers: `torch.nn.TransformerEncoderLayer`.

    ``layer(x, mask=None)`` takes (N, Q, C), the batch first.

    Parameters
    ----------
    C, heads : int
    hidden : int
        PyTorch's dim_feedforward.
    dropout : float
    activation : "relu", "gelu", "gelu_tanh" (GPT-2's) or "silu"
    eps : float
    norm_first : bool
        Norms stand in front of what they belong to.
    causal : bool
        In the attention of x to itself no element sees those behind it.

    Raises
    ------
    TypeError, ValueError
        As from `MultiheadAttention`, or activation is another one.
    """

    has_memory: ClassVar[bool] = False

    @instead(
        d_model="C",
        nhead="heads",
        dim_feedforward="hidden",
        layer_norm_eps="eps",
        batch_first="none: the batch is always first",
        **LAYER,
    )
    def __init__(
        self,
        C: int,
        heads: int,
        hidden: int = 2048,
        dropout: float = 0.1,
        activation: str = "relu",
        *,
        eps: float = 1e-5,
        norm_first: bool = False,
        causal: bool = False,
    ) -> None:
        super().__init__()
        self.C, self.heads, self.hidden = C, heads, integer("hidden", hidden, 1)
        self.activation = one_of_names("activation", activation, tuple(_ACTIVATIONS))
        self.dropout, self.eps, self.causal = dropout, real("eps", eps, 0), causal
        self.norm_first = flag("norm_first", norm_first)
        self.self_attn = MultiheadAttention(C, heads, dropout, causal=causal)
        if self.has_memory:
            self.multihead_attn = MultiheadAttention(C, heads, dropout)
        self.linear1, self.linear2 = Linear(C, hidden), Linear(hidden, C)
        self.norm1, self.norm2 = LayerNorm(C, eps), LayerNorm(C, eps)
        if self.has_memory:
            self.norm3 = LayerNorm(C, eps)
        self.drop = Dropout(dropout)

    def forward(self, x: Any, mask: Any = None) -> Any:
        x = self._after(x, self.norm1, lambda it: self.self_attn(it, None, mask))
        return self._after(x, self.norm2, self._feed)

    def _after(self, x: Any, norm: Any, part: Any) -> Any:
        """A part with its norm in front of it, or behind the sum."""
        if self.norm_first:
            return x + self.drop(part(norm(x)))
        return norm(x + self.drop(part(x)))

    def _feed(self, x: Any) -> Any:
        return self.linear2(self.drop(_ACTIVATIONS[self.activation](self.linear1(x))))


class TransformerDecoderLayer(TransformerEncoderLayer):
    """Attention of x to itself and to a memory: `torch.nn.TransformerDecoderLayer`.

    ``layer(x, memory, mask=None, memory_mask=None)`` takes (N, Q, C) and (N, K, C). Arguments are
    those of `TransformerEncoderLayer`.
    """

    has_memory = True

    def forward(self, x: Any, memory: Any, mask: Any = None, memory_mask: Any = None) -> Any:  # type: ignore[override]
        x = self._after(x, self.norm1, lambda it: self.self_attn(it, None, mask))
        x = self._after(x, self.norm2, lambda it: self.multihead_attn(it, memory, memory_mask))
        return self._after(x, self.norm3, self._feed)
