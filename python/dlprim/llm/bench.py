"""How fast a model reads and writes, beside how fast this machine reads memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import dlprim
from dlprim.llm.config import Config
from dlprim.llm.families import config_of
from dlprim.llm.model import LanguageModel
from dlprim.llm.weights import Pair, extents, norm_size

Array = npt.NDArray[Any]

# Architectures that a model of random weights can be measured of.
SHAPES: dict[str, dict[str, Any]] = {
    "0.5B": {
        "model_type": "qwen2",
        **{"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24},
        **{"num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936},
        **{"max_position_embeddings": 32768, "tie_word_embeddings": True, "rope_theta": 1e6},
    },
    "1B": {
        "model_type": "llama",
        **{"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16},
        **{"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256},
        **{"max_position_embeddings": 131072, "tie_word_embeddings": True, "rope_theta": 5e5},
    },
}


class RandomWeights:
    """Weights that nobody trained, made when they are asked for."""

    def __init__(self, entries: Mapping[str, Any]) -> None:
        self.config: Config = config_of(entries)
        drawn = np.random.default_rng(0).standard_normal(1 << 20, np.float32)
        self._drawn = dlprim.to_bfloat16(0.02 * drawn)

    def _made(self, *shape: int) -> Array:
        return np.resize(self._drawn, shape)

    def table(self) -> Array:
        return self._made(self.config.V, self.config.C)

    def places(self) -> Array:
        return self._made(self.config.length, self.config.C)

    def head(self) -> Pair:
        return Pair(self.table(), None)

    def product(self, layer: int, part: str) -> Pair:
        rows, C = extents(self.config, part)
        bias = np.zeros(sum(rows), np.float32) if part in self.config.biases else None
        return Pair(self._made(sum(rows), C), bias)

    def norm(self, layer: int | None, part: str) -> Pair:
        size = self.config.C if layer is None else norm_size(self.config, part)
        bias = np.zeros(size, np.float32) if self.config.norm == "layer" else None
        return Pair(np.ones(size, np.float32), bias)


class Figures(NamedTuple):
    """Medians.

    Attributes
    ----------
    prompt, decode : float
        Tokens a second that are read at once, and that are written one by one.
    fraction : float
        Bytes of weights that a written token reads, of what a sum of memory reads in the same time.
    """

    prompt: float
    decode: float
    fraction: float


def measured(
    model: LanguageModel, *, prompt: int = 128, depth: int = 0, rounds: int = 5
) -> Figures:
    """Prompts of a length, and tokens that are written behind `depth` others.

    Parameters
    ----------
    model : LanguageModel
    prompt, depth : int
        Tokens that are read at once, and that are in the cache before one is written.
    rounds : int
        Turns of all that is measured, one after the other.
    """
    tokens = np.random.default_rng(0).integers(0, model.config.V, max(prompt, 1))
    cache = model.cache(max(prompt, depth + 16))
    memory = np.ones(1 << 26, np.float32)
    times: list[tuple[float, float, float]] = []
    for _ in range(rounds + 1):
        cache.clear()
        read = _seconds(lambda: model(tokens, cache, last=True))
        cache.clear()
        for begin in range(0, depth, 256):
            model(np.resize(tokens, min(256, depth - begin)), cache, last=True)
        written = min(_seconds(lambda: model(tokens[:1], cache, last=True)) for _ in range(12))
        times.append((read, written, _seconds(lambda: dlprim.reduce_sum(memory))))
    read, written, summed = (float(np.median(it)) for it in zip(*times[1:], strict=True))
    share = (model.nbytes / written) / (memory.nbytes / summed)
    return Figures(prompt / read, 1 / written, share)


def _seconds(call: Callable[[], object]) -> float:
    before = time.perf_counter()
    call()
    return time.perf_counter() - before
