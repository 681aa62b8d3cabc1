"""The training loop: minibatches through a model, one record per epoch.

It knows a model only by `forward`, `backward`, `parameters` and `gradients`, and it neither prints
nor writes: `Trainer.run` is a generator of records, so that a command line, a test or a notebook
decides what becomes of them.

The learning rate falls linearly to zero over the run. That costs one multiplication per step and
takes the jitter out of the last epochs: the final accuracy does not hang on which step came last.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dlprim.optim import SGD
from dlprim.train.data import Dataset, minibatches
from dlprim.train.loss import softmax_cross_entropy


class Model(Protocol):
    """What the loop asks of a model; `dlprim.train.mlp.MLP` documents the contract."""

    @property
    def parameters(self) -> list[NDArray[np.float32]]: ...

    @property
    def gradients(self) -> list[NDArray[np.float32]]: ...

    def forward(self, src: NDArray[np.float32]) -> NDArray[np.float32]: ...

    def backward(self, diff_dst: NDArray[np.float32]) -> NDArray[np.float32]: ...


class DivergenceError(ArithmeticError):
    """The loss or the model's output is no longer finite, so further training is pointless."""


@dataclass(frozen=True)
class TrainConfig:
    """What decides the result of a run: equal configurations give losses equal bit for bit."""

    epochs: int = 60
    batch_size: int = 32  # samples
    hidden: tuple[int, ...] = (256,)  # neurons of every hidden layer
    lr: float = 0.1  # learning rate of the first step
    momentum: float = 0.9
    noise: float = 0.4  # standard deviation, in the unit of the inputs
    seed: int = 0


@dataclass(frozen=True)
class EpochRecord:
    """What one epoch achieved."""

    epoch: int  # from 1
    train_loss: float  # nats, mean over the samples, each under the weights of its own step
    test_accuracy: float  # fraction in [0, 1], after the epoch
    samples: int  # training samples
    seconds: float  # of training, without the test

    @property
    def samples_per_s(self) -> float:
        """Training throughput."""
        return self.samples / self.seconds


class Trainer:
    """Trains one model on one data set.

    Args:
        model: maps src (N, C) to dst (N, classes); trained in place.
        dataset: what to train and to test on.
        config: the hyperparameters; `hidden` and `seed` were the caller's to apply.
        generator: decides the order of the samples and the noise.
    """

    def __init__(
        self, model: Model, dataset: Dataset, config: TrainConfig, generator: np.random.Generator
    ) -> None:
        self._model = model
        self._dataset = dataset
        self._config = config
        self._generator = generator
        self._optimiser = SGD(model.parameters, config.lr, config.momentum)

    def run(self) -> Iterator[EpochRecord]:
        """Yields a record after every epoch.

        Raises:
            DivergenceError: a loss or an output is NaN or infinite.
        """
        for epoch in range(1, self._config.epochs + 1):
            start = time.perf_counter()
            loss = self._train_epoch(epoch)
            seconds = time.perf_counter() - start
            accuracy = self._test_accuracy(epoch)
            yield EpochRecord(epoch, loss, accuracy, self._dataset.train_labels.size, seconds)

    def _train_epoch(self, epoch: int) -> float:
        """Returns the mean loss of one pass over the training samples."""
        config, model = self._config, self._model
        samples = self._dataset.train_labels.size
        steps = math.ceil(samples / config.batch_size)
        loss_sum = 0.0
        batches = minibatches(self._dataset, config.batch_size, config.noise, self._generator)
        # A diverging run overflows on its way to NaN; the check below says it better.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            for step, (src, labels) in enumerate(batches):
                loss, diff_dst = softmax_cross_entropy(model.forward(src), labels)
                if not math.isfinite(loss):
                    raise self._divergence(
                        f"The training loss is {loss}", f"epoch {epoch}, step {step + 1} of {steps}"
                    )
                loss_sum += loss
                model.backward(diff_dst)
                done = (epoch - 1 + step / steps) / config.epochs
                self._optimiser.learning_rate = config.lr * (1 - done)
                self._optimiser.step(model.gradients)
        return loss_sum / samples

    def _test_accuracy(self, epoch: int) -> float:
        """Returns the fraction of the held-out samples that the model classifies correctly."""
        dst = self._model.forward(self._dataset.test_src)
        if not np.isfinite(dst).all():
            raise self._divergence(
                "The model's output on the test set is not finite",
                f"epoch {epoch}, after its last step",
            )
        return float(np.mean(dst.argmax(axis=1) == self._dataset.test_labels))

    def _divergence(self, what: str, when: str) -> DivergenceError:
        advice = f"a learning rate below {self._config.lr:g} may help"
        return DivergenceError(f"{what} in {when}: {advice}.")
