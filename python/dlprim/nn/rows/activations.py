"""Activations as layers of their own, where no layer in front takes them along."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

import dlprim
from dlprim.arguments.instead import instead
from dlprim.nn.module import Module

_NOTHING = np.empty(0, np.float32)


class Elementwise(Module):
    """A function of single elements.

    Attributes
    ----------
    value : function
        Of the class: what it computes.
    settings : tuple of str
        Of the class: arguments of that, which are attributes.
    """

    value: ClassVar[Callable[..., Any]]
    settings: ClassVar[tuple[str, ...]] = ()

    @instead(inplace="none: a new array is made")
    def __init__(self) -> None:
        super().__init__()

    def _check(self) -> None:
        """Has `value` refuse what it does not take."""
        self.value(_NOTHING, **self.arguments())

    def arguments(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.settings}

    def forward(self, x: Any) -> Any:
        return self.value(x, **self.arguments())


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
    settings = ("approximate",)

    @instead(inplace="none: a new array is made")
    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate
        self._check()


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
    settings = ("negative_slope",)

    @instead(inplace="none: a new array is made")
    def __init__(self, negative_slope: float = 0.01) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self._check()


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
    settings = ("alpha",)

    @instead(inplace="none: a new array is made")
    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self.alpha = alpha
        self._check()


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
    settings = ("beta", "threshold")

    @instead(inplace="none: a new array is made")
    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold
        self._check()


class Mish(Elementwise):
    """``x tanh(softplus(x))``; see `dlprim.mish`."""

    value = staticmethod(dlprim.mish)


class ReLU6(Elementwise):
    """x within 0 and 6."""

    def forward(self, x: Any) -> Any:
        return np.clip(x, 0, 6)
