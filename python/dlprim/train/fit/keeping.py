"""Checkpoints of `fit`: one file with all that a run goes on from, bit for bit."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dlprim.arguments.arrays import Array
from dlprim.arguments.floats import bfloat16_dtype
from dlprim.files import check_writable
from dlprim.model_file import WRONG, reason_of
from dlprim.nn import Dropout, Module, Recurrent
from dlprim.train import stored
from dlprim.train.fit.history import History
from dlprim.train.fit.identity import differences, identity_of, optimizer_settings
from dlprim.train.fit.patience import Patience
from dlprim.train.folder import CheckpointError
from dlprim.train.loop import UNKNOWN, Seconds

if TYPE_CHECKING:
    from dlprim.train.fit.training import Fitting

_FORMAT = "dlprim.nn.fit 2"

_RECORDED = int | float | str | None | np.bool_ | np.integer | np.floating

Arrays = dict[str, Array]


class Keeper:
    """Writes and reads the file of a training.

    Parameters
    ----------
    path : Path
    loop : Fitting
        In front of its first step.
    arguments : mapping
        Of `fit`: plain values that make a run what it is.
    """

    def __init__(self, path: Path, loop: Fitting, arguments: Mapping[str, Any]) -> None:
        self._path, self._loop = path, loop
        self._settings = identity_of(loop, arguments)

    def begin(self, history: History, patience: Patience, resumes: bool) -> None:
        """Goes on from what is there, if that is wanted.

        Raises
        ------
        CheckpointError
            It is damaged or of another run, or is there and not wanted, or cannot be written.
        """
        if self._path.exists():
            if not resumes:
                raise CheckpointError(
                    f"{self._path} is of an earlier run: expected resume=True to go on from it, or "
                    "another file to begin anew"
                )
            self._load(history, patience)
        try:
            check_writable(self._path)
        except OSError as error:
            raise CheckpointError(str(error)) from error

    def save(self, history: History, patience: Patience) -> None:
        """Replaces the file; where that fails a warning says so, and the earlier one stays."""
        loop, arrays = self._loop, Arrays()
        kept = {
            "model": loop.model.state_dict(),
            "optimizer": loop.optimizer.state_dict(),
            "schedule": loop.update.schedule and loop.update.schedule.state_dict(),
            "passing": [_passing(it) for it in loop.model.modules()],
            "best": _recorded(patience.best),
            "weights": patience.weights,
            "records": _recorded(history.records),
        }
        criterion = loop.criterion
        description = {
            "format": _FORMAT,
            "settings": self._settings,
            "step": loop.step,
            "steps": loop.batches.steps,
            "sums": [loop.loss_sum, loop.samples, loop.mass, criterion.right, criterion.seen],
            "seconds": asdict(loop.seconds),
            "kept": _without_arrays(kept, "", arrays),
        }
        try:
            stored.write(self._path, description, arrays)
        except OSError as error:
            warnings.warn(
                f"no checkpoint after step {loop.step}: {error}; the earlier one stays",
                RuntimeWarning,
                stacklevel=2,
            )

    def _load(self, history: History, patience: Patience) -> None:
        found, arrays = stored.read(self._path)
        if not isinstance(found, dict) or found.get("format") != _FORMAT:
            raise CheckpointError(f"{self._path} is no checkpoint of dlprim.nn.fit")
        try:
            kept = _with_arrays(found["kept"], arrays)
            # An optimiser that is still there has the settings of the last step, not of the first.
            latest = optimizer_settings(self._loop, kept["optimizer"])
            other = differences(self._settings, found["settings"], latest)
            if other:
                raise CheckpointError(f"{self._path} is of a run with {', '.join(other)}")
            self._put(found, kept, patience)
            history.records += kept["records"]
        except WRONG as error:
            raise CheckpointError(
                f"{self._path} does not fit the model and its optimiser: {reason_of(error)}"
            ) from error

    def _put(self, found: dict[str, Any], kept: dict[str, Any], patience: Patience) -> None:
        loop = self._loop
        loop.model.load_state_dict(kept["model"])
        loop.optimizer.load_state_dict(kept["optimizer"])
        if loop.update.schedule is not None and kept["schedule"] is not None:
            loop.update.schedule.load_state_dict(kept["schedule"])
        for it, passing in zip(loop.model.modules(), kept["passing"], strict=True):
            for name, value in passing.items():
                setattr(it, name, value)
        patience.best, patience.weights = kept["best"], kept["weights"]
        loop.step, loop.seconds = found["step"], Seconds(**found["seconds"])
        if loop.batches.steps == UNKNOWN:
            loop.batches.steps = found["steps"]
        criterion = loop.criterion
        loop.loss_sum, loop.samples, loop.mass, criterion.right, criterion.seen = found["sums"]


def _passing(layer: Module) -> dict[str, Any]:
    """What no state dict has: what a dropout draws, states of a recurrent layer that go on."""
    if isinstance(layer, Dropout):
        return {"step": layer.step, "seed": layer.seed}
    return {"states": layer.states} if isinstance(layer, Recurrent) and layer.carry else {}


def _recorded(value: Any) -> Any:
    """What callbacks have put into records; as a str where JSON has no form for it."""
    if isinstance(value, Mapping):
        return {str(name): _recorded(it) for name, it in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_recorded, value))
    if isinstance(value, np.ndarray):
        return value if value.dtype.kind in "biufV" else str(value)
    return value if isinstance(value, _RECORDED) else str(value)


def _without_arrays(value: Any, path: str, arrays: Arrays) -> Any:
    """As JSON, with names in place of arrays, which are put beside it."""
    if isinstance(value, np.ndarray):
        is_narrow = value.dtype == bfloat16_dtype()
        arrays[f"array{path}"] = value.view(np.uint16) if is_narrow else value
        return {"array": f"array{path}", "narrow": is_narrow}
    if isinstance(value, Mapping):
        entries = {it: _without_arrays(value[it], f"{path}/{it}", arrays) for it in value}
        return {"entries": entries}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_without_arrays(it, f"{path}/{n}", arrays) for n, it in enumerate(value)]}
    return value.item() if isinstance(value, np.generic) else value


def _with_arrays(value: Any, arrays: Arrays) -> Any:
    """The inverse of `_without_arrays`."""
    if not isinstance(value, dict):
        return value
    if "array" in value:
        array = arrays[value["array"]]
        return array.view(bfloat16_dtype()) if value["narrow"] else array
    if "entries" in value:
        return {name: _with_arrays(it, arrays) for name, it in value["entries"].items()}
    kind = "list" if "list" in value else "tuple"
    found = [_with_arrays(it, arrays) for it in value[kind]]
    return found if kind == "list" else tuple(found)
