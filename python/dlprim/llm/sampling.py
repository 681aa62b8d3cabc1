"""Which token follows: the most probable, or one that is drawn among likely ones.

Sources: nucleus sampling (top_p) arXiv 1904.09751; min_p arXiv 2407.01082; repetition penalty arXiv
1909.05858.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dlprim.arguments.scalars import fraction, integer, real

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen.

    Parameters
    ----------
    temperature : float
        Logits are divided by it; 0 takes the most probable token.
    top_k : int
        Only so many of the most probable tokens are drawn among; 0 for all.
    top_p : float
        Only the most probable tokens that together have this probability.
    min_p : float
        Only tokens with at least this share of the probability of the most probable.
    repetition_penalty : float
        Logits of tokens that were there are divided by it where positive, else multiplied.
    seed : int, optional
        Equal seeds draw equal tokens; each sequence draws by itself.

    Raises
    ------
    TypeError, ValueError
        A number is none, or outside its range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        real("temperature", self.temperature, 0)
        integer("top_k", self.top_k, 0)
        fraction("top_p", self.top_p)
        fraction("min_p", self.min_p)
        if real("repetition_penalty", self.repetition_penalty, 0) == 0:
            raise ValueError("repetition_penalty is 0, expected a number above it")
        if self.seed is not None:
            integer("seed", self.seed, 0)

    def generator(self, place: int) -> np.random.Generator:
        """What draws the tokens of a sequence."""
        return np.random.default_rng(None if self.seed is None else [self.seed, place])

    def chosen(self, logits: Array, seen: Collection[int], draw: np.random.Generator) -> int:
        """A token, by logits (V,) that may be written to; `seen` are the tokens before."""
        if self.repetition_penalty != 1 and seen:
            places = np.fromiter(seen, np.int64, len(seen))
            found = logits[places]
            by = np.float32(self.repetition_penalty)
            logits[places] = np.where(found > 0, found / by, found * by)
        if self.temperature == 0:
            return int(logits.argmax())
        tokens, shares = self._likely((logits - logits.max()) / np.float32(self.temperature))
        ends = np.cumsum(shares, dtype=np.float64)
        place = int(np.searchsorted(ends, draw.random() * ends[-1], side="right"))
        return int(tokens[min(place, len(tokens) - 1)])

    def _likely(self, logits: Array) -> tuple[Array, Array]:
        """Tokens that may be drawn, and their shares; the largest logit is 0."""
        shares = np.exp(logits)
        least = np.float32(self.min_p)
        if self.top_p < 1 and not self.top_k:
            # All that are smaller have less in common than what top_p leaves away.
            least = max(least, np.float32((1 - self.top_p) / len(shares)) * shares.sum())
        tokens = np.flatnonzero(shares >= least)
        found = shares[tokens]
        if 0 < self.top_k < len(tokens):
            largest = np.sort(np.argpartition(found, -self.top_k)[-self.top_k :])
            tokens, found = tokens[largest], found[largest]
        if self.top_p == 1:
            return tokens, found
        order = np.argsort(-found, kind="stable")
        tokens, found = tokens[order], found[order]
        sums = np.cumsum(found, dtype=np.float64)
        total = sums[-1] if self.top_k else shares.sum(dtype=np.float64)
        count = int(np.searchsorted(sums, self.top_p * total)) + 1  # with the one that reaches it
        return tokens[:count], found[:count]
