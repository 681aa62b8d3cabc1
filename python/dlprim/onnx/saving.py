"""Models in one file: what was imported with its weights, what was decided on it, schedules."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from dlprim import model_file
from dlprim import schedule_store as store
from dlprim.graph.conversion import DTYPES
from dlprim.graph.graph import Array
from dlprim.graph.quantization import Weights
from dlprim.graph.quantization.table import Table
from dlprim.model_file import WRONG, ModelFileError
from dlprim.onnx.model import KEPT_SHAPES, OnnxModel
from dlprim.onnx.proto import Folders, ModelError
from dlprim.onnx.reader import program_of
from dlprim.onnx.source import Source

_MODEL = "model"  # a name that no initializer has here: theirs begin with the prefix
_PREFIX = "weight "
_SCALES = "scales "  # of weights in 8 bits


def save(model: OnnxModel, path: str | os.PathLike[str]) -> None:
    """Writes the file; `OnnxModel.save` says more."""
    target = model_file.as_path(path)
    model_file.write(model_file.NETWORK, target, *contents(model))


def contents(model: OnnxModel) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and the arrays of its file."""
    source = model.source
    header = {
        "dtype": model.dtype,
        "quantization": None if model.table is None else model.table.document(),
        "schedules": store.document(model.schedules),
        "channels": {name: it.axis for name, it in source.in_bytes.items()},
    }
    arrays = {_PREFIX + name: array for name, array in source.arrays.items()}
    for name, it in source.in_bytes.items():
        arrays[_PREFIX + name], arrays[_SCALES + name] = it.values, it.scale
    arrays[_MODEL] = np.frombuffer(source.model, np.uint8)
    return header, arrays


def load(path: str | os.PathLike[str], max_bytes: int | None = None) -> OnnxModel:
    """The model of a file, a call of which may take so much; `dlprim.load` says more."""
    place = model_file.as_path(path)
    header, arrays = model_file.read(model_file.NETWORK, place)
    try:
        return remade(header, arrays, max_bytes)
    except WRONG as error:
        raise ModelFileError(f"{place} does not describe a model: {error}") from error


def remade(
    header: dict[str, Any],
    arrays: dict[str, Any],
    max_bytes: int | None = None,
    kept_shapes: int = KEPT_SHAPES,
) -> OnnxModel:
    """The model of a header and arrays, as a pickle has them too."""
    in_bytes = {
        name: _weights(arrays[_PREFIX + name], arrays[_SCALES + name], axis)
        for name, axis in header.get("channels", {}).items()
    }
    known = {_MODEL, *(_SCALES + name for name in in_bytes)}
    weights = {
        name.removeprefix(_PREFIX): array for name, array in arrays.items() if name not in known
    }
    weights.update((name, it.floats) for name, it in in_bytes.items())
    proto = Source(arrays[_MODEL].tobytes(), weights).whole()
    program = program_of(proto, Folders())
    if header["dtype"] not in (None, *DTYPES):
        raise ModelError(f"floats are computed in {header['dtype']}")
    document = header["quantization"]
    table = None if document is None else Table.of(document)
    source = Source.of(proto, program, Folders(), True, in_bytes)
    schedules = store.Travelled(header["schedules"])
    how = header["dtype"], schedules, max_bytes, kept_shapes
    return OnnxModel(program, source, table, *how)


def _weights(values: Array, scale: Array, axis: Any) -> Weights:
    """What a file says of weights in 8 bits."""
    is_axis = isinstance(axis, int) and 0 <= axis < values.ndim
    if values.dtype != np.int8 or scale.dtype != np.float32 or not is_axis:
        raise ModelError(f"weights are {values.dtype} with scales of {scale.dtype} of axis {axis}")
    if scale.shape != (values.shape[axis],):
        raise ModelError(f"{scale.shape} scales are given for axis {axis} of {values.shape}")
    return Weights(values, scale, axis)
