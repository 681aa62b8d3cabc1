"""What a model was read from, kept so that it can be saved: the file without its large arrays.

The arrays are those that the program computes with, so that keeping the file costs no second copy
of the weights, and what lay outside of the file is inside from here on.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from dlprim.graph.graph import Array
from dlprim.graph.quantization import Weights
from dlprim.onnx.program import Program
from dlprim.onnx.proto import Folders, ModelError, array_of, onnx_package

# Of arrays that stay in the file.
_MOST_BYTES = 1024
_LEVEL = 1  # of compression: the fastest
_FIELDS = (
    "raw_data",
    "float_data",
    "double_data",
    "int32_data",
    "int64_data",
    "uint64_data",
    "external_data",
)


class Source:
    """A file in ONNX's format in two parts.

    Attributes
    ----------
    model : bytes
        A ModelProto whose large initializers have no elements.
    arrays : mapping of str to ndarray
        The elements by name.
    in_bytes : mapping of str to Weights
        Those of the arrays that 8 bits and scales say exactly.
    """

    def __init__(
        self,
        model: bytes,
        arrays: Mapping[str, Array],
        in_bytes: Mapping[str, Weights] | None = None,
    ) -> None:
        self._model = zlib.compress(model, _LEVEL)
        self.arrays, self.in_bytes = arrays, in_bytes or {}

    @property
    def model(self) -> bytes:
        """Kept small: exporters write down where each node is from, and few models are saved."""
        return zlib.decompress(self._model)

    @staticmethod
    def of(
        model: Any,
        program: Program,
        folders: Folders,
        is_own: bool,
        in_bytes: Mapping[str, Weights] | None = None,
    ) -> Source:
        """Of a ModelProto, which loses its elements if nobody else has it, and of its program."""
        arrays = {}
        known = {**program.constants, **program.defaults}
        light = model
        if not is_own:
            light = type(model)()
            light.CopyFrom(model)
        for tensor in light.graph.initializer:
            array = known.get(tensor.name)
            if array is not None and _is_kept(array):
                arrays[tensor.name] = array
                _clear(tensor)
        for tensor in _tensors(light.graph):
            if tensor.data_location == tensor.EXTERNAL and tensor.name not in arrays:
                _put(tensor, array_of(tensor, folders))
        return Source(light.SerializeToString(), arrays, in_bytes)

    def whole(self) -> Any:
        """The ModelProto with all elements.

        Raises
        ------
        ModelError
            Where arrays are missing, or are none of the model's.
        """
        try:
            model = onnx_package().ModelProto.FromString(self.model)
        except Exception as error:  # of protobuf, whose classes depend on how it was built
            raise ModelError(f"the model in it cannot be read: {error}") from error
        left = dict(self.arrays)
        for tensor in model.graph.initializer:
            array = left.pop(tensor.name, None)
            if array is not None:
                _put(tensor, array)
        if left:
            raise ModelError(f"the model in it has no initializers {sorted(left)[:8]}")
        return model


def _is_kept(array: Array) -> bool:
    """Whether an array is large, and its elements are bytes as ONNX has them."""
    named = array.dtype.kind in "iufb" or array.dtype.name == "bfloat16"
    return array.nbytes >= _MOST_BYTES and named


def _clear(tensor: Any) -> None:
    for name in _FIELDS:
        tensor.ClearField(name)
    tensor.ClearField("data_location")


def _put(tensor: Any, array: Array) -> None:
    _clear(tensor)
    tensor.raw_data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def _tensors(graph: Any) -> Iterator[Any]:
    """All tensors of a graph and of the graphs in its nodes."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("g"):
                yield from _tensors(attribute.g)
            for inner in attribute.graphs:
                yield from _tensors(inner)
