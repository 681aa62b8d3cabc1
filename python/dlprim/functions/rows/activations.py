"""Activations and their gradients, element by element: a table, from which functions are made.

Each has a signature of its own in front of one body, so `help` and messages about arguments are
those of functions that are written out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy.typing as npt

from dlprim.arguments.arrays import Array
from dlprim.arguments.instead import ARRAYS, IN_PLACE, instead
from dlprim.arguments.names import one_of_names
from dlprim.arguments.scalars import real
from dlprim.functions.rows.row_programs import slope_of, value_of


class Value(Protocol):
    """An activation without settings."""

    def __call__(
        self, x: Any, *, out: Array | None = None, dtype: npt.DTypeLike | None = None
    ) -> Array: ...


class Slope(Protocol):
    """The gradient in front of one."""

    def __call__(
        self, dy: Any, x: Any, *, out: Array | None = None, dtype: npt.DTypeLike | None = None
    ) -> Array: ...


class Setting(NamedTuple):
    """An argument of an activation."""

    name: str
    kind: str
    default: float | str
    meaning: str = ""
    check: Callable[[str, Any], float] = real  # of a number


def _positive(name: str, value: Any) -> float:
    """A finite number above 0; else as `real`."""
    number = real(name, value)
    if number <= 0:
        raise ValueError(f"{name} is {value}, expected a finite number above 0")
    return number


def _gelu_program(approximate: Any) -> str:
    exact = one_of_names("approximate", approximate, ("none", "tanh")) == "none"
    return "gelu" if exact else "gelu_tanh"


_SIGNATURES = """
@instead
def {name}(x: Any{settings}, *, out: Array | None = None,
           dtype: npt.DTypeLike | None = None) -> Array:
    return value_of({program}, x, ({numbers}), out, dtype)

def {name}_backward(dy: Any, x: Any{settings}, *, out: Array | None = None,
                    dtype: npt.DTypeLike | None = None) -> Array:
    return slope_of({program} + "_backward", (dy, x), ({numbers}), out, dtype)
"""

# What these stand for there, and where `inspect` looks for annotations.
_NAMES = {
    "__name__": __name__,
    "Any": Any,
    "Array": Array,
    "npt": npt,
    "value_of": value_of,
    "slope_of": slope_of,
    "gelu_program": _gelu_program,
    "instead": instead(**ARRAYS, **IN_PLACE),
}

_VALUE = """{formula}

Element by element, as PyTorch's function of this name; computed in float32 and rounded once.

Parameters
----------
x : array of float32 or bfloat16, any shape
{settings}out : ndarray of the same dtype and shape, optional
    Written and returned. Must be C-contiguous; may be x.
dtype : None or "bfloat16"
    "bfloat16" treats uint16 arrays as the bits of bfloat16 values; the result is then uint16 too.

Returns
-------
ndarray of the dtype and shape of x
    {low} at -inf, {high} at inf; NaN stays NaN.

Raises
------
TypeError, ValueError
    An array has the wrong dtype or shape, or `out` partly overlaps x{refused}.
"""

_SLOPE = """The gradient of `{name}`: dy times the derivative at x.

Parameters
----------
dy, x : array of float32 or bfloat16, of the same shape
    x is the argument of `{name}`, not its result.
{settings}out : ndarray of the same dtype and shape, optional
    As for `{name}`; may be dy or x.
dtype : None or "bfloat16"
    As for `{name}`.

Returns
-------
ndarray of the dtype and shape of dy
    NaN where x or dy is; at infinite x the limits of the derivative.

Raises
------
TypeError, ValueError
    As for `{name}`.
"""


def _made(
    name: str,
    formula: str,
    limits: tuple[str, str],
    settings: tuple[Setting, ...] = (),
    program: str = "",
) -> tuple[Any, Any]:
    """An activation and its gradient.

    ``program`` is an expression for the name of the program, where that is not ``name``; settings
    that are no numbers are of it.
    """
    signature = "".join(f", {it.name}: {it.kind} = {it.default!r}" for it in settings)
    checked = [f"check_{it.name}({it.name!r}, {it.name})," for it in settings if it.kind == "float"]
    source = _SIGNATURES.format(
        name=name, settings=signature, numbers="".join(checked), program=program or repr(name)
    )
    names = _NAMES | {f"check_{it.name}": it.check for it in settings}
    exec(compile(source, f"<{__name__}.{name}>", "exec"), names)
    value, slope = names[name], names[f"{name}_backward"]
    of_value = "".join(f"{it.name} : {_kind(it)}\n{it.meaning}" for it in settings)
    of_slope = "".join(f"{it.name} : {_kind(it)}\n    As for `{name}`.\n" for it in settings)
    refused = "".join(f";\n    {it.name} is none of these" for it in settings if it.kind == "str")
    numbers = " or ".join(it.name for it in settings if it.kind == "float")
    if numbers:
        refused = f";\n    {numbers} is no finite number"
    low, high = limits
    value.__doc__ = _VALUE.format(
        name=name, formula=formula, low=low, high=high, settings=of_value, refused=refused
    )
    slope.__doc__ = _SLOPE.format(name=name, settings=of_slope)
    return value, slope


def _plain(
    name: str, formula: str, limits: tuple[str, str], program: str = ""
) -> tuple[Value, Slope]:
    return _made(name, formula, limits, program=program and repr(program))


def _kind(setting: Setting) -> str:
    return '"none" or "tanh"' if setting.kind == "str" else setting.kind


sigmoid, sigmoid_backward = _plain(
    "sigmoid", "The logistic function, ``1 / (1 + e^-x)``.", ("0", "1")
)
tanh, tanh_backward = _plain("tanh", "The hyperbolic tangent.", ("-1", "1"))
gelu, gelu_backward = _made(
    "gelu",
    "``x P(x)``, with P the standard normal distribution function.",
    ("0", "inf"),
    (
        Setting(
            "approximate",
            "str",
            "none",
            '    "tanh" is ``x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2``, which takes less '
            "time.\n",
        ),
    ),
    program="gelu_program(approximate)",
)
silu, silu_backward = _plain("silu", "``x sigmoid(x)``, also called swish.", ("0", "inf"), "swish")
leaky_relu, leaky_relu_backward = _made(
    "leaky_relu",
    "x where it is positive, else ``negative_slope * x``.",
    ("-inf (for a positive negative_slope)", "inf"),
    (Setting("negative_slope", "float", 0.01),),
)
elu, elu_backward = _made(
    "elu",
    "x where it is positive, else ``alpha (e^x - 1)``.",
    ("-alpha", "inf"),
    (Setting("alpha", "float", 1.0),),
)
selu, selu_backward = _plain(
    "selu",
    "``scale elu(x, alpha)``, with the constants of arXiv 1706.02515 that keep mean and variance.",
    ("-1.758", "inf"),
)
hardsigmoid, hardsigmoid_backward = _plain(
    "hardsigmoid", "``x / 6 + 1 / 2``, and not less than 0 or more than 1.", ("0", "1")
)
hardswish, hardswish_backward = _plain("hardswish", "``x hardsigmoid(x)``.", ("NaN", "inf"))
softplus, softplus_backward = _made(
    "softplus",
    "``log(1 + e^(beta x)) / beta``; x itself where ``beta x`` is above threshold.",
    ("0", "inf"),
    (
        Setting("beta", "float", 1.0, "    Above 0.\n", _positive),
        Setting("threshold", "float", 20.0),
    ),
)
mish, mish_backward = _plain("mish", "``x tanh(softplus(x))``.", ("NaN", "inf"))
