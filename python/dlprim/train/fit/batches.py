"""What a step of `fit` is trained on: parts of arrays in an order that a seed gives, or batches
that the caller makes.

A step of arrays follows from the seed and its number alone, so that a run that resumes needs no
state of a generator. Batches that come from outside are taken in their order, epoch by epoch.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlprim.arguments.arrays import Array, FloatArray
from dlprim.train.loop import UNKNOWN
from dlprim.train.tasks import seeded

_NAMES = ("x", "y", "weight")
_FORMS = "arrays (x, y) or (x, y, weight), a dict of them by these names, or batches of these forms"


class Batch(NamedTuple):
    """What a model takes, what it should give, and what each sample weighs, if that differs."""

    x: Any  # an array; a tuple or a dict of arrays, for a model of several
    y: Array
    weight: FloatArray | None = None


@dataclass(frozen=True)
class Division:
    """How samples become steps."""

    batch_size: int = 32
    accumulate: int = 1  # batches of a step
    shuffle: bool = True
    seed: int = 0


class Batches(ABC):
    """Steps by number.

    Attributes
    ----------
    steps : int
        Of an epoch, or UNKNOWN before the first one has ended.
    has_labels : bool
        Whether y are integers.
    digest : str
        Tells arrays from others; empty for batches from outside.
    about_single : str
        What to know where a batch of one sample is refused.
    """

    steps: int
    has_labels: bool
    digest = ""
    about_single = "This batch has 1 sample, expected more in each where layers need them."

    @abstractmethod
    def parts(self, step: int) -> list[Batch]:
        """The batches of a step."""

    def epoch(self) -> Iterator[Batch]:
        """All batches of the first epoch, one after the other."""
        step = 0
        while step < self.steps:
            yield from self.parts(step)
            step += 1


class ArrayBatches(Batches):
    """Of arrays whose first axis are the samples."""

    def __init__(self, whole: Batch, division: Division) -> None:
        self.whole, self._division = whole, division
        self._samples = len(whole.y)
        if self._samples == 0:
            raise ValueError("data holds no samples, expected at least one")
        self.steps = math.ceil(self._samples / (division.batch_size * division.accumulate))
        self.has_labels = _is_integer(whole.y)
        self._order: tuple[int, NDArray[np.intp]] = (-1, np.empty(0, np.intp))

    @property
    def about_single(self) -> str:  # type: ignore[override]
        return (
            f"This batch has 1 sample: the last of {self._samples} at batch_size "
            f"{self._division.batch_size}, expected another batch_size, which leaves it more."
        )

    @property
    def digest(self) -> str:  # type: ignore[override]
        found = hashlib.sha256()
        for it in (self.whole.x, self.whole.y, self.whole.weight):
            each(it, lambda array: found.update(_signed(array)))
        return found.hexdigest()

    def parts(self, step: int) -> list[Batch]:
        how = self._division
        epoch, place = divmod(step, self.steps)
        if self._order[0] != epoch:
            everything = np.arange(self._samples)
            if how.shuffle:
                everything = seeded(how.seed, 2, epoch).permutation(everything)
            self._order = epoch, everything
        begin = place * how.batch_size * how.accumulate
        chosen = self._order[1][begin : begin + how.batch_size * how.accumulate]
        starts = range(0, len(chosen), how.batch_size)
        return [taken(self.whole, chosen[it : it + how.batch_size]) for it in starts]


class GivenBatches(Batches):
    """Of an iterable, which gives as many in each epoch."""

    def __init__(self, data: Iterable[Any], accumulate: int) -> None:
        self._data, self._accumulate = data, accumulate
        length = getattr(data, "__len__", None)
        self.steps = UNKNOWN if length is None else math.ceil(length() / accumulate)
        self._place: tuple[int, int] = (-1, 0)  # the epoch, and its next step
        self._waiting = iter(())
        self._next: list[Any] = []
        self.has_labels = False
        self._fetch(0, 0)
        if self._next:
            self.has_labels = _is_integer(batch_of("batch 0", self._next[0]).y)

    def parts(self, step: int) -> list[Batch]:
        epoch, place = divmod(step, self.steps)
        if self._place != (epoch, place):
            self._fetch(epoch, place)
        found = [batch_of(f"batch {place} of an epoch", it) for it in self._next]
        if not found:
            raise ValueError(
                f"data gave no batch for step {place + 1} of epoch {epoch + 1}, expected as many "
                "as in the epoch before; a generator can be gone through only once, a list, or a "
                "class with __iter__, each time"
            )
        self._next = list(islice(self._waiting, self._accumulate))
        self._place = epoch, place + 1
        if not self._next and self.steps == UNKNOWN:
            self.steps = place + 1
        return found

    def _fetch(self, epoch: int, place: int) -> None:
        """Begins an epoch, without the steps that are over."""
        self._waiting = islice(iter(self._data), place * self._accumulate, None)
        self._next = list(islice(self._waiting, self._accumulate))
        self._place = epoch, place


def batches_of(name: str, data: Any, division: Division) -> Batches:
    """Data in any of the forms that `fit` takes.

    Raises
    ------
    TypeError, ValueError
        It has none of them.
    """
    if isinstance(data, tuple | Mapping):
        return ArrayBatches(batch_of(name, data), division)
    if isinstance(data, np.ndarray) or not isinstance(data, Iterable):
        raise TypeError(f"{name} is of type {type(data).__name__}, expected {_FORMS}")
    return GivenBatches(data, division.accumulate)


def batch_of(name: str, given: Any) -> Batch:
    """Arrays that belong together, as a model takes them: floats in float32.

    Raises
    ------
    TypeError, ValueError
        They have another form, or other numbers of samples.
    """
    if isinstance(given, Mapping):
        if not {"x", "y"} <= set(given) <= set(_NAMES):
            raise ValueError(
                f"{name} has the names {list(given)}, expected x, y and perhaps weight"
            )
        given = tuple(given[it] for it in _NAMES if it in given)
    if not isinstance(given, tuple | list) or len(given) not in (2, 3):
        kind = type(given).__name__
        count = f" of {len(given)}" if isinstance(given, tuple | list) else ""
        raise TypeError(f"{name} is a {kind}{count}, expected {_FORMS}")
    x, y, weight = (*given, None)[:3]
    found = Batch(
        each(x, as_operand), _targets(name, y), None if weight is None else as_operand(weight)
    )
    lengths = lengths_of(found.x) | {len(found.y)}
    if found.weight is not None:
        if found.weight.shape != (len(found.y),):
            raise ValueError(
                f"weight of {name} has shape {found.weight.shape}, expected ({len(found.y)},)"
            )
        found = found._replace(weight=found.weight.astype(np.float32))
    if len(lengths) > 1:
        raise ValueError(f"{name} has {sorted(lengths)} samples, expected as many of x as of y")
    return found


def each(x: Any, f: Callable[[Any], Any]) -> Any:
    """What f makes of an array, or of those in a tuple or dict; None stays."""
    if isinstance(x, Mapping):
        return {name: f(it) for name, it in x.items()}
    if isinstance(x, tuple):
        return tuple(map(f, x))
    return None if x is None else f(x)


def lengths_of(x: Any) -> set[int]:
    """How many samples arrays have, or those in a tuple or dict."""
    found: set[int] = set()
    each(x, lambda it: found.add(len(it)))
    return found


def taken(batch: Batch, chosen: Any) -> Batch:
    """Some of the samples."""
    x, y, weight = (each(it, lambda array: array[chosen]) for it in batch)
    return Batch(x, y, weight)


def split(whole: Batch, share: float, seed: int) -> tuple[Batch, Batch]:
    """Samples to train on, and a share of all, drawn by the seed, that is held out."""
    order = seeded(seed, 0).permutation(len(whole.y))
    held_out = round(share * len(order))
    if not 0 < held_out < len(order):
        raise ValueError(
            f"validation is {share}, which leaves {held_out} of {len(order)} samples, expected "
            "some to hold out and some to train on"
        )
    return taken(whole, np.sort(order[held_out:])), taken(whole, np.sort(order[:held_out]))


def as_operand(x: Any) -> Array:
    """An array as layers take it: float64 and float16 become float32."""
    array = np.asarray(x)
    if array.ndim == 0:
        raise ValueError("an array without axes was given, expected one whose first are samples")
    if array.dtype in (np.float64, np.float16):
        array = array.astype(np.float32)
    return np.ascontiguousarray(array)


def _signed(array: Array) -> bytes:
    return f"{array.dtype} {array.shape} ".encode() + array.tobytes()


def _targets(name: str, y: Any) -> Array:
    array = np.asarray(y)
    if array.dtype.kind in "USO":
        raise TypeError(
            f"y of {name} holds {array.dtype}, expected integers or floats; "
            "dlprim.train.Classifier takes classes of any kind"
        )
    return as_operand(array.astype(np.int64) if array.dtype == bool else array)


def _is_integer(y: Array) -> bool:
    return y.dtype.kind in "iu"
