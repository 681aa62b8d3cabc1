"""Formulas in the notation of `dlprim.define`, as they are written."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from dlprim import _core
from dlprim.arguments.floats import dtype_named
from dlprim.graph.graph import Node, Value
from dlprim.graph.operators.elements import is_differentiable
from dlprim.graph.operators.operator import Arrays, Attributes, Operator, Result, Values, there

if TYPE_CHECKING:
    from dlprim.graph.builder import Builder

# shape, strides in bytes, name of the dtype
Geometry = tuple[tuple[int, ...], tuple[int, ...], str]


@lru_cache(maxsize=1024)
def definition_of(text: str) -> _core.Definition:
    """The only definition of a text."""
    definitions = _core.parse_definitions(text)
    if len(definitions) != 1:
        raise ValueError(f"a formula has {len(definitions)} definitions, expected one")
    return definitions[0]


@lru_cache(maxsize=1024)
def compiled(
    text: str,
    operands: tuple[Geometry, ...],
    results: tuple[str, ...],
    sizes: tuple[tuple[str, int], ...] = (),
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = (),
) -> _core.Formula:
    """The definition for arrays like these, its results of one dtype, or each of its own.

    Sizes, and shapes of results, are those that the arrays do not say.
    """
    arrays = [
        np.lib.stride_tricks.as_strided(np.empty(1, np.dtype(dtype)), shape, strides)
        for shape, strides, dtype in operands
    ]
    return _core.Formula(
        definition_of(text), arrays, dict(shapes), dict(sizes), results, takes_halves=True
    )


def dense(shape: Sequence[int], dtype: np.dtype[Any]) -> Geometry:
    """Of an array in C order."""
    strides = [dtype.itemsize]
    for extent in reversed(shape[1:]):
        strides.insert(0, strides[0] * max(1, extent))
    return tuple(shape), tuple(strides[len(strides) - len(shape) :]), dtype.name


def formula_of(
    geometries: tuple[Geometry, ...], attributes: Attributes
) -> tuple[_core.Formula, str]:
    """The formula of a node for arrays like these, and the dtype of its results.

    Attributes are ``text``, ``sizes`` (names and numbers) and ``shapes`` (of results by name).
    """
    floats = [dtype for _, _, dtype in geometries if dtype not in ("int32", "int64")]
    if not set(floats) <= {"float32", "bfloat16"}:
        names = ", ".join(sorted(set(floats)))
        raise ValueError(f"a formula is of {names}, expected float32, bfloat16 and places")
    result = "bfloat16" if floats and set(floats) == {"bfloat16"} else "float32"
    how = (attributes["sizes"], attributes["shapes"])
    return compiled(attributes["text"], geometries, (result,), *how), result


def _infer(values: Values, attributes: Attributes) -> list[Result]:
    geometries = tuple(dense(it.shape, it.dtype) for it in map(there, values))
    formula, result = formula_of(geometries, attributes)
    rows = formula.results()
    for name, _, _, is_read in rows:
        if is_read:
            raise ValueError(f"{name} is read before it is written, expected it as an argument")
    return [(tuple(shape), dtype_named(result)) for _, _, shape, _ in rows]


def _compute(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """By the core, in float32: the notation has no other meaning."""
    operands = [np.ascontiguousarray(array).reshape(np.shape(array)) for array in arrays]
    geometries = tuple(dense(it.shape, it.dtype) for it in operands)
    formula, result = formula_of(geometries, attributes)
    results = [np.empty(shape, dtype_named(result)) for _, _, shape, _ in formula.results()]
    formula.run(operands, results)
    return list(results)


def _gradient(b: Builder, node: Node, diffs: Values) -> Sequence[Value | str | None]:
    """A formula for each operand, of the operands and the gradients of the results."""
    pairs = zip(diffs, node.outputs, strict=True)
    given = [b.zeros(it.shape, it.dtype) if diff is None else diff for diff, it in pairs]
    return [
        _by(b, node, given, place) if is_differentiable(value) else None
        for place, value in enumerate(node.inputs)
    ]


def _by(b: Builder, node: Node, diffs: Sequence[Value], place: int) -> Value | str:
    """By one operand, or what the notation lacks for it."""
    definition, value = definition_of(node.attributes["text"]), there(node.inputs[place])
    try:
        gradient = definition.gradient(definition.parameters[place])
        (made,) = b.emit(
            "formula",
            [*node.inputs, *diffs],
            text=gradient.text,
            sizes=node.attributes["sizes"],
            shapes=((gradient.returns[0], value.shape),),
        )
    except ValueError as error:
        return str(error)
    return b.cast(made, value.dtype)


FORMULAS = {"formula": Operator("contract", _infer, _compute, _gradient)}
