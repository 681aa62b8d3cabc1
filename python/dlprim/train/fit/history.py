"""What epochs achieved, to be read by name and to be drawn."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from typing import Any

_LOSS = "loss"  # in the names of what belongs into one drawing


class History(Mapping[str, list[float]]):
    """``history["loss"]`` and the like: a list with a number for each epoch.

    Attributes
    ----------
    records : list of dict
        The same by epochs.
    interrupted : bool
        Whether Ctrl-C ended the training.
    best : dict or None
        The record of the epoch whose weights the model has, where `fit` was given ``patience``.
    """

    def __init__(self, records: Sequence[Mapping[str, float]] = ()) -> None:
        self.records = [dict(it) for it in records]
        self.interrupted = False
        self.best: dict[str, float] | None = None

    @property
    def epochs(self) -> int:
        """How many."""
        return len(self.records)

    def __getitem__(self, name: str) -> list[float]:
        if name not in self:
            raise KeyError(f"{name} is in no record, expected one of {', '.join(self)}")
        return [it[name] for it in self.records if name in it]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for it in self.records for name in it))

    def __contains__(self, name: object) -> bool:
        return any(name in it for it in self.records)

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        shown = [
            f"{self.epochs} epoch{'' if self.epochs == 1 else 's'}",
            *map(shown_as, *self._last()),
        ]
        if self.interrupted:
            shown.append("interrupted")
        return f"<History: {', '.join(shown)}>"

    def _last(self) -> tuple[list[str], list[float]]:
        last = self.records[-1] if self.records else {}
        names = [name for name in last if is_quality(name)]
        return names, [last[name] for name in names]

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Draws losses, and beside them what else epochs were measured by.

        Parameters
        ----------
        path : str or Path, optional
            A .png, .svg or .pdf file to write.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            matplotlib is not installed.
        """
        names = [it for it in self if is_quality(it) and all(map(is_number, self[it]))]
        return draw({name: self[name] for name in names}, path)


def is_quality(name: str) -> bool:
    """Whether a number of a record says how good a model is."""
    return name not in ("epoch", "lr", "seconds")


def is_number(value: Any) -> bool:
    """Whether something in a record, where callbacks add what they like, can be drawn."""
    return isinstance(value, Real)


def shown_as(name: str, value: Any) -> str:
    """An entry of a record in words."""
    name = name.replace("_", " ")
    if not is_number(value):
        return f"{name} {value}"
    return f"{name} {100 * value:.1f} %" if name.endswith("accuracy") else f"{name} {value:.4f}"


def figure_class() -> Any:
    """matplotlib's.

    Raises
    ------
    ImportError
        It is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("drawing needs matplotlib: pip install matplotlib") from error
    return Figure


def draw(curves: Mapping[str, Sequence[float]], path: str | os.PathLike[str] | None) -> Any:
    """A figure with a line over the epochs for each name; written to the path, if there is one.

    Raises
    ------
    ImportError
        matplotlib is not installed.
    """
    panels = [[it for it in curves if (_LOSS in it) is is_loss] for is_loss in (True, False)]
    panels = [it for it in panels if it]
    figure = figure_class()(figsize=(5 * max(len(panels), 1), 4), layout="constrained")
    for place, names in enumerate(panels, 1):
        axes = figure.add_subplot(1, len(panels), place)
        for name in names:
            epochs = range(1, len(curves[name]) + 1)
            axes.plot(epochs, curves[name], marker=".", label=name.replace("_", " "))
        axes.set_xlabel("epoch")
        axes.legend()
        axes.grid(alpha=0.3)
    if path is not None:
        figure.savefig(path)
    return figure
