"""Weights where they lie: files are mapped, and a model is parsed without the weights in it.

A ModelProto that protobuf parses has a copy of every weight. Here large initializers are taken out
of the text that it parses, and say instead at which bytes of the file they are.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from dlprim.files import opened
from dlprim.graph.graph import Array

# Smaller files are read: nobody need leave them as they are while a model lives.
_LEAST_BYTES = 1 << 20
# Of elements that are taken out of a model.
_LEAST_TAKEN = 1 << 12

# Of ModelProto, GraphProto and TensorProto in onnx.proto.
_GRAPH, _INITIALIZER = 7, 5
_RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 9, 13, 14
_EXTERNAL = 1

# By device, number, size and time of the last change, so that models of one file share weights.
_files: WeakValueDictionary[tuple[int, ...], Array] = WeakValueDictionary()


def octets_of(path: Path, below: Path | None = None) -> Array:
    """The bytes of a regular file, mapped where they are many; of one below a folder, if given."""
    # What is checked is what is read: others may put a link in its place meanwhile.
    with opened(path, below) as (file, size):
        if size < _LEAST_BYTES:
            return np.frombuffer(file.read(size), np.uint8)
        about = os.fstat(file.fileno())
        key = about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns
        known = _files.get(key)
        if known is None:
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            known = _files[key] = np.frombuffer(mapping, np.uint8)
        return known


class _Field(NamedTuple):
    number: int
    begin: int  # with its key
    content: int
    end: int
    has_length: bool


def _number_at(data: memoryview, place: int) -> tuple[int, int]:
    """A number in base 128, and where it ends."""
    number = shift = 0
    while shift < 64:
        octet = data[place]
        place += 1
        number |= (octet & 127) << shift
        if octet < 128:
            return number, place
        shift += 7
    raise ValueError("a number in the file has more than 64 bits")


def _fields(data: memoryview, place: int, end: int) -> Iterator[_Field]:
    """Those of a message between two places."""
    while place < end:
        key, content = _number_at(data, place)
        kind = key & 7
        if key < 8:
            raise ValueError("a field of the file has the number 0")
        if kind == 0:
            last = _number_at(data, content)[1]
        elif kind == 2:
            length, content = _number_at(data, content)
            last = content + length
        elif kind in (1, 5):
            last = content + (8 if kind == 1 else 4)
        else:
            raise ValueError(f"a field of the file is of kind {kind}")
        if last > end:
            raise ValueError("a field of the file is longer than what it is part of")
        yield _Field(key >> 3, place, content, last, kind == 2)
        place = last


def _number(number: int) -> bytes:
    octets = bytearray()
    while number > 127:
        octets.append(number & 127 | 128)
        number >>= 7
    return bytes([*octets, number])


def _message(number: int, content: bytes) -> bytes:
    return _number(number << 3 | 2) + _number(len(content)) + content


def _without_elements(data: memoryview, tensor: _Field, token: str) -> bytes | None:
    """A TensorProto that says where its elements are; None where it does not have many."""
    if tensor.end - tensor.content < _LEAST_TAKEN:
        return None
    fields = list(_fields(data, tensor.content, tensor.end))
    raw = [it for it in fields if it.number == _RAW_DATA]
    is_elsewhere = any(it.number in (_EXTERNAL_DATA, _DATA_LOCATION) for it in fields)
    if len(raw) != 1 or not raw[0].has_length or is_elsewhere:
        return None
    length = raw[0].end - raw[0].content
    if length < _LEAST_TAKEN:
        return None
    entries = {"location": token, "offset": str(raw[0].content), "length": str(length)}
    kept = [bytes(data[it.begin : it.end]) for it in fields if it is not raw[0]]
    kept += [
        _message(_EXTERNAL_DATA, _message(1, key.encode()) + _message(2, value.encode()))
        for key, value in entries.items()
    ]
    return b"".join([*kept, _number(_DATA_LOCATION << 3), _number(_EXTERNAL)])


def _light_graph(data: memoryview, graph: _Field, token: str) -> bytes:
    parts, kept = [], graph.content
    for field in _fields(data, graph.content, graph.end):
        if field.number == _INITIALIZER and field.has_length:
            tensor = _without_elements(data, field, token)
            if tensor is not None:
                parts += [bytes(data[kept : field.begin]), _message(_INITIALIZER, tensor)]
                kept = field.end
    return b"".join([*parts, bytes(data[kept : graph.end])])


def light_model(octets: Array, token: str) -> bytes:
    """The text of a ModelProto whose large initializers lie in the file that the token names.

    Raises
    ------
    ValueError, IndexError
        Where the file is no such text.
    """
    data = octets.data
    parts = []
    for field in _fields(data, 0, len(data)):
        if field.number == _GRAPH and field.has_length:
            parts.append(_message(_GRAPH, _light_graph(data, field, token)))
        else:
            parts.append(bytes(data[field.begin : field.end]))
    return b"".join(parts)
