"""The sum over the ranks of one bucket, as steps between which something else may run.

Every rank owns one part of the bucket: it receives that part from all others, adds the parts up in
the order of the ranks, and sends the sum to all. That moves 2(R-1)/R of the bucket per rank, as
little as any allreduce, and the bits of the result depend on nothing but the number of ranks:
not on the size of buckets, the overlap or the MPI library, whose own allreduce promises none of it.

A reduction is a generator that yields each MPI request when it has started it and continues when
the request is complete: who waits, and how, is the choice of `overlap`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dlprim.distributed.buckets import Bucket
from dlprim.distributed.group import Group
from dlprim.distributed.wire import Bfloat16Wire, Float32Wire, Wire

WIRES = ("float32", "bfloat16")


class Reducer:
    """Sums buckets over a group, one at a time, in buffers that all buckets share.

    Parameters
    ----------
    group : Group
        With a communicator that nobody else uses.
    buckets : sequence of Bucket
    wire : {"float32", "bfloat16"}
    """

    def __init__(self, group: Group, buckets: Sequence[Bucket], wire: str) -> None:
        mpi: Any = importlib.import_module("mpi4py.MPI")
        self._in_place = mpi.IN_PLACE
        self._group = group
        longest = max((bucket.padded for bucket in buckets), default=0)
        self._values = np.empty(longest, np.float32)
        self._message = self._values if wire == "float32" else np.empty(longest, np.uint16)
        self._received = np.empty_like(self._message)
        # What a rank contributes and what it sums as an owner are rounded one after the other,
        # each with a loss of its own.
        self._contributions = [_wire(wire, bucket.padded) for bucket in buckets]
        self._results = [_wire(wire, bucket.padded // group.size) for bucket in buckets]

    def steps(self, bucket: Bucket, share: float) -> Iterator[Any]:
        """Replaces the gradients of `bucket` by the sum over all ranks of share * gradient."""
        communicator, ranks = self._group.communicator, self._group.size
        contribution, result = self._contributions[bucket.index], self._results[bucket.index]
        values = self._values[: bucket.padded]
        message, received = self._message[: bucket.padded], self._received[: bucket.padded]
        part = bucket.padded // ranks
        own = slice(self._group.rank * part, (self._group.rank + 1) * part)

        bucket.pack(values, share)
        contribution.write(values, message)
        yield communicator.Ialltoall(message, received)
        total = values[own]
        total.fill(0)
        for from_rank in received.reshape(ranks, part):
            contribution.add(from_rank, total)
        result.write(total, message[own])
        yield communicator.Iallgather(self._in_place, message)
        result.read(message, values)
        bucket.unpack(values)


def bytes_per_element(wire: str) -> int:
    """Of a message."""
    return 4 if wire == "float32" else 2


def _wire(name: str, size: int) -> Wire:
    return Float32Wire() if name == "float32" else Bfloat16Wire(size)
