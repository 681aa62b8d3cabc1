"""The loss of a batch with what samples weigh, and how many labels were met on the way."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlprim.arguments.floats import widened
from dlprim.nn.rows.losses import CrossEntropyLoss, Loss, MSELoss
from dlprim.train.fit.batches import Batch

Criteria = Callable[[Any, Any], Any]


class Criterion:
    """A loss as `Loop` calls it: of what the model gives and a batch.

    Parameters
    ----------
    loss : callable, optional
        ``loss, diff = loss(result, y)``; by default cross-entropy of labels, or squared
        differences.
    has_labels : bool
        Whether y are integers.

    Attributes
    ----------
    right, seen : int
        Labels that were met, and all, since they were last set to 0.
    """

    def __init__(self, loss: Criteria | None, has_labels: bool) -> None:
        usual: Criteria = CrossEntropyLoss() if has_labels else MSELoss()
        self._loss = usual if loss is None else loss
        self.right = self.seen = 0

    @property
    def accuracy(self) -> dict[str, float]:
        """The share of labels that were met, by name; nothing where there are none."""
        return {"accuracy": self.right / self.seen} if self.seen else {}

    def __call__(self, dst: Any, batch: Batch) -> tuple[float, NDArray[Any]]:
        y = batch.y
        if y.dtype.kind == "f":
            dst = widened(dst)
        elif isinstance(dst, np.ndarray) and dst.ndim == y.ndim + 1:
            self.right += int((widened(dst).argmax(axis=-1) == y).sum())
            self.seen += y.size
        if batch.weight is not None:
            return self._weighted(widened(dst), y, batch.weight)
        loss, diff = self._loss(dst, y)
        return float(loss), diff

    def _weighted(
        self, dst: NDArray[np.float32], y: NDArray[Any], weight: NDArray[np.float32]
    ) -> tuple[float, NDArray[Any]]:
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
        losses = losses.reshape(len(y), -1)
        total = float(weight.sum())
        factor = weight
        if how == "mean":
            factor = weight / np.float32(max(total, np.finfo(np.float32).tiny) * losses.shape[1])
        diff *= factor.reshape(-1, *[1] * (diff.ndim - 1))
        return float((losses * factor[:, None]).sum(dtype=np.float64)), diff
