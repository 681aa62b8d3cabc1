"""Activations as layers of their own, where no layer in front takes them along."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np

import dlprim
from dlprim.arguments.instead import instead
from dlprim.arguments.scalars import integer, real
from dlprim.nn.calls import label
from dlprim.nn.initial import filled
from dlprim.nn.layer import Layer, fixed
from dlprim.nn.parameter import Parameter

_NOTHING = np.empty(0, np.float32)
_MOST_AXES = 64  # of a NumPy array


class Elementwise(Layer):
    """A function of single elements, and of the layer's arguments.

    Attributes
    ----------
    value : function
        Of the class: what it computes.
    """

    value: ClassVar[Callable[..., Any]]

    @instead(inplace="none: a new array is made")
    def __init__(self) -> None:
        super().__init__()

    def _take(self, **settings: Any) -> None:
        """Keeps what `value` does not refuse."""
        self.value(_NOTHING, **settings)
        self._keep(**settings)

    def forward(self, x: Any) -> Any:
        return self.value(x, **Layer.arguments(self))


class ReLU(Elementwise):
    """x where it is not negative, else 0; see `dlprim.relu`."""

    value = staticmethod(dlprim.relu)


class Sigmoid(Elementwise):
    """The logistic function; see `dlprim.sigmoid`."""

    value = staticmethod(dlprim.sigmoid)


class Tanh(Elementwise):
    """The hyperbolic tangent; see `dlprim.tanh`."""

    value = staticmethod(dlprim.tanh)


class GELU(Elementwise):
    """x times the normal distribution function; see `dlprim.gelu`.

    Parameters
    ----------
    approximate : "none" or "tanh"

    Raises
    ------
    ValueError
        approximate is neither.
    """

    value = staticmethod(dlprim.gelu)

    @instead(inplace="none: a new array is made")
    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self._take(approximate=approximate)


class SiLU(Elementwise):
    """``x sigmoid(x)``; see `dlprim.silu`."""

    value = staticmethod(dlprim.silu)


class LeakyReLU(Elementwise):
    """x or ``negative_slope * x``; see `dlprim.leaky_relu`.

    Parameters
    ----------
    negative_slope : float

    Raises
    ------
    TypeError, ValueError
        negative_slope is no finite number.
    """

    value = staticmethod(dlprim.leaky_relu)

    @instead(inplace="none: a new array is made")
    def __init__(self, negative_slope: float = 0.01) -> None:
        super().__init__()
        self._take(negative_slope=negative_slope)


class ELU(Elementwise):
    """x or ``alpha (e^x - 1)``; see `dlprim.elu`.

    Parameters
    ----------
    alpha : float

    Raises
    ------
    TypeError, ValueError
        alpha is no finite number.
    """

    value = staticmethod(dlprim.elu)

    @instead(inplace="none: a new array is made")
    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self._take(alpha=alpha)


class SELU(Elementwise):
    """An `ELU` that keeps mean and variance; see `dlprim.selu`."""

    value = staticmethod(dlprim.selu)


class Hardsigmoid(Elementwise):
    """``x / 6 + 1 / 2`` within 0 and 1; see `dlprim.hardsigmoid`."""

    value = staticmethod(dlprim.hardsigmoid)


class Hardswish(Elementwise):
    """``x hardsigmoid(x)``; see `dlprim.hardswish`."""

    value = staticmethod(dlprim.hardswish)


class Softplus(Elementwise):
    """``log(1 + e^(beta x)) / beta``; see `dlprim.softplus`.

    Parameters
    ----------
    beta : float
        Above 0.
    threshold : float
        Where ``beta x`` is above it the result is x.

    Raises
    ------
    TypeError, ValueError
        One is no finite number, or beta is not above 0.
    """

    value = staticmethod(dlprim.softplus)

    @instead(inplace="none: a new array is made")
    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self._take(beta=beta, threshold=threshold)


class Mish(Elementwise):
    """``x tanh(softplus(x))``; see `dlprim.mish`."""

    value = staticmethod(dlprim.mish)


class ReLU6(Elementwise):
    """x within 0 and 6."""

    value = staticmethod(partial(np.clip, a_min=0, a_max=6))


class PReLU(Layer):
    """x or ``weight * x``; see `dlprim.prelu`.

    Arguments are those of `torch.nn.PReLU`.

    Parameters
    ----------
    num_parameters : int
        1, or one slope for each channel, the second axis of x.
    init : float
        What all slopes are at first.

    Attributes
    ----------
    weight : Parameter
        float32, (num_parameters,), whatever the dtype of activations.

    Raises
    ------
    TypeError, ValueError
        num_parameters is no integer of at least 1, or init no finite number.
    """

    init = fixed()

    def __init__(self, num_parameters: int = 1, init: float = 0.25) -> None:
        super().__init__()
        self._keep(init=real("init", init))
        self.weight = Parameter(filled(integer("num_parameters", num_parameters, 1), init))

    @property
    def num_parameters(self) -> int:
        (count,) = self.weight.shape
        return int(count)

    def forward(self, x: Any) -> Any:
        count = self.num_parameters
        if count != 1 and (x.ndim < 2 or x.shape[1] != count):
            raise ValueError(f"x of {label(self)} has shape {x.shape}, expected (N, {count}, ...)")
        return dlprim.prelu(x, self.weight)


class Softmax(Layer):
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
