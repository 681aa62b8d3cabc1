"""How files become programs and graphs: functions, branches, defaults, data beside the file."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlprim
import dlprim.onnx

pytestmark = pytest.mark.any_level

# Without the package this very folder passes for one named `onnx`: ask for a module in it.
parser: Any = pytest.importorskip("onnx.parser", reason="onnx makes the models that are read here")
onnx: Any = import_module("onnx")
helper: Any = import_module("onnx.helper")
external: Any = import_module("onnx.external_data_helper")

X = np.linspace(-2, 3, 6, dtype=np.float32).reshape(2, 3)
START = '<ir_version: 10, opset_import: ["" : 20, "own" : 1]>\n'


def loaded(text: str) -> Any:
    return dlprim.onnx.load(parser.parse_model(START + text))


# ---------------------------------------------------------------- functions


FUNCTIONS = """
<domain: "own", opset_import: ["" : 18]>
scaled <slope>(a) => (c) {
    b = LeakyRelu<alpha: float = @slope>(a)
    c = Neg(b)
}
<domain: "own", opset_import: ["" : 18, "own" : 1]>
twice <slope: float = 0.5>(a, unused) => (c, same) {
    same = Identity(a)
    b = own.scaled<slope: float = @slope>(a)
    c = own.scaled<slope: float = @slope>(b)
}"""


def test_functions_are_calls_with_their_attributes() -> None:
    model = loaded(
        "f (float[2,3] x) => (float[2,3] y, float[2,3] z) {"
        "y, same = own.twice<slope=0.25>(x, x)\n z, again = own.twice(same) }" + FUNCTIONS
    )
    y, z = model(X)

    def scaled(x: np.ndarray, slope: float) -> np.ndarray:
        return -np.where(x < 0, slope * x, x)

    np.testing.assert_allclose(y, scaled(scaled(X, 0.25), 0.25))
    np.testing.assert_allclose(z, scaled(scaled(X, 0.5), 0.5))


def test_a_function_may_hand_on_what_it_is_given() -> None:
    text = "f (float[2,3] x) => (float[2,3] y) { y = own.same(x) }"
    model = loaded(text + '<domain: "own", opset_import: ["" : 18]> same (a) => (a) { }')
    np.testing.assert_array_equal(model(X), X)


def test_names_in_functions_are_their_own() -> None:
    model = loaded(
        "f (float[2,3] b) => (float[2,3] c) { a = own.scaled<slope=1.0>(b)\n c = Add(a, b) }"
        + FUNCTIONS
    )
    np.testing.assert_array_equal(model(X), np.zeros((2, 3)))


# ---------------------------------------------------------------- branches


BRANCHES = """f (float[2,3] x, bool up) => (float[2,3] y) {
    two = Constant<value_float=2.0>()
    y = If(up)<then_branch = a() => (float[2,3] z) { z = Mul(x, two) },
               else_branch = b() => (float[2,3] z) { z = Neg(x) }>
}"""


def test_a_branch_is_chosen_by_an_input() -> None:
    model = loaded(BRANCHES)
    np.testing.assert_array_equal(model(X, np.array(True)), 2 * X)
    np.testing.assert_array_equal(model(X, np.array(False)), -X)
    np.testing.assert_array_equal(model(X, np.array(True)), 2 * X)


def test_a_branch_follows_from_inputs_of_any_size() -> None:
    model = loaded(
        "f (float[n] x) => (float[n] y) { s = ReduceSum(x)\n z = Constant<value_float=0.0>()\n"
        "p = Greater(s, z)\n"
        "y = If(p)<then_branch = a() => (float[n] u) { u = Relu(x) },"
        "          else_branch = b() => (float[n] u) { u = Neg(x) }> }"
    )
    for count in (5, 5000):
        x = np.ones(count, np.float32)
        np.testing.assert_array_equal(model(x), x)
        np.testing.assert_array_equal(model(-x), x)


# ---------------------------------------------------------------- inputs


def test_inputs_with_values_may_be_left_out() -> None:
    model = loaded("f (float[2,3] x, float[3] b) => (float[2,3] y) <float[3] b = {1,2,3}> "
                   "{ y = Add(x, b) }")  # fmt: skip
    assert model.inputs["b"].is_optional
    assert not model.inputs["x"].is_optional
    for _ in range(2):
        np.testing.assert_array_equal(model(X), X + np.array([1, 2, 3]))
        np.testing.assert_array_equal(model(X, b=np.zeros(3, np.float32)), X)


def test_a_shape_may_be_an_input() -> None:
    model = loaded("f (float[n,m] x, int64[k] s) => (float y) { y = Reshape(x, s) }")
    for shape in ([3, 2], [6], [1, -1, 2], [3, 2]):
        result = model(X, np.array(shape))
        np.testing.assert_array_equal(result, X.reshape(shape))


def test_an_output_may_be_an_input_or_a_constant() -> None:
    model = loaded("f (float[2,3] x) => (float[2,3] y, float[2] c, float[2,3] z) <float[2] c = "
                   "{4,5}> { y = Identity(x)\n z = Identity(x) }")  # fmt: skip
    y, c, z = model(X)
    y += 1
    c += 1
    np.testing.assert_array_equal(z, X)
    np.testing.assert_array_equal(model(X)[1], [4, 5])


def test_all_refused_nodes_are_listed_with_what_is_expected() -> None:
    with pytest.raises(dlprim.onnx.ModelError) as refusal:
        loaded(
            "f (float[2,3] x) => (float y, float z) {"
            "[first] a = StringSplit(x)\n [second] y = Softmax<axes=1>(a)\n"
            "[third] z = Add(x)\n [dead] d = StringSplit(x) }"
        )
    lines = str(refusal.value).splitlines()
    assert len(lines) == 4
    assert "node 'first' (StringSplit, opset 20): there is no such operator" in lines[1]
    assert "attribute 'axes' is not known, expected one of: axis" in lines[2]
    assert "node 'third' (Add, opset 20): it has 1 inputs, expected 2" in lines[3]


# ---------------------------------------------------------------- data beside the file


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A model in a folder of links into another one, as a cache has it."""
    weights = onnx.numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(3, 4), "w")
    model = parser.parse_model(START + "f (float[2,3] x) => (float[2,4] y) { y = MatMul(x, w) }")
    model.graph.initializer.append(weights)
    blobs, links = tmp_path / "blobs", tmp_path / "snapshots" / "main"
    blobs.mkdir()
    links.mkdir(parents=True)
    external.convert_model_to_external_data(model, location="model.data", size_threshold=0)
    onnx.save_model(model, str(blobs / "model.onnx"))
    (blobs / "model.data").rename(blobs / "1234")
    (blobs / "model.onnx").rename(blobs / "5678")
    (links / "model.onnx").symlink_to("../../blobs/5678")
    (links / "model.data").symlink_to("../../blobs/1234")
    return links / "model.onnx"


def test_links_of_a_cache_are_followed(saved: Path) -> None:
    right = X @ np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_allclose(dlprim.onnx.load(saved)(X), right, rtol=1e-6)


def test_links_to_elsewhere_are_not(saved: Path, tmp_path: Path) -> None:
    data = saved.parent / "model.data"
    secret = tmp_path / "secret"
    secret.write_bytes(data.read_bytes())
    data.unlink()
    data.symlink_to(secret)
    with pytest.raises(dlprim.onnx.ModelError, match="leads out of the model's folder"):
        dlprim.onnx.load(saved)


def test_data_needs_a_path(saved: Path) -> None:
    with pytest.raises(dlprim.onnx.ModelError, match="expected a path to the model"):
        dlprim.onnx.load(saved.read_bytes())


# ---------------------------------------------------------------- what exporters leave out


def test_an_extent_below_zero_may_be_any() -> None:
    made = parser.parse_model(START + "f (float[n,3] x) => (float[n,3] y) { y = Neg(x) }")
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    model = dlprim.onnx.load(made)
    assert model.inputs["x"].shape == (None, 3)
    for rows in (2, 5):
        x = np.ones((rows, 3), np.float32)
        np.testing.assert_array_equal(model(x), -x)


def test_outputs_need_not_say_their_type(tmp_path: Path) -> None:
    made = parser.parse_model(START + "f (float[n,3] x) => (float[n,3] y) { y = Neg(x) }")
    made.graph.output[0].ClearField("type")
    model = dlprim.onnx.load(made)
    assert model.outputs["y"].dtype is None
    np.testing.assert_array_equal(model(X), -X)
    assert "outputs: y: ?[...]" in model.explain()
    model.save(tmp_path / "model.dlprim")
    np.testing.assert_array_equal(dlprim.load(tmp_path / "model.dlprim")(X), -X)


def test_data_outside_may_have_other_names(tmp_path: Path) -> None:
    """Caches give files of one content several names."""
    folder, cache = tmp_path / "model", tmp_path / "cache"
    folder.mkdir()
    made = parser.parse_model(
        START + "f (float[n,3] x) => (float[n,3] y) <float[3] w = {1, 2, 3}> { y = Mul(x, w) }"
    )
    weights = onnx.numpy_helper.from_array(np.float32([1, 2, 3]), "w")
    made.graph.initializer[0].CopyFrom(weights)
    onnx.save_model(
        made, folder / "model.onnx", save_as_external_data=True, location="w", size_threshold=0
    )
    cache.hardlink_to(folder / "w")
    np.testing.assert_array_equal(dlprim.onnx.load(folder / "model.onnx")(X), X * [1, 2, 3])


@pytest.mark.parametrize("op", ["AveragePool", "MaxPool"])
def test_a_window_may_lack_less_than_a_stride(op: str) -> None:
    x = np.arange(1, 7, dtype=np.float32).reshape(1, 1, 6)
    for kernel, stride in ((7, 2), (9, 4), (6, 1)):
        text = f"y = {op}<kernel_shape=[{kernel}], strides=[{stride}]>(x)"
        model = loaded(f"f (float[1,1,n] x) => (float[1,1,m] y) {{ {text} }}")
        assert model(x).tolist() == [[[3.5 if op == "AveragePool" else 6]]]
    with pytest.raises(dlprim.onnx.ModelError, match="windows of 7 pixels, expected at most"):
        loaded(f"f (float[1,1,n] x) => (float[1,1,m] y) {{ y = {op}<kernel_shape=[7]>(x) }}")(x)
