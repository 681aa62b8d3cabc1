"""Activations of one shape: plain and packed forms, and new packed arrays.

Layers between convolutions take and give activations in the layouts of `Conv2d`, so that nothing
is reordered from layer to layer. Packed arrays begin on a cache line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt

from dlprim import _core
from dlprim.arguments.arrays import Array, aligned, contiguous, viewed
from dlprim.arguments.floats import bfloat16_dtype
from dlprim.arguments.names import dtype_name
from dlprim.arguments.scalars import integer

_LAYOUTS = {"blocked": "blocked", "NHWC": "nhwc"}  # to the core's names


class Activations:
    """The packed form of plain (N, C, H, W) arrays, as `Conv2d` takes and gives them.

    Parameters
    ----------
    shape : (N, C, H, W)
        Of the plain array; N may be 0.
    layout : "blocked" or "NHWC"
        Packed as ``[N][Cb][H][W][bc]``, or channels-last ``(N, H, W, C)``.
    dtype : dtype
        float32 or bfloat16.
    groups : int
        Of the convolution next to it, unless that is depthwise: blocks do not cross groups.

    Attributes
    ----------
    shape, packed_shape : tuple of int
    relu_mask_shape : tuple of int
        Of a uint8 array with a bit per element of the packed array.
    dtype : dtype
        uint16 for bfloat16 where ml_dtypes is not installed.
    layout : str

    Raises
    ------
    TypeError
        A number is no integer, or the dtype another one.
    ValueError
        An extent is negative or, apart from N, zero; the layout is unknown; or groups does not
        divide C.
    """

    def __init__(
        self,
        shape: Sequence[int],
        layout: str = "blocked",
        dtype: npt.DTypeLike = "float32",
        groups: int = 1,
    ) -> None:
        self.shape = _extents(shape)
        name = dtype_name("dtype", dtype)
        if name not in ("float32", "bfloat16"):
            raise TypeError(f"dtype is {name}, expected float32 or bfloat16")
        if not isinstance(layout, str) or layout not in _LAYOUTS:
            raise ValueError(f"layout is {layout!r}, expected 'blocked' or 'NHWC'")
        if integer("groups", groups, 1) and self.shape[1] % groups != 0:
            raise ValueError(f"groups is {groups}, expected a divisor of C = {self.shape[1]}")
        self.layout = layout
        self.dtype = bfloat16_dtype() if name == "bfloat16" else np.dtype(np.float32)
        self._core = _core.Activations(self.shape, groups, name, _LAYOUTS[layout])
        self.packed_shape = self._core.packed_shape
        self.relu_mask_shape = self._core.relu_mask_shape
        self._is_ragged = math.prod(self.packed_shape) != math.prod(self.shape)
        self._dtype_name = name

    def empty(self, like: Any = None) -> Array:
        """A new packed array; what fills up its last block of channels is zero.

        Parameters
        ----------
        like : array, optional
            An operand: bits of bfloat16 that came as uint16 leave as uint16.
        """
        dtype = self.dtype
        if dtype != np.float32 and getattr(like, "dtype", None) == np.uint16:
            dtype = np.dtype(np.uint16)
        return aligned(self.packed_shape, dtype, zeros=self._is_ragged)

    def pack(self, x: Any, out: Array | None = None) -> Array:
        """The plain array (N, C, H, W) in packed form; ``out`` is written and returned if given.

        Raises
        ------
        TypeError, ValueError
            x or `out` is of another dtype or shape, or they share memory.
        """
        plain = contiguous(viewed("x", x, self._dtype_name))
        packed = self.empty(plain) if out is None else out
        self._core.pack(plain, packed)
        return packed

    def unpack(self, packed: Any, out: Array | None = None) -> Array:
        """The packed array in plain form, (N, C, H, W); else as `pack`."""
        plain = np.empty(self.shape, getattr(packed, "dtype", self.dtype)) if out is None else out
        self._core.unpack(packed, plain)
        return plain

    def __repr__(self) -> str:
        return f"<dlprim.Activations {self.shape} {self.dtype} {self.layout}>"


def _extents(shape: Sequence[int]) -> tuple[int, int, int, int]:
    try:
        extents = tuple(index(extent) for extent in shape)
    except TypeError:
        raise TypeError(f"shape is {shape!r}, expected integers (N, C, H, W)") from None
    if len(extents) != 4:
        raise ValueError(f"shape is {extents}, expected (N, C, H, W)")
    n, c, h, w = extents
    if n < 0 or min(c, h, w) < 1:
        raise ValueError(f"shape is {extents}, expected N >= 0 and C, H, W >= 1")
    return n, c, h, w
