"""Checkpoints: all that a run needs to go on to the same losses, bit for bit.

A checkpoint is written beside the last one, flushed to the disk and renamed over it, so whatever
kills the process at any moment, one that is whole stands under the name. It is an .npz file whose
entries carry checksums; what cannot be read, or belongs to another run, is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from dlprim.arguments.arrays import Array
from dlprim.model_file import WRONG, reason_of
from dlprim.train import stored
from dlprim.train.config import DATA, TrainConfig
from dlprim.train.description import FORMAT, require_description
from dlprim.train.folder import FILE, CheckpointError
from dlprim.train.loop import Trainer
from dlprim.train.models import LanguageModel

EXCHANGE = "exchange/"  # before the names of what ranks carry from step to step


Reader = Callable[[Path], tuple[dict[str, Any], dict[str, Array]]]


def save(folder: Path, trainer: Trainer, history: list[dict[str, Any]]) -> None:
    """Replaces the checkpoint of a folder.

    Args:
        folder: made if it is not there.
        trainer: between two steps. All ranks call, and rank 0 writes.
        history: the records so far, to be written again by the run that resumes.

    Raises:
        OSError: it could not be written; the earlier one still stands.
    """
    arrays = _arrays(trainer)
    if trainer.exchange.rank != 0:
        return
    folder.mkdir(parents=True, exist_ok=True)
    description = {
        "format": FORMAT,
        "config": asdict(trainer.config),
        "data": trainer.task.digest,
        "inputs": dict(trainer.task.inputs),
        "ranks": dict(trainer.exchange.settings),
        "step": trainer.step,
        "loss_sum": trainer.loss_sum,
        "samples": trainer.samples,
        "seconds": asdict(trainer.seconds),
        "history": history,
    }
    stored.write(folder / FILE, description, arrays)


def load(
    folder: Path, trainer: Trainer, reader: Reader | None = None, trains: bool = True
) -> tuple[list[dict[str, Any]], list[str]]:
    """Puts a trainer where the checkpoint of a folder was made.

    Returns:
        The history, and in sentences what differs from the run that made it without being refused.

    Args:
        folder: where `save` wrote.
        trainer: just made; of the same configuration, on any number of ranks.
        reader: how the file is read; `read` by default.
        trains: whether the run goes on; a mere test may be on other data.

    Raises:
        CheckpointError: there is none, it is damaged, or of a run with another configuration or
            other data.
    """
    path = folder / FILE
    description, arrays = (reader or read)(path)
    require_same(path, description["config"], asdict(trainer.config), trains)
    differences = _differences(path, description, trainer, trains)
    try:
        _put(trainer, arrays)
        trainer.seconds = type(trainer.seconds)(**description["seconds"])
    except WRONG as error:
        raise CheckpointError(f"{path} does not fit the model: {reason_of(error)}") from error
    trainer.go_to(description["step"])
    trainer.loss_sum, trainer.samples = description["loss_sum"], description["samples"]
    trainer.mass = trainer.samples
    history: list[dict[str, Any]] = description["history"]
    return history, differences


def _put(trainer: Trainer, arrays: Mapping[str, Array]) -> None:
    parts: dict[str, dict[str, Any]] = {"model": {}, "optimizer": {}, "state": {}, "exchange": {}}
    for name, array in arrays.items():
        part, _, key = name.partition("/")
        parts.setdefault(part, {})[key] = array
    trainer.model.load_state_dict(parts["model"])
    trainer.optimizer.load_state_dict(parts["optimizer"])
    trainer.exchange.load_state_dict(parts["exchange"])
    if isinstance(trainer.model, LanguageModel):
        states = _states(parts["state"], trainer.model)
        own = trainer.exchange.own_columns
        trainer.model.rnn.states = [tuple(own(state) for state in layer) for layer in states]


def read(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Description and arrays of a checkpoint, all read and checked against their checksums.

    Raises:
        CheckpointError: the file is missing or damaged, or is no checkpoint.
    """
    description, arrays = stored.read(path)
    return require_description(path, description), arrays


def read_description(path: Path) -> dict[str, Any]:
    """What a checkpoint says of its run, without its arrays.

    Raises:
        CheckpointError: as `read`, as far as it shows without reading everything.
    """
    return require_description(path, stored.read(path, is_short=True)[0])


def stored_config(description: dict[str, Any]) -> TrainConfig:
    """The settings of the run that wrote a checkpoint."""
    found = description["config"]
    known = {name: value for name, value in found.items() if name in asdict(TrainConfig())}
    return TrainConfig(**(known | {"hidden": tuple(found["hidden"])}))


def require_same(path: Path, stored: dict[str, Any], given: dict[str, Any], trains: bool) -> None:
    """Refuses settings that contradict those of a checkpoint.

    Args:
        path: of the checkpoint.
        stored, given: settings by name; not all need be given.
        trains: whether the run goes on. Then it may have more epochs, if those that are over are
            what they would have been with so many.

    Raises:
        CheckpointError: which ones do.
    """
    given = json.loads(json.dumps(given))
    other = [name for name in given if given[name] != stored.get(name)]
    if "data" in other and not {given["data"], stored["data"]} & set(DATA):
        other.remove("data")  # a file may have moved: its digest tells whether it is the same
    if trains and other == ["epochs"] and given["epochs"] > stored["epochs"]:
        if stored["schedule"] == "constant":
            return
        raise CheckpointError(
            f"{path} is of a run whose learning rate falls to zero over its {stored['epochs']} "
            f"epochs: with epochs {given['epochs']} it would have been another from the first step "
            f"on. Expected epochs {stored['epochs']}, or a run that began with --schedule constant"
        )
    if other:
        shown = ", ".join(f"{name} {stored.get(name)}, not {given[name]}" for name in other)
        raise CheckpointError(f"{path} is of a run with {shown}")


def _arrays(trainer: Trainer) -> dict[str, Array]:
    arrays = {f"model/{name}": array for name, array in trainer.model.state_dict().items()}
    for name, value in trainer.optimizer.state_dict().items():
        arrays[f"optimizer/{name}"] = np.asarray(value)
    for name, array in trainer.exchange.state_dict().items():
        arrays[f"{EXCHANGE}{name}"] = array
    if isinstance(trainer.model, LanguageModel):
        for layer, states in enumerate(trainer.model.rnn.states):
            for place, state in enumerate(states):
                arrays[f"state/{layer}.{place}"] = trainer.exchange.all_columns(state)
    return arrays


def _differences(
    path: Path, description: dict[str, Any], trainer: Trainer, trains: bool
) -> list[str]:
    found = []
    if description["data"] != trainer.task.digest:
        other = f"{path} is of a run on other data than {trainer.config.data} holds now"
        if trains:
            raise CheckpointError(other)
        found.append(f"{other}: what is tested may be what it was trained on")
    if trains:
        found += [
            f"{path} is of a run with {what} {description['ranks'].get(what)}, not {own}: from "
            "here on the losses are not those of that run"
            for what, own in trainer.exchange.settings.items()
            if description["ranks"].get(what) != own
        ]
    return found


def _states(arrays: Mapping[str, Any], model: LanguageModel) -> list[tuple[Array, ...]]:
    names = sorted(arrays, key=lambda it: tuple(map(int, it.split("."))))
    # Of files before 0.3 they have the dtype of activations.
    held = [arrays[it] for it in names]
    held = [it.view(model.context.dtype) if it.dtype == np.uint16 else it for it in held]
    kinds = max(len(held) // model.rnn.layers, 1)
    return [tuple(held[at : at + kinds]) for at in range(0, len(held), kinds)]
