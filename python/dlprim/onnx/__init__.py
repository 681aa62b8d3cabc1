"""Models in ONNX's format, as networks that run.

`load` reads a file and gives an `OnnxModel`, which is called with arrays. It needs the package
``onnx`` (``pip install onnx``).
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from dlprim import model_file
from dlprim.arguments.scalars import flag, typed_integer
from dlprim.graph.conversion import DTYPES
from dlprim.graph.graph import Array
from dlprim.onnx.mapped import light_model, octets_of
from dlprim.onnx.model import KEPT_SHAPES, OnnxModel
from dlprim.onnx.program import Port
from dlprim.onnx.proto import Folders, ModelError, folders_of, onnx_package
from dlprim.onnx.quantization import quantize
from dlprim.onnx.reader import program_of
from dlprim.onnx.source import Source

if TYPE_CHECKING:
    from dlprim.onnx.trained import TrainableModel

__all__ = ["ModelError", "OnnxModel", "Port", "load", "quantize"]

_MOST_BYTES = 2**31 - 1  # that protobuf reads


@overload
def load(
    model: str | os.PathLike[str] | bytes | Any,
    *,
    dtype: Literal["float32", "bfloat16"] | None = None,
    max_bytes: int | None = None,
    kept_shapes: int = KEPT_SHAPES,
    trainable: Literal[False] = False,
) -> OnnxModel: ...


@overload
def load(
    model: str | os.PathLike[str] | bytes | Any,
    *,
    dtype: Literal["float32", "bfloat16"] | None = None,
    max_bytes: int | None = None,
    kept_shapes: int = KEPT_SHAPES,
    trainable: Literal[True],
) -> TrainableModel: ...


def load(
    model: str | os.PathLike[str] | bytes | Any,
    *,
    dtype: Literal["float32", "bfloat16"] | None = None,
    max_bytes: int | None = None,
    kept_shapes: int = KEPT_SHAPES,
    trainable: bool = False,
) -> OnnxModel | TrainableModel:
    """A model that runs, of a file in ONNX's format.

    Parameters
    ----------
    model : path, bytes or onnx.ModelProto
        Data outside of the file is read only where a path is given, and only from its folder. Files
        of a MiB or more are mapped: while the model lives they may be replaced or removed, but not
        be written to.
    dtype : "float32" or "bfloat16", optional
        What floats are computed in, halves among them; as the model says unless it is given.
        Inputs and outputs are of the model's types in any case.
    max_bytes : int, optional
        What a call may take: its results, what is between these and the inputs, and what one step
        takes besides, each of them; half of the machine's memory unless it is given. What would
        take more is refused before it does.
    kept_shapes : int
        Of how many shapes of inputs networks are kept, those that were met last. All read the same
        weights; the network of another shape takes some hundred kilobytes, and is made anew in
        about the time of a call.
    trainable : bool
        Gives a module of `dlprim.nn`: weights of float32 are its parameters, and ``model(x)``,
        ``model.backward(dy)`` and optimisers work as with other modules. Its ``trained()`` is the
        model with the weights as they are.

    Returns
    -------
    OnnxModel, or TrainableModel where trainable is True

    Raises
    ------
    ModelError
        Where the file is damaged, or nodes are refused; it lists them all.
    OSError
        The file cannot be read, or is a device, a pipe or the like.
    TypeError, ValueError
        dtype is another one, or max_bytes or kept_shapes is less than 1.
    """
    if dtype not in (None, *DTYPES):
        raise ValueError(f"dtype is {dtype!r}, expected None or one of {', '.join(DTYPES)}")
    if max_bytes is not None and typed_integer("max_bytes", max_bytes) < 1:
        raise ValueError(f"max_bytes is {max_bytes}, expected at least 1")
    if typed_integer("kept_shapes", kept_shapes) < 1:
        raise ValueError(f"kept_shapes is {kept_shapes}, expected at least 1")
    is_trained, folders = flag("trainable", trainable), Folders()
    if isinstance(model, str | os.PathLike):
        path = Path(model)
        proto, folders = _mapped(_octets(path), folders_of(path))
    elif isinstance(model, bytes) and model:
        proto, folders = _mapped(np.frombuffer(model, np.uint8), Folders())
    else:
        proto = _parsed(model)
    try:
        program = program_of(proto, folders)
        source = Source.of(proto, program, folders, proto is not model)
        del proto
        how: Any = {"dtype": dtype, "max_bytes": max_bytes, "kept_shapes": kept_shapes}
        made = OnnxModel(program, source, **how)
    except TypeError as error:  # protobuf gives bytes for what is no text
        raise ModelError(f"the file is damaged: names in it are no text ({error})") from error
    if not is_trained:
        return made
    from dlprim.onnx.trained import TrainableModel  # which takes long to import

    return TrainableModel(made, program)


def _octets(path: Path) -> Array:
    octets = octets_of(path)
    reader = model_file.reader_of(octets[: model_file.MOST_OF_LINE].tobytes())
    if reader is not None:
        raise ModelError(f"{path} is a file of dlprim's own, which {reader} reads")
    if octets.size > _MOST_BYTES:
        raise ModelError(
            f"{path} has {octets.size} bytes, expected at most {_MOST_BYTES}: larger weights lie "
            "in files beside it"
        )
    return octets


def _mapped(octets: Array, folders: Folders) -> tuple[Any, Folders]:
    """The model of a file without its weights, and where these are."""
    token = secrets.token_hex()
    try:
        light = light_model(octets, token)
    except (ValueError, IndexError):  # protobuf says what is wrong
        return _parsed(octets.tobytes()), folders
    return _parsed(light), folders._replace(token=token, octets=octets)


def _parsed(model: Any) -> Any:
    onnx = onnx_package()
    if isinstance(model, onnx.ModelProto):
        return model
    if not isinstance(model, bytes | bytearray | memoryview):
        raise TypeError(f"model is {type(model).__name__}, expected a path, bytes or ModelProto")
    try:
        return onnx.ModelProto.FromString(bytes(model))
    except Exception as error:  # of protobuf, whose classes depend on how it was built
        raise ModelError(f"the file is no model in ONNX's format: {error}") from error
