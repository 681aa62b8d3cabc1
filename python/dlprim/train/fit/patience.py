"""When a training ends early, and the weights of its best epoch."""

from __future__ import annotations

from dlprim.arguments.arrays import Array
from dlprim.nn import Module


class Patience:
    """Waits so many epochs for a better one; None waits for ever and keeps nothing.

    Attributes
    ----------
    epochs : int or None
        As given.
    best : dict or None
        The record of the best epoch.
    weights : dict of arrays
        Those of the model after it.
    """

    def __init__(self, epochs: int | None) -> None:
        self.epochs = epochs
        self.best: dict[str, float] | None = None
        self.weights: dict[str, Array] = {}

    def note(self, record: dict[str, float], model: Module) -> None:
        """What an epoch has achieved."""
        if self.epochs is None:
            return
        if self.best is None or _worth(record) < _worth(self.best):
            self.best, self.weights = record, model.state_dict()

    def is_over(self, record: dict[str, float]) -> bool:
        """Whether the epoch of the record was one too many."""
        if self.epochs is None or self.best is None:
            return False
        return record["epoch"] - self.best["epoch"] >= self.epochs

    def restore(self, model: Module) -> dict[str, float] | None:
        """Gives the model the best weights, and returns their record; None if none are kept."""
        if self.best is not None:
            model.load_state_dict(self.weights)
        return self.best


def _worth(record: dict[str, float]) -> float:
    return record.get("val_loss", record["loss"])
