"""Activations as layers of their own, where no layer in front takes them along."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

import dlprim
from dlprim.arguments.instead import instead
from dlprim.nn.context import Images, array_of
from dlprim.nn.module import Module, Ready
from dlprim.nn.passes import backward_pass, forward_pass

_NOTHING = np.empty(0, np.float32)


class Elementwise(Module):
    """A function of single elements, on plain arrays and `Images`.

    Attributes
    ----------
    value, slope : function
        Of the class: what it computes, and the gradient in front of it.
    settings : tuple of str
        Of the class: arguments of both, which are attributes.
    """

    of_passes = ("_src",)
    value: ClassVar[Callable[..., Any]]
    slope: ClassVar[Callable[..., Any]]
    settings: ClassVar[tuple[str, ...]] = ()

    @instead(inplace="none: a new array is made")
    def __init__(self) -> None:
        super().__init__()
        self._src: Any = None

    def _check(self) -> None:
        """Has `value` refuse what it does not take."""
        self.value(_NOTHING, **self.arguments())

    def arguments(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.settings}

    def traced(self, x: Any) -> Any:
        return self.value(x, **self.arguments())

    @forward_pass
    def forward(self, x: Any, training: bool | None = None) -> Any:
        src, how = array_of(x), self.arguments()
        dst = self.context.buffers.take(src.shape, src.dtype) if isinstance(x, Images) else None
        with self.context.timed(self.name, "forward" if training else "inference"):
            dst = self.value(src, **how, out=dst, dtype=self.context.bits)
        if training:
            self._src = src
        return x._replace(array=dst) if isinstance(x, Images) else dst

    @backward_pass
    def backward(self, dy: Any, ready: Ready | None = None) -> Any:
        src, self._src, how = self._src, None, self.arguments()
        out = dy.array if isinstance(dy, Images) else None
        with self.context.timed(self.name, "backward"):
            diff = self.slope(array_of(dy), src, **how, out=out, dtype=self.context.bits)
        return dy if isinstance(dy, Images) else diff


class ReLU(Elementwise):
    """x where it is not negative, else 0, on plain arrays and `Images`; see `dlprim.relu`."""

    value = staticmethod(dlprim.relu)
    slope = staticmethod(dlprim.relu_backward)  # x has the signs of the result


class Sigmoid(Elementwise):
    """The logistic function, on plain arrays and `Images`; see `dlprim.sigmoid`."""

    value = staticmethod(dlprim.sigmoid)
    slope = staticmethod(dlprim.sigmoid_backward)


class Tanh(Elementwise):
    """The hyperbolic tangent, on plain arrays and `Images`; see `dlprim.tanh`."""

    value = staticmethod(dlprim.tanh)
    slope = staticmethod(dlprim.tanh_backward)


class GELU(Elementwise):
    """x times the normal distribution function, on plain arrays and `Images`; see `dlprim.gelu`.

    Parameters
    ----------
    approximate : "none" or "tanh"

    Raises
    ------
    ValueError
        approximate is neither.
    """

    value = staticmethod(dlprim.gelu)
    slope = staticmethod(dlprim.gelu_backward)
    settings = ("approximate",)

    @instead(inplace="none: a new array is made")
    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate
        self._check()


class SiLU(Elementwise):
    """``x sigmoid(x)``, on plain arrays and `Images`; see `dlprim.silu`."""

    value = staticmethod(dlprim.silu)
    slope = staticmethod(dlprim.silu_backward)


class LeakyReLU(Elementwise):
    """x or ``negative_slope * x``, on plain arrays and `Images`; see `dlprim.leaky_relu`.

    Parameters
    ----------
    negative_slope : float

    Raises
    ------
    TypeError, ValueError
        negative_slope is no finite number.
    """

    value = staticmethod(dlprim.leaky_relu)
    slope = staticmethod(dlprim.leaky_relu_backward)
    settings = ("negative_slope",)

    @instead(inplace="none: a new array is made")
    def __init__(self, negative_slope: float = 0.01) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self._check()


class ELU(Elementwise):
    """x or ``alpha (e^x - 1)``, on plain arrays and `Images`; see `dlprim.elu`.

    Parameters
    ----------
    alpha : float

    Raises
    ------
    TypeError, ValueError
        alpha is no finite number.
    """

    value = staticmethod(dlprim.elu)
    slope = staticmethod(dlprim.elu_backward)
    settings = ("alpha",)

    @instead(inplace="none: a new array is made")
    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self.alpha = alpha
        self._check()


class SELU(Elementwise):
    """An `ELU` that keeps mean and variance, on plain arrays and `Images`; see `dlprim.selu`."""

    value = staticmethod(dlprim.selu)
    slope = staticmethod(dlprim.selu_backward)


class Hardsigmoid(Elementwise):
    """``x / 6 + 1 / 2`` within 0 and 1, on plain arrays and `Images`; see `dlprim.hardsigmoid`."""

    value = staticmethod(dlprim.hardsigmoid)
    slope = staticmethod(dlprim.hardsigmoid_backward)


class Hardswish(Elementwise):
    """``x hardsigmoid(x)``, on plain arrays and `Images`; see `dlprim.hardswish`."""

    value = staticmethod(dlprim.hardswish)
    slope = staticmethod(dlprim.hardswish_backward)


class Softplus(Elementwise):
    """``log(1 + e^(beta x)) / beta``, on plain arrays and `Images`; see `dlprim.softplus`.

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
    slope = staticmethod(dlprim.softplus_backward)
    settings = (
        "beta",
        "threshold",
    )

    @instead(inplace="none: a new array is made")
    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold
        self._check()


class Mish(Elementwise):
    """``x tanh(softplus(x))``, on plain arrays and `Images`; see `dlprim.mish`."""

    value = staticmethod(dlprim.mish)
    slope = staticmethod(dlprim.mish_backward)
