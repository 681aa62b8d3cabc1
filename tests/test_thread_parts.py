"""Where a loop has too few tasks for the threads, tasks are parts of columns: to the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlprim
from bfloat16 import rounded
from dlprim import _core as core
from drawing import RNG

THREADS = (2, 3, 5, 16)
Shape = tuple[int, int, int, int]
DTYPES = pytest.mark.parametrize("dtype", ["float32", "bfloat16"])


def drawn(dtype: str, *shape: int) -> np.ndarray:
    x = RNG.standard_normal(shape, np.float32)
    return x if dtype == "float32" else rounded(x)


def require_same(call: Callable[[], Any]) -> None:
    """The same bits of all results on any number of threads, and more parts on more threads."""
    with dlprim.threads(1):
        right = call()
    for threads in THREADS:
        with dlprim.threads(threads):
            found = call()
        for one, other in zip(right, found, strict=True):
            assert np.array_equal(one.view(np.uint8), other.view(np.uint8)), threads


def tasks(call: Callable[[], object], threads: int) -> int:
    number: int = core.priced(call, threads)[3]
    return number


@DTYPES
@pytest.mark.parametrize(
    ("shape", "filters", "stride", "padding"),
    [
        ((2, 3, 56, 56), (64, 3, 7, 7), 2, 3),  # windows, whose tasks are rows of the filter
        ((2, 64, 28, 28), (64, 64, 1, 1), 1, 0),  # one block
        ((1, 96, 14, 14), (160, 96, 1, 1), 1, 0),
        ((1, 130, 9, 9), (70, 130, 3, 3), 1, 1),  # ragged blocks, taps that are left out
    ],
)
def test_convolutions(shape: Shape, filters: Shape, stride: int, padding: int, dtype: str) -> None:
    conv = dlprim.Conv2d(
        shape, filters, stride, padding, dtype=dtype, bias=True, activation="relu",
        algorithm="direct",
    )  # fmt: skip
    src, weights = conv.pack_src(drawn(dtype, *shape)), conv.pack_weights(drawn(dtype, *filters))
    bias = drawn("float32", filters[0])
    diff_dst = conv.pack_diff_dst(drawn(dtype, *conv.y_shape))
    require_same(
        lambda: [
            conv.forward(src, weights, bias),
            conv.backward_data(diff_dst, weights),
            conv.backward_weights(src, diff_dst),
        ]
    )


@DTYPES
@pytest.mark.parametrize(("n", "c", "k"), [(16, 400, 880), (48, 512, 192), (33, 300, 35)])
def test_linear_layers(n: int, c: int, k: int, dtype: str) -> None:
    layer = dlprim.Linear((n, c), k, dtype=dtype, bias=True, activation="gelu")
    src, weights = layer.pack_src(drawn(dtype, n, c)), layer.pack_weights(drawn(dtype, k, c))
    bias = drawn("float32", k)
    diff_dst = layer.pack_diff_dst(drawn(dtype, n, k))
    require_same(
        lambda: [
            layer.forward(src, weights, bias),
            layer.backward_data(diff_dst, weights),
            layer.backward_weights(src, diff_dst),
        ]
    )


@DTYPES
@pytest.mark.parametrize("layer", [dlprim.LSTM, dlprim.GRU])
@pytest.mark.parametrize(("n", "k"), [(24, 256), (13, 200)])
def test_recurrent_layers(layer: type, n: int, k: int, dtype: str) -> None:
    rnn = layer((5, n, 64), k, dtype=dtype)
    gates = rnn.gates * k
    plain = [drawn(dtype, gates, 64), drawn(dtype, gates, k)]
    weights = rnn.pack_weights(*plain, *(drawn("float32", gates) for _ in range(2)))
    x, diff = drawn(dtype, 5, n, 64), drawn(dtype, 5, n, k)

    def call() -> list[np.ndarray]:
        trained = rnn.forward(x, weights, training=True)
        gradients = rnn.backward(diff, trained.saved, weights)
        return [rnn.forward(x, weights).y, trained.y, *map(np.asarray, gradients)]

    require_same(call)


def test_parts_where_threads_would_wait() -> None:
    linear = dlprim.Linear((16, 1760), 1760)
    src = np.zeros(linear.src_shape, np.float32)
    weights = linear.pack_weights(np.zeros((1760, 1760), np.float32))
    blocks = tasks(lambda: linear.forward(src, weights), 2)
    assert tasks(lambda: linear.forward(src, weights), 16) > blocks
    rnn = dlprim.LSTM((10, 24, 256), 256)
    x = np.zeros((10, 24, 256), np.float32)
    w = rnn.pack_weights(
        *[np.zeros((1024, 256), np.float32)] * 2, *[np.zeros(1024, np.float32)] * 2
    )
    assert tasks(lambda: rnn.forward(x, w), 16) > tasks(lambda: rnn.forward(x, w), 2)
