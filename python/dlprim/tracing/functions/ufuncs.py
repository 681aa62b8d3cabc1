"""Functions of elements: for each ufunc of NumPy an expression of the graph."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dlprim.graph.expressions import Expression, number
from dlprim.tracing.array import METHODS, UFUNCS, TracedArray
from dlprim.tracing.refusals import refuse, user_line
from dlprim.tracing.tracer import (
    is_float,
    mapped,
    named_type,
    result_type,
)

_E = Expression


def _same(name: str) -> Callable[..., Expression]:
    return lambda *parts: (name, *parts)


def _by(factor: float) -> Callable[[_E], Expression]:
    return lambda x: ("multiply", x, number(factor))


def _expm1(x: _E) -> Expression:
    """``tanh(x / 2) (e^x + 1)``, which is exact beside 0."""
    half = ("tanh", ("multiply", x, number(0.5)))
    return ("multiply", half, ("add", ("exp", x), number(1.0)))


def _log1p(x: _E) -> Expression:
    """Beside 0 by ``2 atanh(x / (2 + x))``."""
    is_small = ("less", ("abs", x), number(0.5))
    # Where the other branch is taken, this one stays finite: its slope is multiplied by 0.
    kept = ("where", is_small, x, number(0.0))
    small = ("multiply", number(2.0), ("atanh", ("divide", kept, ("add", number(2.0), kept))))
    return ("where", is_small, small, ("log", ("add", number(1.0), x)))


def _trunc(x: _E) -> Expression:
    return ("multiply", ("sign", x), ("floor", ("abs", x)))


def _cbrt(x: _E) -> Expression:
    return ("multiply", ("sign", x), ("power", ("abs", x), number(1 / 3)))


def _hypot(a: _E, b: _E) -> Expression:
    """The greater side times the root of 1 and the ratio squared; infinite where one side is."""
    is_infinite = ("or", ("is_inf", a), ("is_inf", b))
    a, b = ("abs", a), ("abs", b)
    # As in _log1p: what is not taken stays finite.
    near, far = (("where", is_infinite, number(0.0), it) for it in (a, b))
    is_first = ("greater_equal", near, far)
    most, least = ("where", is_first, near, far), ("where", is_first, far, near)
    ratio = ("divide", least, ("where", ("equal", most, number(0.0)), number(1.0), most))
    length = ("multiply", most, ("sqrt", ("add", number(1.0), _square(ratio))))
    return ("where", is_infinite, ("fmax", a, b), length)


def _logaddexp(a: _E, b: _E) -> Expression:
    away = ("negate", ("abs", ("subtract", a, b)))
    sure = ("where", ("equal", a, b), number(math.log(2)), ("softplus", away))  # also infinities
    return ("add", ("maximum", a, b), sure)


def _is_negative(x: _E) -> Expression:
    """Also of -0, whose inverse is below 0."""
    return ("or", ("less", x, number(0.0)), ("less", ("reciprocal", x), number(0.0)))


def _atan2(y: _E, x: _E) -> Expression:
    """From the nearer axis, so that the ratio is at most 1."""
    is_steep = ("greater", ("abs", y), ("abs", x))
    # As in _log1p: what is not taken stays finite.
    height = ("where", is_steep, y, number(1.0))
    upright = ("multiply", ("sign", height), number(math.pi / 2))
    steep = ("subtract", upright, ("atan", ("divide", x, height)))
    is_corner = ("and", ("is_inf", x), ("is_inf", y))
    has_none = ("or", ("equal", x, number(0.0)), is_corner)
    width = ("where", ("or", is_steep, has_none), number(1.0), x)
    corner = ("multiply", ("sign", y), ("sign", x))
    ratio = ("where", is_corner, corner, ("divide", y, width))
    half = ("where", _is_negative(y), number(-math.pi), number(math.pi))
    turned = ("where", _is_negative(x), half, number(0.0))
    return ("where", is_steep, steep, ("add", ("atan", ratio), turned))


def _heaviside(x: _E, middle: _E) -> Expression:
    known = ("where", ("less", x, number(0.0)), number(0.0), x)
    return (
        "where",
        ("greater", x, number(0.0)),
        number(1.0),
        ("where", ("equal", x, number(0.0)), middle, known),
    )


def _is_finite(x: _E) -> Expression:
    return ("not", ("or", ("is_nan", x), ("is_inf", x)))


def _fmin(a: _E, b: _E) -> Expression:
    """The lesser, or what is a number."""
    return ("negate", ("fmax", ("negate", a), ("negate", b)))


# By kind of `mapped`: what operands become.
_TABLE: dict[str, dict[np.ufunc, Callable[..., Expression]]] = {
    "same": {
        np.add: _same("add"),
        np.subtract: _same("subtract"),
        np.multiply: _same("multiply"),
        np.negative: _same("negate"),
        np.absolute: _same("abs"),
        np.maximum: _same("maximum"),
        np.minimum: _same("minimum"),
        np.fmax: _same("fmax"),
        np.fmin: _fmin,
        np.remainder: _same("remainder"),
        np.fmod: _same("fmod"),
        np.square: lambda x: _square(x),
        np.sign: _same("sign"),
    },
    "float": {
        np.true_divide: _same("divide"),
        np.fabs: _same("abs"),
        np.float_power: _same("power"),
        np.rint: _same("round"),
        np.sqrt: _same("sqrt"),
        np.cbrt: _cbrt,
        np.exp: _same("exp"),
        np.exp2: lambda x: ("exp", ("multiply", x, number(math.log(2)))),
        np.expm1: _expm1,
        np.log: _same("log"),
        np.log2: lambda x: ("multiply", ("log", x), number(1 / math.log(2))),
        np.log10: lambda x: ("multiply", ("log", x), number(1 / math.log(10))),
        np.log1p: _log1p,
        np.logaddexp: _logaddexp,
        np.hypot: _hypot,
        np.sin: _same("sin"),
        np.cos: _same("cos"),
        np.tan: _same("tan"),
        np.arcsin: _same("asin"),
        np.arccos: _same("acos"),
        np.arctan: _same("atan"),
        np.arctan2: _atan2,
        np.sinh: _same("sinh"),
        np.cosh: _same("cosh"),
        np.tanh: _same("tanh"),
        np.arcsinh: _same("asinh"),
        np.arccosh: _same("acosh"),
        np.arctanh: _same("atanh"),
        np.deg2rad: _by(math.pi / 180),
        np.radians: _by(math.pi / 180),
        np.rad2deg: _by(180 / math.pi),
        np.degrees: _by(180 / math.pi),
        np.heaviside: _heaviside,
    },
    "logical": {
        np.logical_and: _same("and"),
        np.logical_or: _same("or"),
        np.logical_xor: _same("xor"),
        np.logical_not: _same("not"),
    },
}
_OF_BOOL = {
    np.add: np.logical_or,
    np.multiply: np.logical_and,
    np.maximum: np.logical_or,
    np.minimum: np.logical_and,
    np.bitwise_and: np.logical_and,
    np.bitwise_or: np.logical_or,
    np.bitwise_xor: np.logical_xor,
    np.invert: np.logical_not,
}
_OF_INTEGERS = {
    np.bitwise_and: "bitwise_and",
    np.bitwise_or: "bitwise_or",
    np.bitwise_xor: "bitwise_xor",
    np.invert: "bitwise_not",
    np.left_shift: "shift_left",
    np.right_shift: "shift_right",
}
# Of integers what they are, of floats an expression.
_ROUNDED = {
    np.floor: _same("floor"),
    np.ceil: _same("ceil"),
    np.trunc: _trunc,
}
_TESTS = {np.isnan: _same("is_nan"), np.isinf: _same("is_inf"), np.isfinite: _is_finite}


def _of_elements(ufunc: np.ufunc, kind: str, function: Callable[..., Expression]) -> Any:
    def apply(*operands: Any, dtype: Any = None) -> Any:
        due = None if dtype is None else named_type(dtype)
        common = result_type(operands)[0]
        if common.kind == "b" and kind == "same" and due is None:
            if ufunc in _OF_BOOL:
                return UFUNCS[_OF_BOOL[ufunc]](*operands)
            if ufunc in (np.subtract, np.negative, np.sign):
                refuse(f"np.{ufunc.__name__} is applied to bool", "^, ~ or numbers")
            due = np.dtype(np.int8) if ufunc is not np.absolute else common
        return mapped(function, operands, kind, due)

    return apply


def _of_bits(ufunc: np.ufunc, name: str) -> Any:
    def apply(*operands: Any) -> Any:
        common = result_type(operands)[0]
        if common.kind == "b" and ufunc in _OF_BOOL:
            return UFUNCS[_OF_BOOL[ufunc]](*operands)
        if common.kind not in "biu":
            refuse(f"np.{ufunc.__name__} is applied to {common}", "integers or bool")
        return mapped(_same(name), operands)

    return apply


def _of_floats(function: Callable[[_E], Expression], tests: bool) -> Any:
    def apply(x: Any, dtype: Any = None) -> Any:
        if is_float(x.dtype):
            return mapped(function, (x,), "compare" if tests else "same")
        return mapped(lambda it: ("not_equal", it, it), (x,), "compare") if tests else copied(x)

    return apply


for _kind, _rows in _TABLE.items():
    UFUNCS.update({ufunc: _of_elements(ufunc, _kind, it) for ufunc, it in _rows.items()})
UFUNCS.update({ufunc: _of_bits(ufunc, name) for ufunc, name in _OF_INTEGERS.items()})
UFUNCS.update({ufunc: _of_floats(it, tests=False) for ufunc, it in _ROUNDED.items()})
UFUNCS.update({ufunc: _of_floats(it, tests=True) for ufunc, it in _TESTS.items()})


def _is_finite_in_any_type(x: Any, dtype: Any = None) -> Any:
    if is_float(x.dtype):
        return mapped(_is_finite, (x,), "compare")
    return mapped(lambda it: ("equal", it, it), (x,), "compare")


def copied(x: Any) -> Any:
    """The same elements in memory of their own."""
    return TracedArray(x.tracer, x.value, x.is_weak)


def _floored_quotient(a: _E, b: _E) -> _E:
    """How often b goes into a without what remains; by 0 what the quotient is."""
    is_zero = ("equal", b, number(0.0))
    by = ("where", is_zero, number(1.0), b)
    rest = ("fmod", a, by)
    is_below = ("xor", ("less", rest, number(0.0)), ("less", by, number(0.0)))
    is_less = ("and", ("not_equal", rest, number(0.0)), is_below)
    whole = ("round", ("divide", ("subtract", a, rest), by))
    less = ("subtract", whole, ("where", is_less, number(1.0), number(0.0)))
    return ("where", is_zero, ("floor", ("divide", a, b)), less)


def _floor_divide(a: Any, b: Any, dtype: Any = None) -> Any:
    due = None if dtype is None else named_type(dtype)
    if is_float(result_type((a, b))[0] if due is None else due):
        return mapped(_floored_quotient, (a, b), dtype=due)
    return mapped(
        lambda x, y: ("divide", ("subtract", x, ("remainder", x, y)), y), (a, b), dtype=due
    )


def _power(base: Any, exponent: Any, dtype: Any = None) -> Any:
    """Whole powers that are small are products, and halves are roots."""
    due = result_type((base, exponent))[0] if dtype is None else named_type(dtype)
    if isinstance(base, TracedArray) and type(exponent) in (int, float):
        if not is_float(due) and exponent < 0:
            raise ValueError(f"{user_line()}: integers to negative powers are not allowed")
        known = _POWERS.get(exponent) if is_float(due) or exponent in (2, 3) else None
        if known is not None:
            return mapped(lambda x: known(x), (base,), dtype=due)
    return mapped(_same("power"), (base, exponent), dtype=due)


def _reciprocal(x: Any, dtype: Any = None) -> Any:
    """Of integers but 1 and -1, 0."""
    due = None if dtype is None else named_type(dtype)
    if is_float(x.dtype if due is None else due):
        return mapped(_same("reciprocal"), (x,), dtype=due)
    if due is None and x.dtype.kind == "b":
        due = np.dtype(np.int8)
    is_one: _E = ("equal", ("abs", ("input", 0)), number(1))
    return mapped(lambda it: ("where", is_one, it, number(0)), (x,), dtype=due)


def _square(x: _E) -> Expression:
    return ("multiply", x, x)


_POWERS: dict[float, Callable[[_E], Expression]] = {
    -1: _same("reciprocal"),
    0.5: _same("sqrt"),
    1: lambda x: x,
    2: _square,
    3: lambda x: ("multiply", _square(x), x),
    4: lambda x: _square(_square(x)),
}

UFUNCS[np.power] = _power
UFUNCS[np.reciprocal] = _reciprocal
UFUNCS[np.isfinite] = _is_finite_in_any_type
UFUNCS[np.floor_divide] = _floor_divide
UFUNCS[np.positive] = copied
UFUNCS[np.conjugate] = copied
UFUNCS[np.divmod] = lambda a, b: (_floor_divide(a, b), UFUNCS[np.remainder](a, b))


def _outer(ufunc: np.ufunc) -> Any:
    def outer(a: Any, b: Any) -> Any:
        first = np.expand_dims(a, tuple(range(np.ndim(a), np.ndim(a) + np.ndim(b))))
        return UFUNCS[ufunc](first, b)

    return outer


METHODS.update({(ufunc, "outer"): _outer(ufunc) for ufunc in UFUNCS if ufunc.nin == 2})
