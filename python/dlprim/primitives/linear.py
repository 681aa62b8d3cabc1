"""The linear primitive: a shape fixed once, packed operands, no reordering on the hot path."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dlprim.arguments.arrays import Array, FloatArray
from dlprim.arguments.floats import bfloat16_dtype, to_float32
from dlprim.arguments.names import activation_name, dtype_name
from dlprim.primitives.conv_arguments import schedules
from dlprim.primitives.linear_arguments import LinearRequest, dtypes_of, geometry, layout_name
from dlprim.primitives.linear_operands import LinearOperands
from dlprim.tuning import store

_FROM_ARGUMENT = ("gelu", "gelu_tanh", "swish")  # whose slope their result does not tell


class Linear(LinearOperands):
    """A linear layer of fixed shape: ``dst = activation(src @ weights.T + bias)``.

    Packed operands are ndarrays of the shapes below; the result of one layer is an operand of the
    next. Every pass writes the same bits for any number of threads, and an instance may be called
    from many threads at once.

    Parameters
    ----------
    x_shape : (N, C)
        Of the plain input; N may be 0.
    K : int
        Output channels.
    dtype : dtype
        Of operands and results: float32 or bfloat16, whose sums are float32; or uint8 or int8 for
        the forward pass alone, with int8 weights and exact int32 sums.
    activation : None, "relu", "sigmoid", "tanh", "gelu", "gelu_tanh" or "swish"
    bias : bool
        Calls of `forward` pass a bias.
    schedule : str or dict, optional
        The loop nest of the forward pass, or of each pass by name, in the form of `schedules`.
        By default what `dlprim.tune` has found and stored, else a cost model's choice, as for
        every pass that a dict leaves out.
    layout : "blocked" or "plain"
        Of packed activations: ``[Cb][N][bc]``, or (N, C), used in place. 8-bit ones are plain.
    dst_dtype : dtype, optional
        Of the result of an 8-bit layer: float32 by default, bfloat16, uint8 or int8.

    Attributes
    ----------
    src_shape, dst_shape, diff_weights_shape : tuple of int
        Of the packed operands; gradients of activations have the shapes of the activations.
    weights_shape : tuple of int
        Of the packed weights: the forms ``[Kb][Cb][bc][bk]`` and ``[Cb][Kb][bk][bc]``, shown as
        the first one twice, with pairs (groups of four) of neighbours along the sum side by side
        in bfloat16 (8 bits, which have the first form alone).
    x_shape, w_shape, y_shape : tuple of int
        Of the plain arrays: (N, C), (K, C) and (N, K).
    dtype, dst_dtype : dtype
        Of operands and results; uint16 for bfloat16 where ml_dtypes is not installed.
    layout : str
    flops : float
        Operations of one pass, two per multiply-add.
    scratch_bytes : dict
        Memory that each pass takes while it runs, by the name of the pass; for backward_weights
        with a float32 result (a bfloat16 one takes a block of sums per thread besides).
    schedules : dict
        The loop nest of each pass.

    Raises
    ------
    TypeError
        An argument is of the wrong type.
    ValueError
        An extent is out of range, a name is unknown, or a schedule cannot be followed.

    Notes
    -----
    Source: the fully connected layer of arXiv 1906.06440; loop nests as values after arXiv
    2304.12576.
    """

    def __init__(
        self,
        x_shape: tuple[int, int],
        K: int,
        dtype: npt.DTypeLike = "float32",
        activation: str | None = None,
        bias: bool = False,
        schedule: str | Mapping[str, str] | None = None,
        layout: str | None = None,
        dst_dtype: npt.DTypeLike | None = None,
    ) -> None:
        numbers = geometry(x_shape, K)
        dtypes = dtypes_of(dtype, dst_dtype)
        chosen = layout_name(layout, dtypes[0])
        how = (*dtypes, chosen, activation_name(activation), bool(bias))
        self._request = LinearRequest(numbers, *how)
        self._stored_as = store.Problem("linear", numbers._asdict(), dtypes[0], chosen)
        core = self._request.core()
        if schedule is None:
            store.use_stored(core, self._stored_as)
        for which, text in schedules(schedule).items():
            core.set_schedule(which, text)
        self.activation, self.bias = activation, bool(bias)
        super().__init__(core, numbers, dtypes, chosen)

    @property
    def flops(self) -> float:
        return self._core.flops

    @property
    def scratch_bytes(self) -> dict[str, int]:
        return self._core.scratch_bytes

    @property
    def schedules(self) -> dict[str, str]:
        return self._core.schedules

    def forward(
        self,
        src: Any,
        weights: Any,
        bias: Any = None,
        out: Array | None = None,
        scale: Any = None,
        training: bool = False,
    ) -> Any:
        """``activation(src @ weights.T + bias)``, rounded once.

        Parameters
        ----------
        src : packed array, src_shape
        weights : packed array, weights_shape, or its first form alone
        bias : array of float32 or bfloat16, (K,)
            Given exactly when the layer has a bias.
        out : packed ndarray, dst_shape, optional
            Written and returned; shares no memory with an operand. What fills up its last block
            of channels is left as it is.
        scale : float or array of float32, (K,)
            For 8-bit layers: the exact sums are multiplied by it before the bias is added.
        training : bool
            Also return what `backward_activation` needs. That is dst itself, except that gelu,
            gelu_tanh and swish need what they are applied to, in a packed array of its own; in
            bfloat16 they are then applied to that rounded value.

        Returns
        -------
        packed ndarray, dst_shape
            With training=True the pair (dst, saved).

        Raises
        ------
        TypeError, ValueError
            An array is missing or superfluous, of another dtype or shape, not C-contiguous, or
            overlaps a result.
        """
        dst = self._new_dst(src) if out is None else out
        if getattr(bias, "dtype", None) == bfloat16_dtype():
            bias = to_float32(bias)
        if isinstance(scale, int | float | np.floating):
            scale = np.full(self.w_shape[0], scale, np.float32)
        kept = training and self.activation in _FROM_ARGUMENT
        before = self._new_dst(src) if kept else None
        self._core.forward(src, weights, bias, scale, before, dst)
        if training:
            return dst, dst if before is None else before
        return dst

    def backward_data(self, diff_dst: Any, weights: Any, out: Array | None = None) -> Array:
        """The gradient with respect to src.

        Parameters
        ----------
        diff_dst : packed array, dst_shape
            The gradient in front of the activation: from `backward_activation` where there is one.
        weights : packed array, weights_shape
            In both forms.
        out : packed ndarray, src_shape, optional
            As for `forward`.

        Returns
        -------
        packed ndarray, src_shape

        Raises
        ------
        TypeError, ValueError
            As `forward` does; TypeError for an 8-bit layer.
        """
        if out is None:
            out = self._new_result(self.src_shape, self.x_shape, self._like(diff_dst, self.dtype))
        self._core.backward_data(diff_dst, weights, out)
        return out

    def backward_weights(
        self, src: Any, diff_dst: Any, out: Array | None = None, dtype: npt.DTypeLike | None = None
    ) -> Array:
        """The gradient with respect to the weights, summed over the minibatch.

        Parameters
        ----------
        src : packed array, src_shape
        diff_dst : packed array, dst_shape
            As for `backward_data`.
        out : packed ndarray, diff_weights_shape, optional
            Of float32, or of bfloat16 for bfloat16 operands; else as for `forward`.
        dtype : dtype, optional
            Of the result where there is no `out`: float32 by default, or bfloat16.

        Returns
        -------
        packed ndarray, diff_weights_shape
            ``[Cb][Kb][bk][bc]``; `unpack_diff_weights` makes it plain.

        Raises
        ------
        TypeError, ValueError
            As `backward_data` does.
        """
        if out is None:
            result_dtype = self._diff_weights_dtype(dtype, src)
            out = self._new_result(self.diff_weights_shape, self.w_shape, result_dtype)
        self._core.backward_weights(src, diff_dst, out)
        return out

    def backward_activation(
        self,
        diff_dst: Any,
        saved: Any = None,
        out: Array | None = None,
        diff_bias: FloatArray | None = None,
    ) -> tuple[Array, FloatArray]:
        """The gradients in front of the activation and with respect to the bias.

        Parameters
        ----------
        diff_dst : packed array, dst_shape
            The gradient with respect to the result.
        saved : packed array, dst_shape
            What ``forward(..., training=True)`` gave besides dst: the result, or for gelu,
            gelu_tanh and swish what they were applied to. Not read without an activation.
        out : packed ndarray, dst_shape, optional
            As for `forward`, or diff_dst itself.
        diff_bias : ndarray of float32, (K,), optional
            Written and returned; shares no memory with an operand.

        Returns
        -------
        diff : packed ndarray, dst_shape
            Without an activation and `out`, diff_dst itself.
        diff_bias : ndarray of float32, (K,)
            The sum of diff over the minibatch.

        Raises
        ------
        TypeError, ValueError
            As `backward_data` does, or `saved` is missing.
        """
        if self.activation is not None and saved is None:
            raise ValueError(f"saved is missing: the activation of the layer is {self.activation}")
        diff = out
        if diff is None and self.activation is not None:
            diff = self._new_dst(diff_dst)
        total = np.empty(self.w_shape[:1], np.float32) if diff_bias is None else diff_bias
        kept = None if self.activation is None else saved
        self._core.backward_activation(diff_dst, kept, diff, total)
        return diff_dst if diff is None else diff, total

    def __repr__(self) -> str:
        return f"<dlprim.Linear {self.x_shape} -> {self.y_shape} {self.dtype} {self.layout}>"

    def __str__(self) -> str:
        return self._core.describe()

    def _new_dst(self, operand: Any) -> Array:
        return self._new_result(self.dst_shape, self.y_shape, self._like(operand, self.dst_dtype))

    def _diff_weights_dtype(self, dtype: npt.DTypeLike | None, src: Any) -> np.dtype[Any]:
        name = "float32" if dtype is None else dtype_name("dtype", dtype)
        if name == "bfloat16" and self.dtype != np.float32:
            return self._like(src, self.dtype)
        if name != "float32":
            raise TypeError(f"dtype is {name}, expected float32 or the dtype of the operands")
        return np.dtype(np.float32)
