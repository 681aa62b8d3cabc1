"""The weights of a model by their parts: products of one input are joined."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dlprim.llm.checkpoint import Checkpoint
from dlprim.llm.config import Config
from dlprim.llm.families import FAMILIES
from dlprim.llm.gguf_file import joined
from dlprim.model_file import ModelFileError

Array = npt.NDArray[Any]

# What the modules of a decoder may be inside of, and where its head is then.
_PREFIXES = {
    "model.": "",
    "": "",
    "transformer.": "",
    "language_model.model.": "language_model.",
    "model.language_model.": "",
}

PRODUCTS = ("qkv", "out", "up", "down")
NORMS = ("before_attention", "after_attention", "before_mlp", "after_mlp", "q_norm", "k_norm")


class Pair(NamedTuple):
    """A weight, of a product (K, C) or of a norm, and its bias."""

    weight: Array
    bias: Array | None


class Source(Protocol):
    """What has the weights of a model by their parts."""

    config: Config

    def table(self) -> Array: ...
    def places(self) -> Array: ...
    def head(self) -> Pair: ...
    def product(self, layer: int, part: str) -> Pair: ...
    def norm(self, layer: int | None, part: str) -> Pair: ...


class Weights:
    """What a checkpoint has for a configuration, in the types of the files.

    Raises
    ------
    ModelFileError
        An array is missing, here or where it is asked for, or has another shape.
    """

    def __init__(self, checkpoint: Checkpoint, config: Config) -> None:
        self.checkpoint, self.config = checkpoint, config
        self._family = FAMILIES[config.family]
        (table,) = self._family.named("tokens")
        found = [it for it in _PREFIXES if f"{it}{table}.weight" in checkpoint.arrays]
        if not found:
            raise ModelFileError(f"{checkpoint.where} has no array model.{table}.weight")
        self._prefix = found[0]

    def table(self) -> Array:
        """Rows of tokens, (V, C)."""
        return self._whole("tokens", (self.config.V, self.config.C))

    def places(self) -> Array:
        """position embeddings, (length, C)."""
        return self._whole("places", (self.config.length, self.config.C))

    def head(self) -> Pair:
        """The product that makes logits."""
        name, c = f"{_PREFIXES[self._prefix]}lm_head", self.config
        return Pair(self.checkpoint.array(f"{name}.weight", (c.V, c.C)), None)

    def product(self, layer: int, part: str) -> Pair:
        """One of `PRODUCTS`: the matrices of a part below each other."""
        names, (rows, C) = self._names(layer, part), extents(self.config, part)
        if len(names) == 1:
            rows = (sum(rows),)
        pieces = [
            self._matrix(f"{name}.weight", (K, C)) for name, K in zip(names, rows, strict=True)
        ]
        weight = joined(pieces)
        if part not in self.config.biases:
            return Pair(weight, None)
        found = [
            self.checkpoint.array(f"{name}.bias", (K,)) for name, K in zip(names, rows, strict=True)
        ]
        return Pair(weight, np.concatenate(found).astype(np.float32))

    def norm(self, layer: int | None, part: str) -> Pair:
        """Of a layer, or the last one: weight and bias as float32."""
        c = self.config
        (name,) = self._names(layer, part)
        size = c.C if layer is None else norm_size(c, part)
        weight = self.checkpoint.array(f"{name}.weight", (size,)).astype(np.float32)
        if c.norm != "layer":
            return Pair(weight + np.float32(self._family.shift), None)
        return Pair(weight, self.checkpoint.array(f"{name}.bias", (size,)).astype(np.float32))

    def _names(self, layer: int | None, part: str) -> list[str]:
        before = self._prefix if layer is None else self._prefix + self._family.layers.format(layer)
        return [f"{before}{it}" for it in self._family.named(part)]

    def _whole(self, part: str, shape: tuple[int, ...]) -> Array:
        (name,) = self._names(None, part)
        return self.checkpoint.array(f"{name}.weight", shape)

    def _matrix(self, name: str, shape: tuple[int, int]) -> Array:
        if self._family.is_transposed:
            return self.checkpoint.array(name, shape[::-1]).T
        return self.checkpoint.array(name, shape)


def named_arrays(source: Source) -> Iterator[tuple[str, Array]]:
    """What files of the family call the weights, and each as it lies there."""
    c, family = source.config, FAMILIES[source.config.family]
    prefix = "transformer." if c.family == "gpt2" else "model."

    def named(layer: int | None, part: str) -> list[str]:
        before = prefix if layer is None else prefix + family.layers.format(layer)
        return [f"{before}{it}" for it in family.named(part)]

    def norm(layer: int | None, part: str) -> Iterator[tuple[str, Array]]:
        (name,), pair = named(layer, part), source.norm(layer, part)
        yield f"{name}.weight", pair.weight - np.float32(family.shift)
        if pair.bias is not None:
            yield f"{name}.bias", pair.bias

    def product(layer: int, part: str) -> Iterator[tuple[str, Array]]:
        names, pair = named(layer, part), source.product(layer, part)
        rows, _ = extents(c, part)
        ends: Any = np.cumsum(rows)[:-1] if len(names) > 1 else []
        biases = [None] * len(names) if pair.bias is None else np.split(pair.bias, ends)
        for name, weight, bias in zip(names, np.split(pair.weight, ends), biases, strict=True):
            yield f"{name}.weight", weight.T if family.is_transposed else weight
            if bias is not None:
                yield f"{name}.bias", bias

    yield f"{named(None, 'tokens')[0]}.weight", source.table()
    if c.has_places:
        yield f"{named(None, 'places')[0]}.weight", source.places()
    if not c.is_tied:
        yield "lm_head.weight", source.head().weight
    yield from norm(None, "norm")
    for layer in range(c.layers):
        for part in PRODUCTS:
            yield from product(layer, part)
        for part in NORMS:
            if norm_size(c, part):
                yield from norm(layer, part)


def extents(config: Config, part: str) -> tuple[tuple[int, ...], int]:
    """Rows of the matrices that are one product here, and their columns."""
    c = config
    q, k = c.heads * c.D, c.kv_heads * c.D
    ups = (c.hidden, c.hidden) if c.gated else (c.hidden,)
    return {
        "qkv": ((q, k, k), c.C),
        "out": ((c.C,), q),
        "up": (ups, c.C),
        "down": ((c.C,), c.hidden),
    }[part]


def norm_size(config: Config, part: str) -> int:
    """Elements that one of `NORMS` takes as one; 0 where a family has none there."""
    c = config
    if part in ("q_norm", "k_norm"):
        heads = c.heads if part == "q_norm" else c.kv_heads
        return {None: 0, "each": c.D, "all": heads * c.D}[c.head_norms]
    return c.C if part in c.norms else 0
