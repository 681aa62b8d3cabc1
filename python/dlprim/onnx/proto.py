"""Tensors of ONNX's files as arrays: every length is checked before anything is read.

Data outside of the file is read only from regular files inside the model's folder, or the folder of
the file that a link to the model leads to, as caches that store files by their sums have it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from dlprim.graph.graph import Array
from dlprim.onnx.mapped import octets_of
from dlprim.onnx.strings import STRING

_MOST_DIGITS = 20  # of a place in a file

# Of TensorProto.DataType, those that arrays can hold.
_NAMES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    16: "bfloat16",
    17: "float8_e4m3fn",
    18: "float8_e4m3fnuz",
    19: "float8_e5m2",
    20: "float8_e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4_e2m1fn",
    24: "float8_e8m0fnu",
    25: "uint2",
    26: "int2",
}
DTYPES: dict[int, np.dtype[Any]] = {
    code: np.dtype(getattr(ml_dtypes, name, name))
    for code, name in _NAMES.items()
    if hasattr(ml_dtypes, name) or hasattr(np, name) or name == "bool"
}
# The bits of elements that share a byte.
_BITS = {"uint4": 4, "int4": 4, "float4_e2m1fn": 4, "uint2": 2, "int2": 2}
MOST_ELEMENTS = 1 << 40
STRINGS = 8  # of TensorProto.DataType


class Folders(NamedTuple):
    """Where data of a model may lie.

    Attributes
    ----------
    paths : tuple of Path
        Links followed; none for a model that has no path.
    token : str
        What initializers say that lie in the bytes of the model itself; nobody can guess it.
    octets : ndarray or None
    """

    paths: tuple[Path, ...] = ()
    token: str = ""
    octets: Array | None = None


class ModelError(ValueError):
    """A model that cannot be read, or that asks for what there is not; says what and where."""


def onnx_package() -> Any:
    """The package ``onnx``; ImportError says what is missing where it cannot be imported."""
    try:
        import onnx
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "onnx":
            raise ImportError("dlprim.onnx needs the package onnx: pip install onnx") from error
        raise ImportError(
            f"dlprim.onnx needs the package onnx, which is there, but cannot be imported: {error}; "
            "pip install --force-reinstall onnx brings what it needs"
        ) from error
    if not hasattr(onnx, "ModelProto"):
        place = getattr(onnx, "__file__", None) or ", ".join(getattr(onnx, "__path__", ()))
        raise ImportError(
            f"dlprim.onnx needs the package onnx, but {place} stands under that name: rename it or "
            "run from another folder, and pip install onnx where that is missing"
        )
    return onnx


def folders_of(path: Path) -> Folders:
    """The folder of the path, and that of the file to which it leads."""
    return Folders((path.parent.resolve(), path.resolve().parent))


def dtype_of(code: int) -> np.dtype[Any]:
    """The dtype of an element type of ONNX."""
    if code not in DTYPES:
        named = {STRINGS: "string", 14: "complex64", 15: "complex128"}.get(code, str(code))
        raise ModelError(f"elements are of type {named}, expected numbers or bool")
    return DTYPES[code]


@cache
def dtype_named(name: str) -> np.dtype[Any]:
    """The dtype that a port names; of texts that of their codes."""
    if name == "string":
        return STRING
    return np.dtype(getattr(ml_dtypes, name, name))


def array_of(tensor: Any, folders: Folders) -> Array:
    """The elements of a TensorProto; folders are where its data may lie. Texts are objects.

    Raises
    ------
    ModelError
        Where it holds more or less than its shape says, or what no array can hold.
    """
    try:
        return _array_of(tensor, folders)
    except (ValueError, TypeError, OverflowError, OSError) as error:
        raise ModelError(f"tensor '{tensor.name}': {error}") from error


def _array_of(tensor: Any, folders: Folders) -> Array:
    shape = tuple(tensor.dims)
    if any(extent < 0 for extent in shape) or math.prod(shape) > MOST_ELEMENTS:
        raise ValueError(f"shape is {list(shape)}, expected at most 2^40 elements")
    if tensor.HasField("segment"):
        raise ValueError("it is a segment, expected a whole tensor")
    count = math.prod(shape)
    if tensor.data_type == STRINGS:
        return _texts(tensor, count).reshape(shape)
    dtype = dtype_of(tensor.data_type)
    bits = _BITS.get(dtype.name, dtype.itemsize * 8)
    expected = (count * bits + 7) // 8
    if tensor.data_location == tensor.EXTERNAL:
        data: bytes | Array = _external(tensor, folders, expected)
    elif tensor.HasField("raw_data"):
        data = tensor.raw_data
    else:
        return _typed(tensor, dtype, count, bits).reshape(shape)
    if len(data) != expected:
        raise ValueError(f"it has {len(data)} bytes, expected {expected} for {list(shape)}")
    return _from_bytes(data, dtype, count, bits).reshape(shape)


def _texts(tensor: Any, count: int) -> Array:
    if tensor.data_location == tensor.EXTERNAL or len(tensor.string_data) != count:
        raise ValueError(f"string_data has {len(tensor.string_data)} texts, expected {count}")
    texts = np.empty(count, object)
    texts[:] = [it.decode() for it in tensor.string_data]
    return texts


def _from_bytes(data: bytes | Array, dtype: np.dtype[Any], count: int, bits: int) -> Array:
    if bits >= 8:
        if dtype.name == "bool" and any(bytes(data).translate(None, b"\0\1")):
            raise ValueError("it holds bytes that are neither true nor false")
        if isinstance(data, np.ndarray):  # whose memory the elements are
            return data.view(dtype.newbyteorder("<")).astype(dtype, copy=False)
        return np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype, copy=False)
    octets = np.frombuffer(data, np.uint8)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = ((octets[:, None] >> shifts) & ((1 << bits) - 1)).reshape(-1)[:count]
    if dtype.name.startswith("int"):
        parts = (parts ^ (1 << (bits - 1))).astype(np.int8) - (1 << (bits - 1))
        return parts.astype(dtype)
    return parts.astype(np.uint8).view(dtype) if "float" in dtype.name else parts.astype(dtype)


# The fields of TensorProto, and what their elements are.
_FIELDS = {
    "float32": ("float_data", np.float32),
    "float64": ("double_data", np.float64),
    "int64": ("int64_data", np.int64),
    "uint32": ("uint64_data", np.uint64),
    "uint64": ("uint64_data", np.uint64),
}


def _typed(tensor: Any, dtype: np.dtype[Any], count: int, bits: int) -> Array:
    """Elements in the field of their type; those of up to 16 bits are bits in int32_data."""
    field, held = _FIELDS.get(dtype.name, ("int32_data", np.int32))
    numbers = np.asarray(getattr(tensor, field), held)
    expected = count if bits >= 8 else (count * bits + 7) // 8
    if len(numbers) != expected:
        raise ValueError(f"{field} has {len(numbers)} numbers, expected {expected}")
    if field != "int32_data" or (bits >= 8 and dtype.kind in "biu"):
        return numbers.astype(dtype)
    if bits < 8:
        return _from_bytes(numbers.astype(np.uint8).tobytes(), dtype, count, bits)
    return numbers.astype(np.uint16 if bits == 16 else np.uint8).view(dtype)


def _external(tensor: Any, folders: Folders, expected: int) -> Array:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if folders.octets is not None and entries.get("location") == folders.token:
        start = int(entries["offset"])
        return folders.octets[start : start + int(entries["length"])]
    if not folders.paths:
        raise ValueError("its data lies in another file, expected a path to the model")
    location = entries.get("location", "")
    folder, path = _within(folders.paths, location)
    octets = octets_of(path, folder)
    offset = _number(entries, "offset", 0)
    length = _number(entries, "length", expected)
    size = len(octets)
    if length != expected or offset < 0 or offset + length > size:
        raise ValueError(
            f"it is {length} bytes from {offset} on, expected {expected} inside the {size} "
            f"of '{path.name}'"
        )
    return octets[offset : offset + length]


def _number(entries: Mapping[str, str], name: str, otherwise: int) -> int:
    text = entries.get(name)
    if text is None:
        return otherwise
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise ValueError(f"the {name} of its data is {text[:40]!r}, expected a number of bytes")
    return int(text)


def _within(folders: tuple[Path, ...], location: str) -> tuple[Path, Path]:
    """The folder of the model that the file is in, and its path, links followed."""
    path = Path(location)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in location:
        raise ValueError(f"its data is in '{location}', expected a path inside the model's folder")
    found = (folders[0] / path).resolve(strict=True)
    for folder in folders:
        if found.is_relative_to(folder) and found != folder:
            return folder, found
    raise ValueError(f"its data is in '{location}', which leads out of the model's folder")
