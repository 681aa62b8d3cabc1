"""The gradients of a convolution that are no products: through relu, and of the bias."""

from typing import Any

import numpy as np
import numpy.typing as npt

from dlprim.primitives.conv_operands import Array, ConvOperands


class ConvRelu(ConvOperands):
    """What `Conv2d` does element by element."""

    def backward_relu(
        self,
        diff_dst: Any,
        dst: Any = None,
        relu_mask: Any = None,
        out: Array | None = None,
        diff_bias: npt.NDArray[np.float32] | None = None,
    ) -> Array:
        """The gradient in front of relu: diff_dst where relu let the result through, else 0.

        Parameters
        ----------
        diff_dst : packed array, dst_shape
        dst, relu_mask : array
            One of them: the result of `forward`, where NaN counts as let through, or its mask.
        out : packed ndarray, dst_shape, optional
            As for `forward`.
        diff_bias : ndarray of float32, (K,), optional
            Receives the gradient with respect to the bias in the same pass.

        Returns
        -------
        packed ndarray, dst_shape

        Raises
        ------
        TypeError, ValueError
            As `forward` does.
        """
        if (dst is None) == (relu_mask is None):
            given = "neither" if dst is None else "both"
            raise ValueError(f"of dst and relu_mask {given} is given, expected one of them")
        diff = self._new_dst(diff_dst) if out is None else out
        self._core.backward_relu(diff_dst, dst, relu_mask, diff, diff_bias)
        return diff

    def diff_bias(
        self, diff_dst: Any, out: npt.NDArray[np.float32] | None = None
    ) -> npt.NDArray[np.float32]:
        """The gradient with respect to the bias: diff_dst summed over all but the channels.

        Parameters
        ----------
        diff_dst : packed array, dst_shape
            As for `backward_data`.
        out : ndarray of float32, (K,), optional
            Written and returned; shares no memory with diff_dst.

        Returns
        -------
        ndarray of float32, (K,)

        Raises
        ------
        TypeError, ValueError
            As `forward` does.
        """
        result = np.empty(self.w_shape[:1], np.float32) if out is None else out
        self._core.backward_relu(diff_dst, None, None, None, result)
        return result

    def _new_dst(self, operand: Any) -> Array:
        return self._new_result(self.dst_shape, self.y_shape, self._dtype_of(operand))
