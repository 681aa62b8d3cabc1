"""Which gradients travel together: a plan that every rank makes alike, from the shapes alone.

Many small messages waste latency, one big one cannot start before the backward pass has ended. So
neighbours share a bucket, the last layers' gradients, which are final first, in the first one. What
is in the last bucket is never hidden behind computation: buckets become smaller towards the end,
each at most half of what is left, down to a size that latency makes the smallest sensible one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from dlprim.arguments.arrays import FloatArray, aligned

SMALLEST = 1 << 20  # bytes
_CACHE_LINE = 16  # elements


@dataclass(frozen=True)
class Bucket:
    """Parameters whose gradients travel together."""

    index: int
    parameters: tuple[Any, ...]
    begins: tuple[int, ...]  # element at which each gradient begins, on a cache line
    size: int  # elements, without gaps
    padded: int  # elements; every rank's part of them is whole cache lines


class BucketMemory:
    """The gradients of a bucket, one behind the other, so that they travel without being packed.

    From now on ``parameter.gradient`` of each is a part of `values`; a module that holds it in
    another array costs a copy.
    """

    def __init__(self, bucket: Bucket) -> None:
        self.values: FloatArray = aligned((bucket.padded,), np.float32, zeros=True)
        self._parts = []
        for parameter, begin in zip(bucket.parameters, bucket.begins, strict=True):
            gradient = parameter.gradient
            part = self.values[begin : begin + gradient.size].reshape(gradient.shape)
            self._parts.append((parameter, part))
        self.gather()

    def gather(self) -> None:
        """Takes in gradients that are in another place."""
        for parameter, part in self._parts:
            if parameter.gradient is part:
                continue
            if hasattr(parameter, "hold_gradient"):  # a dlprim.nn.Parameter
                parameter.hold_gradient(part)
            else:
                part[...] = parameter.gradient
                parameter.gradient = part


def plan_buckets(parameters: Sequence[Any], bucket_bytes: int, ranks: int) -> list[Bucket]:
    """The buckets of a model, in the order in which a backward pass fills them.

    Parameters
    ----------
    parameters : sequence
        Each has a name, a float32 value and a gradient; in the order of the forward pass.
    bucket_bytes : int
        The most that a bucket holds, but that a parameter is never cut.
    ranks : int
        How many parts a bucket is cut into.
    """
    left = sum(parameter.value.nbytes for parameter in parameters)
    buckets: list[Bucket] = []
    waiting = list(parameters)
    line = ranks * _CACHE_LINE
    while waiting:
        room = min(bucket_bytes, max(left // 2, SMALLEST))
        chosen = [waiting.pop()]
        size = chosen[0].value.size
        while waiting and 4 * (size + waiting[-1].value.size) <= room:
            size += waiting[-1].value.size
            chosen.append(waiting.pop())
        left -= 4 * size
        lengths = [-(-it.value.size // _CACHE_LINE) * _CACHE_LINE for it in chosen]
        *begins, end = accumulate(lengths, initial=0)
        padded = -(-end // line) * line
        buckets.append(Bucket(len(buckets), tuple(chosen), tuple(begins), size, padded))
    return buckets
