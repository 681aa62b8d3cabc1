"""The loss of a batch with what samples weigh, and how many labels were met on the way."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dlprim
from dlprim.arguments.arrays import Array, FloatArray
from dlprim.arguments.floats import widened
from dlprim.nn.losses import CrossEntropyLoss, Loss, MSELoss
from dlprim.train.fit.batches import Batch

Criteria = Callable[[Any, Any], Any]


class Criterion:
    """A loss as `Loop` calls it: of what the model gives and a batch.

    Parameters
    ----------
    loss : callable, optional
        ``loss, diff = loss(result, y)``, or a function in NumPy that returns the loss alone; by
        default cross-entropy of labels, or squared differences.
    has_labels : bool
        Whether y are integers.

    Attributes
    ----------
    right, seen : int
        Labels that were met, and all, since they were last set to 0.
    """

    def __init__(self, loss: Criteria | None, has_labels: bool) -> None:
        if loss is not None and not callable(loss):
            raise TypeError(f"loss is of type {type(loss).__name__}, expected a function")
        self._is_usual = loss is None
        usual: Criteria = CrossEntropyLoss() if has_labels else MSELoss()
        self._loss = usual if loss is None else loss
        self._with_gradient: Criteria | None = None  # of a loss that has none itself
        self.right = self.seen = 0

    def __repr__(self) -> str:
        """What a checkpoint says of the loss, and nothing of functions."""
        if not isinstance(self._loss, Loss):
            return "a function"
        held = [it for it in vars(self._loss).values() if isinstance(it, np.ndarray)]
        digest = hashlib.sha256(b"".join(it.tobytes() for it in held)).hexdigest()[:8]
        return f"{self._loss!r} {digest}" if held else repr(self._loss)

    @property
    def accuracy(self) -> dict[str, float]:
        """The share of labels that were met, by name; nothing where there are none."""
        return {"accuracy": self.right / self.seen} if self.seen else {}

    @property
    def averages(self) -> bool:
        """Whether the loss is a mean; else it is a sum."""
        return getattr(self._loss, "reduction", "mean") != "sum"

    def mass(self, batch: Batch) -> float:
        """What the loss of a batch is the mean over: a loss of several batches is the mean of
        theirs by this. 1 of a sum."""
        if not self.averages:
            return 1.0
        found = self._divisors(batch.y)
        return float(found.sum() if batch.weight is None else found @ batch.weight)

    def _divisors(self, y: Array) -> NDArray[np.float64]:
        """The part of each sample in what a mean divides by."""
        if not isinstance(self._loss, Loss):
            return np.ones(len(y))
        found: Array = self._kept(y)
        if isinstance(self._loss, CrossEntropyLoss) and self._loss.weight is not None:
            found = self._loss.weight[np.where(found, y, 0)] * found
        return found.reshape(len(y), -1).sum(axis=1, dtype=np.float64)

    def _kept(self, y: Array) -> NDArray[np.bool_]:
        """Targets that the loss does not ignore."""
        if isinstance(self._loss, CrossEntropyLoss):
            return np.asarray(y != self._loss.ignore_index)
        return np.ones(y.shape, bool)

    def __call__(self, dst: Any, batch: Batch) -> tuple[float, Any]:
        y = batch.y
        if y.dtype.kind == "f":
            dst = widened(dst)
        elif isinstance(dst, np.ndarray) and dst.ndim == y.ndim + 1:
            if self._is_usual:
                _require_labels(y, dst.shape[-1])
            kept = self._kept(y)
            self.right += int(((widened(dst).argmax(axis=-1) == y) & kept).sum())
            self.seen += int(kept.sum())
        if batch.weight is not None:
            return self._weighted(widened(dst), y, batch)
        loss, diff = self._found(dst, y)
        return float(loss) if self.mass(batch) else 0.0, diff

    def _found(self, dst: Any, y: Array) -> Any:
        if self._with_gradient is None:
            found = self._loss(dst, y)
            if isinstance(found, tuple) and len(found) == 2:
                return found
            if isinstance(found, tuple) or np.ndim(found):
                raise TypeError(
                    f"loss returns a {type(found).__name__} of {len(found)}, expected (loss, diff) "
                    "or a single number that NumPy computes of the result"
                )
            self._with_gradient = dlprim.value_and_grad(self._loss)
        return self._with_gradient(dst, y)

    def _weighted(self, dst: FloatArray, y: Array, batch: Batch) -> tuple[float, Array]:
        """The mean over samples by their weights, or the sum."""
        how = getattr(self._loss, "reduction", None)
        if not isinstance(self._loss, Loss) or how not in ("mean", "sum"):
            raise ValueError(
                "data has weights, which needs a loss of dlprim.nn with reduction 'mean' or "
                f"'sum', not {self._loss!r}"
            )
        each: Any = copy.copy(self._loss)
        each.reduction = "none"
        losses, diff = each(dst, y)
        factor = (batch.weight / (self.mass(batch) or 1.0)).astype(np.float32)
        diff *= factor.reshape(-1, *[1] * (diff.ndim - 1))
        losses = losses.reshape(len(y), -1)
        return float((losses * factor[:, None]).sum(dtype=np.float64)), diff


def _require_labels(y: Array, classes: int) -> None:
    if y.size and int(y.max()) >= classes:
        raise ValueError(
            f"y holds {int(y.max())}, expected labels in [0, {classes}), of as many classes as "
            "the model gives results: integers are labels; for regression pass floats, "
            "y.astype(np.float32)"
        )
