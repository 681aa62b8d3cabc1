"""Formulas as text: what is an access, how deep they may be, how many axes they may have."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import dlprim
from test_lang import normal

CHOICES = [
    ("y(i,j) = 1 < i ? (x(i,j) + 1) : 0", lambda x, i, j: (i > 1) * (x + 1)),
    ("y(i,j) = i > 0 && j > i ? (x(i,j)) : 0", lambda x, i, j: ((i > 0) & (j > i)) * x),
    ("y(i,j) = 1 < i ? (x(i,j)) : x?(i,j+9)", lambda x, i, j: (i > 1) * x),
]


@pytest.mark.parametrize(("formula", "expected"), CHOICES)
def test_a_choice_behind_an_index_is_no_access(formula: str, expected: Any) -> None:
    x = normal(4, 5)
    i, j = np.indices(x.shape)
    np.testing.assert_allclose(dlprim.contract(formula, x), expected(x, i, j), rtol=1e-6)


def test_a_choice_behind_a_size_is_no_access() -> None:
    x = normal(6)
    layers = dlprim.define(
        "def f(float(N) x) -> (y) { y(i) = 2*i < N ? (x(i) + 1) : x?(i - 1) }\n"
        "def g(float(N) x, float s) -> (y) { y(i) = i >= 1 && x(i) < s ? (x(i)) : x?(i + 1) }"
    )
    np.testing.assert_allclose(layers.f(x), np.where(np.arange(6) < 3, x + 1, np.roll(x, 1)))
    expected = np.where((np.arange(6) >= 1) & (x < 0.5), x, np.append(x[1:], 0))
    np.testing.assert_allclose(layers.g(x, 0.5), expected)


NESTED = {
    "parentheses": lambda depth: "(" * depth + "x(i)" + ")" * depth,
    "sums in parentheses": lambda depth: "(" * depth + "x(i)" + "+1.0)" * depth,
    "calls": lambda depth: "relu(" * depth + "x(i)" + ")" * depth,
    "signs": lambda depth: "-" * depth + "x(i)",
    "a long sum": lambda depth: "x(i)" + "+1.0" * 8 * depth,
    "a long place": lambda depth: "x(i" + "+0" * 8 * depth + ")",
}


@pytest.mark.parametrize("kind", NESTED)
@pytest.mark.parametrize("kib", [64, 192])
def test_deep_formulas_on_small_stacks(kind: str, kib: int) -> None:
    """Computed, or refused in words; those that were read elsewhere are compiled here, too."""
    x, found = np.ones(3, np.float32), list[Any]()
    texts = [f"def f(float(N) x) -> (y) {{ y(i) = {NESTED[kind](it)} }}" for it in (2, 60, 180)]
    known = [dlprim.define(text).f for text in texts]

    def run() -> None:
        for read in (
            *(lambda text=text: dlprim.define(f"{text} # {kib}").f for text in texts),
            *(lambda it=it: it for it in known),
        ):
            try:
                found.append(read()(x))
            except ValueError as error:
                found.append(str(error))

    before = threading.stack_size(kib << 10)
    try:
        thread = threading.Thread(target=run)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert len(found) == 6
    for it in found:
        assert isinstance(it, np.ndarray) or "the stack of this thread allows" in it
    assert isinstance(found[0], np.ndarray)


def test_as_many_axes_as_numpy_has() -> None:
    most = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32
    a, b = normal(*(1,) * (most - 3), 2, 3, 4), normal(*(1,) * (most - 2), 4, 5)
    np.testing.assert_allclose(dlprim.matmul(a, b), np.matmul(a, b), rtol=1e-5, atol=1e-5)
    places = ",".join(f"i{number}" for number in range(most))
    np.testing.assert_array_equal(dlprim.contract(f"y({places}) = x({places})", a), a)
    with pytest.raises(ValueError, match=f"y has {most + 1} dimensions, expected NumPy's"):
        dlprim.contract(f"y({places},j) = x({places}) * w(j)", a, normal(2))
