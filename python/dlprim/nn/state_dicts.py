"""Parameters and statistics of a model by their names, and others put in their place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlprim.arguments.arrays import values_for

_COUNTER = "num_batches_tracked"


def add_to_state(state: dict[str, Any], name: str, array: Any) -> None:
    """Adds an array of a model, whose names differ."""
    if name in state:
        raise ValueError(f"two arrays of the model are called {name!r}, expected a name for each")
    state[name] = array


def copy_state(own: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Copies arrays into those of a model, or raises as `Module.load_state_dict`."""
    if not isinstance(state, Mapping):
        raise TypeError(f"state is of type {type(state).__name__}, expected a dict of arrays")
    missing = [name for name in own if name not in state]
    wrong = [f"{it} is missing" for it in missing if it.rpartition(".")[2] != _COUNTER]
    wrong += [f"{name} is unknown" for name in state if name not in own]
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise KeyError(f"state does not fit the model: {', '.join(wrong[:3])}{more}")
    arrays = {name: values_for(name, value, own[name]) for name, value in state.items()}
    memory = {id(it.base) for it in own.values() if it.base is not None}
    for name, values in arrays.items():
        if id(values.base) in memory and values is not own[name]:
            arrays[name] = values.copy()  # of the model itself, and perhaps written first
    for name, values in arrays.items():
        own[name][...] = values
