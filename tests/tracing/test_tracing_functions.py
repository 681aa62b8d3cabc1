"""Functions, methods and operators that the drawn functions do not have, beside NumPy's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlprim
from drawing import RNG

F = np.float32


def floats(*shape: int) -> Any:
    return RNG.uniform(-2, 2, shape).astype(F)


def whole(*shape: int) -> Any:
    return RNG.integers(-5, 6, shape)


Case = tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]

PAIR = lambda: (floats(3, 4), floats(3, 4))  # noqa: E731
ONE = lambda: (floats(3, 4),)  # noqa: E731
WHOLE = lambda: (whole(3, 4), whole(3, 4))  # noqa: E731
BOOL = lambda: (whole(3, 4) > 0, whole(3, 4) > 0)  # noqa: E731
CUBE = lambda: (floats(2, 3, 4),)  # noqa: E731

CASES: dict[str, Case] = {
    "comparisons": (lambda a, b: (a < b, a <= b, a > b, a >= b, a == b, a != b), PAIR),
    "logical": (
        lambda a, b: (
            np.logical_and(a > 0, b),
            np.logical_or(a > 0, b),
            np.logical_not(a),
            np.logical_xor(a, b),
        ),
        PAIR,
    ),
    "of bool": (lambda a, b: (a & b, a | b, a ^ b, ~a, a + b, a * b, np.maximum(a, b)), BOOL),
    "bits": (lambda a, b: (a & b, a | b, a ^ b, ~a, a << 2, a >> 1), WHOLE),
    "integers": (lambda a, b: (a + b, a - b, a * b, a // 3, a % 3, abs(a), -a, a**2), WHOLE),
    "integers divided": (lambda a, b: (a / 3, a // (b * b + 1), divmod(a, 4)), WHOLE),
    "floats of integers": (lambda a, b: (np.exp(a), np.sqrt(abs(b)), a * 0.5, a + 1.0), WHOLE),
    "with numbers": (lambda a, b: (a + 1, 2 - a, a * True, a / 2, 3 ** (b > 0)), PAIR),
    "tests": (lambda a: (np.isnan(a), np.isinf(a), np.isfinite(a / 0 * 0 + a)), ONE),
    "tests of integers": (lambda a, b: (np.isnan(a), np.isfinite(b), np.floor(a)), WHOLE),
    "any and all": (
        lambda a, b: (np.any(a > 1), np.all(a < 9, axis=0), (a > 0).any(1), np.all(b, axis=(0, 1))),
        PAIR,
    ),
    "counts": (lambda a, b: (np.count_nonzero(a > 0), (a > b).sum(axis=0), (a > 0).mean()), PAIR),
    "places": (lambda a: (np.argmax(a), a.argmin(axis=0), np.argmin(a, 1, keepdims=True)), ONE),
    "sums of integers": (lambda a, b: (a.sum(), np.prod(b, 0), a.mean(1), a.max(), a.std()), WHOLE),
    "isclose": (lambda a, b: np.isclose(a, a + (b > 0) * 1e-9), PAIR),
    "round": (lambda a: (np.round(a), a.round(1), np.around(a, 2)), ONE),
    "heaviside": (lambda a, b: np.heaviside(a, b), PAIR),
    "fmod and remainder": (lambda a, b: (np.fmod(a, b), np.remainder(a, b)), PAIR),
    "fmin": (lambda a, b: np.fmin(np.where(a > 0, np.nan, a), b), PAIR),
    "clip": (lambda a: (np.clip(a, None, 1), a.clip(0), np.clip(a, -1, 0.5)), ONE),
    "nan_to_num": (lambda a: np.nan_to_num(np.log(a), nan=2.0, neginf=-1.0), ONE),
    "infinities": (lambda a: np.where(a > 0, a, -np.inf), ONE),
    "likes": (lambda a: (np.zeros_like(a), np.ones_like(a, dtype=int), np.full_like(a, 3)), ONE),
    "ellipsis": (lambda a: (a[..., 0], a[:, None, 1:], a[0], a[-1, -1], a[::-1, ::2]), CUBE),
    "lists of places": (lambda a: (a[[0, 1]], a[:, [2, 0]], a[[0, 1], :, [1, 3]]), CUBE),
    "atleast": (lambda a: (np.atleast_1d(a[0, 0]), np.atleast_2d(a[0]), np.atleast_3d(a)), ONE),
    "stacks": (
        lambda a, b: (
            np.dstack([a, b]),
            np.column_stack([a[:, 0], b]),
            np.vstack([a[0], b]),
            np.append(a, b),
        ),
        PAIR,
    ),
    "splits": (lambda a: (np.split(a, 2, 1), np.hsplit(a, [1, 3]), np.vsplit(a, 3)), ONE),
    "rot90": (lambda a: (np.rot90(a), np.fliplr(a), np.flipud(a), np.roll(a, 2)), ONE),
    "rollaxis": (lambda a: np.rollaxis(a, 2), CUBE),
    "kron": (lambda a, b: np.kron(a[:2, :2], b[:2]), PAIR),
    "cross": (lambda a: np.cross(a[:, :3], a[:, 1:]), ONE),
    "vdot": (lambda a, b: (np.vdot(a, b), np.inner(a, b), a.dot(b.T), np.tensordot(a, b, 2)), PAIR),
    "vectors": (lambda a, b: (a[0] @ b[0], a @ b[0], a[:, 0] @ b), PAIR),
    "einsum": (
        lambda a, b: (
            np.einsum("ij,ij", a, b),
            np.einsum("ij->ji", a),
            np.einsum("ii->i", a[:, :3]),
            np.einsum("ij,kj->ik", a, b[:1]),
            np.einsum("i,j->ij", a[0], b[:, 0]),
        ),
        PAIR,
    ),
    "broadcast": (lambda a: np.broadcast_arrays(a[0], a), ONE),
    "norms": (
        lambda a: (np.linalg.norm(a), np.linalg.norm(a, 1, 0), np.linalg.norm(a, np.inf, 1)),
        ONE,
    ),
    "diag": (lambda a: (np.diag(a[0]), np.diag(a), np.diagonal(a, -1)), ONE),
    "reduce": (
        lambda a: (np.maximum.reduce(a), np.add.reduce(a, 1), np.multiply.accumulate(a, 1)),
        ONE,
    ),
    "outer": (lambda a: np.multiply.outer(a, a[0]), ONE),
    "astype": (lambda a: (a.astype(np.int32), a.astype(bool), a.astype(float)), ONE),
    "shape": (lambda a: a * len(a) + np.shape(a)[1] - np.ndim(a) * a.size, ONE),
    "rows": (lambda a: [it * 2 for it in a], ONE),
    "pad": (
        lambda a: (np.pad(a, 1, constant_values=3), np.pad(a, ((0, 1), (2, 0)), "reflect")),
        ONE,
    ),
    "take": (lambda a: (np.take(a, [0, 5, -1]), a.take(1, axis=0)), ONE),
    "running": (lambda a: (np.cumsum(a), np.cumsum(a, 0, dtype=int), np.cumprod(a, 1)), ONE),
    "places along": (lambda a, b: np.take_along_axis(a, np.argmax(b, 0, keepdims=True), 0), PAIR),
    "tri": (lambda a: (np.tril(a), np.triu(a, 1)), CUBE),
}


if np.lib.NumpyVersion(np.__version__) >= "2.2.0":
    CASES |= {
        "of newer versions": (
            lambda a, b: (a.mT, np.matrix_transpose(a), np.vecdot(a, b), np.matvec(a, b[0])),
            PAIR,
        ),
        "bounds by name": (lambda a: np.clip(a, min=-1, max=0.5), ONE),
    }


def leaves(found: Any) -> list[Any]:
    if isinstance(found, tuple | list):
        return [leaf for it in found for leaf in leaves(it)]
    return [found]


@pytest.mark.parametrize("name", CASES)
def test_it_is_what_numpy_says(name: str) -> None:
    function, drawn = CASES[name]
    arrays = drawn()
    with np.errstate(all="ignore"):
        expected = leaves(function(*arrays))
    compiled = dlprim.compile(function)
    found = leaves(compiled(*arrays))
    assert "steps in Python: 0 of" in compiled.explain(*arrays)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        due = np.asarray(other).dtype
        assert one.dtype == (np.float32 if due == np.float64 else due)
        assert np.shape(one) == np.shape(other)
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_arrays_without_elements(shape: tuple[int, ...]) -> None:
    def function(x: Any) -> Any:
        return np.tanh(x) * 2, x.sum(), np.concatenate([x, x + 1]), x.reshape(-1), x.T

    x = np.empty(shape, F)
    for one, other in zip(dlprim.compile(function)(x), function(x), strict=True):
        assert np.shape(one) == np.shape(other)
        np.testing.assert_array_equal(one, other)


def test_values_written_by_the_function_itself() -> None:
    def function(x: Any) -> Any:
        y = x * 2
        z = y
        y += 1  # z is the same array
        y *= x
        return y, z

    x = floats(5)
    for one, other in zip(dlprim.compile(function)(x), function(x.copy()), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_close_to_a_value() -> None:
    """Where the obvious expressions lose digits."""
    x = (10.0 ** np.arange(-8, 2)).astype(F)

    def function(x: Any) -> Any:
        return np.expm1(x), np.log1p(x), np.expm1(-x), np.logaddexp(x, -x), np.hypot(x, x)

    exact = function(x.astype(np.float64))
    for one, other in zip(dlprim.compile(function)(x), exact, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-6)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.cumsum(x, 1),
        lambda x: np.cumprod(x, 0),
        lambda x: np.take_along_axis(x, np.argmin(x, 1, keepdims=True), 1),
        lambda x: x[np.arange(3), np.argmax(x, 1)],
        lambda x: np.max(x, 0),
        lambda x: np.prod(x, 1),
    ],
    ids=["cumsum", "cumprod", "take_along_axis", "places", "max", "prod"],
)
def test_gradients_run_in_the_core(function: Callable[..., Any]) -> None:
    slope = dlprim.grad(lambda x: np.sum(function(x) ** 2))
    assert "steps in Python: 0 of" in slope.explain(floats(3, 4))


def test_a_chain_is_one_step() -> None:
    def chain(x: Any, y: Any) -> Any:
        return np.maximum(x * y + x - y, 0) * 2

    x = floats(1000)
    text = dlprim.compile(chain).explain(x, x)
    assert "steps in Python: 0 of 1" in text
    assert "test_tracing_functions.py:" in text  # the line that the step is of
