"""Small models of every kind against ONNX's reference, and what people do with a loaded model."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlprim

# Without the package this very folder passes for one named `onnx`: ask for a module in it.
pytest.importorskip("onnx.reference", reason="onnx makes the models that are read here")
small: Any = import_module("small_models")
onnx: Any = import_module("dlprim.onnx")


def as_tuple(results: Any) -> tuple[np.ndarray, ...]:
    return results if isinstance(results, tuple) else (results,)


@pytest.mark.parametrize("name", small.NAMES)
def test_result_is_that_of_the_reference(name: str) -> None:
    made = small.model(name)
    model = onnx.load(made)
    for batch in (3, 1, 4):
        arrays = small.inputs(name, batch)
        results, right = as_tuple(model(*arrays.values())), small.run(made, arrays)
        assert len(results) == len(right)
        for ours, theirs in zip(results, right, strict=True):
            assert ours.dtype == theirs.dtype
            # A sum that lies between two steps of eight bits may be rounded to either.
            step = 0.05 if name == "quantized" else 1e-5
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1.01 * step)
            assert np.mean(np.abs(ours - theirs) > 1e-4) < 0.02


def test_path_bytes_and_proto_are_the_same_model(tmp_path: Path) -> None:
    made = small.model("residual")
    file = tmp_path / "model.onnx"
    file.write_bytes(made.SerializeToString())
    x = small.inputs("residual", 2)["x"]
    results = [onnx.load(it)(x) for it in (made, file.read_bytes(), file, str(file))]
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


def test_inputs_may_be_called_as_parameters_of_python_are() -> None:
    made = small.model("attention")
    for value in made.graph.input:
        if value.name == "mask":
            value.name = "self"
    for node in made.graph.node:
        node.input[:] = ["self" if name == "mask" else name for name in node.input]
    model, arrays = onnx.load(made), small.inputs("attention", 2)
    by_position = model(arrays["x"], arrays["mask"])
    by_name = {"x": arrays["x"], "self": arrays["mask"]}
    np.testing.assert_array_equal(by_position, model(**by_name))
    assert model.profile(**by_name).seconds > 0


def test_inputs_are_taken_by_position_or_by_name() -> None:
    model = onnx.load(small.model("attention"))
    assert list(model.inputs) == ["x", "mask"]
    assert list(model.outputs) == ["y"]
    arrays = small.inputs("attention", 2)
    by_position = model(arrays["x"], arrays["mask"])
    np.testing.assert_array_equal(by_position, model(**arrays))
    np.testing.assert_array_equal(by_position, model(arrays["x"], mask=arrays["mask"]))


@pytest.mark.parametrize(
    ("positional", "named"),
    [
        ((), {}),
        ((np.zeros((2, 7), np.float32),) * 2, {}),
        ((), {"z": np.zeros((2, 7), np.float32)}),
        ((np.zeros((2, 7), np.float32),), {"x": np.zeros((2, 7), np.float32)}),
        ((np.zeros((2, 8), np.float32),), {}),
        ((np.zeros(7, np.float32),), {}),
        ((np.zeros((2, 7), np.complex64),), {}),
        ((None,), {}),
        ((np.ma.masked_equal(np.zeros((2, 7), np.float32), 0),), {}),
    ],
)
def test_wrong_inputs_are_refused_in_a_sentence(positional: Any, named: Any) -> None:
    model = onnx.load(small.model("mlp"))
    sentences = set()
    for _ in range(2):
        with pytest.raises((ValueError, TypeError), match=r"\w+ .*\w") as refusal:
            model(*positional, **named)
        sentences.add(str(refusal.value))
        model(np.zeros((2, 7), np.float32))
    assert len(sentences) == 1


def test_inputs_may_lie_otherwise_than_those_before() -> None:
    model = onnx.load(small.model("mlp"))
    x = small.inputs("mlp", 4)["x"]
    right = model(x)
    wide = np.zeros((8, 14), np.float32)
    wide[::2, ::2] = x
    frozen = x.copy()
    frozen.flags.writeable = False
    for other in (wide[::2, ::2], np.asfortranarray(x), x.view(np.matrix), x.tolist(), frozen, x):
        given = np.float32(other) if isinstance(other, list) else other
        for ours, theirs in zip(model(given), right, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert model(x[:2])[0].shape == (2, 5)
    assert model(x)[0].shape == (4, 5)


def test_what_elements_are_to_blame_for_is_refused_in_every_call() -> None:
    text = "(float[4,3] x, int64[n] at) => (float[n,3] y) { y = Gather(x, at) }"
    model = onnx.load(small.parsed(text))
    x, places = np.ones((4, 3), np.float32), np.arange(2)
    for _ in range(2):
        np.testing.assert_array_equal(model(x, places), x[places])
        with pytest.raises(onnx.ModelError, match=r"^the model cannot be run with these inputs: "):
            model(x, places + 3)


def test_result_is_the_same_on_any_number_of_threads() -> None:
    for name in small.NAMES:
        model = onnx.load(small.model(name))
        arrays = small.inputs(name, 3).values()
        dlprim.set_num_threads(1)
        one = as_tuple(model(*arrays))
        dlprim.set_num_threads(3)
        for ours, theirs in zip(as_tuple(model(*arrays)), one, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_one_model_serves_several_threads() -> None:
    model = onnx.load(small.model("residual"))
    inputs = [small.inputs("residual", 1 + seed % 3)["x"] for seed in range(48)]
    right = [model(x) for x in inputs]
    with ThreadPoolExecutor(8) as pool:
        for ours, theirs in zip(pool.map(model, inputs), right, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_a_batch_of_zero_gives_an_empty_result() -> None:
    model = onnx.load(small.model("mlp"))
    result, hidden = model(np.zeros((0, 7), np.float32))
    assert result.shape == (0, 5)
    assert hidden.shape == (0, 9)


def test_a_result_is_not_overwritten_by_the_next_call() -> None:
    model = onnx.load(small.model("residual"))
    first = model(small.inputs("residual", 2)["x"])
    kept = first.copy()
    model(small.inputs("residual", 2)["x"] * -3)
    np.testing.assert_array_equal(first, kept)
