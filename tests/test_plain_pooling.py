"""Pooling of plain arrays along one, two and three axes, against windows in float64."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import dlprim
from bfloat16 import rounded
from drawing import RNG

# Axes, x, kernel, stride, padding: small ones, and those of ResNet-50, AlexNet, a 3-d network.
CASES: list[tuple[Any, ...]] = [
    ((2, 3, 9), 2, None, 0),
    ((1, 40, 31), 5, 3, 2),
    ((2, 3, 7, 8), 3, 2, 1),
    ((2, 5, 6, 9), (2, 3), (1, 2), (1, 0)),
    ((2, 64, 24, 24), 3, 2, 1),
    ((1, 2, 5, 6, 7), 2, None, 0),
    ((2, 17, 6, 9, 8), (3, 2, 3), (2, 1, 3), (1, 0, 1)),
    ((1, 8, 8, 14, 14), (1, 3, 3), (1, 2, 2), (0, 1, 1)),
    ((0, 3, 4, 4), 2, None, 0),
]


def windows(shape: tuple[int, ...], kernel: Any, stride: Any, padding: Any) -> Any:
    """For each element of the result its index and that of its window, padding left out."""
    axes = len(shape) - 2
    taps, pads = ([it] * axes if isinstance(it, int) else it for it in (kernel, padding))
    steps = taps if stride is None else [stride] * axes if isinstance(stride, int) else stride
    ranges = [
        [(max(p * s - d, 0), min(p * s - d + k, e)) for p in range((e + 2 * d - k) // s + 1)]
        for e, k, s, d in zip(shape[2:], taps, steps, pads, strict=True)
    ]
    for place in itertools.product(*(range(len(it)) for it in ranges)):
        cut = tuple(slice(*of[at]) for of, at in zip(ranges, place, strict=True))
        yield (slice(None), slice(None), *place), (slice(None), slice(None), *cut), np.prod(taps)


def pooled(x: Any, y_shape: Any, window: Any, kind: str) -> Any:
    y = np.zeros(y_shape)
    for place, cut, taps in windows(x.shape, *window):
        part = x[cut].reshape(*x.shape[:2], np.prod(x[cut].shape[2:]))
        if kind == "max":
            y[place] = part.max(-1, initial=-np.inf)
        else:
            y[place] = part.sum(-1) / (taps if kind == "padded" else part.shape[-1])
    return y


def gradient(dy: Any, x: Any, window: Any, kind: str) -> Any:
    dx = np.zeros(x.shape)
    for place, cut, taps in windows(x.shape, *window):
        part = x[cut].reshape(*x.shape[:2], np.prod(x[cut].shape[2:]))
        if kind == "max":
            share = np.arange(part.shape[-1]) == part.argmax(-1)[..., None]
        else:
            share = np.full(part.shape, 1 / (taps if kind == "padded" else part.shape[-1]))
        dx[cut] += (share * dy[place][..., None]).reshape(x[cut].shape)
    return dx


@pytest.mark.parametrize("kind", ["max", "padded", "average"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients(case: Any, dtype: str, kind: str) -> None:
    shape, *window = case
    axes, given = len(shape) - 2, dict(zip(("kernel", "stride", "padding"), window, strict=True))
    # Whole numbers, so that many are equal.
    x = RNG.integers(-20, 20, shape).astype(np.float32)
    name = f"{'max' if kind == 'max' else 'avg'}_pool{axes}d"
    if kind != "max":
        given["count_include_pad"] = kind == "padded"
    src = dlprim.to_bfloat16(x) if dtype == "bfloat16" else x
    y = getattr(dlprim, name)(src, **given)
    assert y.dtype == src.dtype
    expected = pooled(x.astype(float), y.shape, window, kind)
    bound = 1e-2 if dtype == "bfloat16" else 1e-6
    np.testing.assert_allclose(y.astype(float), expected, rtol=bound, atol=bound)
    out = np.empty_like(y)
    assert getattr(dlprim, name)(src, **given, out=out) is out
    np.testing.assert_array_equal(out, y)

    dy = RNG.integers(-9, 9, y.shape).astype(np.float32)
    diff = dlprim.to_bfloat16(dy) if dtype == "bfloat16" else dy
    dx = getattr(dlprim, f"{name}_backward")(diff, src, **given)
    assert (dx.dtype, dx.shape) == (src.dtype, shape)
    due = gradient(dy.astype(float), x.astype(float), window, kind)
    bound = 2e-2 if dtype == "bfloat16" else 1e-5
    np.testing.assert_allclose(dx.astype(float), due, rtol=bound, atol=bound * 9)


def test_memory_in_another_order_and_bits() -> None:
    x = RNG.standard_normal((2, 6, 5, 3), np.float32).transpose(0, 3, 1, 2)
    y = dlprim.max_pool2d(np.ascontiguousarray(x), 2)
    np.testing.assert_array_equal(dlprim.max_pool2d(x, 2), y)
    bits = rounded(x).view(np.uint16)
    found = dlprim.avg_pool2d(bits, 2, dtype="bfloat16")
    assert found.dtype == np.uint16


@pytest.mark.any_level
@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"x": np.ones((2, 3, 4), np.float32)}, ValueError, r"^x has shape .* 4 dimensions \(N, C"),
        ({"x": np.ones((1, 2, 4, 4))}, TypeError, r"^x has dtype float64, .*astype\(np\.float32\)"),
        ({"kernel": 7}, ValueError, "^kernel covers 7 elements along axis 2 of x, which has 4 and"),
        ({"kernel": (2, 2, 2)}, ValueError, r"^kernel is \(2, 2, 2\), expected"),
        ({"padding": 2}, ValueError, "^padding is 2, expected at most half of kernel = 2"),
        ({"stride": 0}, ValueError, "^stride is 0, expected integers of at least 1"),
        ({"out": np.ones((1, 2, 2, 3), np.float32)}, ValueError, "^out has shape"),
    ],
)
def test_refusals(change: dict[str, Any], error: type[Exception], match: str) -> None:
    given = {"x": np.ones((1, 2, 4, 4), np.float32), "kernel": 2} | change
    with pytest.raises(error, match=match):
        dlprim.max_pool2d(**given)
