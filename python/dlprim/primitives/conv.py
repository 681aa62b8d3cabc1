"""The convolution primitive: shapes fixed once, packed operands, no reordering on the hot path."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dlprim import _core as core
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
from dlprim.tuning import store

# Of packed weights: for all passes, for one, for none in particular.
_FORMS = ("all", "forward", "direct")


class Conv2d(Operands):
    """A two-dimensional convolution of fixed shape: ``dst = activation(src * weights + bias)``.

    As in PyTorch it is a cross-correlation. Packed operands are ndarrays of the shapes below that
    say in which form they are packed, and one of another form is refused; plain ndarrays are taken
    at their shape's word. The result of one convolution is an operand of the next. Every pass
    writes the same bits for any number of threads, and an instance may be called from many threads
    at once.

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
        Divides C and K; output channels of a group see its input channels.
    dtype : dtype
        Of operands and results: float32 or bfloat16, whose sums are float32; or uint8 or int8 of
        src, for the forward pass alone, with int8 weights and exact int32 sums.
    layout : "blocked" or "NHWC"
        Of packed activations: ``[N][Cb][H][W][bc]``, or channels-last ``(N, H, W, C)``.
    algorithm : "auto", "direct" or "winograd"
        "winograd" multiplies up to 4 times less, for 3x3 filters with stride 1; in bfloat16 its
        products are float32. "auto" takes for each pass what is faster by estimate, unless
        `set_conv_algorithm` says otherwise. See the notes on infinities and large values.
    dst_dtype : dtype, optional
        Of the result and a residual of an 8-bit convolution: float32 by default, bfloat16, uint8,
        int8, or int32, which is the exact sums.
    accuracy : None or "high"
        Of Winograd. "high": tiles of 2x2 only, whose errors are below the direct algorithm's.
    activation : None or str
        "relu", "relu6", "sigmoid", "hardsigmoid", "tanh", "gelu", "gelu_tanh", "swish" or
        "hardswish".
    bias : bool
        Calls of `forward` pass a bias.
    schedule : str or dict, optional
        The loop nest of the forward pass, or of each pass by name, in the form of `schedules`.
        By default what `dlprim.tune` has found and stored, else a cost model's choice, as for
        every pass that a dict leaves out. The loops depend on the algorithm: name `algorithm` too.

    Attributes
    ----------
    src_shape, weights_shape, dst_shape, diff_weights_shape : tuple of int
        Of the packed operands; gradients of activations have the shapes of the activations.
    relu_mask_shape : tuple of int
        Of the uint8 array that `forward` can write, a bit per element of the packed result.
    x_shape, w_shape, y_shape : tuple of int
        Of the plain arrays; y is the result, (N, K, P, Q).
    dtype, dst_dtype, layout
        Of operands and results; uint16 for bfloat16 where ml_dtypes is not installed.
    algorithms : dict
        Of each pass: "direct", "winograd4" or "winograd2" (the side of its tiles).
    flops : float
        Operations of one pass, two per multiply-add.
    scratch_bytes : dict
        The most memory that a call takes beside operands and results, by the name of the method:
        forward, backward_data, backward_weights, backward_relu (and diff_bias). It is taken from
        the system once and kept for the next call, of any primitive, until the last one is gone;
        with ``out`` given no call allocates anything. Of a direct pass at most the bytes of the
        weights (of diff_weights in float32) and of one image of src and dst for each thread,
        but for a row of pairs in unusual bfloat16 shapes (docs/design.md).
    schedules : dict
        The loop nest of each pass; none of a depthwise convolution.

    Raises
    ------
    TypeError
        An argument is of the wrong type.
    ValueError
        The geometry is impossible, a name is unknown, or a schedule cannot be followed.

    Notes
    -----
    Winograd's transforms add and subtract neighbouring inputs, so where `algorithms` says
    "winograd" one infinity or NaN in src becomes NaN over whole tiles, up to 8x8 results in every
    output channel, and finite inputs from about 1e36 on can overflow; in backward data the same
    holds of diff_dst. ``algorithm="direct"``, or ``dlprim.set_conv_algorithm("direct")`` for the
    whole process, sums as IEEE 754 says. docs/winograd.md has the errors of both.

    Sources: arXiv 1906.06440, loop nests as values after arXiv 2304.12576.
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
        """Plain weights (K, C/groups, R, S) as weights_shape; else as `pack_src`.

        Where a pass is Winograd's, weights can be transformed here or in every call.

        Parameters
        ----------
        w : array of the convolution's dtype or of float32, (K, C/groups, R, S)
            float32 is rounded on the way as `to_bfloat16` does, so that master weights are read
            once. A transposed array is read as it lies, any other non-contiguous one is copied.
        out : ndarray, optional
            As for `pack_src`; its shape says which form is wanted. Transformed weights have to say
            what they are transformed for: of a plain ndarray a view that does is returned.
        form : "all", "forward" or "direct"
            "all": transformed for both passes, for weights that stay; one flat array of
            weights_shape. "forward": for the forward pass alone, for inference. "direct":
            ``[Kb][Cb][R][S][bc][bk]``, which each call transforms, for weights that change with
            each step. The same for a convolution without Winograd.

        Returns
        -------
        ndarray of the same dtype, weights_shape, or the shape of another form

        Raises
        ------
        TypeError, ValueError
            As `pack_src` does, or there is no such form.
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
            Given exactly when the convolution has a bias.
        residual : packed array, dst_shape, optional
        out : packed ndarray, dst_shape, optional
            Written and returned; may be the residual itself, with which some float32 sums then
            begin, so that last bits may differ; shares no memory with another operand. What fills
            up its last block of channels is left as it is.
        relu_mask : ndarray of uint8, relu_mask_shape, optional
            Receives where relu let the result through: bit j % 8 of byte j / 8 for channel j.
        scale : float or array of float32, (K,)
            For 8-bit convolutions, as all that follow: the exact sums are multiplied by it before
            the bias is added; not given for an int32 result.
        int_bias : array of int32, (K,), optional
            What the exact sums begin with: an integer bias and, for a zero point of src,
            ``-src_zero_point * w.sum((1, 2, 3), dtype=np.int32)``.
        src_zero_point : int
            What padding is: a zero of the numbers that src stands for.
        dst_zero_point : int
            Of an 8-bit result: added to what is rounded, in front of saturation.
        residual_scale : float
            What a residual of 8 bits is multiplied by; what its zero point adds is the bias's.

        Returns
        -------
        packed ndarray, dst_shape

        Raises
        ------
        TypeError, ValueError
            An array is missing or superfluous, of another dtype or shape, not C-contiguous, or
            overlaps a result.
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
        """The gradient in front of relu: diff_dst where relu let the result through, else 0.

        Parameters
        ----------
        diff_dst, out : packed array, dst_shape
            As for `backward_data` and `forward`.
        dst, relu_mask : array
            One of them: the result of `forward`, where NaN counts as let through, or its mask.
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
        return self._core.backward_activation(diff_dst, dst, relu_mask, out, diff_bias)

    def diff_bias(
        self, diff_dst: Any, out: npt.NDArray[np.float32] | None = None
    ) -> npt.NDArray[np.float32]:
        """The gradient with respect to the bias: the sum over all but the channels.

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
        try:
            self._core.backward_activation(diff_dst, None, None, None, result)
        except (TypeError, ValueError) as error:  # the core has another name for it
            raise type(error)(str(error).replace("diff_bias", "out")) from None
        return result

    def __repr__(self) -> str:
        return f"<dlprim.Conv2d {self.x_shape} * {self.w_shape} {self.dtype} {self.layout}>"
