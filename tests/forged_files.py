"""Files whose checksums are right and whose contents are not: what a program or an attacker wrote.

Headers are changed in places that are drawn; what reads them refuses the file in a sentence, or
finds it to be another whole one.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dlprim.model_file import Kind

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 300, 2**31, 2**63, 2**64, 10**9, 10**30, 10**400, 1.5, -0.0,
    1e300, float("inf"), float("nan"), "", "x", "relu", "lstm", "float64", "O", "V0", "U4",
    "i4,i4", [], {}, [[]], [1] * 70, {"a": 1}, [2**40, 2**40], [0, 2**70], "a" * 1000,
)  # fmt: skip
_LENGTH = 8
_DIGEST = 32


def changed(tree: Any, random: np.random.Generator) -> Any:
    """A copy of a JSON object with some changes."""
    tree = copy.deepcopy(tree)
    for _ in range(random.choice([1, 1, 1, 2, 4])):
        places = [place for place in _places(tree) if place]
        place = places[random.integers(len(places))]
        holder = _at(tree, place[:-1])
        key, value = place[-1], holder[place[-1]]
        how = random.integers(8)
        if how == 0 and isinstance(holder, dict):
            del holder[key]
        elif how == 1:
            holder[key] = copy.deepcopy(_at(tree, places[random.integers(len(places))]))
        elif how == 2 and isinstance(holder, dict):
            holder[str(VALUES[random.integers(len(VALUES))])] = holder.pop(key)
        elif how == 3 and isinstance(value, int | float) and not isinstance(value, bool):
            holder[key] = value * (-1, 2, 1000, 10**9)[random.integers(4)]
        elif how == 4:
            holder[key] = _nested(int(random.choice([5, 50, 200])))
        else:
            holder[key] = copy.deepcopy(VALUES[random.integers(len(VALUES))])
    return tree


def parts_of(kind: Kind, path: Path) -> tuple[dict[str, Any], bytes]:
    """Header and arrays of a file of a model."""
    data = path.read_bytes()
    begin = len(kind.line) + _LENGTH
    end = begin + int.from_bytes(data[len(kind.line) : begin], "little")
    return json.loads(data[begin:end]), data[end:-_DIGEST]


def put(kind: Kind, path: Path, header: Any, arrays: bytes) -> None:
    """Writes a file of a model, whatever the header says, with the checksum of all."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    data = kind.line + len(text).to_bytes(_LENGTH, "little") + text + arrays
    path.write_bytes(data + hashlib.blake2b(data, digest_size=_DIGEST).digest())


def _places(tree: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    items: Any = ()
    if isinstance(tree, dict):
        items = tree.items()
    elif isinstance(tree, list):
        items = enumerate(tree)
    for key, value in items:
        yield from _places(value, (*place, key))


def _at(tree: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        tree = tree[key]
    return tree


def _nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = {"entries": [["a", value]]} if level % 2 else [value]
    return value
