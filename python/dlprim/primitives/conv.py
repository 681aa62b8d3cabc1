"""The convolution primitive: shapes fixed once, packed operands, no reordering on the hot path."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dlprim import _core as core
from dlprim import schedule_store as store
from dlprim.arguments.arrays import Array, Shape
from dlprim.arguments.floats import dtype_named, float32_operand
from dlprim.arguments.names import activation_name, layout_name
from dlprim.arguments.scalars import operand_flag
from dlprim.primitives.conv_algorithm import new_core, require_accuracy, resolved
from dlprim.primitives.conv_arguments import geometry
from dlprim.primitives.operands import Operands, schedules
from dlprim.primitives.quantized import (
    dtypes_of,
    quantization,
    require_exact,
    require_int_bias,
    require_sums,
)

# Of packed weights: for all passes, for one, for none in particular.
_FORMS = ("all", "forward", "direct")


class Conv2d(Operands):
    """A two-dimensional convolution of fixed shape: ``dst = activation(src * weights + bias)``.

    As in PyTorch, this is a cross-correlation. Packed operands are ndarrays of the shapes below
    that know their form; another form is refused. Plain ndarrays are accepted if their shape fits.
    The result of one convolution is an operand of the next. The bits of results do not depend on
    the number of threads, and an instance may be called from many threads at once.

    Parameters
    ----------
    x_shape : (N, C, H, W)
        Of the plain input; N may be 0.
    w_shape : (K, C/groups, R, S)
        Of the plain weights.
    stride, dilation : int or (height, width)
    padding : int, (height, width), ((top, bottom), (left, right)) or "same"
        Zeros around the input. "same" makes the result as large as the input, for stride 1.
    groups : int
        Divides C and K; the output channels of a group depend on its input channels.
    dtype : dtype
        Of operands and results: float32 or bfloat16, with float32 sums; or, for the forward pass
        only, uint8 or int8 for src, with int8 weights and exact int32 sums.
    layout : "blocked" or "NHWC"
        Of packed activations: ``[N][Cb][H][W][bc]``, or channels-last ``(N, H, W, C)``.
    algorithm : "auto", "direct" or "winograd"
        "winograd", for 3x3 filters with stride 1, needs up to 4 times fewer multiplications; in
        bfloat16 its products are float32. "auto" chooses for each pass the one that is estimated to
        be faster, unless `set_conv_algorithm` decides. See the notes on infinities and large
        values.
    dst_dtype : dtype, optional
        Of the result and the residual of an 8-bit convolution: float32 by default, bfloat16, uint8,
        int8, or int32 for the exact sums.
    accuracy : None or "high"
        For Winograd. "high": only tiles of 2x2, whose errors are below those of the direct
        algorithm.
    activation : None or str
        "relu", "relu6", "sigmoid", "hardsigmoid", "tanh", "gelu", "gelu_tanh", "swish" or
        "hardswish".
    bias : bool
        Calls of `forward` pass a bias.
    schedule : str or dict, optional
        The loop nest of the forward pass, or of each pass by name, in the form of `schedules`. By
        default, and for passes that a dict omits, what `dlprim.tune` has stored, otherwise the
        choice of a cost model. The loops depend on the algorithm, so pass `algorithm` too.

    Attributes
    ----------
    src_shape, weights_shape, dst_shape, diff_weights_shape : tuple of int
        Of the packed operands; gradients of activations have the shapes of the activations.
    relu_mask_shape : tuple of int
        Of the uint8 array that `forward` can write, with one bit per element of the packed result.
    x_shape, w_shape, y_shape : tuple of int
        Of the plain arrays; y is the result, (N, K, P, Q).
    dtype, dst_dtype, layout
        Of operands and results; uint16 for bfloat16 if ml_dtypes is not installed.
    algorithms : dict
        Of each pass: "direct", "winograd4" or "winograd2" (the side of its tiles).
    flops : float
        Operations of one pass, two per multiply-add.
    scratch_bytes : dict
        The most memory that a call takes in addition to operands and results, by method: forward,
        backward_data, backward_weights, backward_relu (and diff_bias). It is allocated once and
        kept for the next call, of any primitive, until the last primitive is gone; with ``out``, no
        call allocates anything. A direct pass takes at most the bytes of the weights (of
        diff_weights in float32) and of one image of src and dst for each thread, except for a row
        of pairs in unusual bfloat16 shapes (docs/design.md).
    schedules : dict
        The loop nest of each pass; empty for a depthwise convolution.

    Raises
    ------
    TypeError
        An argument has the wrong type.
    ValueError
        The geometry is impossible, a name is unknown, or a schedule cannot be followed.

    Notes
    -----
    Winograd's transforms add and subtract neighbouring inputs. Where `algorithms` says "winograd",
    one infinity or NaN in src therefore becomes NaN over whole tiles, up to 8x8 results in every
    output channel, and finite inputs from about 1e36 on can overflow; in backward data the same
    holds for diff_dst. ``algorithm="direct"``, or ``dlprim.set_conv_algorithm("direct")`` for the
    whole process, sums as in IEEE 754. docs/winograd.md has the errors of both.

    Sources: arXiv 1906.06440; loop nests as values after arXiv 2304.12576.
    """

    _core: core.Conv2d

    def __init__(
        self,
        x_shape: tuple[int, int, int, int],
        w_shape: tuple[int, int, int, int],
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        *,
        dtype: npt.DTypeLike = "float32",
        layout: str = "blocked",
        algorithm: str = "auto",
        activation: str | None = None,
        bias: bool = False,
        schedule: str | Mapping[str, str] | None = None,
        accuracy: str | None = None,
        dst_dtype: npt.DTypeLike | None = None,
    ) -> None:
        numbers = geometry(x_shape, w_shape, stride, padding, dilation, groups).numbers()
        self._dtypes, chosen = dtypes_of(dtype, dst_dtype), layout_name(layout)
        name, result = self._dtypes
        self.bias = operand_flag("bias", bias, "forward")
        how = (resolved(algorithm), require_accuracy(accuracy))
        require_exact(result, activation, self.bias)
        epilogue = (activation_name(activation), self.bias)
        others = (tuple(numbers.values()), name, result, chosen, *epilogue)
        problem = store.Problem("conv2d", numbers, name, chosen.lower())
        self._make(partial(new_core, core.Conv2d, *how, *others), problem, schedules(schedule))
        super().__init__(name, chosen)
        self.dst_dtype = dtype_named(result)
        self.relu_mask_shape = self._core.shapes["relu_mask"]

    @cached_property
    def weights_shape(self) -> Shape:
        return self._core.weights_shape("all")

    @property
    def algorithms(self) -> dict[str, str]:
        return self._core.algorithms

    def pack_weights(self, w: Any, out: Array | None = None, *, form: str = "all") -> Array:
        """Plain weights (K, C/groups, R, S) in packed form.

        For a pass with Winograd's algorithm, weights can be transformed here or in every call.

        Parameters
        ----------
        w : array of the convolution's dtype or of float32, (K, C/groups, R, S)
            float32 weights of a bfloat16 convolution are rounded as by `to_bfloat16`, so that
            master weights are read once. A transposed array is read in place; any other
            non-contiguous array is copied.
        out : ndarray, optional
            As for `pack_src`; its shape decides the form. Transformed weights must know what they
            are transformed for: for a plain ndarray, a view that does is returned.
        form : "all", "forward" or "direct"
            "all": transformed for both passes, for weights that do not change; one flat array of
            weights_shape. "forward": for the forward pass only, for inference. "direct":
            ``[Kb][Cb][R][S][bc][bk]``, which each call transforms, for weights that change in every
            step. Without Winograd all forms are the same.

        Returns
        -------
        ndarray of the same dtype, weights_shape, or the shape of another form

        Raises
        ------
        TypeError, ValueError
            As for `pack_src`, or the form is unknown.
        """
        if not isinstance(form, str) or form not in _FORMS:
            raise ValueError(f"form is {form!r}, expected one of {', '.join(_FORMS)}")
        plain = self._weights(w)
        require_sums(self._dtypes, plain)
        return self._core.pack_weights(plain, out, form)

    def forward(
        self,
        src: Any,
        weights: Any,
        bias: Any = None,
        residual: Any = None,
        out: Array | None = None,
        *,
        relu_mask: npt.NDArray[np.uint8] | None = None,
        scale: Any = None,
        int_bias: Any = None,
        src_zero_point: int = 0,
        dst_zero_point: int = 0,
        residual_scale: float = 1.0,
    ) -> Array:
        """``activation(src * weights + bias + residual)``, rounded once.

        Parameters
        ----------
        src : packed array, src_shape
        weights : packed array, weights_shape
            In any of the forms of `pack_weights`.
        bias : array of float32 or bfloat16, (K,)
            Required exactly when the convolution has a bias.
        residual : packed array, dst_shape, optional
        out : packed ndarray, dst_shape, optional
            Written and returned. May be the residual itself: some float32 sums then start with it,
            so that last bits may differ. Must share no memory with other operands. The padding of
            its last block of channels is not written.
        relu_mask : ndarray of uint8, relu_mask_shape, optional
            Receives which results relu passed: bit j % 8 of byte j / 8 for channel j.
        scale : float or array of float32, (K,)
            For 8-bit convolutions, like all that follow. The exact sums are multiplied by it before
            the bias is added. Not allowed for an int32 result.
        int_bias : array of int32, (K,), optional
            The start of the exact sums: an integer bias and, for a zero point of src,
            ``-src_zero_point * w.sum((1, 2, 3), dtype=np.int32)``.
        src_zero_point : int
            The value of padding: the 8-bit number that represents 0 in src.
        dst_zero_point : int
            For an 8-bit result: added after rounding and before saturation.
        residual_scale : float
            The factor of an 8-bit residual. Its zero point belongs in the bias.

        Returns
        -------
        packed ndarray, dst_shape

        Raises
        ------
        TypeError, ValueError
            An array is missing or superfluous, has the wrong dtype or shape, is not C-contiguous,
            or overlaps a result.

        Examples
        --------
        What `conv2d` computes of 8-bit arrays, with weights that are packed once:

        >>> q, v = np.ones((2, 8, 10, 10), np.uint8), np.ones((16, 8, 3, 3), np.int8)
        >>> x_scale, x_zero, w_scale, y_scale, y_zero = 0.02, 7, 0.01, 0.4, 100
        >>> conv = dlprim.Conv2d(q.shape, v.shape, padding=1, dtype="uint8", dst_dtype="uint8")
        >>> weights = conv.pack_weights(v)
        >>> dst = conv.forward(
        ...     conv.pack_src(q),
        ...     weights,
        ...     scale=x_scale * w_scale / y_scale,
        ...     int_bias=-x_zero * v.sum((1, 2, 3), dtype=np.int32),
        ...     src_zero_point=x_zero,
        ...     dst_zero_point=y_zero,
        ... )
        >>> scales = {"x_scale": x_scale, "w_scale": w_scale, "y_scale": y_scale}
        >>> zeros = {"x_zero_point": x_zero, "y_zero_point": y_zero}
        >>> y = dlprim.conv2d(q, v, padding=1, **scales, **zeros)
        >>> bool((conv.unpack_dst(dst) == y).all())
        True
        """
        if bias is not None:
            bias = float32_operand("bias", bias, self._dtype_name)
        quantized = quantization(
            self._dtypes,
            self.w_shape[0],
            (int_bias, scale),
            (src_zero_point, dst_zero_point),
            residual_scale,
        )
        if int_bias is not None and quantized is not None:
            require_int_bias(
                self._dtypes,
                int_bias,
                self.w_shape,
                lambda: self._core.unpack("weights", weights, None),
            )
        if relu_mask is not None and quantized is not None:
            raise ValueError("relu_mask was given, but src is of 8 bits, which have no gradients")
        return self._core.forward(src, weights, bias, residual, relu_mask, out, quantized)

    def backward_relu(
        self,
        diff_dst: Any,
        dst: Any = None,
        *,
        relu_mask: Any = None,
        out: Array | None = None,
        diff_bias: npt.NDArray[np.float32] | None = None,
    ) -> Array:
        """The gradient of relu: diff_dst where relu passed the result, else 0.

        Parameters
        ----------
        diff_dst, out : packed array, dst_shape
            As for `backward_data` and `forward`.
        dst, relu_mask : array
            One of them: the result of `forward`, in which NaN counts as passed, or its mask.
        diff_bias : ndarray of float32, (K,), optional
            Receives the gradient with respect to the bias in the same pass.

        Returns
        -------
        packed ndarray, dst_shape

        Raises
        ------
        TypeError, ValueError
            As for `forward`.
        """
        if (dst is None) == (relu_mask is None):
            given = "neither" if dst is None else "both"
            raise ValueError(f"of dst and relu_mask {given} is given, expected one of them")
        return self._core.backward_activation(diff_dst, dst, relu_mask, out, diff_bias)

    def diff_bias(
        self, diff_dst: Any, out: npt.NDArray[np.float32] | None = None
    ) -> npt.NDArray[np.float32]:
        """The gradient with respect to the bias: the sum over all axes except the channels.

        Parameters
        ----------
        diff_dst : packed array, dst_shape
            As for `backward_data`.
        out : ndarray of float32, (K,), optional
            Written and returned. Must share no memory with diff_dst.

        Returns
        -------
        ndarray of float32, (K,)

        Raises
        ------
        TypeError, ValueError
            As for `forward`.
        """
        result = np.empty(self.w_shape[:1], np.float32) if out is None else out
        try:
            self._core.backward_activation(diff_dst, None, None, None, result)
        except (TypeError, ValueError) as error:  # the core has another name for it
            raise type(error)(str(error).replace("diff_bias", "out")) from None
        return result

    def __repr__(self) -> str:
        return f"<dlprim.Conv2d {self.x_shape} * {self.w_shape} {self.dtype} {self.layout}>"
