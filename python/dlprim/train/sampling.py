"""Text that a language model writes, one character after the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlprim.arguments.arrays import FloatArray
from dlprim.arguments.floats import widened
from dlprim.nn import Module
from dlprim.train.models import LanguageModel
from dlprim.train.modes import in_mode
from dlprim.train.text import ALPHABET, decoded, encoded


def sample(model: Module, prompt: str, count: int, seed: int, temperature: float = 0.7) -> str:
    """``prompt`` and ``count`` characters that the model draws after it.

    Parameters
    ----------
    temperature : float
        Divides the logits: below 1 likely characters become likelier.
    """
    generator = np.random.default_rng(seed)
    text = list(encoded(prompt))
    logits = _recurrent if isinstance(model, LanguageModel) else _windowed
    with in_mode(model, False):
        if isinstance(model, LanguageModel):
            model.rnn.carry = True
        for number in range(count):
            found = widened(logits(model, text, is_first=number == 0))
            text.append(_drawn(found / temperature, generator))
    return decoded(np.array(text))


def _recurrent(model: Any, text: list[int], is_first: bool) -> Any:
    """Of the next character; the states know all but the latest."""
    return model(np.array(text if is_first else text[-1:]).reshape(-1, 1))[-1]


def _windowed(model: Any, text: list[int], is_first: bool) -> Any:
    """Of the next character, from as many as the model reads: always the same shape."""
    seen = text[-model.length :]
    window = np.zeros((1, model.length), np.int64)
    window[0, : len(seen)] = seen  # what stands behind them, a causal model does not see
    return model(window)[0, len(seen) - 1]


def _drawn(logits: FloatArray, generator: np.random.Generator) -> int:
    shares = np.exp((logits - logits.max()).astype(np.float64))
    shares[len(ALPHABET) - 1] = 0  # what stands for all unknown characters is no text
    return int(generator.choice(shares.size, p=shares / shares.sum()))
