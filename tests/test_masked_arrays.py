"""Masked arrays are refused, for their masks would be lost; memory maps are read and written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlprim

pytestmark = pytest.mark.any_level

T, N, C, K = 3, 2, 16, 4


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def masked(*shape: int, dtype: Any = np.float32) -> Any:
    return np.ma.masked_array(np.ones(shape, dtype), mask=np.eye(1, np.prod(shape)).reshape(shape))


IMAGES, FILTERS = (1, C, 3, 3), (K, C, 1, 1)
PLAIN = dlprim.Linear((N, C), K, layout="plain", bias=True)
CONV = dlprim.Conv2d(IMAGES, FILTERS, layout="NHWC", bias=True)
NORM = dlprim.BatchNorm(IMAGES, layout="NHWC")
POOL = dlprim.AvgPool2d(IMAGES, 3, layout="NHWC")
LSTM = dlprim.LSTM((T, N, C), K)
NHWC, RESULT = (1, 3, 3, C), (1, 3, 3, K)
WEIGHTS = ones(4 * K, C), ones(4 * K, K)

CALLS: list[tuple[str, Callable[[], Any]]] = [
    ("x", lambda: dlprim.linear(masked(N, C), ones(K, C))),
    ("w", lambda: dlprim.linear(ones(N, C), masked(K, C))),
    ("bias", lambda: dlprim.linear(ones(N, C), ones(K, C), masked(K))),
    ("out", lambda: dlprim.linear(ones(N, C), ones(K, C), out=masked(N, K))),
    ("dy", lambda: dlprim.linear_backward(masked(N, K), ones(N, C), ones(K, C))),
    ("x", lambda: dlprim.conv2d(masked(*IMAGES), ones(*FILTERS))),
    ("bias", lambda: dlprim.conv2d(ones(*IMAGES), ones(*FILTERS), masked(K))),
    ("x", lambda: dlprim.lstm(masked(T, N, C), *WEIGHTS)),
    ("lengths", lambda: dlprim.lstm(ones(T, N, C), *WEIGHTS, lengths=masked(N, dtype=int))),
    ("x", lambda: dlprim.relu(masked(3))),
    ("out", lambda: dlprim.relu(ones(3), out=masked(3))),
    ("x", lambda: dlprim.gelu(masked(3))),
    ("out", lambda: dlprim.gelu(ones(3), out=masked(3))),
    ("y", lambda: dlprim.softmax_backward(ones(3), masked(3))),
    ("weight", lambda: dlprim.layer_norm(ones(2, 3), masked(3))),
    ("x", lambda: dlprim.quantize(masked(3), 1.0)),
    ("q", lambda: dlprim.dequantize(masked(3, dtype=np.uint8), 1.0)),
    ("scale", lambda: dlprim.quantize(ones(2, 3), masked(3), axis=1)),
    ("x", lambda: dlprim.pad(masked(3), (1, 1))),
    ("out", lambda: dlprim.pad(ones(3), (0, 0), out=masked(3))),
    ("other", lambda: dlprim.add(ones(3), masked(3))),
    ("indices", lambda: dlprim.embedding(masked(3, dtype=np.int64), ones(4, 4))),
    ("targets", lambda: dlprim.softmax_cross_entropy(ones(2, 3), masked(2, dtype=np.int64))),
    (
        "weight",
        lambda: dlprim.softmax_cross_entropy(ones(2, 3), np.zeros(2, int), weight=masked(3)),
    ),
    ("y", lambda: dlprim.mse_loss(ones(3), masked(3))),
    ("targets", lambda: dlprim.binary_cross_entropy_with_logits(ones(3), masked(3))),
    ("b", lambda: dlprim.pack_b(masked(4, 4), "bfloat16")),
    ("a", lambda: dlprim.brgemm(masked(1, 4, 4), ones(1, 4, 4))),
    ("c", lambda: dlprim.brgemm(ones(1, 4, 4), ones(1, 4, 4), masked(4, 4))),
    ("src", lambda: PLAIN.forward(masked(N, C), PLAIN.pack_weights(ones(K, C)), ones(K))),
    ("bias", lambda: PLAIN.forward(ones(N, C), PLAIN.pack_weights(ones(K, C)), masked(K))),
    ("x", lambda: PLAIN.pack_src(masked(N, C))),
    ("src", lambda: CONV.forward(masked(*NHWC), CONV.pack_weights(ones(*FILTERS)), ones(K))),
    ("diff_dst", lambda: CONV.backward_data(masked(*RESULT), CONV.pack_weights(ones(*FILTERS)))),
    ("src", lambda: CONV.backward_weights(masked(*NHWC), ones(*RESULT))),
    ("dst", lambda: CONV.unpack_dst(masked(*RESULT))),
    ("src", lambda: NORM.forward(masked(*NHWC))),
    ("running_var", lambda: NORM.forward(ones(*NHWC), running_mean=ones(C), running_var=masked(C))),
    ("src", lambda: POOL.forward(masked(*NHWC))),
    ("x", lambda: LSTM.forward(masked(T, N, C), LSTM.pack_weights(*WEIGHTS))),
    ("w_hh", lambda: LSTM.pack_weights(ones(4 * K, C), masked(4 * K, K))),
]


@pytest.mark.parametrize(("name", "call"), CALLS)
def test_masked_arrays_are_refused(name: str, call: Callable[[], Any]) -> None:
    expected = rf"^{name} is a masked array, expected an ndarray: .* {name}\.filled"
    with pytest.raises(TypeError, match=expected):
        call()


def test_memory_maps_are_operands_and_results(tmp_path: Path) -> None:
    random = np.random.default_rng(0)

    def mapped(*shape: int) -> Any:
        array: Any = np.memmap(tmp_path / f"{shape}", np.float32, "w+", shape=shape)
        array[...] = random.random(shape, np.float32)
        return array

    x, w, bias, out = mapped(N, C), mapped(K, C), mapped(K), mapped(N, K)
    expected = dlprim.linear(np.array(x), np.array(w), np.array(bias))
    np.testing.assert_array_equal(dlprim.linear(x, w, bias), expected)
    assert dlprim.linear(x, w, bias, out=out) is out
    np.testing.assert_array_equal(out, expected)
    gradients = dlprim.linear_backward(out, x, w)
    for found, due in zip(
        gradients, dlprim.linear_backward(np.array(out), np.array(x), np.array(w)), strict=True
    ):
        np.testing.assert_array_equal(found, due)
