"""Data sets: what a model is trained and judged on, as plain arrays.

The digits ship inside scikit-learn (1797 images of 8 x 8 pixels, from the UCI set "Optical
Recognition of Handwritten Digits"), so training starts without a download. So few images are soon
learnt by heart; fresh noise on every training pixel keeps a network learning digits, not images.

All randomness comes from generators that the caller seeds; none depends on the number of threads.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

TEST_FRACTION = 0.2


class MissingDataError(RuntimeError):
    """A data set cannot be loaded because the package that carries it is not installed."""


@dataclass(frozen=True)
class Dataset:
    """A classification problem, already split.

    `*_src` are float32 (N, C), `*_labels` int64 (N,) with values in [0, classes).
    """

    name: str
    classes: int
    train_src: NDArray[np.float32]
    train_labels: NDArray[np.int64]
    test_src: NDArray[np.float32]
    test_labels: NDArray[np.int64]


def load_digits(generator: np.random.Generator) -> Dataset:
    """Returns the handwritten digits: C = 64 pixels in [-1, 1], 10 classes, a fifth held out.

    Args:
        generator: decides which images are held out.

    Raises:
        MissingDataError: scikit-learn cannot be imported.
    """
    try:
        datasets: Any = importlib.import_module("sklearn.datasets")
    except ImportError as error:
        raise MissingDataError(
            f"The digits data set is part of scikit-learn, which cannot be imported ({error}): "
            'pip install "dlprim[train]"'
        ) from error
    digits = datasets.load_digits()
    # The pixels count 0 to 16; centred inputs make the first layer's gradients better conditioned.
    src = (np.asarray(digits.data) / 8 - 1).astype(np.float32)
    labels = np.asarray(digits.target).astype(np.int64)
    train, test = stratified_split(labels, TEST_FRACTION, generator)
    return Dataset("digits", 10, src[train], labels[train], src[test], labels[test])


def stratified_split(
    labels: NDArray[np.int64], test_fraction: float, generator: np.random.Generator
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Returns sorted sample indices (train, test) in which every class has the same share.

    Args:
        labels: (N,) class of every sample.
        test_fraction: share of each class that is held out, rounded to whole samples.
        generator: decides which samples of a class are held out.
    """
    held_out = np.zeros(labels.shape, dtype=bool)
    for label in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == label))
        held_out[members[: round(test_fraction * members.size)]] = True
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def minibatches(
    dataset: Dataset, batch_size: int, noise: float, generator: np.random.Generator
) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """Yields every training sample once, in random order, as minibatches (src, labels).

    Args:
        dataset: where the training samples are taken from; not modified.
        batch_size: samples per minibatch, at least 1; the last minibatch may be smaller.
        noise: standard deviation of the Gaussian noise on src, in the unit of src; 0 for none.
        generator: decides the order and the noise.
    """
    order = generator.permutation(dataset.train_labels.size)
    for start in range(0, order.size, batch_size):
        chosen = order[start : start + batch_size]
        src = dataset.train_src[chosen]
        if noise > 0:
            disturbance = generator.standard_normal(src.shape, dtype=np.float32)
            disturbance *= noise
            src += disturbance
        yield src, dataset.train_labels[chosen]
