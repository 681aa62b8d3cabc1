"""What a model may take: `max_bytes` of `dlprim.onnx.load`, found out before anything is taken."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

import dlprim.onnx
from dlprim.graph.operators.windows import pool_counts

pytestmark = pytest.mark.any_level

parser: Any = pytest.importorskip("onnx.parser", reason="onnx makes the models that are read here")
command_line: Any = import_module("dlprim.onnx.command_line")


def model(body: str, inputs: str, opset: int = 18) -> Any:
    start = f'<ir_version: 8, opset_import: ["" : {opset}]> m ({inputs}) => (float y) '
    made = parser.parse_model(f"{start} {{ {body} }}")
    made.graph.output[0].type.tensor_type.ClearField("shape")
    return made


def test_what_a_call_takes_is_what_it_may_take() -> None:
    made = model("a = Exp(x)\n b = Transpose(a)\n y = MatMul(b, a)", "float[n,4] x")
    x = np.ones((4096, 4), np.float32)
    with pytest.raises(ValueError, match=r"would take \d+ bytes, expected at most 1000 "):
        dlprim.onnx.load(made, max_bytes=1000)(x)
    assert dlprim.onnx.load(made, max_bytes=10 * x.nbytes)(x).shape == (4, 4)
    small = dlprim.onnx.load(made, max_bytes=1000)
    assert small(x[:4]).shape == (4, 4)  # it is asked for each shape
    assert small.max_bytes == 1000


def test_regions_in_data_are_refused_where_they_take_too_much() -> None:
    made = model("y = RoiAlign(x, r, i)", "float[1,1,2,4] x, float[n,4] r, int64[n] i")
    run = dlprim.onnx.load(made, max_bytes=1 << 24)
    x, i = np.ones((1, 1, 2, 4), np.float32), np.zeros(1, np.int64)
    assert run(x, np.array([[0, 0, 3, 3]], np.float32), i).shape == (1, 1, 1, 1)
    for corner in (1e5, 1e30, np.inf):
        with pytest.raises(ValueError, match=r"region .*would take"):
            run(x, np.array([[0, 0, corner, corner]], np.float32), i)
    y = run(x, np.array([[np.nan, 0, 3, 3]], np.float32), i)
    np.testing.assert_array_equal(y, 0)


@pytest.mark.parametrize("given", [0, -1, 1.5, "1"])
def test_what_is_no_number_of_bytes_is_refused(given: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="max_bytes is"):
        dlprim.onnx.load(model("y = Exp(x)", "float[n,4] x"), max_bytes=given)


@pytest.mark.parametrize("counts_padding", [False, True])
def test_means_are_of_what_windows_count(counts_padding: bool) -> None:
    """Against windows of ones, element by element."""
    random = np.random.default_rng(0)
    for _ in range(50):
        n, k, s, d, front, back = (int(it) for it in random.integers([1] * 4 + [0] * 2, 6))
        count = int(random.integers(1, 6))
        attributes = {
            "kernel": (k,),
            "strides": (s,),
            "dilations": (d,),
            "padding": ((front, back),),
            "counts": (count,),
            "counts_padding": counts_padding,
        }
        low, high = (-front, n + back) if counts_padding else (0, n)
        expected = [
            sum(low <= i * s - front + d * t < high for t in range(k)) for i in range(count)
        ]
        np.testing.assert_array_equal(pool_counts((1, 1, n), attributes), expected)
