"""The training loop: batches through a model, one record per epoch.

It knows a model only by `forward`, `backward` and `parameters`, and it neither prints nor writes:
`Loop.run` is a generator of records, so that a command line, `dlprim.nn.fit` or a test decides what
becomes of them. Between the backward pass and the update stands an exchange, which learns of each
gradient as soon as it is final: a distributed run averages them there.

The program's learning rate falls linearly to zero over the run, unless the schedule is constant.
That costs one multiplication per step and takes the jitter out of the last epochs: the final
accuracy does not hang on which step came last. All else follows from the seed and the number of the
step, so that with a constant rate the first epochs of a longer run are those of a shorter one.
"""

from __future__ import annotations

import math
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import dlprim
from dlprim.arguments.arrays import Array
from dlprim.arguments.floats import widened
from dlprim.nn import Module, Parameter
from dlprim.nn.watching import results
from dlprim.optim import SGD, AdamW, clip_grad_norm
from dlprim.optim.optimizer import Optimizer
from dlprim.optim.schedules import LinearLR, Schedule
from dlprim.train.config import DEEP, TrainConfig
from dlprim.train.models import LanguageModel
from dlprim.train.tasks import Task

UNKNOWN = sys.maxsize  # steps of an epoch, before the first one has ended
_LARGEST_GRADIENT = 1.0  # norm, of deep networks (arXiv 1211.5063, section 3.2)

Loss = Callable[[Any, Any], Any]  # of a result and its targets; (loss, gradient) first of all


ALONE = {"gradients": "exchanged in float32", "batch normalisation": "over all ranks"}


class Exchange:
    """What happens to gradients between the backward pass and the update, and to all else that
    the ranks of a distributed run have to agree about. Here of a single process, which uses its
    gradients as they are.

    Attributes
    ----------
    rank : int
        Of which 0 writes.
    settings : mapping
        How ranks compute together, where that decides the result.
    """

    rank = 0
    settings: Mapping[str, str] = ALONE

    def begin(self, step: int) -> None:
        """The forward pass of a step is next."""

    def announce(self, step: int, loss: float, count: int) -> None:
        """The mean loss over so many samples in a step, before its backward pass."""
        self._announced = loss, count

    @property
    def ready(self) -> Callable[[Parameter], None] | None:
        """Told inside the backward pass that a gradient is final, the last layer's first; None
        where nobody wants to know, which runs without a thread that tells."""
        return None

    def finish(self) -> tuple[float, int]:
        """After it gradients are what the update takes; the loss and the samples of all ranks."""
        return self._announced

    def before_test(self) -> None:
        """Statistics are about to be used."""

    def mean(self, value: float, weight: float) -> float:
        """The weighted mean over all ranks."""
        return value

    def first(self, value: str | None) -> str | None:
        """What the first rank says that knows anything."""
        return value

    def state_dict(self) -> dict[str, Array]:
        """What it carries from step to step, of all ranks; what rank 0 gets counts."""
        return {}

    def load_state_dict(self, state: Mapping[str, Array]) -> None:
        """Goes on from a `state_dict`, or from this rank's part of it."""

    def all_columns(self, array: Array) -> Array:
        """The rows (N, ...) of all ranks."""
        return array

    def own_columns(self, array: Array) -> Array:
        """The inverse of `all_columns`."""
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
    train_loss: float  # nats, mean over the samples, each under the weights of its own step;
    # a sum of a loss that is one
    quality: float  # after the epoch: accuracy in [0, 1], or bits per character
    samples: int  # training samples, or characters
    seconds: Seconds  # of training, without the test

    @property
    def samples_per_s(self) -> float:
        """Training throughput."""
        return self.samples / self.seconds.total


@dataclass(frozen=True)
class Update:
    """What follows from a batch: a loss, and from its gradients a step."""

    optimizer: Optimizer
    loss: Loss
    schedule: Schedule | None = None  # stepped after each update
    clip_norm: float = math.inf


class Passed(NamedTuple):
    """What passes over a batch gave, besides gradients."""

    loss: float
    samples: int
    mass: float  # what the loss is the mean over


class Loop(ABC):
    """Steps and epochs of one model. A subclass has the batches and judges an epoch.

    Args:
        model: trained in place.
        update: how.
        exchange: told of gradients; see `Exchange`.

    Attributes:
        step: number of the next step, from 0.
        loss_sum, samples, mass: of the steps of this epoch so far; the mean loss is
            `loss_sum / mass`.
        seconds, latest: of the steps of this epoch so far, and of the latest step.
        after_step: called after each step with its loss per sample.
    """

    epochs: int
    unit: str  # what throughput counts

    def __init__(self, model: Module, update: Update, exchange: Exchange | None = None) -> None:
        self.model, self.update = model, update
        self.exchange = Exchange() if exchange is None else exchange
        self.optimizer = update.optimizer
        self._trained = [it for group in self.optimizer.param_groups for it in group["params"]]
        self._rate = self.optimizer.lr
        self.step, self.loss_sum, self.samples, self.mass = 0, 0.0, 0, 0.0
        self.seconds, self.latest = Seconds(), Seconds()
        self.after_step: Callable[[float], None] = lambda loss: None

    @property
    @abstractmethod
    def steps(self) -> int:
        """Of an epoch, or UNKNOWN."""

    @abstractmethod
    def parts(self) -> Sequence[tuple[Any, Any]]:
        """What the next step takes and its targets, in parts that memory holds one at a time."""

    @abstractmethod
    def count(self, targets: Any) -> int:
        """Samples of a part."""

    @property
    def averages(self) -> bool:
        """Whether losses are means; else they are sums."""
        return True

    def mass_of(self, targets: Any, count: int) -> float:
        """What the loss of a part is the mean over; so many samples, unless some weigh more."""
        return count

    @abstractmethod
    def judge(self) -> float:
        """What the model is worth after an epoch; not finite where its output is not."""

    @property
    def total_steps(self) -> int:
        """Of the whole run."""
        return self.epochs * self.steps

    def run(self) -> Iterator[EpochRecord]:
        """Yields a record after every epoch, from `step` on.

        A run that was stopped behind an epoch's last step goes on with that epoch's record.

        Raises:
            DivergenceError: a loss or an output is NaN or infinite.
        """
        while True:
            if self.samples > 0 and self.step % self.steps == 0:
                yield self._finish_epoch()
            if self.step >= self.total_steps:
                return
            self.run_step()

    def run_step(self) -> float:
        """Trains on the next batch and returns its loss.

        Raises:
            DivergenceError: it is NaN or infinite.
        """
        self._mark, self.latest = time.perf_counter(), Seconds()
        parts = self.parts()
        self._spent("input")
        self.exchange.begin(self.step)
        # A diverging run overflows on its way to NaN; the check below says it better.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            loss, count, mass = self._gradients(parts)
            if not math.isfinite(loss):
                raise self._divergence(f"The training loss is {loss}", parts, self._when())
            self._spent("exchange")
            self._update()
        self._spent("optimizer")
        self.loss_sum += loss * mass
        self.samples += count
        self.mass += mass
        self.step += 1
        self.after_step(loss)
        return loss

    def _spent(self, part: str) -> None:
        now = time.perf_counter()
        for it in (self.seconds, self.latest):
            vars(it)[part] += now - self._mark
        self._mark = now

    def _gradients(self, parts: Sequence[tuple[Any, Any]]) -> Passed:
        """Leaves in the parameters what one batch of all parts would."""
        if len(parts) == 1:
            return self._pass(*parts[0])
        sums = [np.zeros_like(it.gradient) for it in self._trained]
        loss, count, mass = 0.0, 0, 0.0
        for part in parts:
            found = self._pass(*part)
            loss += found.loss * found.mass
            count += found.samples
            mass += found.mass
            for total, it in zip(sums, self._trained, strict=True):
                total += np.float32(found.mass) * it.gradient
        if not self.averages:
            mass = 1.0
        over = mass or 1.0  # of parts without any the sums are 0
        for total, it in zip(sums, self._trained, strict=True):
            np.divide(total, np.float32(over), out=it.gradient)
        return Passed(loss / over, count, mass)

    def _pass(self, src: Any, targets: Any) -> Passed:
        dst = called(self.model, src)
        loss, diff_dst = self.update.loss(dst, targets)
        self.exchange.announce(self.step, loss, self.count(targets))
        self._spent("forward")
        self.model.backward(diff_dst, self.exchange.ready)
        self._spent("backward")
        loss, count = self.exchange.finish()
        return Passed(loss, count, self.mass_of(targets, count))

    def _update(self) -> None:
        if self.update.clip_norm < math.inf:
            clip_grad_norm(self._trained, self.update.clip_norm)
        self.optimizer.step()
        if self.update.schedule is not None:
            self.update.schedule.step()

    def _finish_epoch(self) -> EpochRecord:
        epoch = self.step // self.steps
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            self.exchange.before_test()
            quality = self.judge()
        if not math.isfinite(quality):
            raise self._divergence(
                "The model's output on the test set is not finite",
                self.parts(),
                f"epoch {epoch}, after its last step",
            )
        loss = self.loss_sum / (self.mass or 1.0) if self.averages else self.loss_sum
        record = EpochRecord(epoch, loss, quality, self.samples, self.seconds)
        self.loss_sum, self.samples, self.mass, self.seconds = 0.0, 0, 0.0, Seconds()
        return record

    def _when(self) -> str:
        epoch, step = divmod(self.step, self.steps)
        steps = "" if self.steps == UNKNOWN else f" of {self.steps}"
        return f"epoch {epoch + 1}, step {step + 1}{steps}"

    def _divergence(
        self, what: str, parts: Sequence[tuple[Any, Any]], when: str
    ) -> DivergenceError:
        layer = self.exchange.first(first_not_finite(self.model, parts[0][0]))
        advice = f"a learning rate below {self._rate:g} may help"
        where = "" if layer is None else f" (first in the result of layer {layer!r})"
        return DivergenceError(f"{what}{where} in {when}: {advice}.")


class Trainer(Loop):
    """Trains one model on one task.

    Args:
        model: trained in place.
        task: what to train and to test on.
        config: the hyperparameters.
        exchange: told of gradients; see `Exchange`.
    """

    def __init__(
        self, model: Module, task: Task, config: TrainConfig, exchange: Exchange | None = None
    ) -> None:
        self.task, self.config = task, config
        self.epochs, self.unit = config.epochs, task.unit
        values, decay = model.parameters(), config.weight_decay
        is_deep = config.model in DEEP
        optimizer: Optimizer
        if is_deep:
            optimizer = AdamW(values, config.lr, weight_decay=decay)
        else:
            optimizer = SGD(values, config.lr, config.momentum, weight_decay=decay)
        falls = config.schedule != "constant"
        schedule = LinearLR(optimizer, 1, 0, self.total_steps) if falls else None
        clip_norm = _LARGEST_GRADIENT if is_deep else math.inf
        update = Update(optimizer, dlprim.softmax_cross_entropy, schedule, clip_norm)
        super().__init__(model, update, exchange)
        if isinstance(model, LanguageModel):
            model.rnn.carry = True

    @property
    def steps(self) -> int:
        return self.task.steps

    def parts(self) -> list[tuple[Any, Any]]:
        return [self.task.batch(self.step)]

    def count(self, targets: Any) -> int:
        return int(targets.size)

    def judge(self) -> float:
        return self.exchange.mean(self.task.test(self.model), self.task.tested)

    def go_to(self, step: int) -> None:
        """Where a run stands after so many steps."""
        self.step = step
        if self.update.schedule is not None:
            self.update.schedule.move(step)


def called(model: Module, src: Any) -> Any:
    """The result of a model for an array, or for a tuple or dict of several."""
    if isinstance(src, tuple):
        return model(*src)
    return model(**src) if isinstance(src, dict) else model(src)


def first_not_finite(model: Module, src: Any) -> str | None:
    """The name of the first layer whose result for ``src`` holds NaN or infinity."""
    args, named = ((), src) if isinstance(src, dict) else (src, {})
    for name, array in results(model, *(args if isinstance(args, tuple) else (args,)), **named):
        if not np.isfinite(widened(array)).all():
            return name
    return None
