"""Formulas for nodes: their text in the notation of `dlprim.define`, compiled once per geometry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dlprim.graph.expressions import Expression, is_condition, text_of
from dlprim.graph.extents import Extent
from dlprim.graph.lowering.place import Place, collapsed
from dlprim.graph.operators.formulas import Geometry


def geometry_of(place: Place) -> Geometry:
    return place.shape, place.strides, place.dtype.name


def definition_text(
    operands: list[tuple[str, tuple[int, ...]]], statements: list[str], results: str = "y"
) -> str:
    """A definition with named operands of these shapes; its result is called y unless it is said.

    Extents that depend on those of inputs stand in it by their names.
    """
    sizes = [f"float({','.join(map(repr, shape))}) {name}" for name, shape in operands]
    return f"def f({', '.join(sizes)}) -> ({results}) {{ {' '.join(statements)} }}"


def without_strides_of_zero(place: Place) -> tuple[Place, list[int]]:
    """The place without the axes along which it repeats, and the axes that are left."""
    axes = [axis for axis, stride in enumerate(place.strides) if stride != 0]
    shape = tuple(place.shape[axis] for axis in axes)
    strides = tuple(place.strides[axis] for axis in axes)
    return Place(place.root, place.offset, shape, strides, place.dtype), axes


def text_of_sum(shape: tuple[int, ...], parts: tuple[str, str], count: int) -> str:
    """A definition of sums of x over so many, by which they are divided."""
    return definition_text([("x", shape)], [f"{parts[0]} {share_text(count)}{parts[1]}"])


def share_text(count: int) -> str:
    """The factor that makes a sum over so many their mean."""
    return f"{number_text(1 / count)} * " if count != 1 else ""


def map_formula(
    expression: Expression, operands: list[Place], result: Place
) -> tuple[str, list[Place], Place] | None:
    """Text, operands and result of an expression of elements, None where there is no text."""
    shape = result.shape
    spread = [it.expanded(shape) for it in operands]
    extents, (*inner, out) = collapsed(shape, [*spread, result])
    if not extents:
        extents, out = (1,), Place(out.root, out.offset, (1,), (out.dtype.itemsize,), out.dtype)
        inner = [Place(it.root, it.offset, (1,), (it.dtype.itemsize,), it.dtype) for it in inner]
    written = written_map(expression, inner, extents)
    if written is None:
        return None
    left = ",".join(f"i{axis}" for axis in range(len(extents)))
    statement = f"y({left}) = {written.value} where {written.ranges}"
    return definition_text(written.operands, [statement]), written.places, out


def number_text(number: float) -> str:
    """What stands in a text for a number that no operand says."""
    if isinstance(number, Extent):
        return number.recording.number_name(number)
    return repr(number)


class WrittenMap(NamedTuple):
    """An expression of elements in the notation.

    Attributes
    ----------
    value, ranges : str
        Of indices i0, i1, ..; and how far these go.
    operands : list of (str, tuple of int)
        Names and shapes.
    places : list of Place
        Where these lie, without axes along which they repeat.
    """

    value: str
    ranges: str
    operands: list[tuple[str, tuple[int, ...]]]
    places: list[Place]


def written_map(
    expression: Expression, operands: Sequence[Place], extents: tuple[int, ...]
) -> WrittenMap | None:
    """An expression of operands that have these extents, None where there is no text."""
    names, shapes, reads, places = [], [], [], []
    for number, it in enumerate(operands):
        place, axes = without_strides_of_zero(it)
        if not axes:
            place = Place(it.root, it.offset, (1,), (it.dtype.itemsize,), it.dtype)
        names.append(f"a{number}")
        shapes.append(place.shape)
        reads.append(f"a{number}({','.join(f'i{axis}' for axis in axes) or '0'})")
        places.append(place)
    text = text_of(expression, reads)
    if text is None:
        return None
    if is_condition(expression):
        text = f"({text} ? 1.0 : 0.0)"
    read = {repr(extent) for shape in shapes for extent in shape}
    ends = [repr(it) if repr(it) in read else number_text(it) for it in extents]
    ranges = ", ".join(f"i{axis} in 0:{end}" for axis, end in enumerate(ends))
    return WrittenMap(text, ranges, list(zip(names, shapes, strict=True)), places)


def is_bytes(dtype: np.dtype[Any]) -> bool:
    """Whether formulas read and write elements of the type as whole numbers of 8 bits."""
    return dtype.name in ("uint8", "int8")


def is_mapped(dtype: np.dtype[Any]) -> bool:
    """Whether maps read and write elements of the type, which they compute in float32."""
    return is_bytes(dtype) or is_computed(dtype) or dtype.name in ("float16", "bool")


def is_computed(*dtypes: np.dtype[Any]) -> bool:
    """Whether the engines compute with all these types."""
    return all(dtype.name in ("float32", "bfloat16") for dtype in dtypes)
