"""Lists of arrays, and what may be there or not: None where it is not."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlprim.graph.graph import Array
from dlprim.graph.room import require_room
from dlprim.onnx.attributes import Declared
from dlprim.onnx.operators.control import BYTES_BESIDE, described, number_of
from dlprim.onnx.operators.shapes import axis_of
from dlprim.onnx.proto import STRINGS, dtype_of
from dlprim.onnx.registry import Call, RefusedError, operator
from dlprim.onnx.strings import name_of


def _place(position: Any, count: int, default: int) -> int:
    """A place in a list, counted from the front."""
    if position is None:
        return default
    place = number_of(position)
    if not -count <= place < count:
        raise RefusedError(f"position is {place}, expected -{count} to {count - 1}")
    return place % count


def _require_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise RefusedError(f"{described(value)} is given, expected a sequence")
    return value


def _require_like(first: Any, tensor: Any) -> None:
    """Refuses what is no array, or of another dtype than the first of a list."""
    if not isinstance(tensor, np.ndarray):
        raise RefusedError(f"{described(tensor)} is given, expected an array")
    if tensor.dtype != first.dtype:
        kinds = name_of(tensor.dtype.name), name_of(first.dtype.name)
        raise RefusedError(f"{kinds[0]} is given for a sequence of {kinds[1]}")


def _within(call: Call, listed: list[Any]) -> list[Any]:
    """The list, unless it takes more than it may."""
    taken = sum(it.nbytes for it in listed) + BYTES_BESIDE * len(listed)
    require_room("a sequence", taken, call.max_bytes)
    return listed


@operator("SequenceEmpty", since=11, on_values=True)
def sequence_empty(call: Call, *, dtype: int = 1) -> list[Any]:
    if dtype != STRINGS:
        dtype_of(dtype)
    return []


@operator("SequenceConstruct", since=11, on_values=True)
def sequence_construct(call: Call, *inputs: Any) -> list[Any]:
    for it in inputs:
        _require_like(inputs[0], it)
    return _within(call, list(inputs))


@operator("SequenceInsert", since=11, on_values=True)
def sequence_insert(call: Call, sequence: Any, tensor: Any, position: Any = None) -> list[Any]:
    listed = list(_require_list(sequence))
    _require_like(listed[0] if listed else tensor, tensor)
    place, count = len(listed) if position is None else number_of(position), len(listed)
    if not -count <= place <= count:
        raise RefusedError(f"position is {place}, expected -{count} to {count}")
    listed.insert(place, tensor)
    return _within(call, listed)


@operator("SequenceErase", since=11, on_values=True)
def sequence_erase(call: Call, sequence: Any, position: Any = None) -> list[Any]:
    listed = list(_require_list(sequence))
    if not listed:
        raise RefusedError("the sequence is empty, expected an element to erase")
    del listed[_place(position, len(listed), len(listed) - 1)]
    return listed


@operator("SequenceAt", since=11, on_values=True)
def sequence_at(call: Call, sequence: Any, position: Any) -> Array:
    listed = _require_list(sequence)
    found: Array = listed[_place(position, len(listed), 0)]
    return found


@operator("SequenceLength", since=11, on_values=True)
def sequence_length(call: Call, sequence: Any) -> Array:
    return np.array(len(_require_list(sequence)))


@operator("SplitToSequence", since=11, on_values=True)
def split_to_sequence(
    call: Call, x: Array, split: Array | None = None, *, axis: int = 0, keepdims: int = 1
) -> list[Array]:
    _require_like(x, x)
    axis = axis_of(axis, x.ndim)
    extent = x.shape[axis]
    if split is None:
        sizes = [1] * extent
    elif split.ndim:
        sizes = split.tolist()
    else:
        size = number_of(split)
        if size < 1:
            raise RefusedError(f"split is {size}, expected at least 1")
        sizes = [min(size, extent - start) for start in range(0, extent, size)]
    if min(sizes, default=0) < 0 or sum(sizes) != extent:
        raise RefusedError(f"parts are {sizes}, expected the sum {extent}")
    parts, start, before = [], 0, (slice(None),) * axis
    for size in sizes:
        part = x[(*before, slice(start, start + size))]
        parts.append(part.squeeze(axis) if split is None and not keepdims else part)
        start += size
    return _within(call, [it if it.flags.c_contiguous else it.copy() for it in parts])


@operator("ConcatFromSequence", since=11, on_values=True)
def concat_from_sequence(call: Call, sequence: Any, *, axis: int, new_axis: int = 0) -> Array:
    listed = _require_list(sequence)
    if not listed:
        raise RefusedError("the sequence is empty, expected arrays")
    taken = sum(it.nbytes for it in listed)
    require_room("the result", taken, call.max_bytes)
    axis = axis_of(axis, listed[0].ndim + (1 if new_axis else 0))
    joined: Array = np.stack(listed, axis) if new_axis else np.concatenate(listed, axis)
    return joined


@operator("SequenceMap", since=17, on_values=True)
def sequence_map(call: Call, *inputs: Any) -> tuple[list[Any], ...]:
    """Runs its body for each array of the first list, of others, and with arrays as they are."""
    body, count = call.bodies[0], len(_require_list(inputs[0]))
    if len(body.inputs) != len(inputs):
        raise RefusedError(
            f"its body has {len(body.inputs)} inputs, expected the {len(inputs)} of the node"
        )
    if any(isinstance(it, list) and len(it) != count for it in inputs):
        raise RefusedError(f"sequences differ in length, expected {count} arrays in each")
    results: list[list[Any]] = [[] for _ in body.outputs]
    for place in range(count):
        given = [it[place] if isinstance(it, list) else it for it in inputs]
        for listed, result in zip(results, call.run(given), strict=True):
            _require_like(listed[0] if listed else result, result)
            listed.append(result)
    return tuple(_within(call, it) for it in results)


@operator("Optional", since=15, on_values=True)
def optional(call: Call, x: Any = None, *, type: Declared | None = None) -> Any:
    return x


@operator("OptionalHasElement", since=15, on_values=True)
def optional_has_element(call: Call, x: Any = None) -> Array:
    return np.array(x is not None)


@operator("OptionalGetElement", since=15, on_values=True)
def optional_get_element(call: Call, x: Any) -> Any:
    if x is None:
        raise RefusedError("the optional value is not there, expected one")
    return x


@operator("Identity", since=14, on_values=True)
def identity(call: Call, x: Any) -> Any:
    return x
