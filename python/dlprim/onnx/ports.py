"""What a file says of the inputs and outputs of a graph."""

from __future__ import annotations

from typing import Any

from dlprim.onnx.maps import keys_of
from dlprim.onnx.program import Block, Port
from dlprim.onnx.proto import STRINGS, ModelError, dtype_of


def port_of(proto: Any) -> Port:
    """What a ValueInfoProto says: an array, a list of arrays, or one of these that may be None.

    Raises
    ------
    ModelError
        Where it is of another type.
    """
    kind, words = proto.type, []
    if kind.WhichOneof("value") == "optional_type":
        kind, words = kind.optional_type.elem_type, ["optional"]
    if kind.WhichOneof("value") == "sequence_type":
        kind, words = kind.sequence_type.elem_type, [*words, "sequence"]
    else:
        words.append("tensor")
    if kind.WhichOneof("value") != "tensor_type":
        named = kind.WhichOneof("value")
        raise ModelError(f"'{proto.name}' is of type {named}, expected a tensor")
    tensor = kind.tensor_type
    try:
        dtype = "string" if tensor.elem_type == STRINGS else dtype_of(tensor.elem_type).name
    except ModelError as error:
        raise ModelError(f"'{proto.name}': {error}") from None
    if not tensor.HasField("shape"):
        return Port(proto.name, dtype, None, kind=" ".join(words))
    extents = (
        _extent(it.dim_value) if it.HasField("dim_value") else it.dim_param or None
        for it in tensor.shape.dim
    )
    return Port(proto.name, dtype, tuple(extents), kind=" ".join(words))


def declared(proto: Any) -> Port:
    """What a body says of an output, which may be nothing."""
    try:
        return port_of(proto)
    except ModelError:
        return Port(proto.name, "", None)


def _extent(value: int) -> int | None:
    """Some exporters write -1 for an extent that may be any."""
    return value if value >= 0 else None


def output_of(proto: Any, name: str, block: Block) -> Port:
    """An output, of which the file need not say the type, or which ZipMap makes dicts of."""
    keys = keys_of(name, block)
    if keys:
        return Port(proto.name, "float32", None, keys=keys)
    if proto.type.WhichOneof("value") is None:
        return Port(proto.name, None, None)
    return port_of(proto)
