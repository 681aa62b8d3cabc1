"""What a checkpoint says of its run: settings and numbers as JSON, checked before they are used.

Checksums find what a disk damaged; what another program or an editor wrote is found here.
"""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

from dlprim.train.config import DEEP, MODELS, SCHEDULES, WIDEST, TrainConfig
from dlprim.train.folder import CheckpointError

FORMAT = 2
_ENTRIES: dict[str, type | tuple[type, ...]] = {
    "config": dict,
    "data": str,
    "ranks": dict,
    "step": int,
    "loss_sum": (int, float),
    "samples": int,
    "seconds": dict,
    "history": list,
}
_INPUTS: dict[str, type | tuple[type, ...]] = {
    "shape": list,
    "least": (int, float),
    "most": (int, float),
}
_END = 2**63  # of integers, and of floats that are finite
_COUNTED = ("epochs", "batch_size", "layers", "length")  # of at least one
_WORDS = {"model": MODELS, "dtype": ("float32", "bfloat16"), "schedule": SCHEDULES}


def require_description(path: Path, found: Any) -> dict[str, Any]:
    """``found`` as what `checkpoint.save` writes of a run.

    Raises
    ------
    CheckpointError
        It is of another format, or an entry is missing or of another kind.
    """
    if not isinstance(found, dict):
        raise CheckpointError(f"{path} is no checkpoint: its description is no JSON object")
    if found.get("format") != FORMAT:
        raise CheckpointError(f"{path} has format {found.get('format')}, expected {FORMAT}")
    for name, kind in _ENTRIES.items():
        if not _is(found.get(name), kind, 0 if name == "step" else -_END):
            raise _error(path, name, found)
    config = found["config"]
    config.setdefault("schedule", "linear")  # the only one of version 0.1
    for field in fields(TrainConfig):
        default: Any = field.default
        name, value = field.name, config.get(field.name, default)
        if name == "hidden":
            fits = isinstance(value, list) and bool(value or config.get("model") not in DEEP)
            fits = fits and all(_is(it, int, 1) and it <= WIDEST for it in value)
        else:
            kind = (int, float) if type(default) is float else type(default)
            fits = _is(value, kind, int(name in _COUNTED)) and value in _WORDS.get(name, (value,))
        if not fits:
            raise _error(path, name, config)
    _require_room(path, config)
    if not all(isinstance(it, dict) for it in found["history"]):
        raise _error(path, "history", found)
    inputs = found.setdefault("inputs", {})  # which version 0.1 did not write
    if not isinstance(inputs, dict) or any(
        not _is(inputs.get(name), kind) for name, kind in _INPUTS.items() if inputs
    ):
        raise _error(path, "inputs", found)
    return found


def _is(value: Any, kind: type | tuple[type, ...], least: float = -_END) -> bool:
    """Whether it is of a kind, no bool, and within bounds where it is a number."""
    if not isinstance(value, kind) or isinstance(value, bool):
        return False
    return not isinstance(value, int | float) or least <= value < _END


def _require_room(path: Path, config: dict[str, Any]) -> None:
    """A description of a few bytes may name a model that no memory holds: weights are in the file.

    It has four bytes for each. Those between hidden layers are counted, and those in recurrent
    ones; those of the first and last depend on the data.
    """
    hidden, model = config.get("hidden", TrainConfig.hidden), config.get("model", TrainConfig.model)
    if model in DEEP:
        weights = config.get("layers", 1) * hidden[0] ** 2
    elif model == "resnet50":
        weights = 0
    else:
        weights = max(hidden, default=0) + sum(one * other for one, other in pairwise(hidden))
    if 4 * weights > path.stat().st_size:
        raise CheckpointError(
            f"{path} is damaged or no checkpoint: in its description hidden is {list(hidden)} and "
            f"layers is {config.get('layers', 1)}, whose weights it does not hold"
        )


def _error(path: Path, name: str, holder: dict[str, Any]) -> CheckpointError:
    what = f"{name} is {holder[name]!r}" if name in holder else f"{name} is missing"
    return CheckpointError(f"{path} is damaged or no checkpoint: in its description {what}")
