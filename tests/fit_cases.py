"""A small problem, models for it and batches of it, which tests of `nn.fit` share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlprim import nn

QUIET: dict[str, Any] = {"progress": False}


def data(samples: int = 90) -> tuple[NDArray[Any], NDArray[Any]]:
    random = np.random.default_rng(0)
    x = random.standard_normal((samples, 6))
    return x, (x[:, 0] + x[:, 1] > 0).astype(np.int64)


def model(outputs: int = 2, dropout: float = 0.0) -> nn.Sequential:
    nn.seed(0)
    between = [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(nn.Linear(6, 8, activation="relu"), *between, nn.Linear(8, outputs))


def bits(module: nn.Module) -> bytes:
    return b"".join(it.tobytes() for it in module.state_dict().values())


class Given:
    """Batches that are made anew in each epoch, and whose number nobody knows."""

    def __init__(self, size: int = 32) -> None:
        self.size = size

    def __iter__(self) -> Iterator[Any]:
        x, y = data()
        for begin in range(0, len(y), self.size):
            part = slice(begin, begin + self.size)
            yield (x[part], y[part]) if begin else {"x": x[part], "y": y[part]}
