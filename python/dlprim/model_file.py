"""The file of a model: a line that says what it is, a header as JSON, arrays, a checksum of all.

    dlprim.nn model 1\\n | length of the header, 8 bytes | header | arrays | BLAKE2b, 32 bytes

Models of `dlprim.nn` and whole networks have files of this form, of kinds that do not read each
other's.

Numbers and arrays are little-endian. The header names the dtype, shape, place and checksum of each
array; places are multiples of 64 bytes behind the header. Nothing in it is executed.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlprim.arguments.floats import bfloat16_dtype
from dlprim.files import opened, replaced

_LENGTH = 8
_DIGEST = 32
_PLACE = 64
_MOST_HEADER = 1 << 28

Array = npt.NDArray[Any]


class ModelFileError(ValueError):
    """A file is no model that was saved, or not as it was written."""


# What contents that describe no model lead to, whoever reads them.
WRONG = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)


def reason_of(error: Exception) -> object:
    """What one of `WRONG` says."""
    return error.args[0] if error.args else type(error).__name__


class Kind(NamedTuple):
    """What a file holds: its first line, what writes it and what reads it."""

    line: bytes
    writer: str
    reader: str

    @property
    def begin(self) -> bytes:
        """Of the first line in every version."""
        return self.line[:-2]


LAYERS = Kind(b"dlprim.nn model 1\n", "dlprim.nn.save", "dlprim.nn.load")
MOST_OF_LINE = 32  # octets of a first line, or more
NETWORK = Kind(b"dlprim network 1\n", "the save of an OnnxModel", "dlprim.load")


def write(kind: Kind, path: Path, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Replaces the file, at once or not at all.

    Raises
    ------
    OSError
        It cannot be written; what was there still stands.
    """
    table: dict[str, dict[str, Any]] = {}
    end = 0
    for name, array in arrays.items():
        place = -(-end // _PLACE) * _PLACE
        digest = hashlib.blake2b(_bytes(array), digest_size=_DIGEST).hexdigest()
        named = "bfloat16" if array.dtype == bfloat16_dtype() else array.dtype.name
        table[name] = {"dtype": named, "shape": array.shape, "place": place, "digest": digest}
        end = place + array.nbytes
    text = json.dumps({**header, "arrays": table, "bytes": end}).encode()
    whole = hashlib.blake2b(digest_size=_DIGEST)
    with replaced(path) as file:

        def put(part: bytes | memoryview) -> None:
            whole.update(part)
            file.write(part)

        put(kind.line)
        put(len(text).to_bytes(_LENGTH, "little"))
        put(text)
        written = 0
        for name, array in arrays.items():
            put(bytes(table[name]["place"] - written))
            put(_bytes(array))
            written = table[name]["place"] + array.nbytes
        file.write(whole.digest())


def read(kind: Kind, path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Header and arrays, which lie in one read-only block of memory.

    Raises
    ------
    OSError
        It cannot be read.
    ModelFileError
        It is no such file, of another version, truncated or damaged.
    """
    with opened(path) as (file, size):
        line = file.read(len(kind.line))
        if line != kind.line:
            line += file.read(2 * len(kind.line))
            raise ModelFileError(f"{path} is {_what_else(kind, path, line)}")
        number = file.read(_LENGTH)
        # What was cut off or changed here is found before memory is taken for it.
        text = file.read(min(int.from_bytes(number, "little"), size, _MOST_HEADER))
        header, wrong = _header(text)
        if wrong is None:
            expected = file.tell() + header["bytes"] + _DIGEST
            if size < expected:
                raise ModelFileError(f"{path} is truncated: it has {size} of {expected} bytes")
            if size > expected:
                raise ModelFileError(f"{path} is damaged: it has {size} bytes, expected {expected}")
            data = file.read(header["bytes"] + _DIGEST)
            body = memoryview(data)[:-_DIGEST]
            whole = hashlib.blake2b(line + number + text, digest_size=_DIGEST)
            whole.update(body)
            if whole.digest() == data[-_DIGEST:]:
                return header, _arrays(path, header, body)
            wrong = _what_differs(header, body)
    raise ModelFileError(f"{path} is damaged: {wrong}")


def reader_of(data: bytes) -> str | None:
    """What reads a file that begins so; None where it is none of these."""
    return next((it.reader for it in (LAYERS, NETWORK) if data.startswith(it.begin)), None)


def _what_else(kind: Kind, path: Path, data: bytes) -> str:
    """What a file is that does not begin as it should."""
    if data and kind.line.startswith(data):
        return f"truncated: it has {len(data)} bytes"
    if data.startswith(kind.begin):
        line = data[: 2 * len(kind.line)].split(b"\n")[0].decode(errors="replace")
        return f"{line!r}, expected {kind.line[:-1].decode()!r}"
    what = f"it begins with {data[:8]!r}" if data else "it is empty"
    if data.startswith(b"PK"):
        what += ", as of an .npz file; dlprim.train.load reads checkpoints of dlprim.train"
    elif data.startswith(b"\x08") or path.suffix == ".onnx":  # the number of ONNX's version
        what += ", as of a model in ONNX's format; dlprim.onnx.load reads those"
    reader = reader_of(data)
    if reader is not None:
        what = f"{reader} reads it"
    return f"no file of {kind.writer}: {what}"


def _header(text: bytes) -> tuple[dict[str, Any], str | None]:
    """The header, and what is wrong with it."""
    try:
        header = json.loads(text)
        arrays = header["arrays"]
        sound = isinstance(header["bytes"], int) and all(
            isinstance(it["place"], int)
            and 0 <= it["place"] <= it["place"] + _size(it) <= header["bytes"]
            and len(it["digest"])
            for it in arrays.values()
        )
    except Exception:  # of whatever a changed byte has made of it
        return {}, "its header is not what was written"
    return header, None if sound else "its header names arrays that it does not hold"


def _what_differs(header: dict[str, Any], data: memoryview) -> str:
    for name, it in header["arrays"].items():
        part = data[it["place"] : it["place"] + _size(it)]
        if hashlib.blake2b(part, digest_size=_DIGEST).hexdigest() != it["digest"]:
            return f"the values of {name!r} do not have their checksum"
    return "its header, or what stands between its arrays, does not have its checksum"


def _arrays(path: Path, header: dict[str, Any], data: memoryview) -> dict[str, Array]:
    try:
        return {name: _array(data, it) for name, it in header["arrays"].items()}
    except WRONG as error:
        raise ModelFileError(f"{path} holds what no array can be: {error}") from error


def _array(data: memoryview, it: dict[str, Any]) -> Array:
    part = data[it["place"] : it["place"] + _size(it)]
    array: Array = np.frombuffer(part, _dtype(it["dtype"])).reshape(it["shape"])
    return array


def _size(it: dict[str, Any]) -> int:
    if not all(isinstance(extent, int) and extent >= 0 for extent in it["shape"]):
        raise ValueError(it["shape"])
    size: int = math.prod(it["shape"]) * _dtype(it["dtype"]).itemsize
    return size


def _dtype(name: str) -> np.dtype[Any]:
    kind = bfloat16_dtype() if name == "bfloat16" else np.dtype(name)
    if kind.hasobject:
        raise TypeError(name)
    return kind.newbyteorder("<") if kind.kind in "iuf" else kind


def _bytes(array: Array) -> memoryview:
    """Little-endian and in C order."""
    given = np.ascontiguousarray(array)
    if given.dtype.kind in "iuf":
        given = given.astype(given.dtype.newbyteorder("<"), copy=False)
    return given.reshape(-1).view(np.uint8).data


def as_path(path: str | os.PathLike[str]) -> Path:
    """TypeError for what is no path."""
    try:
        return Path(path)
    except TypeError:
        raise TypeError(f"path is of type {type(path).__name__}, expected a str or Path") from None
