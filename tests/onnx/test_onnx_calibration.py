"""`dlprim.quantize` of models: little is lost, in less time, and what is wrong is said."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

import dlprim

pytest.importorskip("onnx.reference", reason="onnx makes the models that are read here")
small: Any = import_module("small_models")
onnx: Any = import_module("dlprim.onnx")

LAYERS = {"residual": 3, "mlp": 2, "attention": 3}


def calibration(name: str, count: int = 8) -> list[dict[str, np.ndarray]]:
    return [small.inputs(name, batch) for batch in range(1, count)]


def first(results: Any) -> np.ndarray:
    result: np.ndarray = results[0] if isinstance(results, tuple) else results
    return result


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("settings", [{}, {"method": "percentile", "symmetric": True}])
def test_quantised_models_lose_little(name: str, settings: dict[str, Any]) -> None:
    model = onnx.load(small.model(name))
    quantized = dlprim.quantize(model, calibration=calibration(name), **settings)
    assert model.table is None
    assert len(quantized.table.layers) == LAYERS[name]
    for batch in (3, 20):
        arrays = small.inputs(name, batch)
        expected, result = first(model(**arrays)), first(quantized(**arrays))
        assert result.shape == expected.shape
        error = np.linalg.norm(result - expected) / np.linalg.norm(expected)
        assert 0 < error < 0.08
    assert "quantized_" in quantized.explain()


def test_inputs_of_calibration_are_those_of_a_call() -> None:
    model = onnx.load(small.model("residual"))
    x = small.inputs("residual", 4)["x"]
    tables = [dlprim.quantize(model, [it]).table for it in (x, (x,), [x], {"x": x})]
    assert all(it == tables[0] for it in tables)


def test_nodes_are_excluded_by_name_and_by_error() -> None:
    model = onnx.load(small.model("residual"))
    given = calibration("residual")
    every = dlprim.quantize(model, given)
    names = [name.split(":")[0] for name in every.table.layers]
    less = dlprim.quantize(model, given, exclude=[names[0]])
    assert [name.split(":")[0] for name in less.table.layers] == names[1:]
    none = dlprim.quantize(model, given, max_error=0)
    assert none.table.excluded == every.table.layers
    x = small.inputs("residual", 2)["x"]
    np.testing.assert_allclose(none(x), model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"calibration": []}, ValueError, "calibration has no inputs"),
        ({"calibration": [np.ones((2, 3))]}, TypeError, "'x' has dtype float64"),
        ({"calibration": [{"z": 1}]}, TypeError, "'z' is no input"),
        ({"method": "best"}, ValueError, "method is 'best', expected one of minmax"),
        ({"percentile": 30}, ValueError, "percentile is 30"),
        ({"max_error": -1}, ValueError, "max_error is -1"),
        ({"exclude": "fc"}, TypeError, "exclude is a str"),
        ({"exclude": [3]}, TypeError, "exclude holds what is no str"),
        ({"exclude": ["fc"]}, ValueError, "exclude names 'fc', which is no node"),
        ({"symmetric": 3}, TypeError, "symmetric"),
        ({"bits": 4}, TypeError, "bits"),
    ],
)
def test_what_is_wrong_is_said(
    settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    model = onnx.load(small.model("residual"))
    with pytest.raises(error, match=message):
        dlprim.quantize(model, **{"calibration": calibration("residual", 2)} | settings)


def test_only_models_are_calibrated_and_only_once() -> None:
    with pytest.raises(TypeError, match=r"calibration for a model of dlprim\.onnx\.load, and x is"):
        dlprim.quantize(np.ones(3, np.float32), calibration=[])
    with pytest.raises(TypeError, match="model is of type int"):
        onnx.quantize(3, [])
    model = onnx.load(small.model("mlp"))
    with pytest.raises(ValueError, match="is quantised already"):
        dlprim.quantize(dlprim.quantize(model, calibration("mlp")), calibration("mlp"))
    with pytest.raises(ValueError, match="no layer that can be quantised"):
        dlprim.quantize(onnx.load(small.model("shapes")), calibration("shapes"))
    x = np.full((2, 7), np.nan, np.float32)
    with pytest.raises(ValueError, match="no finite numbers"):
        dlprim.quantize(model, [x])


@pytest.mark.parametrize(
    ("calibration", "match"),
    [
        (
            np.ones((2, 4), np.float32),
            r"calibration is an array of shape \(2, 4\), expected a list",
        ),
        ({"x": np.ones((2, 4), np.float32)}, "calibration is a mapping of x, expected a list"),
        ("samples.npz", "calibration is str, expected a list"),
        (None, r"calibration is NoneType, expected .*; that of one call is \[inputs\]"),
    ],
)
def test_calibration_says_what_it_is(calibration: Any, match: str) -> None:
    with pytest.raises(TypeError, match=match):
        dlprim.quantize(onnx.load(small.model("mlp")), calibration=calibration)
