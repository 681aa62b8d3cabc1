"""A training run on several ranks: what they exchange besides their gradients.

Batches follow from the seed and the number of the step, so that ranks need not talk about data:
each takes its part of the batch that one rank would have taken. What they do tell each other, once
per step, is the loss and whether somebody wants to stop; it travels while the backward pass runs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dlprim.arguments.arrays import Array, FloatArray
from dlprim.distributed import CollectiveError, DataParallel
from dlprim.distributed.metrics import StepSeconds, Summary, summarize
from dlprim.nn import Module, Parameter
from dlprim.train.checkpoint import EXCHANGE, read
from dlprim.train.folder import CheckpointError
from dlprim.train.loop import Exchange, Trainer
from dlprim.train.tasks import Shard, Task

_LOST = f"{EXCHANGE}lost"
_WARM = 2  # steps that generate code and touch memory for the first time


class RankExchange(Exchange):
    """Makes several trainers, one per rank, into one; see `loop.Exchange`.

    Parameters
    ----------
    parallel : DataParallel
    model : Module
    task : Task
        This rank's part.
    wants_stop : callable
        The number of the signal that this rank is to end for after the step, or 0.

    Attributes
    ----------
    is_timed : bool
        Whether `Traffic` says when buckets were ready, even where none starts before the end.
    """

    is_timed = False

    def __init__(
        self, parallel: DataParallel, model: Module, task: Task, wants_stop: Callable[[], int]
    ) -> None:
        self.parallel, self.group = parallel, parallel.group
        self.rank = self.group.rank
        self._model, self._task, self._wants_stop = model, task, wants_stop
        self._pending: Any = None
        self._said = np.empty(3)
        self._heard = np.empty((self.group.size, 3))
        self._stopped_by = 0
        self._dropped = False  # what messages still owed

    def describe(self, wire: str, synchronized: bool) -> None:
        """Says how gradients travel, and whether batch normalisation is of all ranks."""
        normalizes = any(module.own_statistics() for module in self._model.modules())
        if self.group.size > 1:
            apart = normalizes and not synchronized
            self.settings = {
                "gradients": f"exchanged in {wire}",
                "batch normalisation": f"over {'each rank' if apart else 'all ranks'}",
            }

    def begin(self, step: int) -> None:
        self.parallel.share = self._task.share(step)
        if self._dropped and self.rank == 0:
            warnings.warn(
                "what rounding took from messages begins at zero: the checkpoint is of another "
                "number of ranks, other buckets or another wire",
                RuntimeWarning,
                stacklevel=2,
            )
        self._dropped = False

    def announce(self, step: int, loss: float, count: int) -> None:
        weight = count if self.parallel.share > 0 else 0
        self._said[...] = loss if weight > 0 else 0.0, weight, self._wants_stop()
        if self.group.size > 1:
            self._pending = self.group.communicator.Iallgather(self._said, self._heard)
        else:
            self._heard[0] = self._said

    @property
    def ready(self) -> Callable[[Parameter], None] | None:
        return self.parallel.ready if self.is_timed else self.parallel.ready_beside

    def finish(self) -> tuple[float, int]:
        if self.ready is None:
            self.parallel.all_ready()
        self.parallel.finish()
        if self._pending is not None:
            self.group.wait(self._pending, "the exchange of losses")
            self._pending = None
        losses, counts, stops = self._heard.T
        self._stopped_by = int(stops.max())
        total = counts.sum()
        return float((losses * counts).sum() / total), int(total)

    @property
    def stopped(self) -> int:
        """The signal to end for after this step, or 0; all ranks know of each other's."""
        return self._stopped_by if self.group.size > 1 else self._wants_stop()

    def before_test(self) -> None:
        """Statistics of batch normalisation become their mean over the ranks."""
        if self.group.size == 1:
            return
        found = (it for module in self._model.modules() for it in module.own_statistics().values())
        arrays = [it for it in found if it.dtype == np.float32]
        if not arrays:
            return
        everywhere = self.group.allgather(np.concatenate([it.reshape(-1) for it in arrays]))
        mean = np.mean(np.stack(everywhere), axis=0, dtype=np.float64)
        ends = np.cumsum([it.size for it in arrays])
        for array, part in zip(arrays, np.split(mean, ends[:-1]), strict=True):
            array[...] = part.reshape(array.shape)

    def mean(self, value: float, weight: float) -> float:
        everywhere = self.group.allgather((value * weight, weight))
        return float(sum(it[0] for it in everywhere) / sum(it[1] for it in everywhere))

    def first(self, value: str | None) -> str | None:
        return next((it for it in self.group.allgather(value) if it is not None), None)

    def state_dict(self) -> dict[str, Array]:
        state = self.parallel.state_dict()
        if not state:
            return {}
        lost = self.group.gather(state["lost"])
        return {} if lost is None else state | {"lost": lost}

    def load_state_dict(self, state: Mapping[str, Array]) -> None:
        """After `read`, of this rank. What does not fit is dropped; a step after that warns."""
        self._dropped = not self.parallel.load_state_dict(state)

    def all_columns(self, array: Array) -> Array:
        return np.concatenate(self.group.allgather(array))

    def own_columns(self, array: Array) -> Array:
        return np.ascontiguousarray(array[Shard(self.rank, self.group.size).of(array.shape[0])])

    def read(self, path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
        """A checkpoint, read by rank 0 for all: others may not see its disk.

        Raises
        ------
        CheckpointError, CollectiveError
            As `checkpoint.read`, on all ranks.
        """
        found: Any = None
        lost = None
        if self.rank == 0:
            try:
                found = read(path)
                lost = found[1].pop(_LOST, None)
            except CheckpointError as error:
                found = str(error)
        found = self.group.allgather(found)[0]
        if isinstance(found, str):
            raise CollectiveError(found)
        self._take_own_row(found[1], lost)
        return found  # type: ignore[no-any-return]

    def _take_own_row(self, arrays: dict[str, Any], lost: FloatArray | None) -> None:
        """From rank 0's array of all ranks, as large as the model on each, lest all hold it."""
        shape = self.group.allgather(None if lost is None else lost.shape)[0]
        if shape is not None and shape[0] == self.group.size:
            arrays[_LOST] = np.empty(shape[1:], np.float32)
            self.group.scatter(lost, arrays[_LOST])


class StepLog:
    """The seconds of each step."""

    def __init__(self, trainer: Trainer, parallel: DataParallel) -> None:
        self._trainer, self._parallel = trainer, parallel
        self._steps: list[StepSeconds] = []

    def after_step(self) -> None:
        """To be called after each."""
        spent, traffic = self._trainer.latest, self._parallel.traffic
        inside = max(traffic.exposed - spent.exchange, 0.0)  # the backward pass
        self._steps.append(
            StepSeconds(
                forward=spent.forward,
                backward=spent.backward - inside,
                communication=traffic.seconds,
                exposed=spent.exchange + inside,
                optimiser=spent.optimizer,
                input=spent.input,
            )
        )

    def summary(self) -> Summary | None:
        """Of all steps but the first few, on every rank; None where there are none."""
        if not self._steps:
            return None
        kept = self._steps[_WARM:] or self._steps
        return summarize(self._parallel, kept, self._trainer.config.batch_size)
