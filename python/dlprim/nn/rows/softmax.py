"""Softmax and its logarithm as layers, on plain arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import dlprim
from dlprim.arguments.scalars import integer
from dlprim.nn.module import Array, Module, Ready
from dlprim.nn.passes import backward_pass, forward_pass

_MOST_AXES = 64  # of a NumPy array


class Softmax(Module):
    """Shares of e^x along an axis, on plain arrays; see `dlprim.softmax`.

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

    takes_images = False
    keeps_input = False
    reads_result = True
    of_passes = ("_dst",)
    value: ClassVar[Callable[..., Array]] = staticmethod(dlprim.softmax)
    slope: ClassVar[Callable[..., Array]] = staticmethod(dlprim.softmax_backward)

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = integer("dim", dim, -_MOST_AXES, _MOST_AXES)
        self._dst: Any = None

    def arguments(self) -> dict[str, Any]:
        return {"dim": self.dim}

    def traced(self, x: Any) -> Any:
        return self.value(x, self.dim)

    @forward_pass
    def forward(self, x: Any, training: bool | None = None) -> Array:
        ndim = len(x.shape)
        if not -ndim <= self.dim < ndim:
            raise ValueError(
                f"x of {type(self).__name__} {self.name!r} has shape {x.shape}, expected one with "
                f"an axis {self.dim}"
            )
        with self.context.timed(self.name, "forward" if training else "inference"):
            dst = self.value(x, self.dim, dtype=self.context.bits)
        if training:
            self._dst = dst
        return dst

    @backward_pass
    def backward(self, dy: Any, ready: Ready | None = None) -> Array:
        dst, self._dst = self._dst, None
        with self.context.timed(self.name, "backward"):
            return self.slope(dy, dst, self.dim, dtype=self.context.bits)


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
    slope = staticmethod(dlprim.log_softmax_backward)
