"""What tells the run of a checkpoint from another, which would not go on to the same bits.

It is taken before the first step: a schedule or a callback may change the optimiser's settings
later, and a new process starts from the first ones again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dlprim.optim.schedules import Schedule

if TYPE_CHECKING:
    from dlprim.train.fit.training import Fitting

_PACKAGE = Schedule.__module__.partition(".")[0] + "."
_GOES_ON = ("optimizer", "last_epoch")  # of a schedule: not what it was made with


def identity_of(loop: Fitting, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by name, as JSON has them; arguments are those of `fit` that are plain values."""
    held_out = loop.held_out
    return _as_json(
        {
            **arguments,
            "data": loop.batches.digest,
            "validation": held_out and held_out.digest,
            "loss": repr(loop.criterion),
            "schedule": _schedule_of(loop.update.schedule),
            **optimizer_settings(loop, loop.optimizer.state_dict()),
        }
    )


def optimizer_settings(loop: Fitting, state: Mapping[str, Any]) -> dict[str, Any]:
    """What a state of the optimiser has of settings that the schedule does not change."""
    schedule = loop.update.schedule
    moved = set() if schedule is None else set(schedule.settings(0, 0))
    passing = {"steps", *moved, *({"learning_rate"} if "lr" in moved else ())}
    return _as_json(
        {
            "optimizer" if name == "kind" else name: it
            for name, it in state.items()
            if not isinstance(it, np.ndarray) and name.rpartition(".")[2] not in passing
        }
    )


def differences(
    own: Mapping[str, Any], first: Mapping[str, Any], latest: Mapping[str, Any]
) -> list[str]:
    """In words, which settings are neither those of the first step nor those of the latest."""
    names = [
        name
        for name in own.keys() & first.keys()
        if own[name] not in (first[name], latest.get(name, first[name]))
    ]
    words = {"data": "other data", "validation": "other data for validation"}
    return [words.get(it, f"{it} {first[it]}, not {own[it]}") for it in own if it in names]


def _as_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    return dict(json.loads(json.dumps(settings)))


def _schedule_of(schedule: Schedule | None) -> str | None:
    """Its kind, and of dlprim's own what it was made with."""
    if schedule is None:
        return None
    kind = type(schedule).__name__
    if not type(schedule).__module__.startswith(_PACKAGE):
        return kind
    own = vars(schedule).items()
    said = [f"{name.strip('_')}={_shown(it)}" for name, it in own if name not in _GOES_ON]
    return f"{kind}({', '.join(said)})"


def _shown(value: Any) -> Any:
    if isinstance(value, Schedule):
        return _schedule_of(value)
    if isinstance(value, list):
        return [_shown(it) for it in value]
    return value.__name__ if callable(value) else value
