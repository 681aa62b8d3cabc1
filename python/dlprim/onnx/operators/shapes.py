"""Shapes: what they are, arrays in other ones, parts of arrays and arrays of parts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dlprim.graph import Builder, Value
from dlprim.graph.extents import Extent, integers
from dlprim.graph.graph import Array
from dlprim.graph.operators.elements import broadcast_shape
from dlprim.onnx.registry import RefusedError, operator
from dlprim.onnx.strings import coded


def numbers(builder: Builder, value: Value) -> tuple[int, ...]:
    """The elements of a list of integers, which must be known."""
    if value.dtype.kind not in "iu" or len(value.shape) > 1:
        raise RefusedError(f"{value!r} is expected to be a list of integers")
    return tuple(builder.array(value).reshape(-1).tolist())


def one_number(builder: Builder, value: Value) -> Any:
    """The only element of a value that must be known, as Python's number."""
    if value.size != 1:
        raise RefusedError(f"{value!r} is expected to have one element")
    it = builder.array(value).reshape(())[()]
    return it if isinstance(it, Extent) else it.item()


def one_integer(builder: Builder, value: Value) -> int:
    """The same of an integer."""
    if value.dtype.kind not in "iu":
        raise RefusedError(f"{value!r} is expected to be an integer")
    number: int = one_number(builder, value)
    return number


def axis_of(axis: int, rank: int) -> int:
    """The axis counted from the front."""
    if not -rank <= axis < rank:
        raise RefusedError(f"axis is {axis}, expected -{rank} to {rank - 1}")
    return axis % rank


def axes_of(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Axes counted from the front, each once."""
    found = tuple(axis_of(axis, rank) for axis in axes)
    if len(set(found)) < len(found):
        raise RefusedError(f"axes are {list(axes)}, expected each once")
    return found


# ---------------------------------------------------------------- constants


@operator("Constant")
def constant(
    builder: Builder,
    *,
    value: Array | None = None,
    value_float: float | None = None,
    value_floats: tuple[float, ...] | None = None,
    value_int: int | None = None,
    value_ints: tuple[int, ...] | None = None,
    value_string: str | None = None,
    value_strings: tuple[str, ...] | None = None,
) -> Value:
    if value is not None:
        return builder.constant(value, builder.name)
    for text in (value_string, value_strings):
        if text is not None:
            return builder.constant(coded(text), builder.name)
    for given, dtype in (
        (value_float, np.float32),
        (value_floats, np.float32),
        (value_int, np.int64),
        (value_ints, np.int64),
    ):
        if given is not None:
            return builder.constant(np.array(given, dtype), builder.name)
    raise RefusedError("no value is given, expected one of its attributes")


@operator("ConstantOfShape", since=9)
def constant_of_shape(builder: Builder, shape: Value, *, value: Array | None = None) -> Value:
    array = np.zeros(1, np.float32) if value is None else value
    if array.size != 1:
        raise RefusedError(f"value has {array.size} elements, expected one")
    return builder.expand(builder.constant(array.reshape(())), numbers(builder, shape))


@operator("Identity")
def identity(builder: Builder, x: Value) -> Value:
    return x


@operator("OptionalHasElement", since=18)
def optional_has_element(builder: Builder, x: Value | None = None) -> Value:
    """Of arrays, which are there or left out; values of an optional type are refused."""
    return builder.constant(np.array(x is not None))


@operator("OptionalGetElement", since=18)
def optional_get_element(builder: Builder, x: Value) -> Value:
    return x


@operator("Shape", since=15)
def shape_15(builder: Builder, x: Value, *, start: int = 0, end: int | None = None) -> Value:
    return builder.constant(integers(x.shape[start:end]), f"shape of {x.name}")


@operator("Shape")
def shape(builder: Builder, x: Value) -> Value:
    return shape_15(builder, x)


@operator("Size")
def size(builder: Builder, x: Value) -> Value:
    return builder.constant(integers(x.size))


# ---------------------------------------------------------------- the same elements


def filled_shape(given: Sequence[int], wanted: Sequence[int], allowzero: int) -> list[int]:
    """The extents that a shape asks for: 0 is as before, -1 what is left."""
    shape = list(wanted)
    if not allowzero:
        for axis, extent in enumerate(shape):
            if extent == 0:
                shape[axis] = given[axis_of(axis, len(given))]
    if min(shape, default=0) < -1 or shape.count(-1) > 1:
        raise RefusedError(f"shape is {shape}, expected at most one -1 and else extents")
    if -1 in shape:
        rest = math.prod(it for it in shape if it != -1)
        size = math.prod(given)
        if rest == 0 or size % rest:
            raise RefusedError(f"{list(given)} cannot be reshaped to {shape}")
        shape[shape.index(-1)] = size // rest
    return shape


@operator("Reshape", since=5)
def reshape(builder: Builder, x: Value, shape: Value, *, allowzero: int = 0) -> Value:
    return builder.reshape(x, filled_shape(x.shape, numbers(builder, shape), allowzero))


@operator("Flatten")
def flatten(builder: Builder, x: Value, *, axis: int = 1) -> Value:
    rank = len(x.shape)
    if not -rank <= axis <= rank:
        raise RefusedError(f"axis is {axis}, expected -{rank} to {rank}")
    axis = axis + rank if axis < 0 else axis
    return builder.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


def _squeezed(builder: Builder, x: Value, axes: Sequence[int] | None) -> Value:
    rank = len(x.shape)
    if axes is None:
        axes = [axis for axis in range(rank) if x.shape[axis] == 1]
    axes = axes_of(axes, rank)
    if any(x.shape[axis] != 1 for axis in axes):
        raise RefusedError(f"axes are {list(axes)}, expected those of extent 1 of {list(x.shape)}")
    return builder.reshape(x, [it for axis, it in enumerate(x.shape) if axis not in axes])


def _unsqueezed(builder: Builder, x: Value, axes: Sequence[int]) -> Value:
    axes = axes_of(axes, len(x.shape) + len(axes))
    rest = iter(x.shape)
    rank = len(x.shape) + len(axes)
    return builder.reshape(x, [1 if axis in axes else next(rest) for axis in range(rank)])


@operator("Squeeze", since=13)
def squeeze(builder: Builder, x: Value, axes: Value | None = None) -> Value:
    return _squeezed(builder, x, None if axes is None else numbers(builder, axes))


@operator("Squeeze")
def squeeze_1(builder: Builder, x: Value, *, axes: tuple[int, ...] | None = None) -> Value:
    return _squeezed(builder, x, axes)


@operator("Unsqueeze", since=13)
def unsqueeze(builder: Builder, x: Value, axes: Value) -> Value:
    return _unsqueezed(builder, x, numbers(builder, axes))


@operator("Unsqueeze")
def unsqueeze_1(builder: Builder, x: Value, *, axes: tuple[int, ...]) -> Value:
    return _unsqueezed(builder, x, axes)


@operator("Transpose")
def transpose(builder: Builder, x: Value, *, perm: tuple[int, ...] | None = None) -> Value:
    return builder.transpose(x, perm if perm is not None else range(len(x.shape))[::-1])


@operator("DepthToSpace")
def depth_to_space(builder: Builder, x: Value, *, blocksize: int, mode: str = "DCR") -> Value:
    n, c, h, w = _image(x)
    b = blocksize
    if b < 1 or c % (b * b) or mode not in ("DCR", "CRD"):
        raise RefusedError(f"blocksize {b} and mode '{mode}' do not fit {c} channels")
    if mode == "DCR":
        blocks = builder.reshape(x, (n, b, b, c // (b * b), h, w))
        moved = builder.transpose(blocks, (0, 3, 4, 1, 5, 2))
    else:
        blocks = builder.reshape(x, (n, c // (b * b), b, b, h, w))
        moved = builder.transpose(blocks, (0, 1, 4, 2, 5, 3))
    return builder.reshape(moved, (n, c // (b * b), h * b, w * b))


@operator("SpaceToDepth")
def space_to_depth(builder: Builder, x: Value, *, blocksize: int, mode: str = "DCR") -> Value:
    n, c, h, w = _image(x)
    b = blocksize
    if mode not in ("DCR", "CRD"):
        raise RefusedError(f"mode is '{mode}', expected 'DCR' or 'CRD'")
    if b < 1 or h % b or w % b:
        raise RefusedError(f"blocksize is {b}, expected a divisor of {h} and {w}")
    blocks = builder.reshape(x, (n, c, h // b, b, w // b, b))
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    moved = builder.transpose(blocks, order)
    return builder.reshape(moved, (n, c * b * b, h // b, w // b))


def _image(x: Value) -> tuple[int, ...]:
    if len(x.shape) != 4:
        raise RefusedError(f"x has shape {list(x.shape)}, expected (N, C, H, W)")
    return x.shape


# ---------------------------------------------------------------- more of them


@operator("Expand", since=8)
def expand(builder: Builder, x: Value, shape: Value) -> Value:
    wanted = numbers(builder, shape)
    if min(wanted, default=0) < 0:
        raise RefusedError(f"shape is {list(wanted)}, expected extents")
    return builder.expand(x, broadcast_shape(x.shape, wanted))


@operator("Tile", since=6)
def tile(builder: Builder, x: Value, repeats: Value) -> Value:
    counts = numbers(builder, repeats)
    if len(counts) != len(x.shape) or min(counts, default=0) < 0:
        raise RefusedError(f"repeats are {list(counts)}, expected one for each of {list(x.shape)}")
    apart = [it for extent in x.shape for it in (1, extent)]
    wanted = [it for pair in zip(counts, x.shape, strict=True) for it in pair]
    shape = [a * b for a, b in zip(counts, x.shape, strict=True)]
    return builder.reshape(builder.expand(builder.reshape(x, apart), wanted), shape)


@operator("Concat", since=4)
def concat(builder: Builder, *inputs: Value, axis: int) -> Value:
    if any(len(it.shape) != len(inputs[0].shape) or it.dtype != inputs[0].dtype for it in inputs):
        raise RefusedError(f"inputs are {list(inputs)}, expected one dtype and rank")
    return builder.concat(inputs, axis_of(axis, len(inputs[0].shape)))


def _split(builder: Builder, x: Value, axis: int, sizes: Sequence[int]) -> tuple[Value, ...]:
    axis = axis_of(axis, len(x.shape))
    if min(sizes, default=0) < 0 or sum(sizes) != x.shape[axis]:
        raise RefusedError(f"parts are {list(sizes)}, expected the sum {x.shape[axis]}")
    parts, start, steps = [], 0, [1] * len(x.shape)
    for size in sizes:
        starts, counts = [0] * len(x.shape), list(x.shape)
        starts[axis], counts[axis] = start, size
        parts.append(builder.slice(x, starts, counts, steps))
        start += size
    return tuple(parts)


def _even(x: Value, axis: int, count: int) -> list[int]:
    extent = x.shape[axis_of(axis, len(x.shape))]
    size = -(-extent // max(1, count))
    return [max(0, min(size, extent - place * size)) for place in range(count)]


@operator("Split", since=18)
def split(
    builder: Builder,
    x: Value,
    sizes: Value | None = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    outputs: int = 1,
) -> tuple[Value, ...]:
    if sizes is not None:
        return _split(builder, x, axis, numbers(builder, sizes))
    if num_outputs is not None and not 1 <= num_outputs <= outputs:
        raise RefusedError(f"num_outputs is {num_outputs}, expected {outputs}")
    return _split(builder, x, axis, _even(x, axis, num_outputs or outputs))


@operator("Split", since=13)
def split_13(
    builder: Builder, x: Value, sizes: Value | None = None, *, axis: int = 0, outputs: int = 1
) -> tuple[Value, ...]:
    return split(builder, x, sizes, axis=axis, outputs=outputs)


@operator("Split", since=2)
def split_2(
    builder: Builder,
    x: Value,
    *,
    axis: int = 0,
    split: tuple[int, ...] | None = None,
    outputs: int = 1,
) -> tuple[Value, ...]:
    return _split(builder, x, axis, _even(x, axis, outputs) if split is None else split)
