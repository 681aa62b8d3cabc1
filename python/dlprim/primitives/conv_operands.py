"""The operands of a convolution: packed shapes, new arrays of these, plain to packed and back.

Packed arrays begin on a cache line, so that no vector that a kernel loads straddles two.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dlprim import _core
from dlprim.arguments.arrays import aligned, contiguous, viewed
from dlprim.arguments.floats import bfloat16_dtype
from dlprim.arguments.names import dtype_name
from dlprim.primitives.conv_arguments import Geometry

Array = npt.NDArray[Any]
Shape = tuple[int, ...]


class ConvOperands:
    """What `Conv2d` knows of its operands; the passes are there."""

    def __init__(self, core: _core.Conv2d, geometry: Geometry, dtype: str, layout: str) -> None:
        self._core = core
        self._dtype_name = dtype
        self.dtype = bfloat16_dtype() if dtype == "bfloat16" else np.dtype(np.float32)
        self.layout = layout
        self.src_shape, self.dst_shape = core.src_shape, core.dst_shape
        self.weights_shape = core.weights_shape
        self._weights_shapes = {
            "all": core.weights_shape,
            "forward": core.forward_weights_shape,
            "direct": core.direct_weights_shape,
        }
        self.diff_weights_shape = core.diff_weights_shape
        self.relu_mask_shape = core.relu_mask_shape
        self.x_shape, self.w_shape = geometry.x_shape, geometry.w_shape
        first = 1 if layout == "NHWC" else 2
        self.y_shape = (geometry.N, geometry.K, *self.dst_shape[first : first + 2])

    def pack_src(self, x: Any, out: Array | None = None) -> Array:
        """The plain input in packed form.

        Parameters
        ----------
        x : array of the convolution's dtype, (N, C, H, W)
            In either layout. A non-contiguous array is copied first.
        out : ndarray, src_shape, optional
            Written and returned; C-contiguous, apart from x.

        Returns
        -------
        ndarray of the same dtype, src_shape
            What fills up the last block of channels is zero.

        Raises
        ------
        TypeError, ValueError
            x or `out` is of another dtype or shape, or cannot be used.
        """
        plain = self._plain("x", x)
        packed = self._new(self.src_shape, plain) if out is None else out
        self._core.pack_src(plain, packed)
        return packed

    def pack_diff_dst(self, dy: Any, out: Array | None = None) -> Array:
        """An array of the result's shape, plain (N, K, P, Q), as dst_shape; else as `pack_src`.

        Gradients, residuals and the results of other programs alike.
        """
        plain = self._plain("dy", dy)
        packed = self._new(self.dst_shape, plain) if out is None else out
        self._core.pack_diff_dst(plain, packed)
        return packed

    def pack_weights(self, w: Any, out: Array | None = None, form: str = "all") -> Array:
        """Plain weights (K, C/groups, R, S) as weights_shape; else as `pack_src`.

        Where a pass is Winograd's, weights can be transformed here or in every call.

        Parameters
        ----------
        w : array of the convolution's dtype or of float32, (K, C/groups, R, S)
            float32 is rounded on the way as `to_bfloat16` does, so that master weights are read
            once. A non-contiguous array is copied first.
        out : ndarray, optional
            As for `pack_src`; its shape says which form is wanted.
        form : "all", "forward" or "direct"
            "all": transformed for both passes, for weights that stay; one flat array of
            weights_shape. "forward": for the forward pass alone, for inference. "direct":
            ``[Kb][Cb][R][S][bc][bk]``, which each call transforms, for weights that change with
            each step. The same for a convolution without Winograd.

        Raises
        ------
        TypeError, ValueError
            As `pack_src` does, or there is no such form.
        """
        if form not in self._weights_shapes:
            expected = ", ".join(self._weights_shapes)
            raise ValueError(f"form is {form!r}, expected one of {expected}")
        plain = self._plain("w", w)
        packed = self._new(self._weights_shapes[form], plain) if out is None else out
        self._core.pack_weights(plain, packed)
        return packed

    def unpack_dst(self, dst: Any, out: Array | None = None) -> Array:
        """The result as a plain array.

        Parameters
        ----------
        dst : packed array, dst_shape
        out : ndarray of the same dtype, (N, K, P, Q), optional
            Written and returned; C-contiguous, apart from dst.

        Returns
        -------
        ndarray of the same dtype, (N, K, P, Q)

        Raises
        ------
        TypeError, ValueError
            dst or `out` is of another dtype or shape, or cannot be used.
        """
        plain = np.empty(self.y_shape, self._dtype_of(dst)) if out is None else out
        self._core.unpack_dst(dst, plain)
        return plain

    def unpack_diff_src(self, diff_src: Any, out: Array | None = None) -> Array:
        """The gradient of src, packed as src_shape, plain (N, C, H, W); else as `unpack_dst`."""
        plain = np.empty(self.x_shape, self._dtype_of(diff_src)) if out is None else out
        self._core.unpack_diff_src(diff_src, plain)
        return plain

    def unpack_diff_weights(self, diff_weights: Any, out: Array | None = None) -> Array:
        """The gradient of the weights, diff_weights_shape, plain (K, C/groups, R, S).

        float32 or bfloat16, as `backward_weights` gave it; else as `unpack_dst`.
        """
        dtype = getattr(diff_weights, "dtype", None)
        if dtype != np.float32:
            dtype = self._dtype_of(diff_weights)
        plain = np.empty(self.w_shape, dtype) if out is None else out
        self._core.unpack_diff_weights(diff_weights, plain)
        return plain

    def _plain(self, name: str, value: Any) -> Array:
        return contiguous(viewed(name, value, self._dtype_name))

    def _dtype_of(self, operand: Any) -> np.dtype[Any]:
        """Of a result from ``operand``: bits of bfloat16 that came as uint16 leave as uint16."""
        if self.dtype != np.float32 and getattr(operand, "dtype", None) == np.uint16:
            return np.dtype(np.uint16)
        return self.dtype

    def _diff_weights_dtype(
        self, dtype: npt.DTypeLike | None, src: Any, out: Array | None
    ) -> np.dtype[Any]:
        """Of a new gradient of the weights; refused where ``out`` is of another."""
        name = "float32" if dtype is None else dtype_name("dtype", dtype)
        is_narrow = name == "bfloat16" and self.dtype != np.float32
        if name != "float32" and not is_narrow:
            raise TypeError(f"dtype is {name}, expected float32 or the dtype of the operands")
        given = getattr(out, "dtype", None)
        if dtype is not None and given is not None and (given == np.float32) == is_narrow:
            raise TypeError(f"dtype is {name}, but out has dtype {given}, expected the same")
        return self._dtype_of(src) if is_narrow else np.dtype(np.float32)

    def _new(self, shape: Shape, operand: Any) -> Array:
        return aligned(shape, self._dtype_of(operand))

    def _new_result(self, shape: Shape, plain_shape: Shape, dtype: np.dtype[Any]) -> Array:
        """With zeros where the last block of channels has more room than channels."""
        ragged = math.prod(shape) > math.prod(plain_shape)
        return aligned(shape, dtype, zeros=ragged)
