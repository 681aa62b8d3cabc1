"""The training loop: batches through a model, one record per epoch.

It knows a model only by `forward`, `backward` and `parameters`, and it neither prints nor writes:
`Trainer.run` is a generator of records, so that a command line, a test or a notebook decides what
becomes of them. Between the backward pass and the update stands an exchange, which learns of each
gradient as soon as it is final: a distributed run averages them there.

The learning rate falls linearly to zero over the run, unless the schedule is constant. That costs
one multiplication per step and takes the jitter out of the last epochs: the final accuracy does not
hang on which step came last. All else follows from the seed and the number of the step, so that
with a constant rate the first epochs of a longer run are those of a shorter one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import dlprim
from dlprim.arguments.floats import widened
from dlprim.nn import Module, Parameter
from dlprim.optim import SGD, AdamW, clip_grad_norm
from dlprim.train.config import LANGUAGE, TrainConfig
from dlprim.train.models import LanguageModel
from dlprim.train.tasks import Task

_LARGEST_GRADIENT = 1.0  # norm, of recurrent networks (arXiv 1211.5063, section 3.2)


class Exchange(Protocol):
    """What happens to gradients between the backward pass and the update, and to all else that
    the ranks of a distributed run have to agree about."""

    rank: int  # of which 0 writes
    settings: Mapping[str, str]  # how ranks compute together, where that decides the result

    def begin(self, step: int) -> None:
        """The forward pass of a step is next."""

    def announce(self, step: int, loss: float, count: int) -> None:
        """The mean loss over so many samples in a step, before its backward pass."""

    def ready(self, parameter: Parameter) -> None:
        """This gradient is final; called inside the backward pass, the last layer's first."""

    def finish(self) -> tuple[float, int]:
        """After it gradients are what the update takes; the loss and the samples of all ranks."""

    def before_test(self) -> None:
        """Statistics are about to be used."""

    def mean(self, value: float, weight: float) -> float:
        """The weighted mean over all ranks."""

    def first(self, value: str | None) -> str | None:
        """What the first rank says that knows anything."""

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """What it carries from step to step, of all ranks; what rank 0 gets counts."""

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Goes on from a `state_dict`, or from this rank's part of it."""

    def all_columns(self, array: NDArray[Any]) -> NDArray[Any]:
        """The rows (N, ...) of all ranks."""

    def own_columns(self, array: NDArray[Any]) -> NDArray[Any]:
        """The inverse of `all_columns`."""


ALONE = {"gradients": "exchanged in float32", "batch normalisation": "over all ranks"}


class NoExchange:
    """A single process uses its gradients as they are."""

    rank = 0
    settings: Mapping[str, str] = ALONE

    def begin(self, step: int) -> None: ...

    def announce(self, step: int, loss: float, count: int) -> None:
        self._announced = loss, count

    def ready(self, parameter: Parameter) -> None: ...

    def finish(self) -> tuple[float, int]:
        return self._announced

    def before_test(self) -> None: ...

    def mean(self, value: float, weight: float) -> float:
        return value

    def first(self, value: str | None) -> str | None:
        return value

    def state_dict(self) -> dict[str, NDArray[Any]]:
        return {}

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None: ...

    def all_columns(self, array: NDArray[Any]) -> NDArray[Any]:
        return array

    def own_columns(self, array: NDArray[Any]) -> NDArray[Any]:
        return array


class DivergenceError(ArithmeticError):
    """The loss or the model's output is no longer finite, so further training is pointless."""


@dataclass
class Seconds:
    """Of the parts of steps."""

    forward: float = 0.0  # with the loss
    backward: float = 0.0
    exchange: float = 0.0  # what is left of it after the backward pass
    optimizer: float = 0.0
    input: float = 0.0  # making batches

    @property
    def total(self) -> float:
        return self.forward + self.backward + self.exchange + self.optimizer + self.input


@dataclass(frozen=True)
class EpochRecord:
    """What one epoch achieved."""

    epoch: int  # from 1
    train_loss: float  # nats, mean over the samples, each under the weights of its own step
    quality: float  # after the epoch: accuracy in [0, 1], or bits per character
    samples: int  # training samples, or characters
    seconds: Seconds  # of training, without the test

    @property
    def samples_per_s(self) -> float:
        """Training throughput."""
        return self.samples / self.seconds.total


class Trainer:
    """Trains one model on one task.

    Args:
        model: trained in place.
        task: what to train and to test on.
        config: the hyperparameters.
        exchange: told of gradients; see `Exchange`.

    Attributes:
        step: number of the next step, from 0.
        loss_sum, samples: of the steps of this epoch so far.
        after_step: called after each step with its loss per sample.
    """

    def __init__(
        self, model: Module, task: Task, config: TrainConfig, exchange: Exchange | None = None
    ) -> None:
        self.model, self.task, self.config = model, task, config
        self.exchange: Exchange = NoExchange() if exchange is None else exchange
        self._parameters = values = model.parameters()
        self.optimizer: SGD | AdamW
        if config.model in LANGUAGE:
            self.optimizer = AdamW(values, config.lr, weight_decay=config.weight_decay)
        else:
            self.optimizer = SGD(
                values, config.lr, config.momentum, weight_decay=config.weight_decay
            )
        if isinstance(model, LanguageModel):
            model.rnn.carry = True
        self.step, self.loss_sum, self.samples = 0, 0.0, 0
        self.seconds = Seconds()
        self.after_step: Callable[[float], None] = lambda loss: None

    @property
    def total_steps(self) -> int:
        """Of the whole run."""
        return self.config.epochs * self.task.steps

    @property
    def learning_rate(self) -> float:
        """Of the next update."""
        if self.config.schedule == "constant":
            return self.config.lr
        return self.config.lr * (1 - self.step / self.total_steps)

    def run(self) -> Iterator[EpochRecord]:
        """Yields a record after every epoch, from `step` on.

        A run that was stopped behind an epoch's last step goes on with that epoch's record.

        Raises:
            DivergenceError: a loss or an output is NaN or infinite.
        """
        while True:
            if self.samples > 0 and self.step % self.task.steps == 0:
                yield self._finish_epoch()
            if self.step >= self.total_steps:
                return
            self.run_step()

    def run_step(self) -> float:
        """Trains on the next batch and returns its mean loss.

        Raises:
            DivergenceError: it is NaN or infinite.
        """
        clock = time.perf_counter
        begin = clock()
        src, targets = self.task.batch(self.step)
        made = clock()
        self.exchange.begin(self.step)
        # A diverging run overflows on its way to NaN; the check below says it better.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            dst = self.model.forward(src, training=True)
            loss, diff_dst = dlprim.softmax_cross_entropy(dst, targets)
            self.exchange.announce(self.step, loss, self.task.count(targets))
            forward = clock()
            self.model.backward(diff_dst, self.exchange.ready)
            backward = clock()
            loss, count = self.exchange.finish()
            if not math.isfinite(loss):
                raise self._divergence(f"The training loss is {loss}", src, self._when())
            exchanged = clock()
            self._update()
        end = clock()
        seconds = self.seconds
        seconds.input += made - begin
        seconds.forward += forward - made
        seconds.backward += backward - forward
        seconds.exchange += exchanged - backward
        seconds.optimizer += end - exchanged
        self.loss_sum += loss * count
        self.samples += count
        self.step += 1
        self.after_step(loss)
        return loss

    def _update(self) -> None:
        if isinstance(self.optimizer, AdamW):
            clip_grad_norm(self._parameters, _LARGEST_GRADIENT)
        self.optimizer.learning_rate = self.learning_rate
        self.optimizer.step()

    def _finish_epoch(self) -> EpochRecord:
        epoch = self.step // self.task.steps
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            self.exchange.before_test()
            quality = self.exchange.mean(self.task.test(self.model), self.task.tested)
        if not math.isfinite(quality):
            raise self._divergence(
                "The model's output on the test set is not finite",
                self.task.batch(self.step)[0],
                f"epoch {epoch}, after its last step",
            )
        loss = self.loss_sum / self.samples
        record = EpochRecord(epoch, loss, quality, self.samples, self.seconds)
        self.loss_sum, self.samples, self.seconds = 0.0, 0, Seconds()
        return record

    def _when(self) -> str:
        epoch, step = divmod(self.step, self.task.steps)
        return f"epoch {epoch + 1}, step {step + 1} of {self.task.steps}"

    def _divergence(self, what: str, src: NDArray[Any], when: str) -> DivergenceError:
        layer = self.exchange.first(first_not_finite(self.model, src))
        advice = f"a learning rate below {self.config.lr:g} may help"
        where = "" if layer is None else f" (first in the result of layer {layer!r})"
        return DivergenceError(f"{what}{where} in {when}: {advice}.")


def first_not_finite(model: Module, src: NDArray[Any]) -> str | None:
    """The name of the first layer whose result for ``src`` holds NaN or infinity."""
    found: list[str] = []

    def observe(name: str, array: NDArray[Any]) -> None:
        if not found and not np.isfinite(widened(array)).all():
            found.append(name)

    context = model.context
    context.observer = observe
    try:
        model.forward(src, training=True)
    finally:
        context.observer = None
    return found[0] if found else None
