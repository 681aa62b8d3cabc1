"""8-bit convolutions and layers: exact sums, zero points, rounding, threads, levels, refusals."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlprim
from conftest import LEVELS, RunPython, runs
from quantized_checker import CASES, Case, check, requantized, sums


def is_depthwise(case: Case) -> bool:
    return case.groups == case.x_shape[1] == case.channels


@pytest.mark.parametrize("layout", ["blocked", "NHWC"])
@pytest.mark.parametrize("src", ["uint8", "int8"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_sums_are_exact_and_results_rounded_once(case: Case, src: str, layout: str) -> None:
    for seed, dst in enumerate(("int32", "float32", "bfloat16", "uint8", "int8")):
        if dst == "int32" and is_depthwise(case):
            continue
        check(case, src, dst, layout, seed)
        check(case, src, dst, layout, seed + 5)


@pytest.mark.parametrize("src", ["uint8", "int8"])
def test_extremes(src: str) -> None:
    for case in (Case((1, 200, 4, 4), 20, (3, 3), padding=1), Case((1, 64, 3, 3), 64, (1, 1))):
        check(case, src, "int32", "blocked", extreme=True)
        check(case, src, "int32", "NHWC", extreme=True)
    check(Case((1, 20, 9, 9), 20, (9, 9), groups=20), src, "float32", "NHWC", extreme=True)


@pytest.mark.any_level
@pytest.mark.parametrize("level", LEVELS[:-1])
def test_levels(level: str, run_python: RunPython) -> None:
    if not runs(level):
        pytest.skip(f"{level} kernels do not run here")
    source = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import quantized_checker\n"
        "quantized_checker.check_on_this_level()\n"
    )
    folder = str(__file__).rpartition("/")[0]
    run = run_python(source, folder, DLPRIM_MAX_ISA=level, timeout=300)
    assert (run.returncode, run.stderr) == (0, "")


def test_the_same_bits_for_any_number_of_threads() -> None:
    for case in (
        Case((3, 65, 12, 11), 70, (3, 3), padding=1),
        Case((2, 40, 9, 9), 40, (3, 3), 1, 1, 1, 40),
    ):
        results = []
        for threads in (1, 2, 3):
            with dlprim.threads(threads):
                results.append(check(case, "uint8", "uint8", "blocked", 1).tobytes())
        assert len(set(results)) == 1


def test_rounding_does_not_see_the_zero_point() -> None:
    """0.5 and 1.5 go to 0 and 2, and an odd zero point is added to these."""
    x = np.arange(8, dtype=np.uint8).reshape(8, 1)
    y = dlprim.linear(x, np.ones((1, 1), np.int8), x_scale=0.5, w_scale=1.0, y_scale=1.0,
                      y_zero_point=3)  # fmt: skip
    assert y.ravel().tolist() == [3, 3, 4, 5, 5, 5, 6, 7]


def test_relu_is_a_bound_in_front_of_the_zero_point() -> None:
    x, w = np.array([[2]], np.uint8), np.array([[-100], [100]], np.int8)
    how = {"x_scale": 1.0, "w_scale": 1.0, "y_scale": 10.0, "y_dtype": "int8"}
    assert dlprim.linear(x, w, y_zero_point=-9, **how).tolist() == [[-29, 11]]
    assert dlprim.linear(x, w, activation="relu", y_zero_point=-9, **how).tolist() == [[-9, 11]]


CASE = Case((2, 5, 6, 7), 9, (3, 3), 2, 1)


def drawn(case: Case, dtype: str = "uint8") -> tuple[Any, Any, Any]:
    random = np.random.default_rng(0)
    x = random.integers(0, 100, case.x_shape).astype(dtype)
    w = random.integers(-128, 128, case.w_shape).astype(np.int8)
    return x, w, random.integers(-999, 999, case.channels).astype(np.int32)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_function(layout: str) -> None:
    x, w, bias = drawn(CASE)
    exact = sums(x, w, 7, CASE) + bias[:, None, None]
    steps = np.float32(0.25) * np.exp2(-np.arange(9, dtype=np.float32))
    real = exact * steps[:, None, None].astype(np.float64)
    how: dict[str, Any] = {"stride": 2, "padding": 1, "layout": layout, "x_zero_point": 7}
    scales = {"x_scale": 0.25, "w_scale": steps * 4}
    if layout == "NHWC":
        x = np.ascontiguousarray(x.transpose(0, 2, 3, 1))

    def plain(y: Any) -> Any:
        return y if layout == "NCHW" else y.transpose(0, 3, 1, 2)

    y = plain(dlprim.conv2d(x, w, bias, **how, y_dtype="int32"))
    np.testing.assert_array_equal(y, exact)
    np.testing.assert_allclose(plain(dlprim.conv2d(x, w, bias, **how, **scales)), real, rtol=1e-6)
    y = plain(dlprim.conv2d(x, w, bias, **how, **scales, y_scale=0.5, y_zero_point=11))
    np.testing.assert_array_equal(y, requantized(real / 0.5, "uint8", 11))
    offset = np.arange(9, dtype=np.float32)
    y = plain(dlprim.conv2d(x, w, offset, **how, **scales, y_scale=8, y_dtype="int8"))
    shifted = real + (offset - bias * steps)[:, None, None]
    assert np.abs(y - requantized(shifted / 8, "int8", 0).astype(int)).max() <= 1


def test_as_onnx_has_it() -> None:
    """QLinearConv of ONNX's reference, which pads with the zero point of x."""
    reference = pytest.importorskip("onnx.reference", reason="onnx says what the result is")
    onnx, evaluator = import_module("onnx"), reference.ReferenceEvaluator
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"]
    node = onnx.helper.make_node("QLinearConv", names, ["y"], strides=[2, 2], pads=[1, 1, 1, 1])
    x, w, bias = drawn(CASE)
    values = [x, np.float32(0.02), np.uint8(9), w, np.float32(0.01), np.int8(0),
              np.float32(0.37), np.uint8(121), bias]  # fmt: skip
    y = evaluator(node).run(None, dict(zip(names, values, strict=True)))[0]
    mine = dlprim.conv2d(x, w, bias, 2, 1, x_scale=0.02, x_zero_point=9, w_scale=0.01, y_scale=0.37,
                         y_zero_point=121)  # fmt: skip
    assert np.abs(mine.astype(int) - y.astype(int)).max() <= 1


@pytest.mark.parametrize("src", ["uint8", "int8"])
def test_linear_function(src: str) -> None:
    random = np.random.default_rng(0)
    for n, c, k in ((1, 1, 1), (5, 33, 17), (64, 300, 130), (0, 3, 2)):
        x = random.integers(0, 128, (2, n, c)).astype(src)
        w = random.integers(-128, 128, (k, c)).astype(np.int8)
        bias = random.integers(-999, 999, k).astype(np.int32)
        exact = (x.astype(np.int64) - 50) @ w.T.astype(np.int64) + bias
        y = dlprim.linear(x, w, bias, x_zero_point=50, y_dtype="int32")
        np.testing.assert_array_equal(y, exact)
        scale = np.exp2(-random.integers(6, 9, k)).astype(np.float32)
        how = {"x_scale": 0.5, "x_zero_point": 50, "w_scale": scale}
        real = exact.astype(np.float32) * (scale / 2)
        np.testing.assert_array_equal(dlprim.linear(x, w, bias, **how), real)
        out = np.empty(exact.shape, np.int8)
        y = dlprim.linear(x, w, bias, **how, y_scale=2.0, y_zero_point=-5, y_dtype="int8", out=out)
        assert y is out
        np.testing.assert_array_equal(y, requantized(real / 2, "int8", -5))


def test_what_does_not_go_together() -> None:
    x, w, bias = drawn(CASE)
    how = {"x_scale": 1.0, "w_scale": 1.0}
    wrong: list[tuple[Any, str]] = [
        (lambda: dlprim.conv2d(x, w), "^x_scale is missing"),
        (lambda: dlprim.conv2d(x, w, w_scale=1.0), "^x_scale is missing"),
        (lambda: dlprim.conv2d(x, w.view(np.uint8), **how), "^w has dtype uint8, expected int8"),
        (lambda: dlprim.conv2d(x, w, **how, x_zero_point=256), "^x_zero_point is 256"),
        (lambda: dlprim.conv2d(x, w, **how, y_zero_point=1), "^y_zero_point is 1, expected 0"),
        (lambda: dlprim.conv2d(x, w, **how, y_dtype="int8"), "^y_dtype is int8"),
        (lambda: dlprim.conv2d(x, w, **how, y_dtype="int32"), "^x_scale is given and y_dtype"),
        (lambda: dlprim.conv2d(x, w, x_scale=0.0, w_scale=1.0), "^x_scale is 0.0"),
        (lambda: dlprim.conv2d(x, w, x_scale=1.0, w_scale=np.ones(3, np.float32)), "^w_scale has"),
        (lambda: dlprim.conv2d(x, w, bias[:3], **how), "^bias has shape"),
        (lambda: dlprim.conv2d(np.float32(x), np.float32(w), **how), "^x_scale is given, but x"),
        (lambda: dlprim.linear(np.float32([[1]]), np.float32([[1]]), y_zero_point=1),
         "^y_zero_point is given, but x"),
        (lambda: dlprim.linear(x, w, **how), "^w has shape"),
        (lambda: dlprim.linear(x, w[0, 0], **how), "^x has shape"),
        (lambda: dlprim.Conv2d(CASE.x_shape, CASE.w_shape, dtype="uint8", dst_dtype="int32",
                               activation="relu"), "^activation is 'relu' and dst_dtype is int32"),
        (lambda: dlprim.Conv2d((1, 3, 4, 4), (3, 1, 3, 3), groups=3, dtype="uint8",
                               dst_dtype="int32"), "^dst of a depthwise"),
        (lambda: dlprim.Conv2d(CASE.x_shape, CASE.w_shape, dst_dtype="uint8"), "^dst_dtype is"),
    ]  # fmt: skip
    for call, sentence in wrong:
        with pytest.raises((TypeError, ValueError), match=sentence):
            call()


def test_only_the_forward_pass() -> None:
    conv = dlprim.Conv2d(CASE.x_shape, CASE.w_shape, *CASE.geometry, dtype="uint8")
    x, w, _ = drawn(CASE)
    src, weights = conv.pack_src(x), conv.pack_weights(w)
    assert list(conv.schedules) == list(conv.scratch_bytes) == list(conv.algorithms) == ["forward"]
    assert "u8s8_f32" in str(conv)
    dst = conv.forward(src, weights, scale=1.0)
    with pytest.raises(TypeError, match="has the forward pass alone"):
        conv.backward_data(dst, weights)
    with pytest.raises(TypeError, match="has the forward pass alone"):
        conv.backward_weights(src, dst)
    with pytest.raises(ValueError, match=r"^scale is missing"):
        conv.forward(src, weights)
    with pytest.raises(ValueError, match=r"^relu_mask was given"):
        conv.forward(src, weights, scale=1.0, relu_mask=np.zeros(conv.relu_mask_shape, np.uint8))
    with pytest.raises(ValueError, match=r"^scale was given, but src is of float32"):
        dlprim.Conv2d(CASE.x_shape, CASE.w_shape).forward(src, weights, scale=1.0)


def test_schedules_can_be_searched(tmp_path: Path) -> None:
    conv = dlprim.Conv2d((1, 20, 9, 9), (40, 20, 3, 3), dtype="uint8", dst_dtype="int8")
    found = dlprim.tune(conv, 0.2, path=tmp_path, progress=None)
    assert list(found) == ["forward"]


SUMS = r"^w: sums of channel 1 can reach \d+ \(its \d+ weights add up to \d+\), expected at most"


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_float_results_of_sums_beyond_int32_are_refused(dtype: str) -> None:
    terms = 70_000
    x, w = np.full((1, terms), 127, dtype), np.zeros((2, terms), np.int8)
    w[1] = 127
    scales: dict[str, Any] = {"x_scale": 1.0, "w_scale": 1.0}
    with pytest.raises(ValueError, match=SUMS):
        dlprim.linear(x, w, **scales)
    images, filters = x[:, :67_500].reshape(1, 7500, 3, 3), w[:, :67_500].reshape(2, 7500, 3, 3)
    with pytest.raises(ValueError, match=SUMS):
        dlprim.conv2d(images, filters, **scales)
    layer = dlprim.Linear((1, terms), 2, dtype=dtype)
    with pytest.raises(ValueError, match=SUMS):
        layer.pack_weights(w)
    # What int32 holds runs, however many terms there are, and an int32 result is modulo 2^32.
    w[1, ::2] = 0
    exact = x.astype(np.int64) @ w.T.astype(np.int64)
    np.testing.assert_array_equal(dlprim.linear(x, w, **scales), exact.astype(np.float32))
    w[1] = 127
    assert dlprim.linear(x, w, y_dtype="int32").dtype == np.int32


@pytest.mark.parametrize("sign", [-1, 1])
def test_integer_biases_beyond_int32_are_refused(sign: int) -> None:
    x, w = np.full((1, 100), 255, np.uint8), np.full((2, 100), sign * 127, np.int8)
    scales: dict[str, Any] = {"x_scale": 1.0, "w_scale": 1.0}
    bias = np.array([0, sign * (2**31 - 3_000_000)], np.int32)
    with pytest.raises(ValueError, match=r"^w and bias: sums of channel 1 can reach 2147722148"):
        dlprim.linear(x, w, bias, **scales)
    bias[1] -= sign * 3_000_000
    exact = x.astype(np.int64) @ w.T.astype(np.int64) + bias
    np.testing.assert_array_equal(dlprim.linear(x, w, bias, **scales), exact.astype(np.float32))
