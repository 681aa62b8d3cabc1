"""What functions made of row programs share: the programs, their operands and their results."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dlprim import _core
from dlprim.arguments.arrays import Array, aligned, result_array
from dlprim.arguments.floats import (
    float_operand,
    holds_bits,
    require_plain,
    type_of,
)
from dlprim.arguments.packed import Packed
from dlprim.arguments.traced import Traced

_FLOAT32 = np.dtype(np.float32)
_PART = 4096  # elements that are summed in float32, or about as many


# What a program makes of arrays that are as they should be, along their last axis or of all
# elements alike, in `out` unless that is None; of a program that sums columns too, a tuple with
# these behind it. None of other arrays, which the caller converts or refuses.
made = _core.made_by_rows


def run(name: str, rows: int, columns: int, operands: tuple[Any, ...]) -> None:
    """The program of the dtype of the first operand, on arrays from `float_operand`."""
    run_of(operands[0].dtype, name, rows, columns, operands)


def run_of(
    dtype: np.dtype[Any], name: str, rows: int, columns: int, operands: tuple[Any, ...]
) -> None:
    """The program of a dtype, whatever that of its first operand is."""
    if rows and columns:
        kind = "float32" if dtype == _FLOAT32 else "bfloat16"
        _core.run_rows(name, kind, rows, columns, operands)


def run_parts(
    name: str,
    tensors: tuple[Array, ...],
    columns: tuple[Array, ...] = (),
    others: tuple[float | Array, ...] = (),
    sums: bool = True,
) -> float:
    """The program on all elements, as rows of about `_PART` of them and a shorter one.

    Operands are ``tensors``, of one size; ``columns``, of one size too, which repeat along them;
    ``others``, numbers and tensors; and, with ``sums``, a result for each row, whose total in
    float64 is returned. Rows do not depend on the number of threads.
    """
    size = tensors[0].size
    if size == 0:
        return 0.0
    period = columns[0].size if columns else 1
    repeats = max(1, min(_PART, size) // period)
    width, tiles = period * repeats, [np.tile(it.reshape(-1), repeats) for it in columns]
    flat = [_flat(it) for it in (*tensors, *others)]
    whole, total = size // width * width, 0.0
    for begin, end, rows in ((0, whole, size // width), (whole, size, 1)):
        if begin == end:
            continue
        length = (end - begin) // rows
        found = (aligned((rows,), np.float32),) if sums else ()
        given = [it[begin:end] if isinstance(it, np.ndarray) else it for it in flat]
        given[len(tensors) : len(tensors)] = [it[:length] for it in tiles]
        run(name, rows, length, (*given, *found))
        total += sum(float(it.sum(dtype=np.float64)) for it in found)
    return total


def _flat(operand: float | Array) -> float | Array:
    if not isinstance(operand, np.ndarray):
        return operand
    return operand.view(np.ndarray).reshape(-1)


def value_of(
    name: str,
    x: Any,
    numbers: tuple[float, ...],
    out: Array | None,
    dtype: npt.DTypeLike | None,
) -> Array:
    """What an element-wise program makes of the argument x."""
    if dtype is None:
        quickly = made(name, True, out, x, *numbers)
        if quickly is not None:
            return quickly
    if isinstance(x, Traced):
        how = {"out": out, "dtype": dtype}
        return x.called("value_of", (name, x, numbers), how)  # type: ignore[no-any-return]
    src = float_operand("x", x, dtype is not None and holds_bits(dtype))
    dst = result_like(out, src, x=src)
    run(name, 1, src.size, (src, *numbers, dst))
    return dst


def slope_of(
    name: str,
    gradient: tuple[Any, Any],
    numbers: tuple[float, ...],
    out: Array | None,
    dtype: npt.DTypeLike | None,
) -> Array:
    """What it makes of the arguments (dy, x)."""
    if dtype is None:
        quickly = made(name, True, out, *gradient, *numbers)
        if quickly is not None:
            return quickly
    diff, src = gradient_operands("x", *gradient, dtype)
    dst = result_like(out, diff, dy=diff, x=src)
    run(name, 1, src.size, (diff, src, *numbers, dst))
    return dst


def require_alike(name: str, array: Array, other: str, like: Array) -> None:
    """Raise where an operand has not the type and shape of another, the argument ``other``."""
    if array.dtype != like.dtype and type_of(array) != type_of(like):
        raise TypeError(f"{name} has dtype {array.dtype}, expected {like.dtype} as {other} has")
    if array.shape != like.shape:
        raise ValueError(f"{name} has shape {array.shape}, expected {like.shape} as {other} has")


def gradient_operands(
    name: str, dy: Any, other: Any, dtype: npt.DTypeLike | None
) -> tuple[Array, Array]:
    """The argument dy, and what is called ``name``, of one dtype and shape."""
    bits = dtype is not None and holds_bits(dtype)
    diff, array = float_operand("dy", dy, bits), float_operand(name, other, bits)
    require_alike(name, array, "dy", diff)
    return diff, array


def plain_gradient_operands(
    name: str, dy: Any, other: Any, dtype: npt.DTypeLike | None
) -> tuple[Array, Array]:
    """As `gradient_operands`, of arrays whose axes mean something."""
    diff, array = gradient_operands(name, dy, other, dtype)
    require_plain("dy", diff)
    require_plain(name, array)
    return diff, array


def result_like(out: Any, src: Array, **operands: Array) -> Array:
    """A new array like ``src``, packed as it is; or ``out`` after checking that it can take it.

    ``out`` may be one of ``operands``, which are of the shape and dtype of ``src``.
    """
    if out is None:
        made = aligned(src.shape, src.dtype)
        form = None if type(src) is np.ndarray else getattr(src, "packed_as", None)
        if form is None:
            return made
        packed = made.view(Packed)
        packed.packed_as = form
        return packed
    result_array(out, src.shape, {}, src.dtype)
    for name, it in operands.items():
        if np.may_share_memory(out, it) and out.ctypes.data != it.ctypes.data:
            raise ValueError(
                f"out shares memory with a part of {name}, expected {name} itself or a separate "
                "array"
            )
    return out  # type: ignore[no-any-return]
