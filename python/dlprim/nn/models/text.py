"""Transformers of text: GPT and BERT, whose blocks have the names of `torch.nn`.

Sources: Radford et al. 2019, "Language models are unsupervised multitask learners"; arXiv
1810.04805.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import dlprim
from dlprim.arguments.scalars import integer
from dlprim.nn.layer import Layer
from dlprim.nn.linear import Dropout, Embedding, Linear
from dlprim.nn.norm import LayerNorm
from dlprim.nn.transformers import LearnedPositions, TransformerEncoderLayer


class GPT(Layer):
    """A language model; `gpt` makes it."""

    def __init__(self, V: int, length: int, C: int, layers: int, blocks: dict[str, Any]) -> None:
        super().__init__()
        self.V, self.length, self.C, self.blocks = V, length, C, blocks
        self.tokens = Embedding(V, C, scale=0.02)
        self.positions = LearnedPositions(length, C)
        self.drop = Dropout(blocks["dropout"])
        how = {"norm_first": True, "causal": True, **blocks}
        count = range(integer("layers", layers, 1))
        self.layers = [TransformerEncoderLayer(C, **how) for _ in count]
        self.norm = LayerNorm(C)

    def arguments(self) -> dict[str, Any]:
        return super().arguments() | {"layers": len(self.layers)}

    def forward(self, x: Any) -> Any:
        h = self.drop(self.positions(self.tokens(x)))
        for layer in self.layers:
            h = layer(h)
        return dlprim.linear(self.norm(h), self.tokens.weight)


def gpt(V: int = 50257, length: int = 1024, C: int = 768, layers: int = 12, **blocks: Any) -> GPT:
    """A language model of integers (N, T), T up to length, by default GPT-2 small.

    The result is (N, T, V), logits of the integers that follow; their table is that of the input.

    Parameters
    ----------
    V, length, C, layers : int
        How many integers there are, the longest text, channels and blocks.
    **blocks
        ``heads``, ``hidden``, ``dropout`` and ``activation`` of `TransformerEncoderLayer`: C / 64,
        4 C, 0.0 and "gelu" by default.
    """
    return GPT(V, length, C, layers, _usual(C) | blocks)


class BERT(Layer):
    """An encoder of text; `bert` makes it."""

    def __init__(
        self, V: int, length: int, C: int, layers: int, classes: int | None, blocks: dict[str, Any]
    ) -> None:
        super().__init__()
        self.V, self.length, self.C, self.classes, self.blocks = V, length, C, classes, blocks
        self.tokens, self.segments = Embedding(V, C, scale=0.02), Embedding(2, C, scale=0.02)
        self.positions = LearnedPositions(length, C)
        self.norm, self.drop = LayerNorm(C, 1e-12), Dropout(blocks["dropout"])
        count = range(integer("layers", layers, 1))
        self.layers = [TransformerEncoderLayer(C, eps=1e-12, **blocks) for _ in count]
        self.pooler = None if classes is None else Linear(C, C, activation="tanh")
        self.head = None if classes is None else Linear(C, classes)

    def arguments(self) -> dict[str, Any]:
        return super().arguments() | {"layers": len(self.layers)}

    def forward(self, x: Any, segments: Any = None, mask: Any = None) -> Any:
        rows = self.segments.weight[0] if segments is None else self.segments(segments)
        h = self.drop(self.norm(self.positions(self.tokens(x) + rows)))
        seen = None if mask is None else np.not_equal(mask, 0)[:, None, None, :]
        for layer in self.layers:
            h = layer(h, seen)
        return h if self.head is None or self.pooler is None else self.head(self.pooler(h[:, 0]))


def bert(
    V: int = 30522,
    length: int = 512,
    C: int = 768,
    layers: int = 12,
    classes: int | None = None,
    **blocks: Any,
) -> BERT:
    """An encoder of integers (N, T), by default BERT-base.

    ``model(x, segments=None, mask=None)``: segments are 0 or 1 for each integer, the mask is 0
    where there is none. The result is (N, T, C), or with classes (N, classes) of the first place.

    Parameters
    ----------
    V, length, C, layers : int
        As of `gpt`.
    classes : int, optional
    **blocks
        As of `gpt`.
    """
    return BERT(V, length, C, layers, classes, _usual(C) | blocks)


def _usual(C: int) -> dict[str, Any]:
    heads = max(1, C // 64)
    return {"heads": heads, "hidden": 4 * C, "dropout": 0.0, "activation": "gelu"}
