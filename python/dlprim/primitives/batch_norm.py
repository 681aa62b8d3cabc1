"""Batch normalisation, fused with the addition of a residual and the relu that follow it.

Memory traffic is all it costs: statistics read src once, normalising reads it again and writes
dst. In the blocked layout a block of channels does both while the caches still hold it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlprim import _core
from dlprim.arguments.arrays import (
    Array,
    FloatArray,
    require_given,
    require_running,
    require_separate,
)
from dlprim.arguments.instead import instead
from dlprim.arguments.names import relu_or_none
from dlprim.arguments.scalars import flag, fraction, operand_flag, real
from dlprim.primitives import populations
from dlprim.primitives.activations import Activations
from dlprim.primitives.populations import Population

_FLOAT32 = np.dtype(np.float32)


class BatchNormResult(NamedTuple):
    """What `BatchNorm.forward` returns.

    Attributes
    ----------
    dst : packed ndarray, src_shape
    saved : ndarray of float32, (2, C)
        Mean and 1 / sqrt(variance + eps), for `BatchNorm.backward`.
    """

    dst: Array
    saved: FloatArray


class BatchNormGradients(NamedTuple):
    """What `BatchNorm.backward` returns.

    Attributes
    ----------
    diff_src : packed ndarray, src_shape
    diff_residual : packed ndarray, src_shape, or None
        None without a residual; diff_dst itself without an activation.
    diff_weights, diff_bias : ndarray of float32, (C,)
    """

    diff_src: Array
    diff_residual: Array | None
    diff_weights: FloatArray
    diff_bias: FloatArray


class BatchNorm:
    """``dst = activation((src - mean) / sqrt(var + eps) * weights + bias + residual)`` by channel.

    Activations are packed ndarrays as for `Conv2d`; statistics and parameters are float32 arrays of
    shape (C,). The bits of results do not depend on the number of threads.

    Parameters
    ----------
    shape, layout, dtype, groups
        As for `Activations`. A layer on (N, C) has H = W = 1.
    activation : None or "relu"
    residual : bool
        Calls of `forward` pass a residual, which is added before the activation.
    eps : float
        Added to the variance.

    Attributes
    ----------
    activations : Activations
    src_shape : tuple of int
        Of packed src, residual, dst and their gradients.
    relu_mask_shape : tuple of int
        Of the uint8 array that `forward` can write, with one bit per element.
    activation : None or "relu"
    residual : bool
    eps : float

    Raises
    ------
    TypeError, ValueError
        As for `Activations`; eps is negative or not finite, or the activation is unknown.

    Notes
    -----
    arXiv 1502.03167, algorithm 1 and section 3. Statistics are merged as by Chan, Golub and LeVeque
    (The American Statistician 37, 1983), so that a large mean does not reduce accuracy.
    """

    @instead(relu="activation='relu'", epsilon="eps")
    def __init__(
        self,
        shape: Sequence[int],
        *,
        layout: str = "blocked",
        dtype: npt.DTypeLike = "float32",
        activation: str | None = None,
        residual: bool = False,
        eps: float = 1e-5,
        groups: int = 1,
    ) -> None:
        self.activations = Activations(shape, layout=layout, dtype=dtype, groups=groups)
        self.eps = real("eps", eps, 0)
        self.activation = relu_or_none(activation)
        self.residual = operand_flag("residual", residual, "forward")
        self.src_shape = self.activations.packed_shape
        self.relu_mask_shape = self.activations.relu_mask_shape
        n, self._channels, h, w = self.activations.shape
        self._pixels = n * h * w
        self._core = _core.BatchNorm(self.activations._core, activation is not None, self.eps)

    def forward(
        self,
        src: Any,
        *,
        running_mean: FloatArray | None = None,
        running_var: FloatArray | None = None,
        weights: FloatArray | None = None,
        bias: FloatArray | None = None,
        residual: Any = None,
        training: bool = True,
        momentum: float = 0.1,
        out: Array | None = None,
        relu_mask: npt.NDArray[np.uint8] | None = None,
        saved: FloatArray | None = None,
        population: Population | None = None,
    ) -> BatchNormResult:
        """Normalises src.

        Parameters
        ----------
        src : packed array, src_shape
        running_mean, running_var : ndarray of float32, (C,), optional
            With training, they are updated in place, ``running = (1 - momentum) * running +
            momentum * statistic`` with the unbiased variance (the biased one if there is one value
            per channel), but not for an empty minibatch. Without training, they are the statistics
            and required.
        weights, bias : ndarray of float32, (C,), optional
            Ones and zeros by default.
        residual : packed array, src_shape
            Required exactly when the layer has a residual.
        training : bool
            Use the statistics of the minibatch.
        momentum : float
            In [0, 1].
        out : packed ndarray, src_shape, optional
            Written and returned. May be src or residual itself, and otherwise shares no memory with
            an operand.
        relu_mask : ndarray of uint8, relu_mask_shape, optional
            Receives which results relu passed: bit j % 8 of byte j / 8 for channel j.
        saved : ndarray of float32, (2, C), optional
            Written and returned.
        population : dlprim.primitives.populations.Population, optional
            The population that src is a part of; with training, its statistics are used.

        Returns
        -------
        BatchNormResult
            ``(dst, saved)``; saved is for `backward`.

        Raises
        ------
        TypeError, ValueError
            An array is missing or superfluous, has the wrong dtype or shape, is not C-contiguous,
            or overlaps a result.
        """
        flag("training", training)
        self._require_kind(residual, relu_mask)
        if not training and (running_mean is None or running_var is None):
            raise ValueError(
                "running_mean or running_var is missing, expected both: training=False"
            )
        rate = np.float32(fraction("momentum", momentum))
        require_given("src", src)
        dst = self.activations.empty(src) if out is None else out
        if saved is None:
            saved = np.empty((2, self._channels), np.float32)
        require_separate("running_mean", running_mean, running_var=running_var, saved=saved)
        require_separate("running_var", running_var, saved=saved)
        arrays = {
            "src": src, "weights": weights, "bias": bias, "residual": residual, "out": dst,
            "running_mean": None if training else running_mean,
            "running_var": None if training else running_var,
            "relu_mask": relu_mask, **self._statistics(saved),
            "variance": np.empty(self._channels, np.float32) if training else None,
        }  # fmt: skip
        if training:
            require_running(self._channels, running_mean, running_var)
        count: float = self._pixels
        if training and population is not None:
            found = populations.forward(self._core, arrays, self._pixels, population)
            count, arrays["variance"] = found
        else:
            self._core.forward(arrays)
        if training and count > 0 and running_mean is not None and running_var is not None:
            unbiased = np.float32(count / max(count - 1, 1))
            running_mean += rate * (saved[0] - running_mean)
            running_var += rate * (arrays["variance"] * unbiased - running_var)
        return tuple.__new__(BatchNormResult, (dst, saved))  # in half its constructor's time

    def backward(
        self,
        diff_dst: Any,
        src: Any,
        saved: FloatArray,
        *,
        weights: FloatArray | None = None,
        bias: FloatArray | None = None,
        dst: Any = None,
        relu_mask: Any = None,
        training: bool = True,
        out: Array | None = None,
        diff_residual: Array | None = None,
        diff_weights: FloatArray | None = None,
        diff_bias: FloatArray | None = None,
        population: Population | None = None,
        diff_addend: Any = None,
    ) -> BatchNormGradients:
        """The gradients with respect to src, residual, weights and bias.

        Parameters
        ----------
        diff_dst, src : packed array, src_shape
        saved, weights, bias : ndarray of float32
            saved as returned by `forward`, the others as passed to it.
        dst, relu_mask : array, optional
            With relu, which results it passed: the mask, dst or, without a residual, neither; the
            signs are then recomputed from src and bias.
        training : bool
            As in `forward`; False treats the statistics as constants.
        out : packed ndarray, src_shape, optional
            Receives diff_src; may be src or, if diff_residual is another array, diff_dst itself.
        diff_residual : packed ndarray, src_shape, optional
            For a layer with a residual: receives its gradient, after relu. May be diff_dst itself.
        diff_weights, diff_bias : ndarray of float32, (C,), optional
            Written and returned.
        population : Population, optional
            As in `forward`; diff_weights and diff_bias are still those of src alone.
        diff_addend : packed array, src_shape, optional
            For a layer with a residual and relu: the gradient is diff_dst + diff_addend, so that
            the gradients of two branches after the layer need no separate addition.

        Returns
        -------
        BatchNormGradients
            ``(diff_src, diff_residual, diff_weights, diff_bias)``; diff_residual is None without a
            residual, and diff_dst itself without an activation.

        Raises
        ------
        TypeError, ValueError
            As for `forward`.
        """
        flag("training", training)
        relu = self.activation is not None
        if relu and self.residual and dst is None and relu_mask is None:
            raise ValueError("dst and relu_mask are missing, expected one: relu follows a residual")
        if not relu and (dst is not None or relu_mask is not None):
            raise ValueError("dst or relu_mask is given, but the layer has no activation")
        require_given("diff_dst", diff_dst)
        require_given("src", src)
        passed = diff_residual
        if self.residual and relu and passed is None:
            passed = self.activations.empty(diff_dst)
        self._require_relu_after_residual(diff_residual, diff_addend)
        result = self.activations.empty(diff_dst) if out is None else out
        channels = self._channels
        weights_sum = np.empty(channels, np.float32) if diff_weights is None else diff_weights
        bias_sum = np.empty(channels, np.float32) if diff_bias is None else diff_bias
        arrays = {
            "diff_dst": diff_dst, "diff_addend": diff_addend, "src": src, "dst": dst,
            "relu_mask": relu_mask, "weights": weights, "bias": bias, "out": result,
            "diff_residual": passed,
            "diff_weights": weights_sum, "diff_bias": bias_sum, **self._statistics(saved),
        }  # fmt: skip
        if training and population is not None:
            populations.backward(self._core, arrays, self._pixels, population)
        else:
            self._core.backward(arrays, not training, 0)
        if self.residual and not relu:
            passed = diff_dst
        return BatchNormGradients(result, passed, weights_sum, bias_sum)

    def _statistics(self, saved: Any) -> dict[str, Any]:
        right = isinstance(saved, np.ndarray) and saved.shape == (2, self._channels)
        if right and saved.dtype == _FLOAT32:
            return {"mean": saved[0], "inverse_std": saved[1]}
        expected = f"expected an array of float32 of shape {(2, self._channels)}"
        if not isinstance(saved, np.ndarray):
            raise TypeError(f"saved is of type {type(saved).__name__}, {expected}")
        if saved.dtype != _FLOAT32:
            raise TypeError(f"saved has dtype {saved.dtype}, {expected}")
        raise ValueError(f"saved has shape {saved.shape}, {expected}")

    def _require_relu_after_residual(self, diff_residual: Any, diff_addend: Any) -> None:
        if self.activation is not None and self.residual:
            return
        for name, array in (("diff_residual", diff_residual), ("diff_addend", diff_addend)):
            if array is not None:
                raise ValueError(f"{name} is given, expected None: no relu follows a residual")

    def _require_kind(self, residual: Any, relu_mask: Any) -> None:
        if (residual is not None) != self.residual:
            given = "missing" if self.residual else "given"
            raise ValueError(f"residual is {given}, but the layer has residual={self.residual}")
        if relu_mask is not None and self.activation is None:
            raise ValueError("relu_mask is given, but the layer has no activation")

    def __repr__(self) -> str:
        it = self.activations
        return f"<dlprim.BatchNorm {it.shape} {it.dtype} {it.layout}>"
