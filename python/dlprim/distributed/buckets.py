"""Which gradients travel together: a plan that every rank makes alike, from the shapes alone.

Many small messages waste latency, one big one cannot start before the backward pass has ended. So
neighbours share a bucket, the last layers' gradients, which are final first, in the first one. What
is in the last bucket is never hidden behind computation: buckets become smaller towards the end,
each at most half of what is left, down to a size that latency makes the smallest sensible one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

SMALLEST = 1 << 20  # bytes


class Parameter(Protocol):
    """What is trained: a float32 array and, after a backward pass, its gradient of that shape."""

    @property
    def name(self) -> str: ...

    @property
    def value(self) -> NDArray[np.float32]: ...

    @property
    def gradient(self) -> NDArray[np.float32]: ...


@dataclass(frozen=True)
class Bucket:
    """Parameters whose gradients travel together, one after the other."""

    index: int
    parameters: tuple[Any, ...]
    size: int  # elements
    padded: int  # elements, a multiple of the number of ranks

    def pack(self, target: NDArray[np.float32], share: float) -> None:
        """Writes share * gradient of all parameters into target (padded,), zeros behind them."""
        begin = 0
        for parameter in self.parameters:
            gradient = parameter.gradient.reshape(-1)
            np.multiply(gradient, np.float32(share), out=target[begin : begin + gradient.size])
            begin += gradient.size
        target[begin:] = 0

    def unpack(self, source: NDArray[np.float32]) -> None:
        """Writes source (padded,) over the gradients of all parameters."""
        begin = 0
        for parameter in self.parameters:
            gradient = parameter.gradient
            gradient[...] = source[begin : begin + gradient.size].reshape(gradient.shape)
            begin += gradient.size


def plan_buckets(parameters: Sequence[Any], bucket_bytes: int, ranks: int) -> list[Bucket]:
    """The buckets of a model, in the order in which a backward pass fills them.

    Parameters
    ----------
    parameters : sequence of Parameter
        In the order of the forward pass.
    bucket_bytes : int
        The most that a bucket holds, but that a parameter is never cut.
    ranks : int
        Buckets are padded to a multiple of it.
    """
    left = sum(parameter.value.nbytes for parameter in parameters)
    buckets: list[Bucket] = []
    waiting = list(parameters)
    while waiting:
        room = min(bucket_bytes, max(left // 2, SMALLEST))
        chosen = [waiting.pop()]
        size = chosen[0].value.size
        while waiting and 4 * (size + waiting[-1].value.size) <= room:
            size += waiting[-1].value.size
            chosen.append(waiting.pop())
        left -= 4 * size
        buckets.append(Bucket(len(buckets), tuple(chosen), size, -(-size // ranks) * ranks))
    return buckets
