"""Networks trained here lose at most a point in 8 bits, however they are calibrated."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import dlprim

pytestmark = pytest.mark.large

pytest.importorskip("onnx.reference", reason="onnx makes the models that are read here")
trained: Any = import_module("trained_networks")
onnx: Any = import_module("dlprim.onnx")

SETTINGS: list[dict[str, Any]] = [
    {},
    {"symmetric": True},
    {"method": "percentile"},
    {"method": "entropy"},
    {"method": "entropy", "symmetric": True},
]


@pytest.fixture(scope="module")
def digits() -> Any:
    pytest.importorskip("sklearn.datasets", reason="scikit-learn has the digits")
    return trained.digits()


@pytest.fixture(scope="module")
def characters() -> Any:
    return trained.characters()


@pytest.fixture(scope="module")
def attending() -> Any:
    pytest.importorskip("torch.onnx", reason="PyTorch trains attention")
    return trained.attending()


def check(network: Any, least: float, settings: dict[str, Any], layers: int) -> Any:
    model = onnx.load(network.model)
    before = network.accuracy(model)
    assert before > least
    batches = np.split(network.calibration, 8)
    quantized = dlprim.quantize(model, calibration=batches, **settings)
    assert len(quantized.table.layers) == layers
    assert network.accuracy(quantized) >= before - 0.01
    return quantized


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_digits_lose_at_most_a_point(digits: Any, settings: dict[str, Any]) -> None:
    quantized = check(digits, 0.95, settings, 7)
    explained = quantized.explain()
    assert explained.count("quantized_convolution") == 6
    # All in 8 bits from the image to the mean, and what is multiplied behind that.
    assert explained.count("\nquantize ") == 2
    assert explained.count("\ndequantize ") == 1


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_guessed_characters_lose_at_most_a_point(characters: Any, settings: dict[str, Any]) -> None:
    check(characters, 0.4, settings, 2)


@pytest.mark.filterwarnings("ignore")  # of PyTorch's exporter
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_attention_loses_at_most_a_point(attending: Any, settings: dict[str, Any]) -> None:
    quantized = check(attending, 0.35, settings, 6)
    assert quantized.explain().count("byte_attention(") == 1


def test_layers_that_lose_too_much_are_found(digits: Any, make_worse: Callable[..., Any]) -> None:
    """Channels whose ranges differ a thousandfold share one scale for the array between layers."""
    worse = digits._replace(model=make_worse(digits.model))
    model = onnx.load(worse.model)
    assert worse.accuracy(model) == digits.accuracy(onnx.load(digits.model))
    batches = np.split(worse.calibration, 8)
    careless = dlprim.quantize(model, batches, max_error=1e9)
    careful = dlprim.quantize(model, batches, max_error=0.05)
    assert worse.accuracy(careless) < worse.accuracy(model) - 0.02
    assert worse.accuracy(careful) >= worse.accuracy(model) - 0.01
    assert 1 <= len(careful.table.excluded) <= 3


@pytest.fixture
def make_worse() -> Callable[..., Any]:
    import onnx as format_of_onnx

    def change(model: Any) -> Any:
        worse = type(model)()
        worse.CopyFrom(model)
        factor = np.ones(16, np.float32)
        factor[:2] = 1000
        arrays = {it.name: it for it in worse.graph.initializer}

        def multiply(name: str, by: np.ndarray) -> None:
            array = format_of_onnx.numpy_helper.to_array(arrays[name]) * by
            arrays[name].CopyFrom(format_of_onnx.numpy_helper.from_array(array, name))

        # What relu lets through is so much larger, and what reads it so much smaller.
        multiply("one_norm1_weight", factor)
        multiply("one_norm1_bias", factor)
        multiply("one_conv2_weight", 1 / factor[:, None, None])
        return worse

    return change
