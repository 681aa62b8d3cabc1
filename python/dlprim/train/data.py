"""Data sets of labelled images: what a model is trained and judged on, as plain arrays.

The digits ship inside scikit-learn (1797 images of 8 x 8 pixels, from the UCI set "Optical
Recognition of Handwritten Digits"), so training starts without a download. So few images are soon
learnt by heart; fresh noise on every training pixel keeps a network learning digits, not images.

All randomness comes from generators that the caller seeds; none depends on the number of threads.
"""

from __future__ import annotations

import hashlib
import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dlprim
from dlprim.arguments.arrays import Array, FloatArray
from dlprim.train.config import WIDEST
from dlprim.train.npz import DamagedFileError, read_arrays

TEST_FRACTION = 0.2
_SYNTHETIC_IMAGES = 64
_SYNTHETIC_CLASSES = 1000
_LARGEST_VALUE = 1e12  # whose squares, added over a layer of any width, are finite in float32


class MissingDataError(RuntimeError):
    """A data set cannot be loaded: a package or a file is missing or not what it should be."""


@dataclass(frozen=True)
class Dataset:
    """A classification problem, already split.

    `*_src` are float32 (N, C) or images (N, C, H, W), `*_labels` int64 (N,) with values in
    [0, classes). `digest` tells the samples, as they were loaded, from any others, and `inputs`
    says what they were: the ``shape`` of one, and the ``least`` and ``most`` of their values.
    """

    name: str
    classes: int
    train_src: FloatArray
    train_labels: NDArray[np.int64]
    test_src: FloatArray
    test_labels: NDArray[np.int64]
    digest: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)


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
    return _split("digits", 10, src, labels, generator)


def load_npz(path: Path, generator: np.random.Generator) -> Dataset:
    """Returns the data of a file with the arrays `images`, `labels` and nothing else.

    Args:
        path: an .npz file: `images` (N, C, H, W) or (N, C) of numbers, uint8 taken as 0 to 255 and
            centred, `labels` integers (N,) from 0.
        generator: decides which fifth is held out.

    Raises:
        MissingDataError: the file cannot be read, or its arrays are others.
    """
    try:
        arrays = read_arrays(path)
    except (OSError, DamagedFileError) as error:
        raise MissingDataError(f"{path} cannot be read as an .npz file: {error}") from error
    if sorted(arrays) != ["images", "labels"]:
        raise MissingDataError(f"{path} holds {sorted(arrays)}, expected ['images', 'labels']")
    images, labels = arrays["images"], arrays["labels"]
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or labels.size == 0:
        raise MissingDataError(
            f"{path}: labels is {labels.dtype} {labels.shape}, expected integers (N,), N > 0"
        )
    fits = images.ndim in (2, 4) and images.shape[0] == labels.size
    if not fits or images.dtype.kind not in "iuf":
        raise MissingDataError(
            f"{path}: images is {images.dtype} {images.shape}, expected numbers (N, C) or "
            f"(N, C, H, W) with N = {labels.size} as labels has"
        )
    if _is_channels_last(images.shape):
        raise MissingDataError(
            f"{path}: images is {images.dtype} {images.shape}, which looks like channels last, "
            "expected (N, C, H, W): images.transpose(0, 3, 1, 2)"
        )
    if images.size == 0:
        raise MissingDataError(
            f"{path}: images has the shape {images.shape}, expected extents above 0"
        )
    _require_classes(path, labels)
    src = values_of(images, f"{path}: images")
    return _split(path.name, int(labels.max()) + 1, src, labels.astype(np.int64), generator)


def _is_channels_last(shape: tuple[int, ...]) -> bool:
    """Whether they are (N, H, W, C), as far as shapes tell: colours, or squares of grey."""
    if len(shape) != 4 or min(shape[1:3]) <= 4:
        return False
    return shape[3] == 3 or (shape[3] in (1, 4) and shape[1] == shape[2])


def _require_classes(path: Path, labels: Array) -> None:
    """Labels are those of a classification of which a part can be held out."""
    for label in (labels.min(), labels.max()):
        if not 0 <= label < WIDEST:
            raise MissingDataError(
                f"{path}: labels holds {label}, expected classes from 0 to {WIDEST - 1}"
            )
    needed = next(count for count in range(1, 99) if _held_out(count) > 0)
    if np.unique(labels, return_counts=True)[1].max() < needed:
        raise MissingDataError(
            f"{path}: labels holds no class more than {needed - 1} times, expected {needed} or "
            "more samples of some class: a fifth is held out for the test"
        )


def values_of(images: Array, name: str) -> FloatArray:
    """As float32 that a network can compute with; uint8 is taken as 0 to 255 and centred.

    Raises:
        MissingDataError: a value is not finite or too large.
    """
    with np.errstate(over="ignore"):
        src = images.astype(np.float32)
    fits = np.abs(src) <= _LARGEST_VALUE
    if not fits.all():
        place = np.unravel_index(int(np.argmin(fits)), fits.shape)
        shown = ", ".join(map(str, place))
        raise MissingDataError(
            f"{name}[{shown}] is {images[place]}, expected finite numbers of at most "
            f"{_LARGEST_VALUE:g}"
        )
    if images.dtype == np.uint8:
        src = src / np.float32(127.5) - 1
    return src


def synthetic(size: int, generator: np.random.Generator) -> Dataset:
    """Returns normal noise as images (N, 3, size, size) with random labels of 1000 classes."""
    src = generator.standard_normal((_SYNTHETIC_IMAGES, 3, size, size), dtype=np.float32)
    labels = generator.integers(0, _SYNTHETIC_CLASSES, _SYNTHETIC_IMAGES)
    few = _SYNTHETIC_IMAGES // 4
    parts = src, labels, src[:few], labels[:few]
    digest, inputs = digest_of(src, labels), _inputs(src)
    return Dataset("synthetic", _SYNTHETIC_CLASSES, *parts, digest, inputs)


def as_images(dataset: Dataset, channels: int, size: int) -> Dataset:
    """The data as images (N, channels, size, size): square, repeated over channels, enlarged.

    Args:
        size: of a side; 0 leaves it. Enlarging is linear between the centres of pixels.

    Raises:
        MissingDataError: the pixels are no square, or the channels others.
    """
    return _changed(dataset, lambda src: images_of(src, channels, size, dataset.name))


def images_of(src: FloatArray, channels: int, size: int, name: str) -> FloatArray:
    """As `as_images`, of an array (N, C) or (N, C, H, W) and the name of what it is."""
    if src.ndim == 2:
        side = round(src.shape[1] ** 0.5)
        if side * side != src.shape[1]:
            raise MissingDataError(f"{name}: {src.shape[1]} values are no square of pixels")
        src = src.reshape(src.shape[0], 1, side, side)
    if size:
        src = dlprim.interpolate(src, size, mode="bilinear")
    if src.shape[1] not in (1, channels):
        raise MissingDataError(
            f"{name}: images have {src.shape[1]} channels, expected 1 or {channels}"
        )
    return np.ascontiguousarray(np.broadcast_to(src, (src.shape[0], channels, *src.shape[2:])))


def as_rows(dataset: Dataset) -> Dataset:
    """The data as rows (N, C) of values."""
    return _changed(dataset, rows_of)


def _changed(dataset: Dataset, change: Callable[[FloatArray], FloatArray]) -> Dataset:
    train, test = map(change, (dataset.train_src, dataset.test_src))
    return replace(dataset, train_src=train, test_src=test)


def rows_of(src: FloatArray) -> FloatArray:
    """An array (N, ...) as rows (N, C) of values."""
    return src.reshape(src.shape[0], math.prod(src.shape[1:]))


def shifted(src: FloatArray, offsets: NDArray[np.int64], background: float) -> FloatArray:
    """Images (N, C, H, W) moved by whole pixels, (2, N) down and right, over a background."""
    h, w = src.shape[2:]
    most = int(np.abs(offsets).max(initial=0))
    rim = ((0, 0), (0, 0), (most, most), (most, most))
    wide = np.pad(src, rim, constant_values=background)
    places = zip(*(most - offsets).tolist(), strict=True)
    return np.stack([it[:, y : y + h, x : x + w] for it, (y, x) in zip(wide, places, strict=True)])


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
        held_out[members[: _held_out(members.size, test_fraction)]] = True
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def _held_out(count: int, test_fraction: float = TEST_FRACTION) -> int:
    """Of so many samples of a class."""
    return round(test_fraction * count)


def digest_of(*arrays: Array) -> str:
    """Equal for arrays of equal types, shapes and bits."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype.str} {array.shape} ".encode())
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def _split(
    name: str,
    classes: int,
    src: FloatArray,
    labels: NDArray[np.int64],
    generator: np.random.Generator,
) -> Dataset:
    train, test = stratified_split(labels, TEST_FRACTION, generator)
    parts = src[train], labels[train], src[test], labels[test]
    return Dataset(name, classes, *parts, digest_of(src, labels), _inputs(src))


def _inputs(src: FloatArray) -> dict[str, Any]:
    return {"shape": src.shape[1:], "least": float(src.min()), "most": float(src.max())}
