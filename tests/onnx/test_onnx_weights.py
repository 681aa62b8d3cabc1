"""Weights are in memory once, in the form that steps read; the rest stays in the file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlprim.onnx
from dlprim.graph.lowering import sharing
from dlprim.onnx.mapped import light_model, octets_of

pytestmark = pytest.mark.any_level

onnx: Any = pytest.importorskip("onnx", reason="onnx makes the models that are read here")

_WIDTH, _LAYERS, _ROWS = 1024, 8, 2048
_WEIGHTS = (_LAYERS * _WIDTH + _ROWS) * _WIDTH * 4  # bytes


def written(folder: Path, kind: str, width: int = _WIDTH, layers: int = _LAYERS) -> Path:
    """A table, and layers as exporters write them, scaled, transposed or with their bias in one."""
    random = np.random.default_rng(0)
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    dtype = np.float16 if kind == "float16" else np.float32
    initializers, nodes = [], []

    def weights(name: str, *shape: int) -> str:
        array = (random.standard_normal(shape, np.float32) / np.sqrt(width)).astype(dtype)
        initializers.append(numpy_helper.from_array(array, name))
        return name

    def node(operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    x = node("Gather", [weights("table", _ROWS, width), "ids"], "x")
    for layer in range(layers):
        w, bias = weights(f"w{layer}", width, width), weights(f"b{layer}", width)
        if layer % 3 == 0:
            x = node("Gemm", [x, w, bias], f"gemm{layer}", transB=layer % 2)
        else:
            made = node("Add", [node("MatMul", [x, w], f"product{layer}"), bias], f"sum{layer}")
            if layer % 3 == 2:  # by a factor that goes into the weights
                made = node("Mul", [made, weights(f"scale{layer}", width)], f"scaled{layer}")
            x = node("Relu", [made], f"relu{layer}")
    kinds = onnx.TensorProto
    code = kinds.FLOAT16 if kind == "float16" else kinds.FLOAT
    graph = helper.make_graph(
        nodes,
        "weights",
        [helper.make_tensor_value_info("ids", kinds.INT64, ["n"])],
        [helper.make_tensor_value_info(x, code, ["n", width])],
        initializers,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "model.onnx"
    onnx.save(made, path, save_as_external_data=kind == "external", location="weights.bin")
    return path


_MEASURED = """
import gc, sys
import numpy as np
import dlprim.onnx

dlprim.set_num_threads(1)

def resident():
    gc.collect()
    with open("/proc/self/status") as file:
        return [int(line.split()[1]) for line in file if line.startswith("VmRSS")][0] << 10

dtype = sys.argv[2] if len(sys.argv) > 2 else None
small = dlprim.onnx.load(sys.argv[1] + ".small", dtype=dtype)
for rows in (3, 5):  # what is imported and generated for any model
    small(np.arange(rows))
before = resident()
model = dlprim.onnx.load(sys.argv[1], dtype=dtype)
model(np.arange(3)), model(np.arange(3))
once = resident() - before
for rows in (5, 6, 7, 5, 3):
    model(np.arange(rows))
print(once, resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for what is resident")
@pytest.mark.parametrize("kind", ["inline", "external"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_resident_is_what_steps_read(tmp_path: Path, kind: str, dtype: str) -> None:
    small = tmp_path / "small"
    small.mkdir()
    path = written(tmp_path, kind)
    written(small, "inline", 64, 3).rename(f"{path}.small")
    found = subprocess.run(
        [sys.executable, "-c", _MEASURED, str(path), dtype],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"MALLOC_ARENA_MAX": "1"},
    )
    once, shapes = map(int, found.stdout.split())
    table = _ROWS * _WIDTH * 4
    packed = _WEIGHTS - table
    kept = (packed if dtype == "float32" else packed // 2) + (table if kind == "inline" else 0)
    assert once < 1.05 * kept + (6 << 20)
    assert shapes < once + (8 << 20)  # other shapes have no weights of their own


@pytest.mark.parametrize("kind", ["inline", "external", "float16"])
@pytest.mark.parametrize("dtype", [None, "float32", "bfloat16"])
def test_where_weights_are_makes_no_difference(tmp_path: Path, kind: str, dtype: Any) -> None:
    path = written(tmp_path, kind, 256, 4)
    mapped = dlprim.onnx.load(path, dtype=dtype)
    whole = onnx.load(path)
    parsed = dlprim.onnx.load(whole, dtype=dtype)
    text = dlprim.onnx.load(whole.SerializeToString(), dtype=dtype)
    for rows in (3, 5, 2, 7):
        ids = np.arange(rows) * 11
        expected = parsed(ids)
        assert mapped(ids).tobytes() == expected.tobytes()
        assert text(ids).tobytes() == expected.tobytes()
    mapped.save(tmp_path / "saved")
    saved: Any = dlprim.load(tmp_path / "saved")
    np.testing.assert_array_equal(saved(ids), expected)


@pytest.mark.parametrize("kind", ["inline", "float16"])
def test_other_shapes_pack_nothing(tmp_path: Path, kind: str, monkeypatch: Any) -> None:
    """Weights that factors go into, or that become float32, among them."""
    model = dlprim.onnx.load(written(tmp_path, kind, 256, 4), dtype="float32")
    for rows in (3, 4):  # compiled, and compiled for all others
        model(np.arange(rows))
    forms = {number: len(it[1]) for number, it in sharing._packed.items()}

    def compared(*_: Any) -> bool:
        raise AssertionError("elements of weights are compared")

    monkeypatch.setattr(np, "array_equal", compared)
    for rows in (5, 6, 7):
        model(np.arange(rows))
    assert {number: len(it[1]) for number, it in sharing._packed.items()} == forms


def test_a_file_may_be_replaced_while_its_model_lives(tmp_path: Path) -> None:
    path = written(tmp_path, "inline", 256, 4)
    model, ids = dlprim.onnx.load(path), np.arange(5)
    expected = dlprim.onnx.load(path)(ids)
    model(ids[:3])
    other = tmp_path / "other"
    other.write_bytes(bytes(path.stat().st_size))
    other.replace(path)
    assert model(ids).tobytes() == expected.tobytes()
    with pytest.raises(dlprim.onnx.ModelError):
        dlprim.onnx.load(path)
    model.save(tmp_path / "saved")
    saved: Any = dlprim.load(tmp_path / "saved")
    assert saved(ids).tobytes() == expected.tobytes()


def test_models_without_weights_are_the_same(tmp_path: Path) -> None:
    """With the elements put back, whatever else stands in tensors and in the model."""
    path = written(tmp_path, "inline", 256, 3)
    model = onnx.load(path)
    for place, tensor in enumerate(model.graph.initializer):
        tensor.doc_string = f"tensor {place}" * (place % 3)
    model.metadata_props.add(key="token", value="x" * 5000)
    octets = np.frombuffer(model.SerializeToString(), np.uint8)
    light = onnx.ModelProto.FromString(light_model(octets, "here"))
    taken = 0
    for tensor in light.graph.initializer:
        entries = {it.key: it.value for it in tensor.external_data}
        if entries:
            start, length = int(entries["offset"]), int(entries["length"])
            assert entries["location"] == "here"
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.raw_data = octets[start : start + length].tobytes()
            taken += length
    assert taken > 0.9 * len(octets)
    assert light == model


def test_damaged_files_are_refused_as_they_were(tmp_path: Path) -> None:
    """What protobuf reads of changed and cut bytes is what is read without weights."""
    path = written(tmp_path, "inline", 16, 3)
    whole = bytearray(path.read_bytes())
    random = np.random.default_rng(1)
    for _ in range(300):
        damaged = bytearray(whole)
        for place in random.integers(0, len(whole), 3):
            damaged[place] = random.integers(256)
        del damaged[int(random.integers(len(whole) // 2, len(whole) + 1)) :]
        path.write_bytes(damaged)
        outcomes = []
        for given in (path, _parsed(bytes(damaged))):
            try:
                assert given is not None
                outcomes.append(dlprim.onnx.load(given)(np.arange(3)).tobytes())
            except (ValueError, TypeError, AssertionError) as error:
                outcomes.append(type(error) is not TypeError and b"refused")
        assert outcomes[0] == outcomes[1]


def _parsed(text: bytes) -> Any:
    try:
        return onnx.ModelProto.FromString(text)
    except Exception:  # of protobuf, whose classes depend on how it was built
        return None


def test_small_files_are_not_mapped(tmp_path: Path) -> None:
    path = tmp_path / "some"
    path.write_bytes(bytes(1000))
    assert sharing.mapping_of(octets_of(path)) is None
    path.write_bytes(bytes(1 << 20))
    octets = octets_of(path)
    assert sharing.mapping_of(octets) is not None
    assert octets_of(path) is octets
    with pytest.raises(ValueError, match="read-only"):
        octets[0] = 1
