"""Operands in the form that low-precision kernels read: packed B."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dlprim import _core
from dlprim.arguments.arrays import ABOUT_BITS, contiguous, require_shape, result_array, viewed
from dlprim.arguments.floats import bfloat16_dtype, holds_bits, name_of
from dlprim.arguments.names import dtype_name
from dlprim.arguments.scalars import flag, typed_integer

_GROUPS = {"bfloat16": 2, "int8": 4, "uint8": 4}  # neighbours along k that share a 32-bit word


def pack_b(
    b: Any,
    dtype: npt.DTypeLike | None = None,
    *,
    transposed: bool = False,
    out: npt.NDArray[Any] | None = None,
) -> npt.NDArray[Any]:
    """B in the VNNI form that kernels for bfloat16 and 8-bit integers read.

    ``packed[..., i, j, r]`` is ``b[..., g*i + r, j]``, where g is 2 for bfloat16 and 4 for 8
    bits, or 0 where ``g*i + r >= k``.

    Parameters
    ----------
    b : array of bfloat16, int8, uint8 or float32, (..., k, n)
        Leading axes are a batch of matrices. A non-contiguous array is copied first.
    dtype : dtype, optional
        Of the result; that of b by default. "bfloat16" rounds a float32 b to nearest even, and
        treats a uint16 b as the bits of bfloat16 values.
    transposed : bool
        b is stored as (..., n, k), as the weights (K, C) of a linear layer are.
    out : ndarray, (..., ceil(k / g), n, g), optional
        Written and returned. Must be C-contiguous and share no memory with b.

    Returns
    -------
    ndarray of bfloat16, int8 or uint8, (..., ceil(k / g), n, g)
        On a cache-line boundary unless `out` is given. uint16 for a uint16 b, and if ml_dtypes is
        not installed. The bits do not depend on the number of threads.

    Raises
    ------
    TypeError
        b is not an array, or no kernel reads its dtype packed (float32 kernels take B plain).
    ValueError
        b has fewer than two dimensions, or `out` does not fit the result.

    Notes
    -----
    The layout is the operand of the instructions vdpbf16ps and vpdpbusd: Intel 64 and IA-32
    Architectures Software Developer's Manual, volume 2.
    """
    transposed = flag("transposed", transposed)
    matrices = viewed("b", b, "bfloat16, int8, uint8 or float32")
    source, target = _types(matrices, dtype)
    if matrices.ndim < 2:
        axes = "(..., n, k)" if transposed else "(..., k, n)"
        raise ValueError(f"b has shape {matrices.shape}, expected at least two dimensions {axes}")
    *batch, rows, columns = matrices.shape
    k, n = (columns, rows) if transposed else (rows, columns)
    group = _GROUPS[target]
    matrices = contiguous(matrices)
    shape = (*batch, -(-k // group), n, group)
    result = result_array(out, shape, {"b": matrices}, _result_type(matrices, target))
    flat = matrices.reshape(math.prod(batch), rows, columns)
    _core.pack_b(flat, source, result, target, transposed)
    return result


def unpack_b(packed: Any, k: int, *, dtype: npt.DTypeLike | None = None) -> npt.NDArray[Any]:
    """The inverse of `pack_b`.

    Parameters
    ----------
    packed : array of bfloat16, (..., ceil(k / 2), n, 2), or 8 bits, (..., ceil(k / 4), n, 4)
    k : int
        Rows of each matrix; the padding of the last group is dropped.
    dtype : None or "bfloat16"
        "bfloat16" treats a uint16 array as the bits of bfloat16 values; the result is then uint16
        too.

    Returns
    -------
    ndarray of the same dtype, (..., k, n)

    Raises
    ------
    TypeError
        packed is not an array of these dtypes, or k is not an integer.
    ValueError
        The shape of packed is not that of a packed matrix with k rows.
    """
    groups = viewed("packed", packed, "bfloat16, int8 or uint8")
    bits = holds_bits(dtype)
    if groups.dtype == np.uint16 and not bits:
        raise TypeError("packed has dtype uint16, expected bfloat16, int8 or uint8: " + ABOUT_BITS)
    name = "bfloat16" if groups.dtype == np.uint16 else name_of(groups.dtype)
    if name not in _GROUPS:
        raise TypeError(f"packed has dtype {groups.dtype}, expected bfloat16, int8 or uint8")
    rows = typed_integer("k", k)
    if rows < 0:
        raise ValueError(f"k is {rows}, expected at least 0")
    group = _GROUPS[name]
    if groups.ndim < 3:
        raise ValueError(
            f"packed has shape {groups.shape}, expected at least three dimensions "
            f"(..., ceil(k / {group}), n, {group})"
        )
    *batch, _, n, _ = groups.shape
    require_shape("packed", groups, (*batch, -(-rows // group), n, group), f"k is {rows}")
    plain = groups.swapaxes(-1, -2).reshape(*batch, groups.shape[-3] * group, n)
    return np.ascontiguousarray(plain[..., :rows, :])


def _types(matrices: npt.NDArray[Any], dtype: npt.DTypeLike | None) -> tuple[str, str]:
    """The core's names of the dtypes of b and of the result."""
    source = name_of(matrices.dtype)
    target = source if dtype is None else dtype_name("dtype", dtype)
    if source == "uint16" and target == "bfloat16":
        source = target
    if source == target and target in _GROUPS:
        return source, target
    if source == "float32" and target == "bfloat16":
        return source, target
    if source == target == "float32":
        raise TypeError(
            "b has dtype float32, which kernels read without packing; "
            "expected bfloat16, int8 or uint8, or dtype='bfloat16' to round it"
        )
    if dtype is None:
        about = f": {ABOUT_BITS}, or pass dtype='bfloat16'" if source == "uint16" else ""
        raise TypeError(
            f"b has dtype {matrices.dtype}, expected bfloat16, int8, uint8 or float32{about}"
        )
    raise TypeError(
        f"b has dtype {matrices.dtype} and dtype is {target}, expected bfloat16, int8 or uint8 "
        "packed as it is, or float32 packed as bfloat16"
    )


def _result_type(matrices: npt.NDArray[Any], target: str) -> np.dtype[Any]:
    if matrices.dtype == np.float32 and target == "bfloat16":
        return bfloat16_dtype()
    return matrices.dtype
