"""Formulas of `dlprim.lang`, as people write them: compiled for the arrays of the node.

Attributes: ``name`` and ``text`` of the definition, ``sizes`` that arrays do not say, in pairs. The
gradient is the definition's own, again such a node.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from dlprim import _core
from dlprim.graph.graph import Node
from dlprim.graph.operators.operator import Arrays, Attributes, Operator, Result, Values, there
from dlprim.lang.compiled import core_definition
from dlprim.lang.operands import dtype_of

if TYPE_CHECKING:
    from dlprim.graph.builder import Builder

# Shape, strides in bytes, name of the dtype
Geometry = tuple[tuple[int, ...], tuple[int, ...], str]


@lru_cache(maxsize=1024)
def definition_of(name: str, text: str) -> _core.Definition:
    """The definition of a node."""
    return core_definition(name, text)


@lru_cache(maxsize=1024)
def formula_of(
    of: tuple[str, str], operands: tuple[Geometry, ...], sizes: tuple[tuple[str, int], ...]
) -> _core.Formula:
    """The definition for arrays like these."""
    dtypes = {dtype for _, _, dtype in operands if dtype not in ("int32", "int64")}
    if dtypes == {"bfloat16"}:
        result = "bfloat16"
    else:
        result = "int32" if dtypes and dtypes <= {"int8", "uint8"} else "float32"
    arrays = [
        np.lib.stride_tricks.as_strided(np.empty(1, np.dtype(dtype)), shape, strides)
        for shape, strides, dtype in operands
    ]
    return _core.Formula(definition_of(*of), arrays, {}, dict(sizes), result)


def _dense(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Geometry:
    steps, step = [], dtype.itemsize
    for extent in reversed(shape):
        steps.append(step)
        step *= extent
    return shape, tuple(reversed(steps)), dtype.name


def _formula(values: Values, attributes: Attributes) -> _core.Formula:
    operands = tuple(_dense(it.shape, it.dtype) for it in map(there, values))
    return formula_of((attributes["name"], attributes["text"]), operands, attributes["sizes"])


def _infer(values: Values, attributes: Attributes) -> list[Result]:
    try:
        results = _formula(values, attributes).results()
    except IndexError as error:
        raise ValueError(str(error)) from error
    for name, _, _, is_read in results:
        if is_read:
            raise ValueError(f"{name} is read before it is written, expected a formula that is not")
    return [(tuple(shape), dtype_of(dtype)) for _, dtype, shape, _ in results]


def _compute(arrays: Arrays, attributes: Attributes) -> list[Any]:
    operands = [np.require(it, requirements=["C", "A"]) for it in arrays]
    formula = _formula(operands, attributes)
    results = [np.empty(shape, dtype_of(dtype)) for _, dtype, shape, _ in formula.results()]
    formula.run(operands, results)
    return results


def _gradient(b: Builder, node: Node, diffs: Values) -> list[Any]:
    of = node.attributes
    definition = definition_of(of["name"], of["text"])
    filled = [
        b.zeros(value.shape, value.dtype) if diff is None else diff
        for value, diff in zip(node.outputs, diffs, strict=True)
    ]
    found: list[Any] = []
    for name, value in zip(definition.parameters, node.inputs, strict=True):
        if there(value).dtype.kind in "iub":
            found.append(None)
            continue
        back = definition.gradient(name)
        how = {"name": back.name, "text": back.text, "sizes": of["sizes"]}
        (diff,) = b.emit("formula", [*node.inputs, *filled], **how)
        found.append(b.cast(diff, there(value).dtype))
    return found


FORMULAS = {"formula": Operator("contract", _infer, _compute, _gradient)}
