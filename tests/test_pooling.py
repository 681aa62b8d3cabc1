"""Pooling against its definition in float64, in both layouts and types."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import dlprim

pytestmark = pytest.mark.every_level

# Shape, kernel, stride, padding.
CASES = [
    ((2, 64, 8, 9), 3, 2, 1),
    ((1, 17, 5, 5), 2, None, 0),
    ((2, 3, 7, 4), (3, 2), (1, 3), (1, 1)),
    ((1, 130, 6, 6), 3, 1, 1),
    ((3, 33, 1, 1), 1, 1, 0),
    ((1, 16, 11, 13), (5, 7), 4, (2, 3)),
    ((2, 5, 9, 9), 2, 3, 0),
]
LAYOUTS = ["blocked", "NHWC"]
DTYPES = ["float32", "bfloat16"]


def as_dtype(x: NDArray, dtype: str) -> NDArray:
    x = np.ascontiguousarray(x, np.float32)
    return dlprim.to_bfloat16(x) if dtype == "bfloat16" else x


def wide(x: NDArray) -> NDArray:
    return (x if x.dtype == np.float32 else dlprim.to_float32(x)).astype(np.float64)


def pair(value) -> tuple[int, int]:
    return value if isinstance(value, tuple) else (value, value)


def windows(pool, kernel, stride, padding):
    """(p, q, rows, columns of the window that exist, first row, first column)."""
    height, width = pool.activations.shape[2:]
    (r, s), (dy, dx), (py, px) = pair(kernel), pair(stride or kernel), pair(padding)
    for p in range(pool.y_shape[2]):
        for q in range(pool.y_shape[3]):
            top, left = p * dy - py, q * dx - px
            rows = slice(max(top, 0), min(top + r, height))
            columns = slice(max(left, 0), min(left + s, width))
            yield p, q, rows, columns, top, left


def operands(pool, dtype, seed=0) -> tuple[NDArray, NDArray]:
    random = np.random.default_rng(seed)
    # Few values, so that there are ties.
    x = random.integers(-5, 6, pool.activations.shape) / 4
    return as_dtype(x, dtype), as_dtype(random.standard_normal(pool.y_shape), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_maximum(case, layout, dtype):
    shape, kernel, stride, padding = case
    pool = dlprim.MaxPool2d(shape, kernel, stride, padding, layout=layout, dtype=dtype)
    x, dy = operands(pool, dtype)
    exact, taps = np.empty(pool.y_shape), np.empty(pool.y_shape)
    gradient = np.zeros(shape)
    for p, q, rows, columns, top, left in windows(pool, kernel, stride, padding):
        window = wide(x)[:, :, rows, columns]
        flat = window.reshape(*window.shape[:2], -1)
        row, column = np.unravel_index(flat.argmax(-1), window.shape[2:])
        exact[:, :, p, q] = flat.max(-1)
        tap_row, tap_column = row + rows.start - top, column + columns.start - left
        taps[:, :, p, q] = tap_row * pair(kernel)[1] + tap_column
        n, c = np.ogrid[: shape[0], : shape[1]]
        np.add.at(gradient, (n, c, row + rows.start, column + columns.start), wide(dy)[:, :, p, q])
    indices = pool.new_indices()
    dst = pool.forward(pool.activations.pack(x), indices=indices)
    np.testing.assert_array_equal(wide(pool.dst_activations.unpack(dst)), exact)
    assert pool.forward(pool.activations.pack(x)).tobytes() == dst.tobytes()
    found = dlprim.Activations(pool.y_shape, layout=layout).unpack(indices.astype(np.float32))
    np.testing.assert_array_equal(found, taps)
    diff_src = pool.backward(pool.dst_activations.pack(dy), indices)
    tolerance = 1e-6 if dtype == "float32" else 8e-3
    got = wide(pool.activations.unpack(diff_src))
    np.testing.assert_allclose(got, gradient, tolerance, tolerance)


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_average(case, layout, dtype, counted):
    shape, kernel, stride, padding = case
    pool = dlprim.AvgPool2d(
        shape, kernel, stride, padding, layout=layout, dtype=dtype, count_include_pad=counted
    )
    x, dy = operands(pool, dtype)
    exact, gradient = np.empty(pool.y_shape), np.zeros(shape)
    for p, q, rows, columns, *_ in windows(pool, kernel, stride, padding):
        window = wide(x)[:, :, rows, columns]
        count = np.prod(pair(kernel)) if counted else window[0, 0].size
        exact[:, :, p, q] = window.sum((2, 3)) / count
        gradient[:, :, rows, columns] += wide(dy)[:, :, p, q, None, None] / count
    dst = pool.forward(pool.activations.pack(x))
    tolerance = 1e-6 if dtype == "float32" else 8e-3
    got = wide(pool.dst_activations.unpack(dst))
    np.testing.assert_allclose(got, exact, tolerance, tolerance)
    diff_src = pool.backward(pool.dst_activations.pack(dy))
    got = wide(pool.activations.unpack(diff_src))
    np.testing.assert_allclose(got, gradient, tolerance, tolerance)


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "case",
    [((2, 70, 40, 31), 11, 1, 5), ((1, 40, 80, 71), 35, 35, 3)],
    ids=["overlapping", "apart"],
)
def test_averages_of_large_windows(case, layout, dtype, counted):
    test_average(case, layout, dtype, counted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("channels", [64, 70, 2048])
def test_global_average(channels, layout, dtype):
    pool = dlprim.GlobalAvgPool2d((2, channels, 7, 5), layout=layout, dtype=dtype)
    x, _ = operands(pool, dtype)
    features = pool.features(pool.forward(pool.activations.pack(x)))
    assert features.shape == (2, channels)
    np.testing.assert_allclose(wide(features), wide(x).mean((2, 3)), 8e-3, 8e-3)
    gradient = pool.activations.unpack(pool.backward(pool.from_features(features)))
    expected = np.broadcast_to(wide(features)[:, :, None, None] / 35, pool.activations.shape)
    np.testing.assert_allclose(wide(gradient), expected, 8e-3, 1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_bits_for_any_number_of_threads_and_an_empty_minibatch(layout):
    pool = dlprim.MaxPool2d((3, 40, 12, 12), 3, 2, 1, layout=layout)
    x, dy = operands(pool, "float32")
    src, diff_dst = pool.activations.pack(x), pool.dst_activations.pack(dy)
    results = []
    for threads in (1, 3):
        indices = pool.new_indices()
        with dlprim.threads(threads):
            dst = pool.forward(src, indices=indices)
            results.append((dst.tobytes(), pool.backward(diff_dst, indices).tobytes()))
    assert results[0] == results[1]
    empty = dlprim.AvgPool2d((0, 40, 12, 12), 3, 2, 1, layout=layout)
    assert empty.forward(np.empty(empty.src_shape, np.float32)).shape == empty.dst_shape


def test_nan_is_the_maximum():
    pool = dlprim.MaxPool2d((1, 20, 4, 4), 2)
    x, _ = operands(pool, "float32")
    x[0, 3, 1, 0] = np.nan
    indices = pool.new_indices()
    y = pool.dst_activations.unpack(pool.forward(pool.activations.pack(x), indices=indices))
    assert np.isnan(y[0, 3, 0, 0])
    assert np.isnan(y).sum() == 1
    assert indices.reshape(2, 2, 20)[0, 0, 3] == 2


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="padding in height is 2"):
        dlprim.MaxPool2d((1, 2, 8, 8), 3, padding=2)
    with pytest.raises(ValueError, match="exceeds the padded input"):
        dlprim.MaxPool2d((1, 2, 2, 8), 3)
    with pytest.raises(ValueError, match="kernel has 289 elements"):
        dlprim.MaxPool2d((1, 2, 20, 20), 17)
    with pytest.raises(TypeError, match="stride is 'a'"):
        dlprim.MaxPool2d((1, 2, 8, 8), 3, "a")
    for shape in ((2**40, 1, 1, 1), (1, 2**40, 1, 1), (1, 1, 2**40, 1), (1, 1, 1, 2**31)):
        for make in (dlprim.MaxPool2d, dlprim.AvgPool2d):
            with pytest.raises(ValueError, match=r"shape holds .*, which is out of range"):
                make(shape, 1)
    pool = dlprim.MaxPool2d((1, 2, 8, 8), 2)
    with pytest.raises(ValueError, match="indices are expected"):
        pool.backward(np.zeros(pool.dst_shape, np.float32), None)
    with pytest.raises(ValueError, match="src has shape"):
        pool.forward(np.zeros((1, 2, 8, 8), np.float32))
