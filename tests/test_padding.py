"""pad and pad_backward, concat and split: exact, any axes, both dtypes, gradients by definition."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import dlprim
import extent_reference as reference
from bfloat16 import bits_of, rounded

pytestmark = pytest.mark.every_level

MODES = list(reference.MODES)
CASES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((2, 3, 5, 6), (1, 2, 3, 4)),
    ((2, 3, 5, 6), (5, 5, 4, 4)),
    ((2, 3, 5, 6), (0, 5, 4, 0)),
    ((2, 3, 5, 6), (0, 0, 0, 2)),
    ((2, 3, 5, 6), ()),
    ((2, 3, 4, 5, 6), (1, 2, 3, 0, 2, 3)),
    ((3, 4), (2, 1, 0, 2)),
    ((7,), (6, 6)),
    ((0, 3, 4), (1, 2)),
    ((1, 1, 2, 2), (1, 1, 1, 1)),
]


def normal(shape: Any, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def slope(dy: Any, shape: tuple[int, ...], pads: tuple[int, ...], mode: str) -> Any:
    """One axis after the other, as products with matrices."""
    for place, pair in enumerate(zip(pads[::2], pads[1::2], strict=True)):
        axis = len(shape) - 1 - place
        matrix = reference.padding_matrix(shape[axis], *pair, mode)
        dy = np.moveaxis(np.tensordot(dy.astype(float), matrix, (axis, 0)), -1, axis)
    return dy


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("shape", "pads"), CASES)
def test_values_and_gradients(shape: tuple[int, ...], pads: tuple[int, ...], mode: str) -> None:
    x = normal(shape)
    expected = reference.padded(x, pads, mode)
    y = dlprim.pad(x, pads, mode)
    np.testing.assert_array_equal(y, expected)
    assert y.flags.c_contiguous
    dy = normal(y.shape, 1)
    dx, exact = dlprim.pad_backward(dy, pads, mode), slope(dy, shape, pads, mode)
    assert dx.shape == shape
    np.testing.assert_allclose(dx, exact, atol=1e-5)
    for name, array in (("x", x), ("dy", dy)):
        call: Any = dlprim.pad if name == "x" else dlprim.pad_backward
        due = y if name == "x" else dx
        out = np.empty_like(due)
        assert call(np.asfortranarray(array), pads, mode, out=out) is out
        np.testing.assert_array_equal(out, due)
        narrow = dlprim.to_bfloat16(array)
        found = call(narrow, pads, mode, dtype="bfloat16")
        assert found.dtype == narrow.dtype
        wide = call(dlprim.to_float32(narrow, dtype="bfloat16"), pads, mode)
        np.testing.assert_array_equal(bits_of(found), rounded(np.ascontiguousarray(wide)))


@pytest.mark.parametrize("pads", [(-1, 2), (-1, -1, 3, -2), (2, -6), (-6, 0), (0, 0, -5, 3)])
def test_negative_numbers_take_away(pads: tuple[int, ...]) -> None:
    x = normal((3, 5, 6))
    positive = tuple(max(it, 0) for it in pads)
    y = dlprim.pad(x, pads, value=2.5)
    whole = reference.padded(x, positive, "constant", 2.5)
    cut = [slice(None)] * 3
    for place, (one, two) in enumerate(zip(pads[::2], pads[1::2], strict=True)):
        extent = whole.shape[2 - place]
        cut[2 - place] = slice(max(-one, 0), extent - max(-two, 0))
    np.testing.assert_array_equal(y, whole[tuple(cut)])
    marks = np.arange(1, x.size + 1, dtype=np.float32).reshape(x.shape)
    dy = dlprim.pad(marks, pads)
    kept = np.isin(marks, dy)
    np.testing.assert_array_equal(dlprim.pad_backward(dy, pads), np.where(kept, marks, 0))


def test_any_number_may_fill() -> None:
    x = normal((2, 2))
    for value in (-np.inf, np.nan, 3, 1e-3, np.float32(0.5)):
        border = dlprim.pad(x, (0, 1), value=value)[:, 2]
        np.testing.assert_array_equal(border, np.full(2, value, np.float32))
        half = dlprim.pad(dlprim.to_bfloat16(x), (0, 1), value=value, dtype="bfloat16")
        filled = dlprim.to_bfloat16(np.full(2, value, np.float32))
        np.testing.assert_array_equal(bits_of(half[:, 2].copy()), bits_of(filled))


def test_gradients_that_are_not_finite_warn_nobody() -> None:
    dy = np.array([np.inf, 3e38, np.nan, -np.inf, 3e38], np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dx = dlprim.pad_backward(dy, (1, 1), "circular")
    np.testing.assert_array_equal(dx, [np.inf, np.nan, np.nan])


def test_arrays_are_joined_and_parted() -> None:
    for axis in (0, 1, 2, -1, -2):
        parts = []
        for place, length in enumerate((1, 4, 0, 3)):
            shape = [2, 3, 4]
            shape[axis] = length
            parts.append(normal(shape, place))
        expected = np.concatenate(parts, axis)
        views = [parts[0], np.asfortranarray(parts[1]), *parts[2:]]
        y = dlprim.concat(views, axis)
        np.testing.assert_array_equal(y, expected)
        out = np.empty_like(y)
        assert dlprim.concat(tuple(parts), axis, out=out) is out
        np.testing.assert_array_equal(out, expected)
        found = dlprim.split(y, [1, 4, 0, 3], axis)
        for one, other in zip(found, parts, strict=True):
            np.testing.assert_array_equal(one, other)
            assert other.size == 0 or np.shares_memory(one, y)
    halves = [dlprim.to_bfloat16(it) for it in parts]
    joined = dlprim.concat(halves, -2, dtype="bfloat16")
    assert joined.dtype == halves[0].dtype
    np.testing.assert_array_equal(bits_of(joined), rounded(expected))


def test_parts_of_one_size() -> None:
    x = normal((2, 7))
    assert [it.shape for it in dlprim.split(x, 3, 1)] == [(2, 3), (2, 3), (2, 1)]
    assert [it.shape for it in dlprim.split(x, 9, -1)] == [(2, 7)]
    assert [it.shape for it in dlprim.split(x[:0], 2)] == [(0, 7)]
    assert [it.shape for it in dlprim.split(x, np.array([0, 2]))] == [(0, 7), (2, 7)]  # type: ignore[arg-type]


X = np.ones((2, 3, 4), np.float32)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dlprim.pad(X, 1), "pad is 1, expected a sequence of integers"),  # type: ignore[arg-type]
        (lambda: dlprim.pad(X, "11"), "pad is '11', expected a sequence"),  # type: ignore[arg-type]
        (lambda: dlprim.pad(X, (1,)), "pad holds 1 numbers, expected a pair for each of the last"),
        (lambda: dlprim.pad(X, (1,) * 8), "pad holds 8 numbers, expected a pair .* x, which has 3"),
        (lambda: dlprim.pad(X, (1, 0.5)), r"pad holds 0\.5, expected an integer"),  # type: ignore[arg-type]
        (lambda: dlprim.pad(X, (1, 1), "edge"), "mode is 'edge', expected one of 'constant', 'ref"),
        (
            lambda: dlprim.pad(X, (1, 1), "reflect", 1.0),
            r"value is 1\.0 and mode is 'reflect', exp",
        ),
        (lambda: dlprim.pad(X, (1, 1), value="1"), "value is '1', expected a number"),  # type: ignore[arg-type]
        (lambda: dlprim.pad(X, (1, 1), value=1e40), r"value is 1e\+40, which float32 cannot hold"),
        (
            lambda: dlprim.pad(X, (4, 0), "reflect"),
            "axis 2 of x has 4 elements, expected at least 5",
        ),
        (lambda: dlprim.pad(X, (0, 5), "circular"), "axis 2 of x has 4 elements, expected at leas"),
        (
            lambda: dlprim.pad(X[:, :0], (0, 0, 1, 0), "replicate"),
            "axis 1 of x has 0 elements, exp",
        ),
        (
            lambda: dlprim.pad(X, (-1, 1), "circular"),
            "pad holds -1 and mode is 'circular', expecte",
        ),
        (lambda: dlprim.pad(X, (-5, 1)), "pad takes -5 and 1 from axis 2 of x, which has 4 elemen"),
        (lambda: dlprim.pad(X, (-3, -2)), "pad takes -3 and -2 from axis 2 of x, which has 4 elem"),
        (lambda: dlprim.pad(X, (0, 0), out=X), "out shares memory with x, expected a separate"),
        (
            lambda: dlprim.pad(X.astype(int), (0, 0)),
            "x has dtype int64, expected float32 or bfloat",
        ),
        (lambda: dlprim.pad_backward(X, (3, 2)), r"dy has shape \(2, 3, 4\), expected at least 3 "),
        (
            lambda: dlprim.pad_backward(X, (2, 0), "reflect"),
            "axis 2 of what dy is of has 2 elements",
        ),
        (lambda: dlprim.concat([]), "arrays is empty, expected at least one array"),
        (lambda: dlprim.concat(X), r"arrays is an array of shape \(2, 3, 4\), expected a list or"),  # type: ignore[arg-type]
        (lambda: dlprim.concat([X, None]), r"arrays\[1\] is of type NoneType, expected an array"),
        (
            lambda: dlprim.concat([X, X[:, 1:]]),
            r"arrays\[1\] has shape \(2, 2, 4\), expected \(2, 3",
        ),
        (
            lambda: dlprim.concat([X, X[0]]),
            r"arrays\[1\] has shape \(3, 4\), expected \(2, 3, 4\) as",
        ),
        (
            lambda: dlprim.concat([X, X], 3),
            "axis is 3, expected an integer of at least -3 and belo",
        ),
        (
            lambda: dlprim.concat([X[0, 0, 0].reshape(())]),
            r"arrays\[0\] has no axis, expected at lea",
        ),
        (lambda: dlprim.concat([X, X], out=X), r"out has shape \(2, 3, 4\), expected \(4, 3, 4\)"),
        (
            lambda: dlprim.concat([X, dlprim.to_bfloat16(X)], dtype="bfloat16"),
            r"arrays\[1\] has dtype .*, expected float32 as arrays\[0\] has",
        ),
        (lambda: dlprim.split(X, 0), "sizes is 0, expected an integer of at least 1"),
        (
            lambda: dlprim.split(X, [1, 2]),
            "sizes add up to 3, expected the 2 elements of x along a",
        ),
        (lambda: dlprim.split(X, [3, -1]), r"sizes\[1\] is -1, expected an integer of at least 0"),
        (lambda: dlprim.split(X, "2"), "sizes is '2', expected an integer"),  # type: ignore[arg-type]
        (lambda: dlprim.split(X, 1, None), "axis is None, expected an integer"),  # type: ignore[arg-type]
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        call()


@pytest.mark.parametrize("mode", MODES)
def test_against_pytorch(mode: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an optional peer")
    for shape, pads in [((2, 3, 5, 6), (5, 2, 0, 4)), ((2, 3, 5), (2, 0))]:
        x = normal(shape)
        leaf = torch.from_numpy(x).requires_grad_()
        y = torch.nn.functional.pad(leaf, pads, mode)
        dy = normal(y.shape, 1)
        y.backward(torch.from_numpy(dy))
        np.testing.assert_array_equal(dlprim.pad(x, pads, mode), y.detach().numpy())
        np.testing.assert_allclose(dlprim.pad_backward(dy, pads, mode), leaf.grad, atol=1e-5)
