"""The sum over the ranks of one bucket, as steps between which something else may run.

Every rank owns one part of the bucket: it receives that part from all others, adds the parts up in
the order of the ranks, and sends the sum to all. That moves 2(R-1)/R of the bucket per rank, as
little as any allreduce, and the bits of the result depend on nothing but the number of ranks:
not on the size of buckets, the overlap or the MPI library, whose own allreduce promises none of it.

A reduction is a generator that yields each MPI request when it has started it and continues when
the request is complete: who waits, and how, is the choice of `overlap`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dlprim.arguments.arrays import Array, FloatArray, aligned
from dlprim.distributed.buckets import Bucket, BucketMemory
from dlprim.distributed.group import Group, mpi
from dlprim.distributed.wire import PART, Bfloat16Wire, Wire, parts

WIRES = ("float32", "bfloat16")


class Reducer:
    """Averages buckets over a group, one at a time, in the memory of the gradients themselves.

    Parameters
    ----------
    group : Group
        With a communicator that nobody else uses.
    buckets : sequence of Bucket
        Whose gradients move into memory of this object.
    wire : {"float32", "bfloat16"}
    """

    def __init__(self, group: Group, buckets: Sequence[Bucket], wire: str) -> None:
        self._in_place = mpi().IN_PLACE
        self._group = group
        self._memory = [BucketMemory(bucket) for bucket in buckets]
        longest = max((bucket.padded for bucket in buckets), default=0)
        is_narrow = wire == "bfloat16"
        dtype = np.dtype(np.uint16 if is_narrow else np.float32)
        self._message = aligned((longest if is_narrow else 0,), dtype)
        self._received = aligned((longest,), dtype)
        self._sum = np.empty(PART, np.float32)
        self._term = np.empty(PART, np.float32)
        # What a rank contributes and what it sums as an owner are rounded one after the other,
        # each with a loss of its own.
        self._contributions, self._results = (
            [Bfloat16Wire(it.padded // parts) if is_narrow else Wire() for it in buckets]
            for parts in (1, group.size)
        )

    def steps(self, bucket: Bucket, factor: float) -> Iterator[Any]:
        """Replaces the gradients of `bucket` by the mean over all ranks of factor * gradient."""
        communicator, rank, ranks = self._group.communicator, self._group.rank, self._group.size
        contribution, result = self._contributions[bucket.index], self._results[bucket.index]
        memory = self._memory[bucket.index]
        values = memory.values
        message = self._message[: bucket.padded] if self._message.size > 0 else values
        received = self._received[: bucket.padded]
        length = bucket.padded // ranks
        own = slice(rank * length, (rank + 1) * length)

        memory.gather()
        if factor != 1:
            np.multiply(values, np.float32(factor), out=values)
        contribution.write(values, message)
        counts = [length if other != rank else 0 for other in range(ranks)]
        begins = [other * length for other in range(ranks)]
        to_owners, here = [message, (counts, begins)], [received, (counts, begins)]
        yield communicator.Ialltoallv(to_owners, here)
        messages = list(received.reshape(ranks, length))
        messages[rank] = message[own]
        self._mean(messages, contribution, values[own])
        result.write(values[own], message[own])
        yield communicator.Iallgather(self._in_place, message)
        result.read(message, values)

    @property
    def lost(self) -> list[FloatArray]:
        """What messages still owe, in the memory that the next ones take it from."""
        return [it.lost for it in (*self._contributions, *self._results)]

    def _mean(self, messages: list[Array], wire: Wire, mean: FloatArray) -> None:
        """Over the messages, added in their order; one of them may be `mean` itself."""
        scale = np.float32(1 / len(messages))
        for part in parts(mean.size):
            total = self._sum[: mean[part].size]
            np.copyto(total, wire.term(messages[0][part], self._term))
            for message in messages[1:]:
                np.add(total, wire.term(message[part], self._term), out=total)
            np.multiply(total, scale, out=mean[part])


def bytes_per_element(wire: str) -> int:
    """Of a message."""
    return 4 if wire == "float32" else 2
