"""Models that ONNX Runtime quantised, against what it computes of them, and PyTorch before that."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

for name in ("torch.onnx", "onnx.helper", "onnxscript", "transformers", "onnxruntime.quantization"):
    pytest.importorskip(name, reason=f"{name} makes the models that are read here")
exported: Any = import_module("exported")
quantized_models: Any = import_module("quantized_models")
onnx: Any = import_module("dlprim.onnx")

# What the exporters and the quantiser warn of is theirs.
pytestmark = pytest.mark.filterwarnings("ignore")

_CONVOLUTIONS = ("resnet18", "mobilenet_v2", "inception")
CASES = [
    *((name, way) for name in _CONVOLUTIONS for way in quantized_models.WAYS if "dyn" not in way),
    *(("bert", way) for way in ("qdq_channels", "qdq_unsigned", "dynamic", "dynamic_channels")),
    ("resnet18", "dynamic"),
    ("vit", "qdq_channels"),
    ("vit", "dynamic_channels"),
]


def runtime(model: bytes, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """ONNX Runtime's result of the operators one by one: its fused sums may saturate."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    result: np.ndarray = session.run(None, arrays)[0]
    return result


@pytest.mark.parametrize(("name", "way"), CASES)
def test_quantised_model_agrees(name: str, way: str, tmp_path: Path) -> None:
    module, arrays = exported.built(name), exported.inputs(name)
    samples = [exported.inputs(name, 2, 9), arrays]
    if exported.CLIENTS[name].inputs == "text":  # A mask that is always one has no scale.
        assert samples[0]["attention_mask"].min() == 0
    model = exported.export(module, arrays, "dynamo")
    model = quantized_models.quantized(model, way, samples, tmp_path)
    result, theirs = onnx.load(model)(*arrays.values()), runtime(model, arrays)
    right = exported.expected(module, arrays)[0]
    scale = np.abs(right).max()
    error, theirs_error = np.abs(result - right).max(), np.abs(theirs - right).max()
    assert result.shape == right.shape
    # Values between two steps may round to either, so that the two differ by a few steps; neither
    # is nearer to the truth for it.
    assert np.abs(result - theirs).mean() <= 0.01 * scale
    assert error <= 1.5 * theirs_error + 0.02 * scale
