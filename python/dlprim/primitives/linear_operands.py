"""The operands of a linear layer: packed shapes, new arrays of these, plain to packed and back.

Packed arrays begin on a cache line, so that no vector that a kernel loads straddles two.
"""

import math
from typing import Any

import numpy as np

from dlprim import _core
from dlprim.arguments.arrays import aligned, contiguous, require_shape, viewed
from dlprim.arguments.floats import bfloat16_dtype
from dlprim.primitives.conv_operands import Array, Shape
from dlprim.primitives.linear_arguments import LinearGeometry


class LinearOperands:
    """What `Linear` knows of its operands; the passes are there."""

    def __init__(
        self, core: _core.Linear, numbers: LinearGeometry, dtypes: tuple[str, str], layout: str
    ) -> None:
        self._core = core
        self._dtype_name = dtypes[0]
        self.dtype, self.dst_dtype = (_dtype_named(name) for name in dtypes)
        self.layout = layout
        self.src_shape, self.dst_shape = core.src_shape, core.dst_shape
        self.weights_shape = core.weights_shape
        self.diff_weights_shape = core.diff_weights_shape
        self.x_shape, self.w_shape = (numbers.N, numbers.C), (numbers.K, numbers.C)
        self.y_shape = (numbers.N, numbers.K)

    def pack_src(self, x: Any, out: Array | None = None) -> Array:
        """The plain input in packed form.

        Parameters
        ----------
        x : array of the layer's dtype, (N, C)
            A non-contiguous array is copied first.
        out : ndarray, src_shape, optional
            Written and returned; C-contiguous, apart from x.

        Returns
        -------
        ndarray of the same dtype, src_shape
            What fills up the last block of channels is zero. With layout="plain" and without
            `out` it is x itself.

        Raises
        ------
        TypeError, ValueError
            x or `out` is of another dtype or shape, or cannot be used.
        """
        plain = self._plain("x", x)
        if self.layout == "plain" and out is None:
            return self._in_place("x", plain, self.x_shape, self.dtype)
        packed = self._new(self.src_shape, plain, self.dtype) if out is None else out
        self._core.pack_src(plain, packed)
        return packed

    def pack_diff_dst(self, dy: Any, out: Array | None = None) -> Array:
        """An array of the result's shape, plain (N, K), as dst_shape; else as `pack_src`."""
        plain = self._plain("dy", dy)
        if self.layout == "plain" and out is None:
            return self._in_place("dy", plain, self.y_shape, self.dst_dtype)
        packed = self._new(self.dst_shape, plain, self.dst_dtype) if out is None else out
        self._core.pack_diff_dst(plain, packed)
        return packed

    def pack_weights(self, w: Any, out: Array | None = None, backward: bool = True) -> Array:
        """Plain weights in both packed forms, that of the forward and that of the backward pass.

        Parameters
        ----------
        w : array of the layer's dtype, of int8 for 8-bit layers, (K, C)
            float32 for a bfloat16 layer is rounded on the way as `to_bfloat16` does. A
            non-contiguous array is copied first.
        out : ndarray, weights_shape or without its second form, optional
            Written and returned; C-contiguous, apart from w.
        backward : bool
            With False there is no second form, which `backward_data` alone reads: half of the
            memory and of the time. Not read where there is an `out`.

        Returns
        -------
        ndarray of the same dtype, weights_shape, or with a first extent of 1 for one form

        Raises
        ------
        TypeError, ValueError
            w or `out` is of another dtype or shape, or cannot be used.
        """
        plain = self._plain("w", w)
        forms = self.weights_shape[0] if backward else 1
        shape = (forms, *self.weights_shape[1:])
        dtype = np.dtype(np.int8) if self.dtype.itemsize == 1 else self.dtype
        packed = self._new(shape, plain, dtype) if out is None else out
        self._core.pack_weights(plain, packed)
        return packed

    def unpack_dst(self, dst: Any, out: Array | None = None) -> Array:
        """The result as a plain array.

        Parameters
        ----------
        dst : packed array, dst_shape
        out : ndarray of the same dtype, (N, K), optional
            Written and returned; C-contiguous, apart from dst.

        Returns
        -------
        ndarray of the same dtype, (N, K)
            A new one with either layout.

        Raises
        ------
        TypeError, ValueError
            dst or `out` is of another dtype or shape, or cannot be used.
        """
        plain = np.empty(self.y_shape, self._like(dst, self.dst_dtype)) if out is None else out
        self._core.unpack_dst(dst, plain)
        return plain

    def unpack_diff_src(self, diff_src: Any, out: Array | None = None) -> Array:
        """The gradient of src, packed as src_shape, plain (N, C); else as `unpack_dst`."""
        plain = np.empty(self.x_shape, self._like(diff_src, self.dtype)) if out is None else out
        self._core.unpack_diff_src(diff_src, plain)
        return plain

    def unpack_diff_weights(self, diff_weights: Any, out: Array | None = None) -> Array:
        """The gradient of the weights, diff_weights_shape, plain (K, C).

        float32 or bfloat16, as `backward_weights` gave it; else as `unpack_dst`.
        """
        dtype = getattr(diff_weights, "dtype", None)
        if dtype != np.float32:
            dtype = self._like(diff_weights, self.dtype)
        plain = np.empty(self.w_shape, dtype) if out is None else out
        self._core.unpack_diff_weights(diff_weights, plain)
        return plain

    def _plain(self, name: str, value: Any) -> Array:
        return contiguous(viewed(name, value, self._dtype_name))

    def _in_place(self, name: str, plain: Array, shape: Shape, dtype: np.dtype[Any]) -> Array:
        if plain.dtype != self._like(plain, dtype):
            raise TypeError(f"{name} has dtype {plain.dtype}, expected {dtype}")
        require_shape(name, plain, shape, "the layer's")
        return plain

    def _like(self, operand: Any, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Of a result from ``operand``: bits of bfloat16 that came as uint16 leave as uint16."""
        if dtype == bfloat16_dtype() and getattr(operand, "dtype", None) == np.uint16:
            return np.dtype(np.uint16)
        return dtype

    def _new(self, shape: Shape, operand: Any, dtype: np.dtype[Any]) -> Array:
        return aligned(shape, self._like(operand, dtype))

    def _new_result(self, shape: Shape, plain_shape: Shape, dtype: np.dtype[Any]) -> Array:
        """With zeros where the last block of channels has more room than channels."""
        ragged = math.prod(shape) > math.prod(plain_shape)
        return aligned(shape, dtype, zeros=ragged)


def _dtype_named(name: str) -> np.dtype[Any]:
    return bfloat16_dtype() if name == "bfloat16" else np.dtype(name)
