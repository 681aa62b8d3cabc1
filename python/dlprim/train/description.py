"""What a checkpoint says of its run: settings and numbers as JSON, checked before they are used.

Checksums find what a disk damaged; what another program or an editor wrote is found here.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from dlprim.train.config import MODELS, SCHEDULES, TrainConfig
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
        if not isinstance(found.get(name), kind) or isinstance(found[name], bool):
            raise _error(path, name, found)
    if found["step"] < 0:
        raise _error(path, "step", found)
    config = found["config"]
    config.setdefault("schedule", "linear")  # the only one of version 0.1
    for field in fields(TrainConfig):
        default: Any = field.default
        value = config.get(field.name, default)
        if field.name in _WORDS and value not in _WORDS[field.name]:
            raise _error(path, field.name, config)
        if field.name == "hidden":
            is_right = isinstance(value, list) and all(type(it) is int for it in value)
        else:
            is_right = isinstance(value, (int, float) if type(default) is float else type(default))
        if not is_right:
            raise _error(path, field.name, config)
    inputs = found.setdefault("inputs", {})  # which version 0.1 did not write
    if not isinstance(inputs, dict) or any(
        not isinstance(inputs.get(name), kind) for name, kind in _INPUTS.items() if inputs
    ):
        raise _error(path, "inputs", found)
    return found


def _error(path: Path, name: str, holder: dict[str, Any]) -> CheckpointError:
    what = f"{name} is {holder[name]!r}" if name in holder else f"{name} is missing"
    return CheckpointError(f"{path} is damaged or no checkpoint: in its description {what}")
