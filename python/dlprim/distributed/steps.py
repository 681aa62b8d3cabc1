"""Steps that are one network, on several ranks: an exchange between gradients and update.

What `dlprim.nn.Step` runs on one rank as one network becomes a network that gives gradients, where
they travel, and an update by what all ranks have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from dlprim.arguments.arrays import FloatArray
from dlprim.nn import Parameter, Step
from dlprim.optim import clip_grad_norm

if TYPE_CHECKING:
    from dlprim.distributed.data_parallel import DataParallel


def trained_by(step: Step) -> list[Parameter]:
    """The parameters that a step updates, in the order of its optimiser.

    Raises
    ------
    ValueError
        The optimiser has another array.
    """
    known = {id(it.held): it for it in step.model.parameters()}
    arrays = [row[0] for row in step.optimizer.update().rows]
    if any(id(it) not in known for it in arrays):
        raise ValueError(
            "the optimizer of step updates an array that is none of the model, expected one that "
            "was made with model.parameters()"
        )
    return [known[id(it)] for it in arrays]


class StepExchange:
    """What a step does in the place of an update of its own; see `dlprim.tracing.steps.Exchange`.

    Parameters
    ----------
    parallel : DataParallel
    step : Step
    trained : list of Parameter
        As `trained_by` gives it.
    """

    def __init__(self, parallel: DataParallel, step: Step, trained: list[Parameter]) -> None:
        self._parallel, self._step, self._trained = parallel, step, trained

    @property
    def ready(self) -> Callable[[int], None] | None:
        ready = self._parallel.ready_beside
        return None if ready is None else lambda row: ready(self._trained[row])

    def gradients(self) -> list[FloatArray]:
        return [it.gradient for it in self._trained]

    def wait(self) -> None:
        if self.ready is None:
            self._parallel.all_ready()
        self._parallel.finish()

    def update(self) -> float | None:
        limit, norm = self._step.clip_norm, None
        if limit is not None:
            norm = clip_grad_norm(self._trained, limit)
        self._step.optimizer.step(self.gradients())
        return norm

    def loss(self, own: Any) -> np.float32:
        return np.float32(self._parallel.mean(float(own)))
