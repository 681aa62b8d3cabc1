"""Weights of a file lie at any byte."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlprim.onnx
from drawing import RNG

pytestmark = pytest.mark.any_level

helper: Any = pytest.importorskip("onnx.helper", reason="onnx makes the models that are read here")
numpy_helper: Any = import_module("onnx.numpy_helper")

# Operator, weights by shape, and the input.
LAYERS: dict[str, tuple[list[tuple[int, ...]], tuple[int, ...], dict[str, Any]]] = {
    "RNN": ([(1, 40, 60), (1, 40, 40), (1, 80)], (3, 2, 60), {"hidden_size": 40}),
    "GRU": ([(1, 48, 20), (1, 48, 16), (1, 96)], (3, 2, 20), {"hidden_size": 16}),
    "LSTM": ([(1, 64, 20), (1, 64, 16), (1, 128)], (3, 2, 20), {"hidden_size": 16}),
    "LayerNormalization": ([(1100,), (1100,)], (3, 1100), {}),
    "Conv": ([(40, 20, 3, 3), (40,)], (1, 20, 7, 7), {}),
    "MatMul": ([(40, 50)], (3, 40), {}),
    "Gemm": ([(40, 50), (50,)], (3, 40), {}),
    "PRelu": ([(1100,)], (3, 1100), {}),
    "Add": ([(3, 1100)], (3, 1100), {}),
    "ConvTranspose": ([(20, 40, 2, 2)], (1, 20, 5, 5), {"strides": [2, 2]}),
    "InstanceNormalization": ([(20,), (20,)], (2, 20, 9), {}),
}


def model(op: str, pad: int, weights: list[np.ndarray]) -> bytes:
    shape, attributes = LAYERS[op][1:]
    names = [f"w{place}" for place in range(len(weights))]
    node = helper.make_node(op, ["x", *names], ["y"], **attributes)
    x = helper.make_tensor_value_info("x", 1, shape)
    y = helper.make_tensor_value_info("y", 1, None)
    graph = helper.make_graph([node], "g" * (1 + pad), [x], [y])
    graph.initializer.extend(map(numpy_helper.from_array, weights, names))
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


@pytest.mark.parametrize("op", LAYERS)
def test_weights_may_lie_at_any_byte(op: str, tmp_path: Path) -> None:
    shapes, shape, _ = LAYERS[op]
    weights = [(RNG.standard_normal(it) / 8).astype(np.float32) for it in shapes]
    x = RNG.standard_normal(shape).astype(np.float32)
    right = None
    for pad in range(4):
        octets = model(op, pad, weights)
        path = tmp_path / f"{pad}.onnx"
        path.write_bytes(octets)
        for given in (octets, path):
            (y,) = dlprim.onnx.load(given).run({"x": x})
            right = y if right is None else right
            np.testing.assert_array_equal(y, right)


@pytest.mark.parametrize("axis", [0, 1])
def test_tables_stay_in_their_file(axis: int, tmp_path: Path) -> None:
    table = RNG.standard_normal((900, 300)).astype(np.float32)  # smaller files are read whole
    places = np.array([[3, -1], [60, 0]])
    node = helper.make_node("Gather", ["w", "i"], ["y"], axis=axis)
    i = helper.make_tensor_value_info("i", 7, ["a", "b"])
    y = helper.make_tensor_value_info("y", 1, None)
    for pad in range(4):
        graph = helper.make_graph([node], "g" * (1 + pad), [i], [y])
        graph.initializer.append(numpy_helper.from_array(table, "w"))
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        path = tmp_path / f"{pad}.onnx"
        path.write_bytes(made.SerializeToString())
        loaded = dlprim.onnx.load(path)
        for given in (places, places[:1], places[:, :1]):  # of which the last two are recorded
            (result,) = loaded.run({"i": given})
            np.testing.assert_array_equal(result, table.take(given, axis))
        is_aligned = path.read_bytes().index(table.tobytes()) % 4 == 0
        read = "float32 (900, 300)" if is_aligned else "uint8 (900, 300, 4)"
        assert read in loaded.explain()
