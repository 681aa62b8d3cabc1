"""The functions of formulas: the errors that docs/formulas.md states, limits and gradients."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dlprim

PAGE = Path(__file__).resolve().parent.parent / "docs" / "formulas.md"
_TABLE = re.search(r"^## Functions\n(.*?)^## ", PAGE.read_text(), re.MULTILINE | re.DOTALL)
assert _TABLE is not None
_STATED = re.compile(r"`([a-z0-9_%]+)`(?: \(`(\w+)`\))? ([0-9.]+)(?=[ ,]| \|)")
ROWS = {name: (also, float(error)) for name, also, error in _STATED.findall(_TABLE[1])}

_LARGEST = np.finfo(np.float32).max
_EDGES = (0.0, 1.0, 0.5, 2.0, 1.5, 2.5, 3.0, 1e-45, 1.2e-38, 7.0, 131072.0, 1e10, 1e30, _LARGEST)
SPECIAL = np.array([*_EDGES, *(-it for it in _EDGES), np.inf, -np.inf, np.nan], np.float32)


def _each(function: Callable[..., float]) -> Callable[..., np.ndarray]:
    """A function of the standard library on arrays, as NumPy has no such one."""
    return np.vectorize(function, otypes=[np.float64])


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _softplus(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _cbrt(x: Any) -> Any:
    return np.cbrt(x)


def _sinpi(x: Any) -> Any:
    """Exact where x is whole, because what is left of it is."""
    rest = np.fmod(x, 2)
    near = np.where(np.abs(rest) > 0.5, np.copysign(1, rest) - rest, rest)
    near = np.where(near < -0.5, -1 - near, near)
    return np.copysign(np.sin(np.pi * near), np.where(near == 0, x, near))


def _cospi(x: Any) -> Any:
    rest = np.fmod(np.abs(x), 2)
    return np.where(
        np.abs(np.abs(rest - 1) - 0.5) < 0.25,
        np.sin(np.pi * (np.abs(rest - 1) - 0.5)),
        np.where(
            np.abs(rest - 1) < 0.5,
            -np.cos(np.pi * (rest - 1)),
            np.cos(np.pi * np.minimum(rest, 2 - rest)),
        ),
    )


def _at_minus_infinity(x: Any, y: Any) -> Any:
    """The limit of functions that are x times what vanishes."""
    return np.where(np.isneginf(x), -0.0, y)


def _mish(x: Any) -> Any:
    power = np.exp(np.minimum(x, 40))
    w = power * (power + 2)
    return _at_minus_infinity(x, x * (w / (w + 2)))


def _gelu(x: Any) -> Any:
    return _at_minus_infinity(x, 0.5 * x * _each(math.erfc)(-x * math.sqrt(0.5)))


def _gelu_tanh(x: Any) -> Any:
    bounded = np.maximum(x, -100)
    z = 2 * math.sqrt(2 / math.pi) * (bounded + 0.044715 * bounded**3)
    return np.where(x < -60, -0.0, x * _sigmoid(z))


def _relu6(x: Any) -> Any:
    return np.clip(x, 0, 6)


REFERENCES: dict[str, Callable[..., Any]] = {
    "%": np.remainder, "abs": np.abs, "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin,
    "asinh": np.arcsinh, "atan": np.arctan, "atan2": np.arctan2, "atanh": np.arctanh,
    "cbrt": _cbrt, "ceil": np.ceil, "copysign": np.copysign, "cos": np.cos, "cosh": np.cosh,
    "cospi": _cospi, "erf": _each(math.erf), "erfc": _each(math.erfc), "exp": np.exp,
    "exp10": lambda x: np.power(10, x), "exp2": np.exp2, "expm1": np.expm1,
    "fdim": lambda a, b: np.where(a <= b, 0, a - b), "fdivide": np.divide, "floor": np.floor,
    "fmax": np.fmax, "fmin": np.fmin, "fmod": np.fmod, "gelu": _gelu, "gelu_tanh": _gelu_tanh,
    "hardsigmoid": lambda x: _relu6(x + 3) / 6, "hardswish": lambda x: x * (_relu6(x + 3) / 6),
    "hypot": np.hypot, "log": np.log, "log10": np.log10, "log1p": np.log1p, "log2": np.log2,
    "mish": _mish, "normcdf": lambda x: 0.5 * _each(math.erfc)(-x * math.sqrt(0.5)),
    "pow": np.power, "rcbrt": lambda x: 1 / np.cbrt(x), "relu": lambda x: np.where(x < 0, 0, x),
    "relu6": _relu6, "rhypot": lambda a, b: 1 / np.hypot(a, b), "round": np.rint,
    "rsqrt": lambda x: 1 / np.sqrt(x), "sigmoid": _sigmoid, "sign": np.sign,
    "silu": lambda x: _at_minus_infinity(x, x * _sigmoid(x)), "sin": np.sin, "sinh": np.sinh,
    "sinpi": _sinpi, "softplus": _softplus, "sqrt": np.sqrt, "tan": np.tan, "tanh": np.tanh,
    "trunc": np.trunc,
}  # fmt: skip
OF_TWO = (
    "%",
    "atan2",
    "copysign",
    "fdim",
    "fdivide",
    "fmax",
    "fmin",
    "fmod",
    "hypot",
    "pow",
    "rhypot",
)
# What is beyond these is subnormal on the way.
_DOMAINS = {"mish": -87.0}
# Limits where IEEE's arithmetic, and not a function, decides.
_WITHOUT_LIMITS = {"hardswish", "relu", "relu6", "hardsigmoid", "rhypot", "sinpi", "cospi"}


def definition(name: str, count: int) -> Any:
    parameters = ", ".join(f"float(N) {it}" for it in "ab"[:count])
    reads = [f"{it}(n)" for it in "ab"[:count]]
    value = " % ".join(reads) if name == "%" else f"{name}({', '.join(reads)})"
    return dlprim.define(f"def f({parameters}) -> (y) {{ y(n) = {value} where n in 0:N }}").f


def errors(found: np.ndarray, right: np.ndarray) -> np.ndarray:
    """In units of the last place of the right result; infinite where only one is a number."""
    with np.errstate(all="ignore"):
        rounded = right.astype(np.float32)
        right = np.where(np.isinf(rounded), rounded, right)
        exponent = np.frexp(np.clip(np.abs(right), 2.0**-126, _LARGEST))[1] - 1
        difference = np.abs(found.astype(np.float64) - right) / np.ldexp(1.0, exponent - 23)
        is_same = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
        difference = np.where(is_same & ~np.isfinite(right), 0, difference)
    return np.where(np.isnan(difference), np.inf, difference)


def drawn(name: str) -> list[np.ndarray]:
    """Floats of all sizes, and as many between -90 and 90, for each operand."""
    rng = np.random.default_rng(len(name))
    operands = []
    for _ in range(2 if name in OF_TWO else 1):
        words = rng.integers(0, 1 << 32, 60_000, np.uint32).view(np.float32)
        near = [rng.uniform(-width, width, 30_000) for width in (1, 4, 90)]
        x = np.concatenate([words[~np.isnan(words)], *near]).astype(np.float32)
        operands.append(x)
    count = min(map(len, operands))
    if name == "rhypot":
        operands = [np.clip(it, -1e37, 1e37) for it in operands]
    if name == "pow":
        operands[0] = np.abs(operands[0])
        with np.errstate(all="ignore"):
            size = np.log2(operands[0][:count].astype(np.float64))
            operands[1][:count] = rng.uniform(-140, 127, count) / np.where(size == 0, 1, size)
    return [it[:count][it[:count] >= _DOMAINS.get(name, -np.inf)] for it in operands]


def test_the_page_lists_what_is_tested_here() -> None:
    assert set(ROWS) == set(REFERENCES)


@pytest.mark.every_level
@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_errors_are_within_what_the_page_states(name: str) -> None:
    operands = drawn(name)
    found = definition(name, len(operands))(*operands)
    with np.errstate(all="ignore"):
        right = REFERENCES[name](*(it.astype(np.float64) for it in operands))
    assert errors(found, right).max() <= ROWS[name][1]


@pytest.mark.every_level
@pytest.mark.parametrize("name", sorted(set(REFERENCES) - _WITHOUT_LIMITS))
def test_limits_zeros_and_what_is_no_number(name: str) -> None:
    operands = [SPECIAL]
    if name in OF_TWO:
        operands = [np.repeat(SPECIAL, SPECIAL.size), np.tile(SPECIAL, SPECIAL.size)]
    kept = operands[0] != -_LARGEST if name == "mish" else np.ones(operands[0].shape, bool)
    operands = [np.ascontiguousarray(it[kept]) for it in operands]
    found = definition(name, len(operands))(*operands)
    with np.errstate(all="ignore"):
        right = REFERENCES[name](*(it.astype(np.float64) for it in operands)).astype(np.float64)
        assert errors(found, right).max() <= ROWS[name][1]
        is_zero = (found == 0) & (right == 0) & ~np.isin(name, ["fmax", "fmin", "sign"])
    assert np.array_equal(np.signbit(found[is_zero]), np.signbit(right[is_zero]))


@pytest.mark.parametrize("name", sorted(it for it in ROWS if ROWS[it][0]))
def test_other_names_are_the_same_function(name: str) -> None:
    operands = drawn(name)
    one, other = (definition(it, len(operands))(*operands) for it in (name, ROWS[name][0]))
    assert np.array_equal(one, other, equal_nan=True)


def test_kernels_apply_functions_by_every_name() -> None:
    found = {}
    for name in ("swish", "silu"):
        text = f"y(n,k) +=! x(n,c) * w(k,c)\ny(n,k) = {name}(y(n,k))"
        layer = dlprim.define(f"def f(float(N,C) x, float(K,C) w) -> (y) {{ {text} }}").f
        found[name] = layer.compile((64, 128), (96, 128)).explain()
    assert found["swish"].startswith("statements 1 and 2: product")
    assert found["silu"] == found["swish"]


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "mish", "silu", "softplus", "tanh"])
def test_gradients_of_large_numbers_are_numbers(name: str) -> None:
    x = np.array([30, 1e4, 1e13, 1e20, 3e38], np.float32)
    ones = np.ones_like(x)
    gradient = definition(name, 1).gradient("a")
    assert np.array_equal(gradient(x, ones), ones * (name != "tanh"))
    assert np.all(np.abs(gradient(-x, ones)) < 1e-10)


@pytest.mark.parametrize("name", ["gelu_tanh", "mish", "silu", "asinh"])
def test_gradients_read_each_array_once(name: str) -> None:
    """A program has fewer operands than there are reads."""
    text = f"y(n) = {name}(a(n) * b(n) + c(n)) where n in 0:N"
    first = dlprim.define(f"def f(float(N) a, float(N) b, float(N) c) -> (y) {{ {text} }}").f
    second = first.gradient("a").gradient("a")
    a, b, c = np.random.default_rng(5).uniform(0.1, 0.9, (3, 50))
    found = second(*np.array([a, b, c, np.ones(50), np.ones(50)], np.float32))
    step, value = 1e-4, REFERENCES[name]
    z = a * b + c
    right = b**2 * (value(z + step) - 2 * value(z) + value(z - step)) / step**2
    np.testing.assert_allclose(found, right, rtol=1e-3, atol=1e-4)


def test_an_array_is_read_any_number_of_times() -> None:
    a, b = np.random.default_rng(6).standard_normal((2, 5, 33)).astype(np.float32)
    terms = " + ".join(f"{k} * a(n,m) * b(n,m) + a(n,32 - m)" for k in range(40))
    layer = dlprim.define(
        f"def f(float(N,M) a, float(N,M) b) -> (y) {{ y(n,m) = {terms} where n in 0:N, m in 0:M }}"
    ).f
    right = 780.0 * a.astype(np.float64) * b + 40.0 * a[:, ::-1]
    np.testing.assert_allclose(layer(a, b), right, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_gradients_are_what_differences_say(name: str) -> None:
    rng = np.random.default_rng(3)
    operands = [
        rng.uniform(0.1, 0.9, 50).astype(np.float32) for _ in range(2 if name in OF_TWO else 1)
    ]
    if name == "acosh":
        operands[0] += 1
    layer = definition(name, len(operands))
    found = layer.gradient("a")(*operands, np.ones(50, np.float32))
    step = 1e-6
    x, *others = (it.astype(np.float64) for it in operands)
    right = (REFERENCES[name](x + step, *others) - REFERENCES[name](x - step, *others)) / (2 * step)
    np.testing.assert_allclose(found, right, rtol=2e-4, atol=2e-5)


def test_halves_are_computed_in_float32_and_rounded_once() -> None:
    x = np.linspace(-3, 3, 1001, dtype=np.float32)
    halves = x.astype(ml_dtypes.bfloat16)
    found = definition("erf", 1)(halves)
    right = _each(math.erf)(halves.astype(np.float64)).astype(np.float32).astype(ml_dtypes.bfloat16)
    assert np.array_equal(found.astype(np.float32), right.astype(np.float32))
