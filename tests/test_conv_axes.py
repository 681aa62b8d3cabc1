"""Convolutions along one and three axes, and transposed ones along one to three."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlprim
from conv_axes_reference import CASES, FIXED, Case, assert_close, exact, operands
from dlprim.functions.conv import volumes
from dlprim.functions.conv.products import Products

F4, F8 = np.float32, np.float64
both_dtypes = pytest.mark.parametrize("dtype", ["float32", "bfloat16"])


# ---------------------------------------------------------------- values


@both_dtypes
@pytest.mark.parametrize("case", CASES, ids=str)
def test_values(case: Case, dtype: str) -> None:
    t = operands(case, dtype)
    forward, backward = getattr(dlprim, case.name), getattr(dlprim, f"{case.name}_backward")
    right, sizes = exact(case, t), exact(case, {name: np.abs(it) for name, it in t.items()})
    y = forward(t["x"], t["w"], t["bias"], **case.keywords)
    bias = t["bias"].astype(F8).reshape(-1, *(1,) * case.axes)
    roundings = 2 if case.output_padding else 1
    assert_close(y, right.y + bias, sizes.y + np.abs(bias), roundings)
    dx, dw, db = backward(t["dy"], t["x"], t["w"], **case.keywords)
    assert_close(dx, right.dx, sizes.dx, 1)
    assert_close(dw, right.dw, sizes.dw, 1)
    every = (0, *range(2, case.axes + 2))
    dy = t["dy"].astype(F8)
    assert_close(db, dy.sum(every), np.abs(dy).sum(every), 0)
    assert (y.dtype, dx.dtype, dw.dtype, db.dtype) == (*[t["x"].dtype] * 3, F4)


@both_dtypes
@pytest.mark.parametrize("bytes_at_once", [1, 1 << 16, 1 << 17])
@pytest.mark.parametrize("case", [it for it in FIXED if it.axes == 3 and it.N], ids=str)
def test_slices_in_portions(
    case: Case, bytes_at_once: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of one volume, and whole volumes, of which a rest is left."""
    monkeypatch.setattr(volumes, "_PORTION", bytes_at_once)
    monkeypatch.setattr(volumes, "_FILTERS", 0)
    monkeypatch.setattr(Products, "is_faster", lambda *_: False)
    t = operands(case, dtype)
    right, sizes = exact(case, t), exact(case, {name: np.abs(it) for name, it in t.items()})
    y = getattr(dlprim, case.name)(t["x"], t["w"], **case.keywords)
    assert_close(y, right.y, sizes.y, 1)
    gradients = getattr(dlprim, f"{case.name}_backward")(t["dy"], t["x"], t["w"], **case.keywords)
    assert_close(gradients.dx, right.dx, sizes.dx, 1)


@pytest.mark.parametrize("by_products", [False, True])
@pytest.mark.parametrize("case", [it for it in CASES if it.N], ids=str)
def test_an_infinity_stays_where_it_is_read(
    case: Case, by_products: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in what zeros around or between the pixels are multiplied with it for."""
    monkeypatch.setattr(Products, "is_faster", lambda *_: by_products)
    before = dlprim.get_conv_algorithm()
    dlprim.set_conv_algorithm("direct")  # Winograd's spreads it over tiles
    try:
        _assert_only_readers_are_infinite(case)
    finally:
        dlprim.set_conv_algorithm(before)


def _assert_only_readers_are_infinite(case: Case) -> None:
    t = {name: np.abs(it) + 1 for name, it in operands(case).items()}
    forward, backward = getattr(dlprim, case.name), getattr(dlprim, f"{case.name}_backward")
    for special in (np.inf, np.nan):
        for end in (0, -1):
            x, dy = t["x"].copy(), t["dy"].copy()
            x[(end,) * x.ndim] = dy[(end,) * dy.ndim] = special
            marks = {name: (~np.isfinite(it)).astype(F4) for name, it in (("x", x), ("dy", dy))}
            of_x, of_dy = (exact(case, t | {name: it}) for name, it in marks.items())
            y = forward(x, t["w"], **case.keywords)
            dx = backward(dy, t["x"], t["w"], **case.keywords).dx
            # What the filter goes over: the other array meets the padding around it.
            if case.output_padding:
                dw, of_dw = backward(dy, t["x"], t["w"], **case.keywords).dw, of_dy.dw
            else:
                dw, of_dw = backward(t["dy"], x, t["w"], **case.keywords).dw, of_x.dw
            for found, read in ((y, of_x.y), (dw, of_dw), (dx, of_dy.dx)):
                np.testing.assert_array_equal(np.isfinite(found), read == 0)


EVEN = [it for it in CASES if it.N and all(front == behind for front, behind in it.padding)]


@pytest.mark.parametrize("case", EVEN[::2], ids=str)
def test_agrees_with_torch(case: Case) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an optional peer")
    t = operands(case)
    x, w, bias = (torch.from_numpy(t[name]).requires_grad_() for name in ("x", "w", "bias"))
    settings = case.keywords | {"padding": tuple(front for front, _ in case.padding)}
    expected = getattr(torch.nn.functional, case.name)(x, w, bias, **settings)
    expected.backward(torch.from_numpy(t["dy"]))
    y = getattr(dlprim, case.name)(t["x"], t["w"], t["bias"], **settings)
    found = y, *getattr(dlprim, f"{case.name}_backward")(t["dy"], t["x"], t["w"], **settings)
    theirs = expected.detach(), x.grad, w.grad, bias.grad
    for one, other in zip(found, theirs, strict=True):
        scale = float(abs(other).max())
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * scale)


@pytest.mark.parametrize("case", FIXED, ids=str)
def test_every_bit_for_any_number_of_threads(case: Case) -> None:
    t = operands(case)
    found = []
    for count in (1, 3):
        with dlprim.threads(count):
            y = getattr(dlprim, case.name)(t["x"], t["w"], **case.keywords)
            backward = getattr(dlprim, f"{case.name}_backward")
            found.append((y, *backward(t["dy"], t["x"], t["w"], **case.keywords)))
    for one, other in zip(*found, strict=True):
        assert one.tobytes() == other.tobytes()


# ---------------------------------------------------------------- forms of arguments


def test_padding_that_keeps_the_size() -> None:
    random = np.random.default_rng(0)
    x, w = random.standard_normal((1, 2, 5, 6, 7), F4), random.standard_normal((3, 2, 2, 3, 4), F4)
    y = dlprim.conv3d(x, w, padding="same", dilation=(1, 1, 2))
    same = dlprim.conv3d(x, w, padding=((0, 1), (1, 1), (3, 3)), dilation=(1, 1, 2))
    np.testing.assert_array_equal(y, same)
    assert y.shape == (1, 3, 5, 6, 7)
    row, taps = x[:, :, 0, 0], w[:, :, 0, 0]
    np.testing.assert_array_equal(
        dlprim.conv1d(row, taps, padding="same"), dlprim.conv1d(row, taps, padding=((1, 2),))
    )


def test_an_integer_holds_for_every_axis() -> None:
    x, w = np.ones((1, 2, 5, 6, 7), F4), np.ones((2, 3, 2, 2, 2), F4)
    y = dlprim.conv_transpose3d(x, w, None, 2, 1, 1)
    assert y.shape == (1, 3, 9, 11, 13)
    again = dlprim.conv_transpose3d(x, w, stride=[2] * 3, padding=(1,) * 3, output_padding=[1] * 3)
    np.testing.assert_array_equal(y, again)


# ---------------------------------------------------------------- operands and out

FEW = [FIXED[1], FIXED[4], *CASES[-60::20]]


def scattered(array: np.ndarray) -> np.ndarray:
    return np.repeat(np.asfortranarray(array), 2, axis=-1)[..., ::2]


@both_dtypes
@pytest.mark.parametrize("case", FEW, ids=str)
def test_views_are_taken_and_results_go_to_out(case: Case, dtype: str) -> None:
    t = operands(case, dtype)
    forward, backward = getattr(dlprim, case.name), getattr(dlprim, f"{case.name}_backward")
    expected = forward(t["x"], t["w"], t["bias"], **case.keywords)
    gradients = backward(t["dy"], t["x"], t["w"], **case.keywords)
    s = {name: scattered(array) for name, array in t.items()}
    out = np.full_like(expected, 7)
    assert forward(s["x"], s["w"], s["bias"], **case.keywords, out=out) is out
    assert out.tobytes() == expected.tobytes()
    again = backward(s["dy"], s["x"], s["w"], **case.keywords)
    assert [each.tobytes() for each in again] == [each.tobytes() for each in gradients]


X, W = np.zeros((2, 4, 6, 7, 8), F4), np.zeros((6, 4, 3, 2, 1), F4)
WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"x": X.astype(float)}, TypeError, r"^x has dtype float64, expected float32 or bfloat16"),
    ({"x": X[0]}, ValueError, r"^x has shape \(4, 6, 7, 8\), expected 5 dimensions for x \(N, C"),
    ({"w": W[..., 0]}, ValueError, r"^w has shape \(6, 4, 3, 2\), expected 5 dimensions"),
    ({"w": dlprim.to_bfloat16(W)}, TypeError, r"^w has dtype .*, expected float32 as x has"),
    ({"x": X[:, :, :, :0]}, ValueError, r"^x has shape .*, expected extents of at least 1"),
    ({"bias": np.zeros(5, F4)}, ValueError, r"^bias has shape \(5,\), expected \(6,\)"),
    ({"stride": 0}, ValueError, r"^stride is 0, expected integers of at least 1"),
    ({"stride": (1, 2)}, ValueError, r"^stride is \(1, 2\), expected an integer or three of them"),
    ({"stride": 1.5}, TypeError, r"^stride is 1\.5, expected"),
    ({"dilation": None}, TypeError, r"^dilation is None"),
    ({"groups": 0}, ValueError, r"^groups is 0, expected at least 1"),
    ({"groups": 4}, ValueError, r"^groups is 4, which does not divide 6"),
    ({"groups": True}, TypeError, r"^groups holds True"),
    ({"out": np.zeros((2, 6, 4, 6, 7), F4)}, ValueError, r"^out has shape .*, expected \(2, 6, 4"),
]
ORDINARY = [
    ({"x": X[:, :3]}, ValueError, r"^w has shape .*groups is 1.* x has C = 3"),
    ({"x": X[:, :, :2]}, ValueError, r"^w covers 3 elements along axis 2 of x, which has 2"),
    ({"padding": "full"}, ValueError, r"^padding is 'full', expected integers, 'same' or 'valid'"),
    ({"padding": "same", "stride": 2}, ValueError, r"^padding is 'same' and stride is \(2, 2, 2"),
    ({"padding": (1, 2)}, ValueError, r"^padding is \(1, 2\), expected"),
    ({"padding": ((0, 0), (0, 0), (0, -1))}, ValueError, r"^padding is .*, expected integers of"),
]
TRANSPOSED = [
    ({"x": X[:, :3]}, ValueError, r"^w has shape .*takes 4 input channels, but x has C = 3"),
    ({"padding": 9}, ValueError, r"^padding is 9, which leaves -10 of the elements"),
    ({"padding": "same"}, ValueError, r"^padding is 'same', expected an integer or three of"),
    ({"output_padding": 1}, ValueError, r"^output_padding is 1, expected integers below"),
    ({"output_padding": -1}, ValueError, r"^output_padding is -1, expected integers of at least 0"),
]
EVERY = [("conv3d", *it) for it in [*WRONG, *ORDINARY]]
EVERY += [("conv_transpose3d", *it) for it in TRANSPOSED]


@pytest.mark.parametrize(("name", "change", "error", "match"), EVERY)
def test_refusals(name: str, change: dict[str, Any], error: type[Exception], match: str) -> None:
    w = W if name == "conv3d" else np.ascontiguousarray(W.swapaxes(0, 1))
    function: Callable[..., Any] = getattr(dlprim, name)
    with pytest.raises(error, match=match):
        function(**({"x": X, "w": w} | change))
    if not change.keys() & {"bias", "out"}:
        with pytest.raises(error, match=match):
            getattr(dlprim, f"{name}_backward")(**({"dy": X, "x": X, "w": w} | change))


def test_gradients_refuse_a_dy_of_another_shape() -> None:
    with pytest.raises(ValueError, match=r"^dy has shape .*, expected \(2, 6, 4, 6, 8\)"):
        dlprim.conv3d_backward(X, X, W)
