"""adaptive_avg_pool2d, interpolate and their gradients: against float64 sums by definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlprim
import extent_reference as reference
from bfloat16 import bits_of, rounded

pytestmark = pytest.mark.every_level

SIZES = [((1, 1), (1, 1)), ((5, 7), (1, 1)), ((5, 7), (3, 2)), ((5, 7), (10, 14)),
         ((13, 4), (7, 31)), ((16, 31), (33, 5)), ((6, 6), (6, 6))]  # fmt: skip
CHANNELS = [1, 3, 9, 70]
KINDS = ["mean", "nearest", "bilinear", "corners"]


def normal(shape: Any, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def settings(kind: str) -> dict[str, Any]:
    if kind == "mean":
        return {}
    mode = "bilinear" if kind == "corners" else kind
    return {"mode": mode, "align_corners": kind == "corners"}


def value(kind: str, x: Any, size: Any, **more: Any) -> Any:
    function: Callable[..., Any] = dlprim.adaptive_avg_pool2d
    if kind != "mean":
        function = dlprim.interpolate
    return function(x, size, **settings(kind), **more)


def slope(kind: str, dy: Any, x_shape: Any, **more: Any) -> Any:
    function: Callable[..., Any] = dlprim.adaptive_avg_pool2d_backward
    if kind != "mean":
        function = dlprim.interpolate_backward
    return function(dy, x_shape, **settings(kind), **more)


def matrices(kind: str, src: tuple[int, int], dst: tuple[int, int]) -> list[Any]:
    pairs = zip(src, dst, strict=True)
    if kind == "mean":
        return [reference.mean_matrix(*pair) for pair in pairs]
    mode = "nearest" if kind == "nearest" else "bilinear"
    return [reference.interpolation_matrix(*pair, mode, kind == "corners") for pair in pairs]


def last(x: Any) -> Any:
    """Channels-last."""
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize(("src", "dst"), SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients(
    kind: str, src: tuple[int, int], dst: tuple[int, int], channels: int
) -> None:
    x, dy = normal((2, channels, *src)), normal((2, channels, *dst), 1)
    weights = matrices(kind, src, dst)
    expected, gradient = reference.resampled(x, *weights), reference.gradient(dy, *weights)
    y, dx = value(kind, x, dst), slope(kind, dy, x.shape)
    bound = 1e-5 * max(1, np.abs(gradient).max())
    np.testing.assert_allclose(y, expected, atol=1e-5)
    np.testing.assert_allclose(dx, gradient, atol=bound)
    np.testing.assert_allclose(value(kind, last(x), dst, layout="NHWC"), last(expected), atol=1e-5)
    found = slope(kind, last(dy), last(x).shape, layout="NHWC")
    np.testing.assert_allclose(found, last(gradient), atol=bound)
    if kind == "nearest":
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("channels", [3, 20])
@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16_is_float32_rounded_once(kind: str, channels: int, layout: str) -> None:
    x, dy = normal((2, channels, 6, 9)), normal((2, channels, 8, 5), 1)
    if layout == "NHWC":
        x, dy = last(x), last(dy)
    x, dy = dlprim.to_bfloat16(x), dlprim.to_bfloat16(dy)
    how: dict[str, Any] = {"layout": layout}
    y = value(kind, x, (8, 5), **how, dtype="bfloat16")
    exact = value(kind, dlprim.to_float32(x, dtype="bfloat16"), (8, 5), **how)
    np.testing.assert_array_equal(bits_of(y), rounded(exact))
    dx = slope(kind, dy, x.shape, **how, dtype="bfloat16")
    exact = slope(kind, dlprim.to_float32(dy, dtype="bfloat16"), x.shape, **how)
    np.testing.assert_array_equal(bits_of(dx), rounded(exact))
    assert y.dtype == dx.dtype == x.dtype


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_the_mean_of_whole_images(dtype: str, layout: str) -> None:
    x = normal((3, 20, 30, 41)) + np.float32(100)
    exact = x.astype(np.float64).mean((2, 3), keepdims=True)
    dy = normal((3, 20, 1, 1), 1)
    spread = np.broadcast_to(dy / np.float32(30 * 41), x.shape)
    if layout == "NHWC":
        x, exact, dy, spread = last(x), last(exact), last(dy), last(spread)
    if dtype == "bfloat16":
        x, dy = dlprim.to_bfloat16(x), dlprim.to_bfloat16(dy)
    bound = 5e-6 if dtype == "float32" else 0.01
    y = dlprim.adaptive_avg_pool2d(x, 1, layout=layout, dtype="bfloat16")
    dx = dlprim.adaptive_avg_pool2d_backward(dy, x.shape, layout=layout, dtype="bfloat16")
    for found, due in ((y, exact), (dx, spread)):
        wide = found if dtype == "float32" else dlprim.to_float32(found, dtype="bfloat16")
        np.testing.assert_allclose(wide, due, rtol=bound, atol=1e-9)


@pytest.mark.parametrize("factor", [0.3, 0.5, 0.7, 1, 1.3, 2, 2.7, 1 / 3, (1.5, 2.5)])
@pytest.mark.parametrize("kind", KINDS[1:])
def test_factors_say_where_pixels_lie(kind: str, factor: Any) -> None:
    factors = factor if isinstance(factor, tuple) else (factor, factor)
    how = settings(kind)
    for src in ((7, 9), (20, 33)):
        x = normal((1, 2, *src))
        dst = [int(n * it) for n, it in zip(src, factors, strict=True)]
        weights = [
            reference.interpolation_matrix(n, m, how["mode"], kind == "corners", it)
            for n, m, it in zip(src, dst, factors, strict=True)
        ]
        y = dlprim.interpolate(x, scale_factor=factor, **how)
        np.testing.assert_allclose(y, reference.resampled(x, *weights), atol=1e-5)
        dx = dlprim.interpolate_backward(y, x.shape, factor, **how)
        np.testing.assert_allclose(dx, reference.gradient(y, *weights), atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_results_views_nothing_and_threads(kind: str) -> None:
    for channels in (3, 20):
        x, dy = normal((2, channels, 40, 50)), normal((2, channels, 30, 70), 1)
        y, dx = value(kind, x, (30, 70)), slope(kind, dy, x.shape)
        out, into = np.empty_like(y), np.empty_like(x)
        assert value(kind, np.asfortranarray(x), (30, 70), out=out) is out
        assert slope(kind, np.asfortranarray(dy), x.shape, out=into) is into
        with dlprim.threads(2):
            again = value(kind, x, (30, 70)), slope(kind, dy, x.shape)
        for one, other in zip((y, dx, y, dx), (out, into, *again), strict=True):
            np.testing.assert_array_equal(one, other)
    for layout, shape in (("NCHW", (0, 3, 4, 5)), ("NHWC", (0, 4, 5, 3))):
        empty = normal(shape)
        y = value(kind, empty, (2, 2), layout=layout)
        assert y.shape == ((0, 3, 2, 2) if layout == "NCHW" else (0, 2, 2, 3))
        assert slope(kind, y, shape, layout=layout).shape == shape


def test_sizes_may_be_those_of_the_image() -> None:
    x = normal((2, 3, 6, 9))
    assert dlprim.adaptive_avg_pool2d(x, (None, 3)).shape == (2, 3, 6, 3)
    np.testing.assert_array_equal(dlprim.adaptive_avg_pool2d(x, None), x)
    assert dlprim.adaptive_avg_pool2d(last(x), (2, None), layout="NHWC").shape == (2, 2, 9, 3)
    np.testing.assert_array_equal(dlprim.interpolate(x, (6, 9), mode="bilinear"), x)


def test_what_is_not_finite_stays_where_it_is_read() -> None:
    x = np.zeros((1, 1, 4, 4), np.float32)
    x[0, 0, 3, 3], x[0, 0, 0, 0] = np.inf, np.nan
    y = dlprim.interpolate(x, 7, mode="bilinear", align_corners=True)[0, 0]
    assert np.isnan(y[:2, :2]).all()
    assert (y[5:, 5:] == np.inf).all()
    assert (y[2:5, 2:5] == 0).all()
    y = dlprim.adaptive_avg_pool2d(x, 2)[0, 0]
    assert np.isnan(y[0, 0])
    assert y[1].tolist() == [0, np.inf]


IMAGES = np.ones((1, 2, 4, 5), np.float32)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: dlprim.adaptive_avg_pool2d(IMAGES[0], 1),
            r"x has shape \(2, 4, 5\), expected \(N,",
        ),
        (lambda: dlprim.adaptive_avg_pool2d(IMAGES, 0), "output_size is 0, expected an integer of"),
        (
            lambda: dlprim.adaptive_avg_pool2d(IMAGES, (1, 2, 3)),
            r"output_size is \(1, 2, 3\), expec",
        ),
        (
            lambda: dlprim.adaptive_avg_pool2d(IMAGES, (1, 0.5)),
            r"output_size\[1\] is 0\.5, expected",
        ),
        (
            lambda: dlprim.adaptive_avg_pool2d(IMAGES, 1, layout="CHWN"),
            "layout is 'CHWN', expected",
        ),
        (
            lambda: dlprim.adaptive_avg_pool2d(IMAGES[:, :, :0], 1),
            r"x has shape \(1, 2, 0, 5\), expected \(N, C, H, W\) with C, H and W of at least 1",
        ),
        (
            lambda: dlprim.adaptive_avg_pool2d_backward(IMAGES, (1, 3, 8, 8)),
            r"dy has shape \(1, 2, 4, 5\), expected \(1, 3, 4, 5\) \(N and C of x_shape\)",
        ),
        (
            lambda: dlprim.adaptive_avg_pool2d_backward(IMAGES, (1, 2, 0, 8)),
            r"x_shape is \(1, 2, 0, 8\), expected \(N, C, H, W\) with",
        ),
        (
            lambda: dlprim.adaptive_avg_pool2d_backward(IMAGES, IMAGES),
            "x_shape is an array of shape",
        ),
        (
            lambda: dlprim.interpolate(IMAGES),
            "neither size nor scale_factor is given, expected one",
        ),
        (lambda: dlprim.interpolate(IMAGES, 2, 2), "size and scale_factor are given, expected one"),
        (
            lambda: dlprim.interpolate(IMAGES, 2, mode="bicubic"),
            "mode is 'bicubic', expected one of",
        ),
        (
            lambda: dlprim.interpolate(IMAGES, 2, None, "nearest", True),
            "align_corners is True and m",
        ),
        (
            lambda: dlprim.interpolate(IMAGES, scale_factor=0.1),
            r"scale_factor is 0\.1, which makes",
        ),
        (
            lambda: dlprim.interpolate(IMAGES, scale_factor=-1),
            "scale_factor is -1, expected a finit",
        ),
        (lambda: dlprim.interpolate(IMAGES, scale_factor=(1, np.inf)), r"scale_factor\[1\] is inf"),
        (
            lambda: dlprim.interpolate(IMAGES, 2**24),
            "size is 16777216, expected an integer of at l",
        ),
        (
            lambda: dlprim.interpolate(IMAGES, 2, out=np.ones((1, 2, 2, 3), np.float32)),
            r"out has shape \(1, 2, 2, 3\), expected \(1, 2, 2, 2\)",
        ),
        (
            lambda: dlprim.interpolate(IMAGES, (4, 5), out=IMAGES),
            "out shares memory with x, expecte",
        ),
        (
            lambda: dlprim.interpolate_backward(IMAGES, (1, 2, 3, 3), 2),
            r"dy has shape \(1, 2, 4, 5\), expected \(1, 2, 6, 6\) \(x_shape, and scale_factor",
        ),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        call()


@pytest.mark.parametrize("channels", [2, 12])
@pytest.mark.parametrize("kind", KINDS)
def test_against_pytorch(kind: str, channels: int) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an optional peer")
    functional = torch.nn.functional
    for src, dst in [((5, 7), (8, 3)), ((30, 17), (45, 51)), ((9, 9), (1, 1))]:
        x, dy = normal((2, channels, *src)), normal((2, channels, *dst), 1)
        leaf = torch.from_numpy(x).double().requires_grad_()
        if kind == "mean":
            y = functional.adaptive_avg_pool2d(leaf, dst)
        else:
            corners = None if kind == "nearest" else kind == "corners"
            mode = settings(kind)["mode"]
            y = functional.interpolate(leaf, dst, mode=mode, align_corners=corners)
        y.backward(torch.from_numpy(dy).double())
        np.testing.assert_allclose(value(kind, x, dst), y.detach().numpy(), atol=1e-5)
        np.testing.assert_allclose(slope(kind, dy, x.shape), leaf.grad.numpy(), atol=1e-4)


def test_nearest_pixels_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an optional peer")
    for width in range(1, 130, 3):
        x = np.arange(width, dtype=np.float32).reshape(1, 1, 1, width)
        for columns in range(1, 130, 4):
            theirs = torch.nn.functional.interpolate(torch.from_numpy(x), (1, columns))
            np.testing.assert_array_equal(dlprim.interpolate(x, (1, columns)), theirs.numpy())


def test_factors_that_keep_or_double_an_extent_are_whole() -> None:
    x = np.arange(9, dtype=np.float32).reshape(1, 1, 1, 9)
    for mode in ("nearest", "bilinear"):
        np.testing.assert_array_equal(dlprim.interpolate(x, scale_factor=(1, 1.1), mode=mode), x)
    twice = dlprim.interpolate(x, scale_factor=(1, 2.05))
    np.testing.assert_array_equal(twice, x.repeat(2, axis=3))
