"""Averages a model's gradients over the ranks while the backward pass still computes them.

It asks little of a model: its parameters in the order of the forward pass, and a call when a
gradient is final, from whatever thread. The optimiser then sees the same averages on every rank,
and since all ranks start from the parameters of rank 0, they never differ by a bit.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlprim import nn
from dlprim.arguments.arrays import Array, FloatArray
from dlprim.arguments.names import one_of_names
from dlprim.distributed.agreement import require_same_parameters, require_same_settings
from dlprim.distributed.buckets import plan_buckets
from dlprim.distributed.group import Group
from dlprim.distributed.overlap import OVERLAPS, AfterBackward, BesideBackward
from dlprim.distributed.reduction import WIRES, Reducer, bytes_per_element
from dlprim.distributed.steps import StepExchange, trained_by
from dlprim.distributed.traffic import Traffic

BUCKET_BYTES = 25 << 20
_NO_PLAN = np.empty(0, np.int64)


class DataParallel:
    """Keeps the copies of one model on all ranks alike.

    A `dlprim.nn.Step` needs nothing more: ``loss = step(x, labels)`` then updates by gradients, and
    returns the loss, averaged over the ranks. In a loop by hand call `ready` for every parameter
    when its gradient is final, in any order but the same on all ranks, and `finish` before the
    gradients are used: then each is the average over the ranks.

    Parameters
    ----------
    module : Step, or object with ``parameters()``
        Parameters have ``name``, ``value`` and ``gradient``, the last two float32 arrays. The
        values are overwritten by those of rank 0, and ``gradient`` becomes another array, in
        memory that travels without packing: ask for it after this, and write into it. The
        statistics of a `dlprim.nn.Module` become those of rank 0 as well.
    group : Group, optional
        `Group.world()` by default. A group of one does nothing.
    bucket_bytes : int
        The most that is reduced at once; a parameter is never cut.
    overlap : {"thread", "off"}
        Reduce on a thread beside the backward pass, or after it. Without full thread support of
        MPI, "thread" becomes "off" with a warning.
    wire : {"float32", "bfloat16"}
        How gradients travel; sums are float32 in any case.

    Attributes
    ----------
    share : float
        The weight of this rank's gradients, 1 / size by default. Where ranks have batches of
        different sizes, set it to this rank's part of all samples before the backward pass; of a
        step that accumulates, of all its calls.
    overlap : str
        What is in use.
    traffic : Traffic
        Of the latest step.

    Raises
    ------
    TypeError, ValueError
        An argument is wrong.
    CollectiveError
        The ranks have different models, wires or sizes of buckets; raised on all of them.
    """

    def __init__(
        self,
        module: Any,
        group: Group | None = None,
        bucket_bytes: int = BUCKET_BYTES,
        overlap: str = "thread",
        wire: str = "float32",
    ) -> None:
        one_of_names("overlap", overlap, OVERLAPS)
        one_of_names("wire", wire, WIRES)
        if bucket_bytes < 1:
            raise ValueError(f"bucket_bytes is {bucket_bytes}, expected at least 1")
        self.group = Group.world() if group is None else group
        self.share = 1 / self.group.size
        self.traffic = Traffic(())
        step = module if isinstance(module, nn.Step) else None
        model = module if step is None else step.model
        whole = list(model.parameters())
        trained = whole if step is None else trained_by(step)
        own = set(map(id, trained))
        parameters = [it for it in whole if id(it) in own]
        _require_float32(whole)
        require_same_settings(self.group, {"wire": wire, "bucket_bytes": bucket_bytes})
        require_same_parameters(self.group, parameters)
        for parameter in whole:
            broadcast_value(self.group, parameter)
        _broadcast_rest(self.group, model)
        self.overlap = usable_overlap(self.group, overlap)
        self._buckets = plan_buckets(parameters, bucket_bytes, self.group.size)
        self._element_bytes = bytes_per_element(wire)
        self._engine = AfterBackward(self.group)
        if self.group.communicator is not None:
            self._traffic_group = self.group.duplicate()
            self._reducer = Reducer(self._traffic_group, self._buckets, wire)
            kind = BesideBackward if self.overlap == "thread" else AfterBackward
            self._engine = kind(self._traffic_group)
            if step is not None:
                step.exchange_by(StepExchange(self, step, trained))
        self._index_of = {id(it): at.index for at in self._buckets for it in at.parameters}
        self._start_step()

    def ready(self, parameter: Any) -> None:
        """Says that a gradient is final; it must stay as it is until `finish` has returned.

        Raises
        ------
        ValueError
            The parameter is not one of the module's, or was ready before in this step.
        """
        self._engine.check()
        if id(parameter) not in self._index_of:
            raise ValueError(f"parameter {parameter.name} is not one of this module's")
        missing = self._missing[self._index_of[id(parameter)]]
        if id(parameter) not in missing:
            raise ValueError(f"parameter {parameter.name} is ready for the second time in a step")
        missing.remove(id(parameter))
        while self._next < len(self._buckets) and not self._missing[self._next]:
            self._ready_at.append(time.perf_counter())
            if self.group.communicator is not None:
                start = partial(self._reducer.steps, self._buckets[self._next], self._factor())
                self._engine.submit(start)
            self._next += 1

    @property
    def ready_beside(self) -> Callable[[Any], None] | None:
        """`ready`, or None where no gradient travels before `finish` anyway.

        ``module.backward(dy, parallel.ready_beside)`` then runs without a thread that tells, and
        `all_ready` follows it.
        """
        return self.ready if isinstance(self._engine, BesideBackward) else None

    def all_ready(self) -> None:
        """`ready` of every parameter, the last one first."""
        for bucket in self._buckets:
            for parameter in bucket.parameters:
                self.ready(parameter)

    def finish(self) -> None:
        """Returns when every gradient is the average over the ranks.

        Raises
        ------
        ValueError
            A parameter was not ready in this step.
        TimeoutError
            Another rank does not take part.
        """
        if self._next < len(self._buckets):
            bucket = self._buckets[self._next]
            names = [p.name for p in bucket.parameters if id(p) in self._missing[self._next]]
            raise ValueError(f"no gradient was ready for the parameters {', '.join(names)}")
        started = time.perf_counter()
        self._engine.drain()
        exposed = time.perf_counter() - started
        sizes = [bucket.size * self._element_bytes for bucket in self._buckets]
        leads = [started - at for at in self._ready_at]
        timeline = tuple(zip(sizes, leads, strict=True))
        self.traffic = Traffic(timeline, self._engine.busy_seconds, exposed)
        self._start_step()

    def mean(self, value: float) -> float:
        """Of the values of all ranks, each by its share; that of a rank without any means nothing.

        To be called on all ranks.
        """
        everywhere = self.group.allgather((self.share, value))
        return float(sum(share * it for share, it in everywhere if share > 0))

    def state_dict(self) -> dict[str, Array]:
        """What this rank carries from step to step: what bfloat16 messages still owe.

        Between two steps. ``lost`` is float32, ``plan`` int64 says of which buckets, on how many
        ranks; empty where nothing is owed.
        """
        return {"lost": np.concatenate(self._lost), "plan": self._plan} if self._lost else {}

    def load_state_dict(self, state: Mapping[str, Array]) -> bool:
        """Goes on from a `state_dict` of the same rank.

        Returns
        -------
        bool
            False where the state is not whole, of other buckets, ranks or another wire:
            then nothing is owed.
        """
        own = self._lost
        fits = np.array_equal(state.get("plan", _NO_PLAN), self._plan if own else _NO_PLAN)
        ends = np.cumsum([it.size for it in own])
        if own:
            fits = fits and state.get("lost", _NO_PLAN).shape == (ends[-1],)
        parts = np.split(state["lost"], ends[:-1]) if fits and own else own
        for lost, part in zip(own, parts, strict=True):
            lost[...] = part if fits else 0
        return fits

    @property
    def _lost(self) -> list[FloatArray]:
        everything = [] if self.group.communicator is None else self._reducer.lost
        return [it for it in everything if it.size > 0]

    @property
    def _plan(self) -> NDArray[np.int64]:
        return np.array([self.group.size, *(it.padded for it in self._buckets)], np.int64)

    def close(self) -> None:
        """Ends the communication thread, on all ranks; the object cannot be used any more."""
        self._engine.close()
        if self.group.communicator is not None:
            self._traffic_group.communicator.Free()

    def __enter__(self) -> DataParallel:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:  # after an exception the thread may wait for ranks that will not come
            self.close()

    def _factor(self) -> float:
        """What a gradient weighs in the mean over the ranks; 1 to the bit for equal shares."""
        size = self.group.size
        return 1.0 if self.share == 1 / size else self.share * size

    def _start_step(self) -> None:
        self._next = 0  # the bucket to submit
        self._ready_at: list[float] = []
        self._engine.busy_seconds = 0.0
        self._missing = [{id(p) for p in bucket.parameters} for bucket in self._buckets]


def broadcast_value(group: Group, parameter: Any) -> None:
    """Overwrites a parameter by that of rank 0, whatever its strides."""
    value = np.ascontiguousarray(parameter.value)
    group.broadcast(value)
    if value is not parameter.value:
        parameter.value[...] = value


def _broadcast_rest(group: Group, module: Any) -> None:
    """What else a `dlprim.nn.Module` has: statistics, and weights that it packed before."""
    if not isinstance(module, nn.Module):
        return
    for layer in module.modules():
        for statistic in layer.own_statistics().values():
            group.broadcast(statistic)
    module.changed()


def usable_overlap(group: Group, overlap: str) -> str:
    """`overlap`, or "off" with a warning where MPI does not let a second thread communicate."""
    if overlap == "thread" and group.size > 1 and group.thread_level != "multiple":
        warnings.warn(
            f"MPI supports the thread level {group.thread_level}, a communication thread needs "
            'multiple: gradients are reduced with overlap="off" instead',
            RuntimeWarning,
            stacklevel=3,
        )
        return "off"
    return overlap


def _require_float32(parameters: Sequence[Any]) -> None:
    for parameter in parameters:
        if parameter.value.dtype != np.float32:
            raise TypeError(
                f"parameter {parameter.name} has dtype {parameter.value.dtype}, expected float32"
            )
