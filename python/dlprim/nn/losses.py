"""Losses with their settings: of what a model gives and what it should be, with the gradient."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

import dlprim
from dlprim.arguments.arrays import Array, FloatArray
from dlprim.arguments.floats import float_operand
from dlprim.arguments.traced import RUNNING
from dlprim.functions.loss import LossAndGradient
from dlprim.functions.rows.losses import (
    binary_cross_entropy_with_gradient,
    mse_loss_with_gradient,
)
from dlprim.nn.summary import settings

_NOTHING = np.empty(0, np.float32)


class Loss:
    """Settings of a loss, which are attributes; no `Module`, as it stands behind a model."""

    def __repr__(self) -> str:
        names = inspect.signature(type(self)).parameters
        return f"{type(self).__name__}({settings(self, {it: getattr(self, it) for it in names})})"


class MSELoss(Loss):
    """Squared differences: ``loss, diff = criterion(model(x), target)``; see `dlprim.mse_loss`.

    Parameters
    ----------
    reduction : "mean", "sum" or "none"

    Raises
    ------
    ValueError
        reduction is none of these.
    """

    def __init__(self, *, reduction: str = "mean") -> None:
        self.reduction = reduction
        self(_NOTHING, _NOTHING)

    def __call__(
        self, x: Any, y: Any, *, gradient: bool = True, out: Array | None = None
    ) -> LossAndGradient:
        """The loss, and its gradient with respect to x from the same pass.

        Parameters
        ----------
        x, y : array of float32 or bfloat16, of the same dtype and shape
            What the model gives, and what it should be.
        gradient : bool
            False computes the loss only.
        out : ndarray of the dtype and shape of x, optional
            Receives the gradient; C-contiguous; may be x or y.

        Returns
        -------
        LossAndGradient
            ``(loss, dx)``, dx to be given to `Module.backward`. With reduction="none" an array and
            the gradient of its sum.

        Raises
        ------
        TypeError, ValueError
            As from `dlprim.mse_loss`.
        """
        if RUNNING.tracer is not None:
            how: dict[str, Any] = {"reduction": self.reduction}
            return _in_trace(lambda it: dlprim.mse_loss(it, y, **how), x, gradient)
        return mse_loss_with_gradient(x, y, self.reduction, gradient, out)


class BCEWithLogitsLoss(Loss):
    """Binary cross-entropy of logits: ``loss, diff = criterion(model(x), targets)``.

    See `dlprim.binary_cross_entropy_with_logits`.

    Parameters
    ----------
    weight : array of float32 or bfloat16, optional
        Factors of the losses; copied, as float32.
    reduction : "mean", "sum" or "none"
    pos_weight : array of float32 or bfloat16, optional
        Factors of the losses of positive targets; copied, as float32.

    Raises
    ------
    TypeError, ValueError
        A weight is no array of float32 or bfloat16, or reduction none of these.
    """

    def __init__(
        self, weight: Any = None, *, reduction: str = "mean", pos_weight: Any = None
    ) -> None:
        self.reduction = reduction
        self.weight, self.pos_weight = None, None
        self(_NOTHING, _NOTHING)
        self.weight, self.pos_weight = _kept("weight", weight), _kept("pos_weight", pos_weight)

    def __call__(
        self, logits: Any, targets: Any, *, gradient: bool = True, out: Array | None = None
    ) -> LossAndGradient:
        """The loss, and its gradient with respect to logits from the same pass.

        Parameters
        ----------
        logits, targets : array of float32 or bfloat16, of the same dtype and shape
        gradient, out
            As of `MSELoss`.

        Returns
        -------
        LossAndGradient
            As from `MSELoss`.

        Raises
        ------
        TypeError, ValueError
            As from `dlprim.binary_cross_entropy_with_logits`.
        """
        if RUNNING.tracer is not None:
            how: dict[str, Any] = {"pos_weight": self.pos_weight, "reduction": self.reduction}
            return _in_trace(
                lambda it: dlprim.binary_cross_entropy_with_logits(it, targets, self.weight, **how),
                logits,
                gradient,
            )
        operands = (logits, targets, self.weight, self.pos_weight)
        return binary_cross_entropy_with_gradient(operands, self.reduction, gradient, out)


class CrossEntropyLoss(Loss):
    """Cross-entropy of classes: ``loss, diff = criterion(model(x), targets)``.

    See `dlprim.softmax_cross_entropy`.

    Parameters
    ----------
    weight : array of float32 or bfloat16, (K,), optional
        Of the classes; copied, as float32.
    ignore_index : int
    reduction : "mean", "sum" or "none"
    label_smoothing : float

    Raises
    ------
    TypeError, ValueError
        An argument is of another kind, or outside its range.
    """

    def __init__(
        self,
        weight: Any = None,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        self.weight = _kept("weight", weight)
        self.ignore_index, self.reduction = ignore_index, reduction
        self.label_smoothing = label_smoothing
        if self.weight is not None and (self.weight.ndim != 1 or not self.weight.size):
            raise ValueError(f"weight has shape {self.weight.shape}, expected (K,) with K >= 1")
        classes = 1 if self.weight is None else self.weight.size
        self(np.empty((0, classes), np.float32), np.empty(0, np.int64))

    def __call__(
        self, logits: Any, targets: Any, *, gradient: bool = True, out: Array | None = None
    ) -> LossAndGradient:
        """The loss, and its gradient with respect to logits from the same pass.

        Parameters
        ----------
        logits : array of float32 or bfloat16, (..., K)
        targets : array of int64 or other integers, (...)
        gradient, out
            As of `MSELoss`.

        Returns
        -------
        LossAndGradient
            As from `MSELoss`.

        Raises
        ------
        TypeError, ValueError
            As from `dlprim.softmax_cross_entropy`.
        """
        return dlprim.softmax_cross_entropy(
            logits,
            targets,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            gradient=gradient,
            out=out,
        )


def _in_trace(loss: Callable[[Any], Any], x: Any, gradient: bool) -> LossAndGradient:
    """A loss as a function of what a model gives, and its gradient."""
    slope = dlprim.grad(lambda it: np.sum(loss(it)))(x) if gradient else None
    return LossAndGradient(loss(x), slope)


def _kept(name: str, weight: Any) -> FloatArray | None:
    """A copy, which nobody else writes."""
    return None if weight is None else float_operand(name, weight).astype(np.float32)
