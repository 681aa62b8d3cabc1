"""Operators of opsets 1 to 6, and models that old exporters wrote."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import dlprim.onnx
from drawing import RNG

pytest.importorskip("onnx.helper", reason="onnx makes the models that are read here")
onnx: Any = import_module("onnx")
helper: Any = import_module("onnx.helper")


def run(opset: int, op: str, arrays: Sequence[np.ndarray], **attributes: Any) -> Any:
    names = [f"x{place}" for place in range(len(arrays))]
    made = helper.make_node(op, names, ["y"], **attributes)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(it.dtype), it.shape)
        for name, it in zip(names, arrays, strict=True)
    ]
    graph = helper.make_graph([made], "old", inputs, [onnx.ValueInfoProto(name="y")])
    opsets = [helper.make_opsetid("", opset)]
    return dlprim.onnx.load(helper.make_model(graph, opset_imports=opsets, ir_version=3))(*arrays)


def f(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("opset", [1, 6])
@pytest.mark.parametrize(
    ("op", "function"),
    [("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply), ("Div", np.divide)],
)
def test_operands_are_broadcast_from_an_axis_on(opset: int, op: str, function: Any) -> None:
    a, hints = f(2, 3, 4, 5), {"consumed_inputs": [0, 0]} if opset == 1 else {}
    for b, axis in ((f(3, 4), 1), (f(3), 1), (f(2), 0), (f(2, 3, 4, 5), 0)):
        right = function(a, b.reshape((1,) * axis + b.shape + (1,) * (4 - axis - b.ndim)))
        result = run(opset, op, [a, b], axis=axis, broadcast=1, **hints)
        np.testing.assert_allclose(result, right, rtol=1e-5)
    b = f(4, 5)
    np.testing.assert_allclose(run(opset, op, [a, b], broadcast=1), function(a, b), rtol=1e-5)
    np.testing.assert_allclose(run(opset, op, [a, a]), function(a, a), rtol=1e-5)


def test_comparisons_and_powers_are_broadcast_so_too() -> None:
    a, b = np.abs(f(2, 3, 4)) + 1, np.abs(f(3)) + 1
    named = {"axis": 1, "broadcast": 1}
    np.testing.assert_array_equal(run(6, "Greater", [a, b], **named), a > b[:, None])
    np.testing.assert_allclose(run(6, "Pow", [a, b], **named), a ** b[:, None], rtol=1e-5)


@pytest.mark.any_level
@pytest.mark.parametrize(
    ("op", "shapes", "named", "message"),
    [
        ("Add", [(2, 3), (3,)], {}, "expected one shape, or broadcast=1"),
        ("Add", [(2, 3), (3,)], {"broadcast": 1, "axis": 0}, "does not fit A of"),
        ("Add", [(2, 3), (1, 2, 3)], {"broadcast": 1}, "does not fit A of"),
        ("Dropout", [(2, 3)], {}, "is_test is 0"),
        ("BatchNormalization", [(2, 3, 4), *[(3,)] * 4], {}, "is_test is 0, which is training"),
        ("PRelu", [(2, 3, 4), (4,)], {}, r"slope of \[4\], expected \[1\] or \[3\]"),
        ("Not", [(2,)], {"broadcast": 1}, "attribute 'broadcast' is not known"),
    ],
)
def test_what_opset_6_does_not_say_is_refused(
    op: str, shapes: Sequence[tuple[int, ...]], named: dict[str, Any], message: str
) -> None:
    with pytest.raises(dlprim.onnx.ModelError, match=message):
        run(6, op, [f(*shape) for shape in shapes], **named)


def test_layers_of_opset_6() -> None:
    x, w, b = f(4, 5), f(5, 3), f(3)
    np.testing.assert_allclose(run(6, "Gemm", [x, w, b], broadcast=1), x @ w + b, rtol=1e-4)
    image, slope = f(2, 3, 5, 5), f(3)
    wide = slope[:, None, None]
    right = np.where(image < 0, image * wide, image)
    np.testing.assert_allclose(run(6, "PRelu", [image, slope]), right, rtol=1e-6)
    scale, shift, mean, variance = f(3), f(3), f(3), np.abs(f(3)) + 0.5
    normed = (image - mean[:, None, None]) / np.sqrt(variance + 1e-5)[:, None, None]
    named = {"is_test": 1, "epsilon": 1e-5}
    result = run(6, "BatchNormalization", [image, scale, shift, mean, variance], **named)
    right = normed * scale[:, None, None] + shift[:, None, None]
    np.testing.assert_allclose(result, right, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(run(6, "Dropout", [x], is_test=1), x)


@pytest.mark.any_level
def test_what_later_is_an_input_is_an_attribute() -> None:
    x, image = f(4, 6), f(1, 2, 3, 3)
    np.testing.assert_array_equal(run(1, "Reshape", [x], shape=[3, -1]), x.reshape(3, 8))
    np.testing.assert_array_equal(run(1, "Concat", [x, x]), np.hstack([x, x]))
    padded = np.pad(x, ((1, 0), (0, 2)), constant_values=3)
    np.testing.assert_array_equal(run(1, "Pad", [x], paddings=[1, 0, 0, 2], value=3.0), padded)
    np.testing.assert_array_equal(run(5, "Cast", [x], to="INT32"), x.astype(np.int32))
    np.testing.assert_array_equal(run(5, "Cast", [x], to="DOUBLE"), x.astype(np.float64))
    repeated = image.repeat(2, 2).repeat(3, 3)
    named = {"height_scale": 2.0, "width_scale": 3.0}
    np.testing.assert_array_equal(run(1, "Upsample", [image], **named), repeated)
    lengths = np.sqrt((image.astype(np.float64) ** 2).sum(axis=(2, 3), keepdims=True))
    np.testing.assert_allclose(run(1, "GlobalLpPool", [image], p=2.0), lengths, rtol=1e-5)


@pytest.mark.any_level
def test_a_file_that_says_no_opset_is_of_the_first() -> None:
    text = helper.make_node("Reshape", ["x"], ["y"], shape=[6])
    inputs = [helper.make_tensor_value_info("x", 1, [2, 3])]
    graph = helper.make_graph([text], "old", inputs, [onnx.ValueInfoProto(name="y")])
    made = helper.make_model(graph, ir_version=1)
    del made.opset_import[:]
    x = f(2, 3)
    np.testing.assert_array_equal(dlprim.onnx.load(made)(x), x.ravel())
