"""The linear primitive: a shape fixed once, packed operands, no reordering on the hot path."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from operator import index
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlprim import _core as core
from dlprim import schedule_store as store
from dlprim.arguments.arrays import Array, FloatArray
from dlprim.arguments.floats import dtype_named, float32_operand
from dlprim.arguments.names import FROM_ARGUMENT, kernel_activation, layout_name
from dlprim.arguments.scalars import flag, operand_flag, refuse_array, shown
from dlprim.primitives.operands import Operands, schedules
from dlprim.primitives.quantized import (
    dtypes_of,
    quantization,
    require_exact,
    require_int_bias,
    require_sums,
)


class LinearTrained(NamedTuple):
    """What `Linear.forward` returns with ``training=True``.

    Attributes
    ----------
    dst : packed ndarray, dst_shape
    saved : packed ndarray, dst_shape
        For `Linear.backward_activation`: dst itself, or for gelu, gelu_tanh, swish and hardswish
        their argument.
    """

    dst: Array
    saved: Array


class ActivationGradients(NamedTuple):
    """What `Linear.backward_activation` returns.

    Attributes
    ----------
    diff_dst : packed ndarray, dst_shape
        The gradient with respect to the argument of the activation.
    diff_bias : ndarray of float32, (K,)
        Its sum over the minibatch.
    """

    diff_dst: Array
    diff_bias: FloatArray


class Linear(Operands):
    """A linear layer of fixed shape: ``dst = activation(src @ weights.T + bias)``.

    Packed operands, results and use from many threads are as for `Conv2d`.

    Parameters
    ----------
    x_shape : (N, C)
        Of the plain input; N may be 0.
    K : int
        Output channels.
    dtype : dtype
        Of operands and results: float32 or bfloat16, with float32 sums; or, for the forward pass
        only, uint8 or int8, with int8 weights and exact int32 sums.
    activation, bias, schedule
        As for `Conv2d`.
    layout : "blocked" or "plain"
        Of packed activations: ``[Cb][N][bc]``, or (N, C), used in place. 8-bit ones are plain.
    dst_dtype : dtype, optional
        Of the result of an 8-bit layer: float32 by default, bfloat16, uint8, int8, or int32 for the
        exact sums. A bfloat16 layer may have a float32 result, which is not rounded, and then has
        only a forward pass.

    Attributes
    ----------
    src_shape, dst_shape, diff_weights_shape, layout, flops, schedules
        As for `Conv2d`.
    weights_shape : tuple of int
        Of the packed weights: the forms ``[Kb][Cb][bc][bk]`` and ``[Cb][Kb][bk][bc]``, shown as the
        first form twice. In bfloat16, pairs of neighbours along the sum are adjacent; 8-bit weights
        have groups of four, and only the first form.
    x_shape, w_shape, y_shape : tuple of int
        Of the plain arrays: (N, C), (K, C) and (N, K).
    dtype, dst_dtype : dtype
        Of operands and results; uint16 for bfloat16 if ml_dtypes is not installed.
    scratch_bytes : dict
        Memory that each pass takes while it runs, by the name of the pass; for backward_weights
        with a float32 result (a bfloat16 one takes an additional block of sums per thread).

    Raises
    ------
    TypeError
        An argument has the wrong type.
    ValueError
        An extent is out of range, a name is unknown, or a schedule cannot be followed.

    Notes
    -----
    Sources: see `Conv2d`.
    """

    _core: core.Linear

    def __init__(
        self,
        x_shape: tuple[int, int],
        K: int,
        *,
        dtype: npt.DTypeLike = "float32",
        activation: str | None = None,
        bias: bool = False,
        schedule: str | Mapping[str, str] | None = None,
        layout: str | None = None,
        dst_dtype: npt.DTypeLike | None = None,
    ) -> None:
        numbers = _geometry(x_shape, K)
        dtypes = dtypes_of(dtype, dst_dtype, widens=True)
        require_exact(dtypes[1], activation, bias is True)
        chosen = _layout_of(layout, dtypes[0])
        self.activation = kernel_activation(activation)
        self.bias = operand_flag("bias", bias, "forward")
        how = (*dtypes, chosen, self.activation or "none", self.bias)
        kind = " to ".join(dtypes) if dtypes == ("bfloat16", "float32") else dtypes[0]
        problem = store.Problem("linear", dict(zip("NCK", numbers, strict=True)), kind, chosen)
        self._make(partial(core.Linear, numbers, *how), problem, schedules(schedule))
        self.dst_dtype = dtype_named(dtypes[1])
        self._dtypes = dtypes
        super().__init__(dtypes[0], chosen)

    def pack_weights(self, w: Any, out: Array | None = None, *, backward: bool = True) -> Array:
        """Plain weights in both packed forms, for the forward and the backward pass.

        Parameters
        ----------
        w : array of the layer's dtype, of int8 for 8-bit layers, (K, C)
            float32 weights of a bfloat16 layer are rounded as by `to_bfloat16`. A transposed array
            is read in place; any other non-contiguous array is copied first.
        out : ndarray, weights_shape or without its second form, optional
            Written and returned. Must be C-contiguous and share no memory with w.
        backward : bool
            With False, the second form, which only `backward_data` reads, is omitted: half the
            memory and time. Ignored if `out` is given.

        Returns
        -------
        ndarray of the same dtype, weights_shape, or with a first extent of 1 for one form

        Raises
        ------
        TypeError, ValueError
            w or `out` has the wrong dtype or shape, or cannot be used.
        """
        plain = self._weights(w)
        require_sums(self._dtypes, plain)
        return self._core.pack_weights(plain, out, flag("backward", backward))

    def forward(
        self,
        src: Any,
        weights: Any,
        bias: Any = None,
        *,
        out: Array | None = None,
        scale: Any = None,
        int_bias: Any = None,
        dst_zero_point: int = 0,
        training: bool = False,
    ) -> Any:
        """``activation(src @ weights.T + bias)``, rounded once.

        Parameters
        ----------
        src : packed array, src_shape
        weights : packed array, weights_shape, or its first form alone
        bias : array of float32 or bfloat16, (K,)
            Required exactly when the layer has a bias.
        out : packed ndarray, dst_shape, optional
            Written and returned. Must share no memory with any operand.
        scale : float or array of float32, (K,)
            For 8-bit layers: the exact sums are multiplied by it before the bias is added. Not
            allowed for an int32 result.
        int_bias : array of int32, (K,), optional
            For 8-bit layers: the start of the exact sums, such as an integer bias, or ``-zero_point
            * w.sum(1, dtype=np.int32)`` for a zero point of src.
        dst_zero_point : int
            For an 8-bit result: added after rounding and before saturation.
        training : bool
            Also return what `backward_activation` needs. That is dst itself, except that gelu,
            gelu_tanh, swish and hardswish need their argument, in a separate packed array; in
            bfloat16 they are then applied to that rounded value.

        Returns
        -------
        packed ndarray, dst_shape
            With training=True, `LinearTrained`, ``(dst, saved)``.

        Raises
        ------
        TypeError, ValueError
            As for `Conv2d.forward`.
        """
        if training is not False:
            flag("training", training)
        if bias is not None:
            bias = float32_operand("bias", bias, self._dtype_name)
        quantized = quantization(
            self._dtypes, self.w_shape[0], (int_bias, scale), (0, dst_zero_point)
        )
        if int_bias is not None and quantized is not None:
            require_int_bias(
                self._dtypes,
                int_bias,
                self.w_shape,
                lambda: self._core.unpack("weights", weights, None),
            )
        kept = training and self.activation in FROM_ARGUMENT
        before = self._core.new("dst", src) if kept else None
        dst = self._core.forward(src, weights, bias, quantized, before, out)
        if training:
            return LinearTrained(dst, dst if before is None else before)
        return dst

    def backward_activation(
        self,
        diff_dst: Any,
        saved: Any = None,
        *,
        out: Array | None = None,
        diff_bias: FloatArray | None = None,
    ) -> ActivationGradients:
        """The gradients with respect to the argument of the activation and to the bias.

        Parameters
        ----------
        diff_dst : packed array, dst_shape
        saved : packed array, dst_shape
            The second result of ``forward(..., training=True)``: dst, or for gelu, gelu_tanh, swish
            and hardswish their argument. Not read without an activation.
        out : packed ndarray, dst_shape, optional
            As for `forward`, or diff_dst itself.
        diff_bias : ndarray of float32, (K,), optional
            Written and returned. Must share no memory with an operand.

        Returns
        -------
        ActivationGradients
            ``(diff_dst, diff_bias)``. Without an activation and `out`, diff_dst is the argument
            itself.

        Raises
        ------
        TypeError, ValueError
            As for `backward_data`, or `saved` is missing.
        """
        if self.activation is None:
            saved = None
        elif saved is None:
            raise ValueError(f"saved is missing: the activation of the layer is {self.activation}")
        total = np.empty(self.w_shape[:1], np.float32) if diff_bias is None else diff_bias
        passed = self._core.backward_activation(diff_dst, saved, None, out, total)
        return ActivationGradients(passed, total)

    def __repr__(self) -> str:
        return f"<dlprim.Linear {self.x_shape} -> {self.y_shape} {self.dtype} {self.layout}>"


def _geometry(x_shape: Any, channels: Any) -> tuple[int, ...]:
    """N, C and K, checked; TypeError or ValueError says what is wrong."""
    refuse_array("x_shape", x_shape, "(N, C)")
    try:
        extents = tuple(index(extent) for extent in (*x_shape, channels))
    except TypeError:
        raise TypeError(
            f"x_shape is {x_shape!r} and K is {shown(channels)}, expected integers (N, C) and K"
        ) from None
    if len(extents) != 3:
        raise ValueError(f"x_shape is {x_shape!r}, expected two dimensions (N, C)")
    if not all(0 <= extent < 2**31 for extent in extents):
        raise ValueError(f"x_shape is {x_shape!r} and K is {channels!r}, expected 0 to 2^31 - 1")
    return extents


def _layout_of(layout: str | None, dtype: str) -> str:
    """The layout, by default the one that suits the dtype; ValueError where there is none."""
    exact = dtype in ("uint8", "int8")
    if layout is None:
        return "plain" if exact else "blocked"
    if exact and layout_name(layout, "blocked", "plain") != "plain":
        raise ValueError(f"layout is 'blocked' and dtype is {dtype}, expected 'plain' for 8 bits")
    return layout_name(layout, "blocked", "plain")
