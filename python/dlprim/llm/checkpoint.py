"""Weights as files keep them: arrays with names, mapped and not read before somebody asks.

A file may say anything of itself. The package safetensors checks that its arrays lie inside of it
and do not overlap; shapes are held against the configuration before anything is made of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlprim.arguments.floats import bfloat16_dtype
from dlprim.files import opened
from dlprim.llm.packages import package
from dlprim.model_file import ModelFileError

Array = npt.NDArray[Any]

_MOST_JSON = 1 << 26  # bytes
_LENGTH = 8  # bytes of a header's length
_SINGLE, _SHARDED = "model.safetensors", "model.safetensors.index.json"
_GENERATION = "generation_config.json"
_OLD = ("pytorch_model.bin", "pytorch_model.bin.index.json")


class Stored(NamedTuple):
    """An array of a file: its shape, what its elements are called there, and how it is read."""

    shape: tuple[int, ...]
    kind: str
    read: Callable[[], Array]


class Checkpoint(NamedTuple):
    """What a model is made from.

    Attributes
    ----------
    where : str
        In messages.
    entries : dict
        As in config.json.
    arrays : mapping
        `Stored` arrays by name.
    """

    where: str
    entries: Mapping[str, Any]
    arrays: Mapping[str, Stored]

    def array(self, name: str, shape: tuple[int, ...]) -> Array:
        """An array of floats, of the shape that the configuration implies."""
        stored = self.arrays.get(name)
        if stored is None:
            raise ModelFileError(f"{self.where} has no array {name}, of shape {shape}")
        if stored.shape != shape:
            raise ModelFileError(
                f"{name} of {self.where} has shape {stored.shape}, expected {shape} as the "
                "configuration says"
            )
        return stored.read()


def json_of(path: Path) -> dict[str, Any]:
    """The object that a file holds; ModelFileError where it is none."""
    with opened(path) as (file, size):
        if size > _MOST_JSON:
            raise ModelFileError(f"{path} has {size} bytes, expected at most {_MOST_JSON}")
        try:
            found = json.loads(file.read(_MOST_JSON))
        except (ValueError, RecursionError) as error:
            raise ModelFileError(f"{path} is no JSON: {error!s:.200}") from None
    if not isinstance(found, dict):
        raise ModelFileError(f"{path} holds a {type(found).__name__}, expected an object")
    return found


def folder_checkpoint(folder: Path) -> Checkpoint:
    """A folder as ``save_pretrained`` of transformers writes it.

    Raises
    ------
    ModelFileError
        A file is damaged, or no file of safetensors is there.
    OSError
        A file cannot be opened.
    """
    entries = json_of(folder / "config.json")
    if (folder / _GENERATION).exists():  # which may name more tokens that end a text
        found = json_of(folder / _GENERATION).get("eos_token_id")
        entries["eos_token_id"] = entries.get("eos_token_id") if found is None else found
    arrays: dict[str, Stored] = {}
    for name in _parts(folder):
        arrays |= safetensors_arrays(folder / name)
    return Checkpoint(str(folder), entries, arrays)


def _parts(folder: Path) -> list[str]:
    if (folder / _SINGLE).exists() or not (folder / _SHARDED).exists():
        if any((folder / it).exists() for it in _OLD) and not (folder / _SINGLE).exists():
            raise ModelFileError(
                f"{folder} has weights as {_OLD[0]}, expected {_SINGLE}, which "
                "save_pretrained of transformers writes"
            )
        return [_SINGLE]
    places = json_of(folder / _SHARDED).get("weight_map")
    names: set[Any] = set(places.values()) if isinstance(places, dict) and places else {None}
    for name in names:
        if not isinstance(name, str) or Path(name).name != name:
            raise ModelFileError(
                f"weight_map of {folder / _SHARDED} holds {name!r:.60}, expected names of files "
                "beside it"
            )
    return sorted(names)


def safetensors_arrays(path: Path) -> dict[str, Stored]:
    """The arrays of one file."""
    safetensors = package("safetensors", "reading weights")
    with opened(path):
        pass  # a regular file, or an OSError that names it
    try:
        with safetensors.safe_open(path, framework="numpy"):
            pass  # which checks all that the header says
    except safetensors.SafetensorError as error:
        raise ModelFileError(f"{path} is damaged, or no file of safetensors: {error}") from None
    octets = np.memmap(path, np.uint8, "r")
    size = int(octets[:_LENGTH].view("<u8")[0])
    header = json.loads(octets[_LENGTH : _LENGTH + size].tobytes())
    header.pop("__metadata__", None)
    return {name: _stored(name, octets[_LENGTH + size :], it) for name, it in header.items()}


def _stored(name: str, octets: Array, told: Mapping[str, Any]) -> Stored:
    (begin, end), shape, kind = told["data_offsets"], tuple(told["shape"]), told["dtype"]

    def read() -> Array:
        return octets[begin:end].view(dtype_of(name, kind)).reshape(shape)

    return Stored(shape, kind, read)


def dtype_of(name: str, kind: str) -> np.dtype[Any]:
    """Of floats; ModelFileError for what else files may hold."""
    known: dict[str, Any] = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": bfloat16_dtype()}
    if kind not in known:
        raise ModelFileError(f"{name} has elements of {kind}, expected {', '.join(known)}")
    found: np.dtype[Any] = np.dtype(known[kind])
    return found


def elements(arrays: Mapping[str, Stored]) -> int:
    """How many numbers there are in all."""
    return sum(math.prod(it.shape) for it in arrays.values())
