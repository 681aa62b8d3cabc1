"""What is trained on, step by step: batches by number, and how a model is judged.

A batch follows from the seed and the number of its step alone. So a run that resumes needs no
state of generators, and ranks of a parallel run agree without talking.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

import dlprim
from dlprim.arguments.arrays import Array
from dlprim.arguments.floats import widened
from dlprim.nn import Module
from dlprim.train.config import LANGUAGE, RECURRENT, TrainConfig
from dlprim.train.data import (
    Dataset,
    MissingDataError,
    as_images,
    as_rows,
    load_digits,
    load_npz,
    shifted,
    synthetic,
)
from dlprim.train.models import patch_of
from dlprim.train.modes import in_test
from dlprim.train.text import ALPHABET, Corpus, corpus_of

Batch = tuple[Array, NDArray[np.int64]]

_TEXT_STEPS = 250  # of an epoch
_TEST_WINDOWS = 10  # batches of text that a test takes
_TEST_BATCH = 128  # images
_IMAGENET = 224
_DIGITS_ENLARGED = 64


@dataclass(frozen=True)
class Shard:
    """A rank's part of every batch: neighbours, and never more than one apart in number."""

    rank: int = 0
    ranks: int = 1

    def of(self, count: int) -> slice:
        """Of so many samples; of fewer than there are ranks, perhaps none."""
        return slice(count * self.rank // self.ranks, count * (self.rank + 1) // self.ranks)


_WHOLE = Shard()


class ImageTask:
    """Labelled images, or rows of values, in another random order each epoch."""

    unit, metric, percent = "samples", "test_accuracy", True

    def __init__(self, dataset: Dataset, config: TrainConfig, shard: Shard = _WHOLE) -> None:
        self._dataset, self._config, self._shard = dataset, config, shard
        self.digest, self.inputs = dataset.digest, dataset.inputs
        self.tested = dataset.test_labels[shard.rank :: shard.ranks].size
        self.classes = dataset.classes
        self.shape = dataset.train_src.shape[1:]
        if config.shift > 0 and len(self.shape) == 3 and config.shift >= min(self.shape[1:]):
            size = " x ".join(map(str, self.shape[1:]))
            raise MissingDataError(
                f"--shift {config.shift}: expected less than a side of the images, {size} pixels"
            )
        samples = dataset.train_labels.size
        self.steps = config.steps or math.ceil(samples / config.batch_size)
        self._order: tuple[int, NDArray[np.intp]] = (-1, np.empty(0, np.intp))

    def describe(self) -> str:
        data = self._dataset
        return (
            f"{data.name}: {data.train_labels.size} training and {data.test_labels.size} "
            "test samples"
        )

    def batch(self, step: int) -> Batch:
        data, config = self._dataset, self._config
        chosen = self._chosen(step)
        # A rank without a sample computes one that weighs nothing: all take part in a step.
        own = self._shard.of(chosen.size) if self.share(step) > 0 else slice(1)
        src = data.train_src[chosen[own]]
        if config.shift > 0 and src.ndim == 4:
            offsets = seeded(config.seed, 4, step).integers(
                -config.shift, config.shift + 1, (2, chosen.size)
            )
            src = shifted(src, offsets[:, own], float(data.train_src.min()))
        if config.noise > 0:
            shape = (chosen.size, *src.shape[1:])
            noise = seeded(config.seed, 3, step).standard_normal(shape, dtype=np.float32)[own]
            noise *= config.noise
            src += noise
        return src, data.train_labels[chosen[own]]

    def share(self, step: int) -> float:
        """What this rank's part of a batch weighs."""
        count = self._chosen(step).size
        own = self._shard.of(count)
        return (int(own.stop) - int(own.start)) / count

    def _chosen(self, step: int) -> NDArray[np.intp]:
        """The samples of a step, of all ranks."""
        data, config = self._dataset, self._config
        epoch, place = divmod(step, self.steps)
        if self._order[0] != epoch:
            generator = seeded(config.seed, 2, epoch)
            self._order = epoch, generator.permutation(data.train_labels.size)
        start = place * config.batch_size % data.train_labels.size
        return self._order[1][start : start + config.batch_size]

    def test(self, model: Module) -> float:
        """The fraction of held-out samples that are classified correctly; NaN as soon as a result
        is not finite."""
        own = slice(self._shard.rank, None, self._shard.ranks)
        src, labels = self._dataset.test_src[own], self._dataset.test_labels[own]
        right = 0
        batch = min(_TEST_BATCH, max(self._config.batch_size, 1)) if src.ndim == 4 else labels.size
        with in_test(model):
            for start in range(0, labels.size, max(batch, 1)):
                dst = widened(model(src[start : start + batch]))
                if not np.isfinite(dst).all():
                    return math.nan
                right += int(np.sum(dst.argmax(axis=1) == labels[start : start + batch]))
        return right / max(labels.size, 1)


class TextTask:
    """Several places of a corpus at once, each read on from step to step with its state."""

    unit, metric, percent = "characters", "test_bits_per_character", False

    def __init__(self, corpus: Corpus, config: TrainConfig, shard: Shard = _WHOLE) -> None:
        self._config = config
        _require_windows(corpus, config)
        self.digest, self._name = corpus.digest, corpus.name
        self.inputs: Mapping[str, Any] = {}
        own = shard.of(config.batch_size)
        self.tested = int(own.stop) - int(own.start)
        self.classes = len(ALPHABET)
        self.shape: tuple[int, ...] = (config.length,)
        self.steps = config.steps or _TEXT_STEPS
        self._train, self._test = (
            np.ascontiguousarray(streams(part, config.batch_size)[:, own])
            for part in (corpus.train, corpus.test)
        )

    def describe(self) -> str:
        train, test = self._train.size, self._test.size
        return f"{self._name}: {train} training and {test} test characters"

    def batch(self, step: int) -> Batch:
        return self._turned(window(self._train, step, self._config.length))

    def _turned(self, batch: Batch) -> Batch:
        """Characters (N, T) for models that read sequences at once."""
        src, targets = batch
        if self._config.model in RECURRENT:
            return batch
        return np.ascontiguousarray(src.T), np.ascontiguousarray(targets.reshape(src.shape).T)

    def share(self, step: int) -> float:
        """What this rank's part of a batch weighs."""
        return self.tested / self._config.batch_size

    def test(self, model: Module) -> float:
        """Bits per character of held-out files; the states of the training go on after it."""
        loss, length = 0.0, self._config.length
        windows = min(_TEST_WINDOWS, windows_of(self._test, length))
        with in_test(model):
            for number in range(windows):
                src, targets = self._turned(window(self._test, number, length))
                loss += dlprim.softmax_cross_entropy(model(src), targets, gradient=False)[0]
        return loss / windows / math.log(2)


def _require_windows(corpus: Corpus, config: TrainConfig) -> None:
    """Every sequence of a batch, and the character behind it, is in both parts of the corpus."""
    size = min(corpus.train.size, corpus.test.size)
    longest = size // config.batch_size - 1
    if longest >= config.length:
        return
    if longest >= 1:
        raise MissingDataError(
            f"--length {config.length}: expected at most {longest} with --batch-size "
            f"{config.batch_size}, as the held-out text has {size} characters"
        )
    raise MissingDataError(
        f"--batch-size {config.batch_size}: expected at most {size // (config.length + 1)} with "
        f"--length {config.length}, as the held-out text has {size} characters"
    )


def streams(corpus: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The corpus cut into equally long parts, one per column."""
    length = corpus.size // count
    return np.ascontiguousarray(corpus[: length * count].reshape(count, length).T)


def windows_of(source: NDArray[np.int64], length: int) -> int:
    """Windows in streams, one at least."""
    return max((int(source.shape[0]) - 1) // length, 1)


def window(source: NDArray[np.int64], number: int, length: int) -> Batch:
    """Characters (T, N) and, flat, those that follow each; after the last window the first."""
    start = number % windows_of(source, length) * length
    src = source[start : start + length]
    return src, source[start + 1 : start + length + 1].reshape(-1)


def seeded(*key: int) -> np.random.Generator:
    """The stream of random numbers of a purpose and a step."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))


def enlarged_size(config: TrainConfig) -> int:
    """The pixels of a side that images are enlarged to; 0 leaves them."""
    if config.model == "resnet50" and config.data == "digits":
        return config.image_size or _DIGITS_ENLARGED
    return config.image_size


def _patched(dataset: Dataset) -> Dataset:
    """Images that patches cover."""
    height, width = dataset.train_src.shape[2:]
    if height != width or height % patch_of(height):
        raise MissingDataError(
            f"{dataset.name}: images have {height} x {width} pixels, expected squares whose side "
            "is a multiple of 4 for vit; --image-size enlarges them"
        )
    return dataset


# `unit` is what throughput counts, `metric` the name of the result of `test`, of which this rank
# counts `tested`, and `percent` says that it is a fraction and larger is better. `steps` are of an
# epoch, `shape` is of a sample, `digest` of the data of all ranks, before they were enlarged or
# cut, and `inputs` is what predictions are compared with; see `Dataset.inputs`.
Task: TypeAlias = ImageTask | TextTask


def make_task(config: TrainConfig, shard: Shard = _WHOLE) -> Task:
    """The task that a configuration names, or a rank's part of it.

    Raises
    ------
    MissingDataError
        Its data cannot be loaded or do not fit the model.
    """
    generator = seeded(config.seed, 0)
    if config.model in LANGUAGE:
        return TextTask(corpus_of(config.data, generator), config, shard)
    size = enlarged_size(config)
    if config.data == "synthetic":
        dataset = synthetic(size or _IMAGENET, generator)
    elif config.data == "digits":
        dataset = load_digits(generator)
    else:
        dataset = load_npz(Path(config.data), generator)
    if config.model == "resnet50":
        dataset = as_images(dataset, 3, size)
    elif config.model == "vit":
        dataset = _patched(as_images(dataset, 3, size))
    elif config.model == "cnn":
        channels = dataset.train_src.shape[1] if dataset.train_src.ndim == 4 else 1
        dataset = as_images(dataset, channels, size)
    elif dataset.train_src.ndim == 4:
        dataset = as_rows(dataset)
    return ImageTask(dataset, config, shard)
