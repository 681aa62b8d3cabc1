"""A language model as a module: it trains, whole or by small matrices beside its products.

Source: arXiv 2106.09685 (LoRA).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import dlprim
from dlprim import nn
from dlprim.arguments.names import one_of_names
from dlprim.arguments.scalars import integer, real
from dlprim.files import replaced
from dlprim.llm.blocks import block, capped, last_norm
from dlprim.llm.config import Config
from dlprim.llm.families import config_of
from dlprim.llm.model import DTYPES, LanguageModel
from dlprim.llm.packages import package
from dlprim.llm.rotary import Turn, turn_of
from dlprim.llm.weights import (
    NORMS,
    PRODUCTS,
    Pair,
    Weights,
    extents,
    named_arrays,
    norm_size,
)
from dlprim.nn.initial import undrawn


class _Layer(nn.Module):
    """The parts of a layer, None for those that its family has not."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        for part in PRODUCTS:
            rows, C = extents(config, part)
            setattr(self, part, nn.Linear(C, sum(rows), part in config.biases))
        for part in NORMS:
            size = norm_size(config, part)
            setattr(self, part, _norm(config, size) if size else None)

    def forward(self, x: Any, turn: Turn | None, window: int | None) -> Any:
        c, T = self.config, x.shape[-2]

        def attend(*heads: Any) -> Any:
            q, k, v = (np.swapaxes(it, -3, -2) for it in heads)
            mask = None if window is None or window >= T else _near(int(T), window)
            how: dict[str, Any] = {"scale": c.scale, "softcap": c.softcap}
            y = dlprim.attention(q, k, v, mask, causal=True, **how)
            return np.swapaxes(y, -3, -2)

        x, y = block(self, c, (x, None), turn, attend)
        return x + y


@lru_cache(maxsize=8)
def _near(T: int, window: int) -> Any:
    """Which of T keys each of T queries sees that are not too far back."""
    return ~np.tri(T, T, -window, dtype=bool)


def _norm(config: Config, size: int) -> nn.Module:
    kind = nn.LayerNorm if config.norm == "layer" else nn.RMSNorm
    return kind(size, config.eps)


class TrainableModel(nn.Module):
    """A decoder of text that trains; `load` makes it.

    ``model(tokens)`` takes integers (N, T) and gives logits (N, T, V) of the tokens that follow.

    Attributes
    ----------
    config : Config
    entries : mapping
        The configuration as config.json has it.
    """

    def __init__(self, entries: Mapping[str, Any]) -> None:
        super().__init__()
        self.entries, self.config = entries, config_of(entries)
        c = self.config
        self.tokens = nn.Embedding(c.V, c.C)
        self.places = nn.Embedding(c.length, c.C) if c.has_places else None
        self.layers = [_Layer(c) for _ in range(c.layers)]
        self.norm = _norm(c, c.C)
        self.head = None if c.is_tied else nn.Linear(c.C, c.V, False)

    def forward(self, tokens: Any) -> Any:
        c, T = self.config, tokens.shape[-1]
        x = self.tokens(tokens)
        if c.embedding_scale != 1:
            x = x * np.float32(c.embedding_scale)
        if self.places is not None:
            x = x + self.places.weight[:T]
        made = {it: it and turn_of(it, np.arange(T), it.length_of(T)) for it in set(c.ropes)}
        for layer, rope, window in zip(self.layers, c.ropes, c.windows, strict=True):
            x = layer(x, made[rope], window)
        x = last_norm(self.norm, (x, None))
        head = self.tokens.weight if self.head is None else self.head.weight
        return capped(dlprim.linear(x, head), c.final_softcap)

    def trained(self, dtype: str = "float32") -> LanguageModel:
        """A model that generates, of the weights as they are now.

        Parameters
        ----------
        dtype : str
            As for `load`.
        """
        return LanguageModel(_Held(self), one_of_names("dtype", dtype, DTYPES))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes config.json and model.safetensors, which `load` and transformers read.

        Parameters
        ----------
        folder : path
            Made if it is not there.
        """
        to = Path(folder)
        to.mkdir(parents=True, exist_ok=True)
        with replaced(to / "config.json") as file:
            file.write(json.dumps(self.entries, indent=2).encode())
        arrays = {it: np.ascontiguousarray(array) for it, array in named_arrays(_Held(self))}
        save = package("safetensors.numpy", "writing weights").save_file
        save(arrays, to / "model.safetensors", metadata={"format": "pt"})


def trainable_of(weights: Weights) -> TrainableModel:
    """The module of what a checkpoint has."""
    placeholder = np.float32(0)
    sizes = (it.shape for it in weights.checkpoint.arrays.values())
    with undrawn([np.broadcast_to(placeholder, it) for it in sizes]):
        model = TrainableModel(weights.checkpoint.entries)
    model.tokens.weight.value = weights.table()
    if model.places is not None:
        model.places.weight.value = weights.places()
    if model.head is not None:
        model.head.weight.value = weights.head().weight
    _fill(model.norm, weights.norm(None, "norm"))
    for place, layer in enumerate(model.layers):
        for part in PRODUCTS:
            _fill(getattr(layer, part), weights.product(place, part))
        for part in NORMS:
            if getattr(layer, part) is not None:
                _fill(getattr(layer, part), weights.norm(place, part))
    return model


def _fill(module: Any, pair: Pair) -> None:
    module.weight.value = pair.weight
    if pair.bias is not None:
        module.bias.value = pair.bias


class _Held:
    """The weights of a module by their parts, as `Weights` has those of a checkpoint."""

    def __init__(self, model: TrainableModel) -> None:
        self._model, self.config = model, model.config

    def table(self) -> Any:
        return self._model.tokens.weight.copied()

    def places(self) -> Any:
        assert self._model.places is not None
        return self._model.places.weight.copied()

    def head(self) -> Pair:
        assert self._model.head is not None
        return _pair(self._model.head)

    def product(self, layer: int, part: str) -> Pair:
        return _pair(getattr(self._model.layers[layer], part))

    def norm(self, layer: int | None, part: str) -> Pair:
        owner = self._model if layer is None else self._model.layers[layer]
        return _pair(getattr(owner, part))


def _pair(module: Any) -> Pair:
    if isinstance(module, LowRank):
        weight, bias = _pair(module.base)
        return Pair(weight + module.scale * (module.b.value @ module.a.value), bias)
    bias = getattr(module, "bias", None)
    return Pair(module.weight.copied(), None if bias is None else bias.copied())


class LowRank(nn.Module):
    """A product, and beside it one of few channels that is 0 at first: ``base(x) + scale * b a x``.

    Parameters
    ----------
    base : Linear
    rank : int
        Channels between a and b.
    scale : float
    """

    def __init__(self, base: nn.Linear, rank: int, scale: float) -> None:
        super().__init__()
        K, C = base.weight.shape
        drawn = nn.Linear(C, rank, False)
        self.base, self.scale = base, np.float32(scale)
        self.a, self.b = nn.Parameter(drawn.weight.value), nn.Parameter(np.zeros((K, rank)))

    def forward(self, x: Any) -> Any:
        return self.base(x) + dlprim.linear(dlprim.linear(x, self.a), self.b) * self.scale


def adapt(
    model: TrainableModel,
    rank: int = 8,
    *,
    parts: Iterable[str] = ("qkv",),
    scale: float = 2.0,
) -> list[nn.Parameter]:
    """Puts small matrices beside products of all layers; gives them, for an optimiser.

    An optimiser of these alone leaves the model itself as it is (LoRA).

    Parameters
    ----------
    model : TrainableModel
    rank : int
        Channels between the two matrices of a product.
    parts : iterable of str
        Of "qkv", "out", "up" and "down".
    scale : float
        What the small product is multiplied with; LoRA's alpha divided by the rank.

    Raises
    ------
    TypeError, ValueError
        An argument is none of these, or a product has such matrices.
    """
    if not isinstance(model, TrainableModel):
        raise TypeError(f"model is of type {type(model).__name__}, expected a TrainableModel")
    names = [one_of_names("parts", it, PRODUCTS) for it in parts]
    integer("rank", rank, 1)
    real("scale", scale)
    made = []
    for layer in model.layers:
        for name in names:
            base = getattr(layer, name)
            if not isinstance(base, nn.Linear):
                raise ValueError(f"{name} of the model is adapted, expected a model that is not")
            setattr(layer, name, LowRank(base, rank, scale))
            made += [getattr(layer, name).a, getattr(layer, name).b]
    return made
