"""Labels and categories: one taken for another by a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.graph import Array, Value
from dlprim.graph.operators.operator import Arrays, Attributes, callee
from dlprim.onnx.operators.ml.features import ML, in_floats, one_hot
from dlprim.onnx.registry import RefusedError, operator
from dlprim.onnx.strings import STRING, coded, name_of

UNUSED = "_Unused"
coded(UNUSED)  # before any input has it


def as_array(given: Any) -> Array:
    """An attribute as the array of a network."""
    array = np.asarray(given)
    if array.dtype.kind in "OU":
        return coded(array)
    return array


@callee("look_up", "it looks up what stands in a table")
def look_up(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """Of each element the place of the last key that it equals, or how many keys there are.

    Keys are sorted, and each is there once; no number is the last one of floats.
    """
    x, keys, places = arrays
    x = x.view(np.int64) if x.dtype == STRING else x
    found = np.searchsorted(keys, x)
    nearest = keys[np.minimum(found, keys.size - 1)]
    is_there = (nearest == x) | ((nearest != nearest) & (x != x))
    return [np.where(is_there, places[np.minimum(found, keys.size - 1)], keys.size)]


def places_of(build: Builder, x: Value, keys: Array) -> Value:
    """Where the elements stand among the keys, of equal ones first; behind them what does not."""
    if not keys.size:
        raise RefusedError("there are no keys, expected at least one")
    if keys.dtype == STRING:
        keys = keys.view(np.int64)
    known, first = np.unique(keys.reshape(-1), return_index=True)
    if known.size < keys.size:
        # Keys that are there twice: places are of all of them, so that values need not move.
        known = np.concatenate([known, np.repeat(known[-1:], keys.size - known.size)])
        first = np.concatenate([first, np.repeat(first[-1:], keys.size - first.size)])
    operands = [x, build.constant(known), build.constant(first.astype(np.int64))]
    return build.call("look_up", operands, [(x.shape, np.int64)])[0]


def _looked_up(build: Builder, x: Value, keys: Array, values: Array, default: Array) -> Value:
    """The value of the key that an element equals, or the default."""
    if keys.size != values.size or default.size != 1:
        raise RefusedError(
            f"{keys.size} keys and {values.size} values are given, expected as many of each"
        )
    if (keys.dtype == STRING) != (x.dtype == STRING):
        raise RefusedError(
            f"keys are of {name_of(keys.dtype.name)}, expected the input's {name_of(x.dtype.name)}"
        )
    places = places_of(build, x, keys)
    table = np.concatenate([values.reshape(-1), default.reshape(-1).astype(values.dtype)])
    return build.gather(build.constant(table), places, 0)


def _only(kind: str, **given: Any) -> tuple[str, Any]:
    """The one of these attributes that is given."""
    found = [(name, it) for name, it in given.items() if it is not None and len(np.shape(it))]
    if len(found) != 1 or not np.size(found[0][1]):
        raise RefusedError(f"{len(found)} lists of {kind} are given, expected one")
    return found[0]


@operator("LabelEncoder", since=2, domain=ML)
def label_encoder(
    build: Builder,
    x: Value,
    *,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = UNUSED,
    default_tensor: Array | None = None,
    keys_floats: tuple[float, ...] | None = None,
    keys_int64s: tuple[int, ...] | None = None,
    keys_strings: tuple[str, ...] | None = None,
    keys_tensor: Array | None = None,
    values_floats: tuple[float, ...] | None = None,
    values_int64s: tuple[int, ...] | None = None,
    values_strings: tuple[str, ...] | None = None,
    values_tensor: Array | None = None,
) -> Value:
    _, keys = _only(
        "keys", floats=keys_floats, int64s=keys_int64s, strings=keys_strings, tensor=keys_tensor
    )
    kind, values = _only(
        "values",
        floats=values_floats,
        int64s=values_int64s,
        strings=values_strings,
        tensor=values_tensor,
    )
    known = as_array(values)
    if kind == "floats":
        known = known.astype(np.float32)
    default: Any = {"floats": default_float, "int64s": default_int64, "strings": default_string}
    default = default.get(kind, default_tensor)
    if default is None:
        default = {"m": UNUSED, "f": -0.0}.get(known.dtype.kind, -1)
    keyed = as_array(keys)
    if x.dtype.kind == "f":
        keyed = keyed.astype(x.dtype) if keyed.dtype != STRING else keyed
    return _looked_up(build, x, keyed, known, as_array(default))


def _both_ways(
    build: Builder,
    x: Value,
    texts: Sequence[str],
    numbers: Sequence[int],
    defaults: tuple[str, int],
) -> Value:
    """Numbers of texts, or texts of numbers."""
    words, integers = coded(texts), np.array(numbers, np.int64)
    if x.dtype == STRING:
        return _looked_up(build, x, words, integers, np.array(defaults[1]))
    return _looked_up(build, x, integers, words, coded(defaults[0]))


@operator("LabelEncoder", domain=ML)
def label_encoder_1(
    build: Builder,
    x: Value,
    *,
    classes_strings: tuple[str, ...] = (),
    default_int64: int = -1,
    default_string: str = UNUSED,
) -> Value:
    numbers = range(len(classes_strings))
    return _both_ways(build, x, classes_strings, numbers, (default_string, default_int64))


@operator("CategoryMapper", domain=ML)
def category_mapper(
    build: Builder,
    x: Value,
    *,
    cats_int64s: tuple[int, ...] = (),
    cats_strings: tuple[str, ...] = (),
    default_int64: int = -1,
    default_string: str = UNUSED,
) -> Value:
    return _both_ways(build, x, cats_strings, cats_int64s, (default_string, default_int64))


@operator("OneHotEncoder", domain=ML)
def one_hot_encoder(
    build: Builder,
    x: Value,
    *,
    cats_int64s: tuple[int, ...] = (),
    cats_strings: tuple[str, ...] = (),
    zeros: int = 1,
) -> Value:
    """Numbers are cut to integers; what is no category has a row of zeros, which zeros must say."""
    is_text = x.dtype == STRING
    cats = coded(cats_strings) if is_text else np.array(cats_int64s, np.int64)
    places = places_of(build, x if is_text else build.cast(x, np.int64), cats)
    if not zeros:
        places = build.call("no_unknown", [places], [(x.shape, np.int64)], most=len(cats))[0]
    return one_hot(build, places, len(cats))


@callee("no_unknown", "it only refuses")
def no_unknown(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """The places, none of which may be behind the categories."""
    if arrays[0].size and arrays[0].max() >= attributes["most"]:
        raise ValueError("an element is no category of OneHotEncoder, expected zeros=1 for these")
    return [arrays[0]]


@operator("ZipMap", domain=ML)
def zip_map(
    build: Builder,
    x: Value,
    *,
    classlabels_int64s: tuple[int, ...] = (),
    classlabels_strings: tuple[str, ...] = (),
) -> Value:
    """The columns, of which the model makes a dict for each row."""
    labels = classlabels_strings or classlabels_int64s
    if len(x.shape) not in (1, 2) or x.shape[-1] != len(labels):
        raise RefusedError(f"x is of {list(x.shape)}, expected {len(labels)} columns")
    return in_floats(build, x)
