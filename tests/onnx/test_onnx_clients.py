"""Models that people export from PyTorch and transformers, against PyTorch's own results."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

# Without PyTorch this very folder's parent offers an empty package `onnx`: ask for a module in it.
for name in ("torch.onnx", "onnx.helper", "onnxscript", "transformers"):
    pytest.importorskip(name, reason=f"{name} makes the models that are read here")
exported: Any = import_module("exported")
onnx: Any = import_module("dlprim.onnx")

# What the exporters warn of is theirs.
pytestmark = pytest.mark.filterwarnings("ignore")

CASES = [(name, form) for name, client in exported.CLIENTS.items() for form in client.forms]
SIZES = {"dynamic": ((2, 9), (3, 12), (1, 5))}


def compare(results: Any, expected: list[np.ndarray]) -> None:
    results = results if isinstance(results, tuple) else (results,)
    assert len(results) == len(expected)
    for result, right in zip(results, expected, strict=True):
        assert result.shape == right.shape
        assert result.dtype == right.dtype
        scale = float(np.abs(right).max())
        np.testing.assert_allclose(result, right, rtol=1e-4, atol=2e-5 * scale)


@pytest.mark.parametrize(("name", "form"), CASES)
def test_exported_model_agrees_with_pytorch(name: str, form: str) -> None:
    module = exported.built(name)
    model = onnx.load(exported.export(module, exported.inputs(name), form))
    for batch, steps in SIZES.get(form, ((2, 9),)):
        arrays = exported.inputs(name, batch, steps)
        compare(model(*arrays.values()), exported.expected(module, arrays))


@pytest.mark.parametrize("name", ["resnet18", "bert"])
def test_exported_model_in_bfloat16_is_near_pytorch(name: str) -> None:
    module = exported.built(name)
    arrays = exported.inputs(name)
    model = onnx.load(exported.export(module, arrays, "dynamo"), dtype="bfloat16")
    result = np.asarray(model(*arrays.values()), np.float32)
    right = exported.expected(module, arrays)[0]
    assert np.abs(result - right).max() <= 0.05 * np.abs(right).max()


def test_inputs_have_the_names_that_the_exporter_was_given() -> None:
    module = exported.built("bert")
    arrays = exported.inputs("bert")
    model = onnx.load(exported.export(module, arrays, "dynamo"))
    assert list(model.inputs) == ["input_ids", "attention_mask"]
    by_name = model(**dict(reversed(arrays.items())))
    np.testing.assert_array_equal(by_name, model(*arrays.values()))
