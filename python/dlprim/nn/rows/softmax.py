"""Softmax and its logarithm as layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import dlprim
from dlprim.arguments.scalars import integer
from dlprim.nn.calls import label
from dlprim.nn.module import Module

_MOST_AXES = 64  # of a NumPy array


class Softmax(Module):
    """Shares of e^x along an axis; see `dlprim.softmax`.

    In front of a loss take `dlprim.softmax_cross_entropy` of what this layer would be given.

    Parameters
    ----------
    dim : int
        The axis; PyTorch has no default.

    Raises
    ------
    TypeError, ValueError
        dim is no integer, or no axis of any array.
    """

    value: ClassVar[Callable[..., Any]] = staticmethod(dlprim.softmax)

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = integer("dim", dim, -_MOST_AXES, _MOST_AXES)

    def arguments(self) -> dict[str, Any]:
        return {"dim": self.dim}

    def forward(self, x: Any) -> Any:
        if not -x.ndim <= self.dim < x.ndim:
            raise ValueError(
                f"x of {label(self)} has shape {x.shape}, expected one with an axis {self.dim}"
            )
        return self.value(x, self.dim)


class LogSoftmax(Softmax):
    """The logarithm of `Softmax`, without its rounding; see `dlprim.log_softmax`.

    Parameters
    ----------
    dim : int

    Raises
    ------
    TypeError, ValueError
        As from `Softmax`.
    """

    value = staticmethod(dlprim.log_softmax)
