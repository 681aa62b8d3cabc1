"""Activations of one shape: plain and packed forms, and new packed arrays.

Layers between convolutions take and give activations in the layouts of `Conv2d`, so that nothing
is reordered from layer to layer. Packed arrays begin on a cache line.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy.typing as npt

from dlprim import _core
from dlprim.arguments.arrays import Array, Shape, contiguous, viewed
from dlprim.arguments.floats import dtype_named
from dlprim.arguments.names import float_type_name, layout_name
from dlprim.arguments.scalars import held_integer, integer, refuse_array


class Activations:
    """The packed form of plain (N, C, H, W) arrays, as `Conv2d` reads and writes it.

    Parameters
    ----------
    shape : (N, C, H, W)
        Of the plain array; N may be 0.
    layout : "blocked" or "NHWC"
        Packed as ``[N][Cb][H][W][bc]``, or channels-last ``(N, H, W, C)``.
    dtype : dtype
        float32 or bfloat16.
    groups : int
        Of the adjacent convolution, unless that is depthwise: blocks do not cross groups.

    Attributes
    ----------
    shape, packed_shape : tuple of int
    relu_mask_shape : tuple of int
        Of a uint8 array with one bit per element of the packed array.
    dtype : dtype
        uint16 for bfloat16 if ml_dtypes is not installed.
    layout : str
    takes_bits : bool
        Whether uint16 arrays are treated as bfloat16, as with dtype="bfloat16".

    Raises
    ------
    TypeError
        A number is not an integer, or the dtype is not supported.
    ValueError
        An extent is negative, at least 2^31, or (except N) zero; the layout is unknown; or groups
        does not divide C.
    """

    def __init__(
        self,
        shape: Sequence[int],
        *,
        layout: str = "blocked",
        dtype: npt.DTypeLike = "float32",
        groups: int = 1,
    ) -> None:
        self.shape = _extents(shape)
        self._dtype_name, self.layout = float_type_name(dtype), layout_name(layout)
        if integer("groups", groups, 1) and self.shape[1] % groups != 0:
            raise ValueError(f"groups is {groups}, expected a divisor of C = {self.shape[1]}")
        self.dtype = dtype_named(self._dtype_name)
        self.takes_bits = self._dtype_name == "bfloat16"  # uint16 arrays, for this was said
        self._core = _core.Activations(self.shape, groups, self._dtype_name, layout)
        shapes = self._core.shapes
        self.packed_shape: Shape = shapes["packed"]
        self.relu_mask_shape: Shape = shapes["relu_mask"]

    def empty(self, like: Any = None) -> Array:
        """A new packed array, with zeros in the padding of its last block of channels.

        Parameters
        ----------
        like : array, optional
            An operand: if it is uint16, for the bits of bfloat16, so is the result.

        Returns
        -------
        packed ndarray, packed_shape
        """
        return self._core.new("packed", like)

    def pack(self, x: Any, out: Array | None = None) -> Array:
        """The plain array in packed form.

        Parameters
        ----------
        x : array of the dtype, (N, C, H, W)
        out : ndarray of the dtype, packed_shape, optional
            Written and returned. Must be C-contiguous and share no memory with x.

        Returns
        -------
        packed ndarray, packed_shape

        Raises
        ------
        TypeError, ValueError
            x or `out` has the wrong dtype or shape, or they share memory.
        """
        plain = contiguous(viewed("x", x, self._dtype_name))
        return self._core.pack("packed", "x", plain, out)

    def unpack(self, packed: Any, out: Array | None = None) -> Array:
        """The packed array in plain form.

        Parameters
        ----------
        packed : packed array of the dtype, packed_shape
        out : ndarray of the dtype, (N, C, H, W), optional
            Written and returned. Must be C-contiguous and share no memory with packed.

        Returns
        -------
        ndarray of the dtype, (N, C, H, W)

        Raises
        ------
        TypeError, ValueError
            As for `pack`.
        """
        return self._core.unpack("packed", packed, out)

    def __repr__(self) -> str:
        return f"<dlprim.Activations {self.shape} {self.dtype} {self.layout}>"


def _extents(shape: Sequence[int]) -> tuple[int, int, int, int]:
    refuse_array("shape", shape, "(N, C, H, W)")
    try:
        extents = tuple(index(extent) for extent in shape)
    except TypeError:
        raise TypeError(f"shape is {shape!r}, expected integers (N, C, H, W)") from None
    extents = tuple(held_integer("shape", extent) for extent in extents)
    if len(extents) != 4:
        raise ValueError(f"shape is {extents}, expected (N, C, H, W)")
    n, c, h, w = extents
    if n < 0 or min(c, h, w) < 1:
        raise ValueError(f"shape is {extents}, expected N >= 0 and C, H, W >= 1")
    return n, c, h, w
