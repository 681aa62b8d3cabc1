"""Normalisation of the last axes as layers."""

from __future__ import annotations

import math
from typing import Any

import dlprim
from dlprim.arguments.scalars import flag, integer, real
from dlprim.nn.calls import label
from dlprim.nn.initial import filled, zeros
from dlprim.nn.module import Module
from dlprim.nn.parameter import Parameter


class RowNorm(Module):
    """What `LayerNorm` and `RMSNorm` share."""

    def __init__(
        self, normalized_shape: int | tuple[int, ...], eps: float, elementwise_affine: bool
    ) -> None:
        super().__init__()
        self.normalized_shape = _extents(normalized_shape)
        self.eps = real("eps", eps, 0)
        affine = flag("elementwise_affine", elementwise_affine)
        self.weight = Parameter(filled(self.normalized_shape, 1)) if affine else None
        self.bias: Parameter | None = None

    def arguments(self) -> dict[str, Any]:
        shape = self.normalized_shape
        return {
            "normalized_shape": shape[0] if len(shape) == 1 else shape,
            "eps": self.eps,
            "elementwise_affine": self.weight is not None,
        }

    def _rows(self, x: Any) -> Any:
        """x, checked; its last axes as one where no weight says how many are meant."""
        shape, extents = x.shape, self.normalized_shape
        if shape[-len(extents) :] != extents:
            due = ", ".join(map(str, extents))
            raise ValueError(f"x of {label(self)} has shape {shape}, expected (..., {due})")
        if self.weight is not None:
            return x
        return x.reshape(*shape[: -len(extents)], math.prod(extents))


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

    def forward(self, x: Any) -> Any:
        return dlprim.layer_norm(self._rows(x), self.weight, self.bias, self.eps).reshape(x.shape)


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

    def forward(self, x: Any) -> Any:
        return dlprim.rms_norm(self._rows(x), self.weight, self.eps).reshape(x.shape)


def _extents(normalized_shape: Any) -> tuple[int, ...]:
    if not isinstance(normalized_shape, tuple | list):
        return (integer("normalized_shape", normalized_shape, 1),)
    if not normalized_shape:
        raise ValueError("normalized_shape is (), expected an integer or a tuple of some")
    places = enumerate(normalized_shape)
    return tuple(integer(f"normalized_shape[{place}]", it, 1) for place, it in places)
