"""The arrays, numbers and sizes that a formula takes, checked, and the type of its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt

from dlprim import _core
from dlprim.arguments.arrays import Array, contiguous, viewed
from dlprim.arguments.floats import bfloat16_dtype, float_view
from dlprim.arguments.scalars import shown

_PLACES = (np.dtype(np.int32), np.dtype(np.int64))
_GPUS = (2, 10, 13)  # CUDA, ROCm and managed memory, as DLPack counts devices
_BYTES = (np.dtype(np.int8), np.dtype(np.uint8))


def readable(name: str, value: Any, type_name: str) -> Array:
    """``value`` in place, or a copy where strides are negative or no multiple of an element.

    Bytes that are broadcast are copied, too: their products are the kernel's, which goes along
    every index.
    """
    is_place = "int" in type_name and "int8" not in type_name
    if isinstance(value, Real):
        if is_place:
            return np.asarray(_integer(name, value), np.int64)
        return np.asarray(value, np.float32)
    array = value if isinstance(value, np.ndarray) else viewed(name, value, "float32 or bfloat16")
    if is_place or (array.dtype in _BYTES and type_name in ("", array.dtype.name)):
        array = viewed(name, value, "int32 or int64" if is_place else array.dtype.name)
        if is_place and array.dtype not in _PLACES:
            raise TypeError(f"{name} has dtype {array.dtype}, expected int32 or int64")
    elif "int8" in type_name:
        raise TypeError(f"{name} has dtype {array.dtype}, expected {type_name}")
    else:
        array = float_view(name, value)
    size = array.itemsize
    steps = [step for step, extent in zip(array.strides, array.shape, strict=True) if extent > 1]
    least = 1 if array.dtype in _BYTES else 0
    if array.flags.aligned and all(it >= least and it % size == 0 for it in steps):
        return array
    return contiguous(array)


def lie_on_gpu(arrays: Sequence[Any]) -> bool:
    """Whether one says so by DLPack."""
    others = (it for it in arrays if not isinstance(it, np.ndarray | Real))
    return any(
        hasattr(it, "__dlpack_device__") and it.__dlpack_device__()[0] in _GPUS for it in others
    )


def results_in(out: Any, count: int) -> Sequence[Any]:
    """One array, or None, for each result."""
    if count == 1:
        return [out]
    if out is None:
        return [None] * count
    if not isinstance(out, list | tuple):
        kind = type(out).__name__
        raise TypeError(f"out is of type {kind}, expected a sequence of {count} arrays")
    if len(out) != count:
        raise ValueError(f"out has {len(out)} arrays, expected {count}")
    return out


def with_named(
    name: str, parameters: Sequence[str], given: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What is given for all parameters, in order, and what is named besides."""
    others = dict(named)
    for parameter in parameters[: len(given)]:
        if parameter in others:
            raise TypeError(f"{name} was given {parameter} twice, by position and by name")
    found = list(given)
    for parameter in parameters[len(given) :]:
        if parameter in others:
            found.append(others.pop(parameter))
    missing = [it for it in parameters[len(given) :] if it not in named]
    if missing and len(found) > len(given):
        raise TypeError(f"{name} was not given {', '.join(missing)}, expected an array for each")
    return tuple(found), others


def require_count(name: str, parameters: Sequence[str], count: int) -> None:
    if count != len(parameters):
        written = {it: _core.spelling_of(it) for it in parameters}
        functions = " and ".join(f"{it} is written {here}" for it, here in written.items() if here)
        hint = functions and f"; as a function, {functions}"
        raise TypeError(
            f"{name or 'the formula'} was given {count} arrays, expected "
            f"{len(parameters)}: {', '.join(parameters)}{hint}"
        )


def _integer(name: str, value: Any) -> int:
    """``value``, which fits 64 bits."""
    try:
        return int(np.int64(index(value)))
    except (TypeError, OverflowError):
        raise TypeError(f"{name} is {value!r}, expected an integer of 64 bits") from None


def integers(sizes: Mapping[str, Any]) -> dict[str, int]:
    if not isinstance(sizes, Mapping):
        raise TypeError(f"sizes is {shown(sizes)}, expected a mapping of str to int")
    for name in sizes:
        if not isinstance(name, str):
            raise TypeError(f"sizes holds {shown(name)}, expected names, which are str")
    return {name: _integer(f"size {name}", size) for name, size in sizes.items()}


def dtype_of(name: str) -> np.dtype[Any]:
    return bfloat16_dtype() if name == "bfloat16" else np.dtype(name)


def type_for(type_name: str, dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Of an array of a parameter: what the definition says of integers, else ``dtype``."""
    if "int8" in type_name:
        return np.dtype(type_name)
    if "int" in type_name:
        return np.dtype(np.int64)
    return dtype_of(dtype) if isinstance(dtype, str) else np.dtype(dtype)


def result_type(arrays: Sequence[Array]) -> str:
    """A number is float32 whatever it is multiplied with, and places are no operands."""
    operands = [array for array in arrays if array.dtype not in _PLACES]
    types = {array.dtype for array in operands if array.ndim > 0} or {it.dtype for it in operands}
    if types and types.issubset(_BYTES):
        return "int32"
    return "bfloat16" if {dtype.itemsize for dtype in types} == {2} else "float32"
