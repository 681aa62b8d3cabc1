"""Columns of tables: scaled, cut, filled in, put side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Value
from dlprim.graph.operators.operator import Arrays, Attributes, callee
from dlprim.onnx.registry import RefusedError, operator

ML = "ai.onnx.ml"
X, Y, Z = operand(0), operand(1), operand(2)


def in_floats(build: Builder, x: Value) -> Value:
    """What most operators of the domain compute with, whatever they are given."""
    return build.cast(x, np.float32)


def table_of(x: Value, build: Builder) -> Value:
    """x with a row for each sample; a single sample may be given without that axis."""
    if len(x.shape) not in (1, 2):
        raise RefusedError(f"the input is of {list(x.shape)}, expected rows of features")
    return x if len(x.shape) == 2 else build.reshape(x, (1, *x.shape))


def _along_columns(x: Value, name: str, given: Sequence[Any], dtype: Any, build: Builder) -> Value:
    """A number for each column, or one for all."""
    if len(given) not in (1, *x.shape[-1:]):
        columns = x.shape[-1] if x.shape else 1
        raise RefusedError(f"{name} has {len(given)} numbers, expected 1 or {columns}")
    try:
        return build.constant(np.array(given).astype(dtype))
    except OverflowError:
        raise RefusedError(f"{name} has numbers that {np.dtype(dtype)} does not hold") from None


@operator("Scaler", domain=ML)
def scaler(
    build: Builder,
    x: Value,
    *,
    offset: tuple[float, ...] = (0.0,),
    scale: tuple[float, ...] = (1.0,),
) -> Value:
    x = in_floats(build, x)
    offsets = _along_columns(x, "offset", offset, np.float32, build)
    scales = _along_columns(x, "scale", scale, np.float32, build)
    return build.map(("multiply", ("subtract", X, Y), Z), x, offsets, scales)


@operator("Normalizer", domain=ML)
def normalizer(build: Builder, x: Value, *, norm: str = "MAX") -> Value:
    """Rows of zeros stay what they are."""
    if norm not in ("MAX", "L1", "L2"):
        raise RefusedError(f"norm is '{norm}', expected 'MAX', 'L1' or 'L2'")
    if len(x.shape) not in (1, 2):
        raise RefusedError(f"the input is of {list(x.shape)}, expected rows of features")
    x, last = in_floats(build, x), (len(x.shape) - 1,)
    if norm == "MAX":
        length = build.reduce("max", x, last, keepdims=True)
    elif norm == "L1":
        length = build.reduce("sum", build.apply("abs", x), last, keepdims=True)
    else:
        squares = build.reduce("sum", build.map(("multiply", X, X), x), last, keepdims=True)
        length = build.apply("sqrt", squares)
    return build.map(("where", ("equal", Y, number(0.0)), X, ("divide", X, Y)), x, length)


@operator("Binarizer", domain=ML)
def binarizer(build: Builder, x: Value, *, threshold: float = 0.0) -> Value:
    above: Expression = ("greater", X, number(float(np.float32(threshold))))
    return build.map(("where", above, number(1), number(0)), x)


@operator("Imputer", domain=ML)
def imputer(
    build: Builder,
    x: Value,
    *,
    imputed_value_floats: tuple[float, ...] = (),
    imputed_value_int64s: tuple[int, ...] = (),
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Value:
    """What is missing is NaN, or a number that stands for it."""
    is_float = x.dtype.kind == "f"
    name = "imputed_value_floats" if is_float else "imputed_value_int64s"
    given: Sequence[Any] = imputed_value_floats if is_float else imputed_value_int64s
    if not given:
        raise RefusedError(f"{name} is left out, expected numbers for {x.dtype}")
    values = _along_columns(x, name, given, x.dtype, build)
    replaced = replaced_value_float if is_float else replaced_value_int64
    if isinstance(replaced, float) and math.isnan(replaced):
        return build.map(("where", ("is_nan", X), Y, X), x, values)
    marks = _along_columns(x, "the replaced value", (replaced,), x.dtype, build)
    return build.map(("where", ("equal", X, Z), Y, X), x, values, marks)


@operator("FeatureVectorizer", domain=ML)
def feature_vectorizer(
    build: Builder, *inputs: Value, inputdimensions: tuple[int, ...] = ()
) -> Value:
    """Columns side by side; each input is cut, or filled with zeros, to its dimension."""
    tables = [it if len(it.shape) != 1 else build.reshape(it, (*it.shape, 1)) for it in inputs]
    counts = inputdimensions or tuple(it.shape[-1] for it in tables if it.shape)
    rows = {it.shape[0] for it in tables if len(it.shape) == 2}
    if len(counts) != len(tables) or min(counts) < 0 or len(rows) != 1:
        raise RefusedError(
            f"inputs of {[list(it.shape) for it in inputs]} and inputdimensions "
            f"{list(inputdimensions)}, expected a number for each input, and one number of rows"
        )
    parts = []
    for table, count in zip(tables, counts, strict=True):
        if len(table.shape) != 2:
            raise RefusedError(f"an input is of {list(table.shape)}, expected rows of features")
        widths = ((0, 0), (0, count - table.shape[1]))
        part = in_floats(build, table)
        if count != table.shape[1]:
            part = build.emit("pad", [part], widths=widths, mode="constant")[0]
        parts.append(part)
    return build.concat(parts, 1)


@operator("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(build: Builder, x: Value, places: Value) -> Value:
    """Elements at places of the last axis; of a vector, a row."""
    if not x.shape or not places.size:
        raise RefusedError(f"x of {list(x.shape)} and {places!r}, expected axes and places")
    taken = build.gather(x, build.reshape(places, (places.size,)), len(x.shape) - 1)
    return taken if len(x.shape) > 1 else build.reshape(taken, (1, places.size))


@callee("one_hot", "it is of places, which are integers")
def one_hot_rows(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """1 where the place of the last axis is the element, 0 elsewhere."""
    ((*_, count), dtype) = attributes["results"][0]
    return [(arrays[0][..., None] == np.arange(count)).astype(dtype)]


def one_hot(build: Builder, places: Value, count: int) -> Value:
    """The same, of places."""
    return build.call("one_hot", [places], [((*places.shape, count), np.float32)])[0]
