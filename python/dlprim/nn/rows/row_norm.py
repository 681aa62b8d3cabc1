"""Normalisation of the last axes as layers, on plain arrays."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import dlprim
from dlprim.arguments.scalars import flag, integer, real
from dlprim.nn.initial import filled, zeros
from dlprim.nn.module import Array, Module, Ready, finished
from dlprim.nn.parameter import FloatArray, Parameter
from dlprim.nn.passes import backward_pass, forward_pass


class RowNorm(Module):
    """What `LayerNorm` and `RMSNorm` share."""

    takes_images = False
    of_passes = ("_src",)

    def __init__(
        self, normalized_shape: int | tuple[int, ...], eps: float, elementwise_affine: bool
    ) -> None:
        super().__init__()
        self.normalized_shape = _extents(normalized_shape)
        self.eps = real("eps", eps, 0)
        affine = flag("elementwise_affine", elementwise_affine)
        self.weight = Parameter(filled(self.normalized_shape, 1)) if affine else None
        self.bias: Parameter | None = None
        self._src: Any = None

    def arguments(self) -> dict[str, Any]:
        shape = self.normalized_shape
        return {
            "normalized_shape": shape[0] if len(shape) == 1 else shape,
            "eps": self.eps,
            "elementwise_affine": self.weight is not None,
        }

    @abstractmethod
    def _value(self, rows: Array) -> Array: ...

    @abstractmethod
    def _slope(self, dy: Array, rows: Array) -> tuple[Array, ...]:
        """The gradient with respect to x, and then those of `weight` and `bias`."""

    def _traced_rows(self, x: Any) -> Any:
        """Without weights, which say how many axes are meant, there is one."""
        whole, extents = self._whole(x), self.normalized_shape
        if self.weight is not None:
            return whole
        return whole.reshape(*x.shape[: -len(extents)], math.prod(extents))

    @forward_pass
    def forward(self, x: Any, training: bool | None = None) -> Array:
        shape = x.shape
        rows = self._whole(x).reshape(-1, math.prod(self.normalized_shape))
        with self.context.timed(self.name, "forward" if training else "inference"):
            dst = self._value(rows)
        if training:
            self._src = rows
        return dst.reshape(shape)

    @backward_pass
    def backward(self, dy: Any, ready: Ready | None = None) -> Array:
        rows, self._src = self._src, None
        with self.context.timed(self.name, "backward"):
            dx, *gradients = self._slope(dy.reshape(rows.shape), rows)
        parameters = [it for it in (self.weight, self.bias) if it is not None]
        for parameter, gradient in zip(parameters, gradients, strict=False):
            parameter.gradient[...] = gradient.reshape(parameter.shape)
        finished(ready, *parameters)
        return dx.reshape(dy.shape)

    def _whole(self, x: Any) -> Any:
        """x, whose last axes are checked."""
        shape, extents = x.shape, self.normalized_shape
        if shape[-len(extents) :] != extents:
            due = ", ".join(map(str, extents))
            raise ValueError(
                f"x of {type(self).__name__} {self.name!r} has shape {shape}, expected (..., {due})"
            )
        return x

    def _flat(self, parameter: Parameter | None) -> FloatArray | None:
        return None if parameter is None else parameter.held.reshape(-1)


class LayerNorm(RowNorm):
    """``(x - mean) / sqrt(var + eps) * weight + bias`` over the last axes; see `dlprim.layer_norm`.

    Defaults are those of `torch.nn.LayerNorm`. weight is 1 and bias 0 at first.

    Parameters
    ----------
    normalized_shape : int or tuple of int
        The last axes of x.
    eps : float
    elementwise_affine : bool
        Whether there are parameters.
    bias : bool
        Whether bias is one of them.

    Attributes
    ----------
    weight, bias : Parameter or None
        float32, whatever the dtype of activations.

    Raises
    ------
    TypeError, ValueError
        normalized_shape holds no integers of at least 1, eps is negative or no number, or a flag is
        no bool.
    """

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine)
        if flag("bias", bias) and self.weight is not None:
            self.bias = Parameter(zeros(self.normalized_shape))

    def arguments(self) -> dict[str, Any]:
        has_bias = self.bias is not None or self.weight is None  # without weight it says nothing
        return super().arguments() | {"bias": has_bias}

    def traced(self, x: Any) -> Any:
        rows = self._traced_rows(x)
        return dlprim.layer_norm(rows, self.weight, self.bias, self.eps).reshape(x.shape)

    def _value(self, rows: Array) -> Array:
        weight, bias = self._flat(self.weight), self._flat(self.bias)
        return dlprim.layer_norm(rows, weight, bias, self.eps, dtype=self.context.bits)

    def _slope(self, dy: Array, rows: Array) -> tuple[Array, ...]:
        weight = self._flat(self.weight)
        return dlprim.layer_norm_backward(dy, rows, weight, self.eps, dtype=self.context.bits)


class RMSNorm(RowNorm):
    """``x / sqrt(mean(x^2) + eps) * weight`` over the last axes; see `dlprim.rms_norm`.

    weight is 1 at first.

    Parameters
    ----------
    normalized_shape : int or tuple of int
        The last axes of x.
    eps : float
        `torch.nn.RMSNorm` has None for 1.19e-7, the step of float32 at 1.
    elementwise_affine : bool
        Whether there is a parameter.

    Attributes
    ----------
    weight : Parameter or None
        float32, whatever the dtype of activations.

    Raises
    ------
    TypeError, ValueError
        As from `LayerNorm`.
    """

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine)

    def traced(self, x: Any) -> Any:
        return dlprim.rms_norm(self._traced_rows(x), self.weight, self.eps).reshape(x.shape)

    def _value(self, rows: Array) -> Array:
        return dlprim.rms_norm(rows, self._flat(self.weight), self.eps, dtype=self.context.bits)

    def _slope(self, dy: Array, rows: Array) -> tuple[Array, ...]:
        weight = self._flat(self.weight)
        return dlprim.rms_norm_backward(dy, rows, weight, self.eps, dtype=self.context.bits)


def _extents(normalized_shape: Any) -> tuple[int, ...]:
    if not isinstance(normalized_shape, tuple | list):
        return (integer("normalized_shape", normalized_shape, 1),)
    if not normalized_shape:
        raise ValueError("normalized_shape is (), expected an integer or a tuple of some")
    places = enumerate(normalized_shape)
    return tuple(integer(f"normalized_shape[{place}]", it, 1) for place, it in places)
