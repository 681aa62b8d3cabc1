"""Models that run in parts, written as text, and what their tests share."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

import dlprim.onnx
from drawing import RNG

streamed: Any = import_module("streamed_models")


def model(text: str, **settings: Any) -> dlprim.onnx.OnnxModel:
    return dlprim.onnx.load(streamed.parsed(text), **settings)


def drawn(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def check(result: Any, expected: Any) -> None:
    results = result if isinstance(result, tuple) else (result,)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for one, right in zip(results, expected, strict=True):
        assert one.shape == np.shape(right)
        np.testing.assert_allclose(one, right, rtol=2e-5, atol=1e-6)
