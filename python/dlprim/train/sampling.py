"""Text that a language model writes, one character after the other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dlprim.arguments.floats import widened
from dlprim.train.models import LanguageModel
from dlprim.train.modes import in_mode
from dlprim.train.text import ALPHABET, decoded, encoded


def sample(
    model: LanguageModel, prompt: str, count: int, seed: int, temperature: float = 0.7
) -> str:
    """``prompt`` and ``count`` characters that the model draws after it.

    Parameters
    ----------
    temperature : float
        Divides the logits: below 1 likely characters become likelier.
    """
    generator = np.random.default_rng(seed)
    text = list(encoded(prompt))
    with in_mode(model, False):
        model.rnn.carry = True
        logits = model(np.array(text).reshape(-1, 1))[-1]
        for _ in range(count):
            text.append(_drawn(widened(logits) / temperature, generator))
            logits = model(np.array(text[-1:]).reshape(1, 1))[-1]
    return decoded(np.array(text))


def _drawn(logits: NDArray[np.float32], generator: np.random.Generator) -> int:
    shares = np.exp((logits - logits.max()).astype(np.float64))
    shares[len(ALPHABET) - 1] = 0  # what stands for all unknown characters is no text
    return int(generator.choice(shares.size, p=shares / shares.sum()))
