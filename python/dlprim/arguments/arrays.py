"""Array arguments of the plain-layout functions, checked.

The rule for them: anything NumPy can view without a copy is taken as it is, a non-contiguous view
is copied, another dtype is refused rather than converted, and ``out`` must fit exactly.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dlprim import _core
from dlprim.arguments.traced import Traced

Array: TypeAlias = npt.NDArray[Any]
FloatArray: TypeAlias = npt.NDArray[np.float32]
Shape: TypeAlias = tuple[int, ...]


ABOUT_BITS = (
    "convert numbers with .astype(np.float32), and view the bits of bfloat16 values with "
    ".view(ml_dtypes.bfloat16)"
)
_LARGE = 1 << 12  # elements that the core transposes faster than NumPy


def array_of(name: str, value: Any, dtype: type[np.generic] = np.float32) -> Array:
    """``value`` as a C-contiguous array; TypeError, which calls it ``name``, for another dtype."""
    array = viewed(name, value, dtype.__name__)
    if array.dtype != dtype:
        why = about_numbers(name, array.dtype) if dtype is np.float32 else ""
        if dtype is np.int64 and array.dtype.kind in "iu":
            why = f": convert it with {name}.astype(np.int64)"
        raise TypeError(f"{name} has dtype {array.dtype}, expected {dtype.__name__}{why}")
    return contiguous(array)


def about_numbers(name: str, dtype: np.dtype[Any]) -> str:
    """How an array of numbers of another dtype becomes one of float32; empty for no numbers."""
    if dtype == np.uint16:
        return f": {ABOUT_BITS}"
    return f": convert it with {name}.astype(np.float32)" if dtype.kind in "fiu" else ""


def places_of(name: str, value: Any) -> Array:
    """``value``, integers of any kind, as a C-contiguous array of int64."""
    array = viewed(name, value, "integers")
    if array.dtype.kind not in "iu" or array.dtype == np.uint64:
        how = ": convert it with .astype(np.int64)" if array.dtype.kind in "fu" else ""
        raise TypeError(f"{name} has dtype {array.dtype}, expected integers of int64{how}")
    return contiguous(array.astype(np.int64, copy=False))


def contiguous(array: Array) -> Array:
    """``array``, or a copy of it that is C-contiguous and aligned."""
    flags = array.flags
    if flags.c_contiguous and flags.aligned:
        return array
    # Rows that are dense NumPy copies as quickly.
    turns = array.ndim == 2 and array.strides[1] != array.itemsize and flags.aligned
    if turns and type(array) is np.ndarray and array.size >= _LARGE:
        copied = _core.contiguous(array)
        if copied is not None:
            return copied
    return np.require(array, requirements=["C", "A"])


def swapped(array: Array, out: Array | None = None) -> Array:
    """(A, B, C) as (A, C, B), copied."""
    view = array.swapaxes(1, 2)
    copied = aligned(view.shape, view.dtype) if out is None else out
    if view[0].size < _LARGE:
        copied[...] = view
    else:
        for place, each in enumerate(view):  # matrices, which the core transposes
            copied[place] = contiguous(each)
    return copied


def viewed(name: str, value: Any, dtypes: str) -> Array:
    """``value`` as an array on the same memory, else TypeError: an array of ``dtypes`` is due."""
    if isinstance(value, np.ndarray):
        if type(value) is not np.ndarray:
            refuse_masked({name: value})
        return value
    if isinstance(value, Traced):
        value.refuse()
    if hasattr(value, "__dlpack__"):
        _refuse_unresolved(name, value)
        try:
            return np.from_dlpack(value)
        except Exception as error:  # whatever another library's array raises
            if str(getattr(value, "dtype", "")) == "torch.bfloat16":
                raise TypeError(
                    f"{name} has dtype torch.bfloat16, which NumPy cannot view, expected "
                    "tensor.float(), or its bits as they are: "
                    "tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)"
                ) from error
            raise TypeError(
                f"{name} of type {type(value).__name__} cannot be viewed as a NumPy array "
                f"(detach it and move it to the CPU first): {error}"
            ) from error
    if hasattr(value, "__array_interface__") or hasattr(value, "__array__"):
        return converted(name, value)
    raise TypeError(
        f"{name} is of type {type(value).__name__}, expected an array of {dtypes} "
        "(a NumPy array or an object with __dlpack__)"
    )


def _refuse_unresolved(name: str, value: Any) -> None:
    """Refuses what PyTorch has as views: minus, or the conjugates of, what lies in memory.

    DLPack does not say so, and a copy that resolves it would not be written to.
    """
    for bit in ("neg", "conj"):
        asks = getattr(value, f"is_{bit}", None)
        if callable(asks) and asks():
            raise TypeError(
                f"{name} of type {type(value).__name__} has its {bit} bit set, which says that its "
                "elements are others than those in memory; expected what its "
                f"resolve_{bit}() returns"
            )


def converted(name: str, value: Any) -> Array:
    """``value`` as NumPy converts it, else TypeError."""
    try:
        found: Array = np.asanyarray(value)  # asarray would drop a mask
    except Exception as error:  # whatever another library's array raises
        raise TypeError(f"{name} cannot be viewed as a NumPy array: {error}") from error
    refuse_masked({name: found})
    return found


def refuse_masked(arrays: Mapping[str, Any]) -> None:
    """Raise TypeError where one of ``arrays``, by name, is masked: the mask would be lost."""
    # None is masked before somebody imports them, which takes 30 ms.
    masked = getattr(sys.modules.get("numpy.ma.core"), "MaskedArray", ())
    for name, array in arrays.items():
        if isinstance(array, masked):
            raise TypeError(
                f"{name} is a masked array, expected an ndarray: masked elements have no value "
                f"here; fill them with {name}.filled(...)"
            )


def require_shape(name: str, array: Array, shape: tuple[int, ...], why: str) -> None:
    """Raise ValueError unless ``array`` has ``shape``; ``why`` says where that comes from."""
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}, expected {shape} ({why})")


def require_given(name: str, array: Any) -> None:
    """Raise TypeError where an operand that is packed by the caller is None."""
    if array is None:
        raise TypeError(f"{name} is None, expected a packed array")


def require_separate(name: str, array: Any, /, **others: Any) -> None:
    """Raise ValueError where an array that is written shares memory with another."""
    for other, it in others.items():
        both = isinstance(array, np.ndarray) and isinstance(it, np.ndarray)
        if both and np.may_share_memory(array, it):
            raise ValueError(f"{name} shares memory with {other}, expected a separate array")


def result_array(
    out: Any,
    shape: tuple[int, ...],
    operands: Mapping[str, Array | None],
    dtype: npt.DTypeLike = np.float32,
    rows_anywhere: bool = False,
) -> Array:
    """A new array of ``shape``, or ``out`` after checking that it can take the result.

    With ``rows_anywhere`` only the elements of its last axis must be next to each other.
    """
    dtype = np.dtype(dtype)
    if out is None:
        return aligned(shape, dtype)
    refuse_masked({"out": out})
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out is of type {type(out).__name__}, expected a NumPy array of {dtype}")
    if out.dtype != dtype:
        raise TypeError(f"out has dtype {out.dtype}, expected {dtype}")
    if out.shape != shape:
        raise ValueError(f"out has shape {out.shape}, expected {shape}")
    fits = (rows_anywhere and has_rows_apart(out)) or out.flags.c_contiguous
    if not (fits and out.flags.aligned):
        order = "array of dense rows" if rows_anywhere else "C-contiguous array"
        raise ValueError(f"out has strides {out.strides}, expected an aligned {order}")
    if not out.flags.writeable:
        raise ValueError("out is read-only, expected a writeable array")
    for name, operand in operands.items():
        if operand is not None and np.may_share_memory(out, operand):
            raise ValueError(f"out shares memory with {name}, expected a separate array")
    return out


def taken(result: Any) -> Any:
    """What the core made of arrays that were checked: it has no reason to refuse them."""
    if result is None:
        raise RuntimeError("the core refused arrays that had been checked: this is a bug in dlprim")
    return result


def has_rows_apart(array: Array) -> bool:
    """Whether the elements of the last axis are neighbours and no two of the array are one."""
    end = 0 if array.shape[-1:] == (1,) else array.itemsize  # of what lies behind an element
    if array.ndim and end and array.strides[-1] != end:
        return False
    end = array.itemsize
    for stride, extent in sorted(zip(array.strides, array.shape, strict=True)):
        if extent > 1 and (stride < end or stride % array.itemsize):
            return False
        if extent > 1:
            end = stride * extent
    return True


def values_for(name: str, value: Any, array: Array) -> Array:
    """``value`` as it is to be stored in ``array``: of its shape and dtype.

    TypeError where it is no array of real numbers; ValueError where it has another shape, or holds
    a finite number that the dtype cannot.
    """
    given = np.asarray(converted(name, value))
    if given.dtype.kind not in "biuf" and given.dtype.name != "bfloat16":
        raise TypeError(f"{name} has dtype {given.dtype}, expected {array.dtype}")
    if given.dtype == np.uint16 and array.dtype.kind == "f":
        raise TypeError(f"{name} has dtype uint16, expected {array.dtype}: " + ABOUT_BITS)
    if given.shape != array.shape:
        raise ValueError(f"{name} has shape {given.shape}, expected {array.shape}")
    if given.dtype == array.dtype:
        return given
    with np.errstate(over="ignore", invalid="ignore"):
        stored = given.astype(array.dtype)
    lost = np.isfinite(stored.astype(np.float64)) != np.isfinite(given.astype(np.float64))
    if np.any(lost) or (array.dtype.kind == "i" and np.any(stored != given)):
        raise ValueError(f"{name} holds a value that {array.dtype} cannot hold")
    return stored


def aligned(shape: Sequence[int], dtype: npt.DTypeLike, zeros: bool = False) -> Array:
    """A new array on a cache-line boundary, so that no vector that a kernel loads straddles two.

    Uninitialised unless it is to hold zeros.
    """
    return _core.aligned(shape, dtype, zeros)


def require_running(
    channels: int, running_mean: FloatArray | None, running_var: FloatArray | None
) -> None:
    """Both or none; each of shape (channels,), float32 and to be written."""
    if (running_mean is None) != (running_var is None):
        raise ValueError("one of running_mean and running_var is missing, expected both")
    for name, array in (("running_mean", running_mean), ("running_var", running_var)):
        if array is None:
            continue
        refuse_masked({name: array})
        if not isinstance(array, np.ndarray):
            kind = type(array).__name__
            raise TypeError(f"{name} is of type {kind}, expected an ndarray of float32")
        if array.dtype != np.float32:
            how = about_numbers(name, array.dtype)
            raise TypeError(f"{name} has dtype {array.dtype}, expected an ndarray of float32{how}")
        if array.shape != (channels,):
            raise ValueError(f"{name} has shape {array.shape}, expected ({channels},)")
        if not array.flags.writeable:
            raise ValueError(
                f"{name} is read-only, expected a writeable array: training=True updates it"
            )
