"""Fourier transforms: products where signals are short, fast transforms where they are long."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from drawing import RNG

# Without the package this very folder passes for one named `onnx`: ask for a module in it.
pytest.importorskip("onnx.reference", reason="onnx makes the models that are read here")
one: Any = import_module("one_node")
onnx_of_dlprim: Any = import_module("dlprim.onnx")


def waves(signals: np.ndarray, length: int, inverse: bool = False) -> np.ndarray:
    """Of complex signals in the last axis, cut or filled up, by the definition's sums."""
    there = min(length, signals.shape[-1])
    places = np.outer(np.arange(there), np.arange(length)) / length
    turns = np.exp((2j if inverse else -2j) * np.pi * places)
    made: np.ndarray = signals[..., :there] @ turns / (length if inverse else 1)
    return made


def in_parts(numbers: np.ndarray) -> np.ndarray:
    return np.stack([numbers.real, numbers.imag], -1)


def agrees(case: Any, due: np.ndarray) -> str:
    model = onnx_of_dlprim.load(one.model(case))
    (found,) = model.run(one.given(case))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, due, rtol=0, atol=3e-6 * np.abs(due).max())
    told: str = model.explain()
    return told


@pytest.mark.parametrize("window", [False, True])
@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize(("size", "step"), [(32, 16), (25, 7), (400, 160)])
def test_frames_of_a_signal(size: int, step: int, onesided: int, window: bool) -> None:
    x = RNG.standard_normal((2, 1000, 1)).astype(np.float32)
    shape = np.hanning(size).astype(np.float32) if window else None
    arrays = [x, np.array(step), shape, np.array(size)]
    firsts = range(0, 1000 - size + 1, step)
    frames = np.stack([x[:, first : first + size, 0] for first in firsts], 1).astype(float)
    due = waves(frames * (1 if shape is None else shape), size)
    due = due[..., : size // 2 + 1] if onesided else due
    case = one.Case("STFT", arrays, {"onesided": onesided}, 17, constants=(1, 2, 3))
    told = agrees(case, in_parts(due))
    assert ("steps in Python: 0 of" in told) == (size < 100)


@pytest.mark.parametrize("length", [None, 8, 12, 17])
@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("parts", [1, 2])
def test_transforms_of_cut_and_filled_signals(length: Any, inverse: int, parts: int) -> None:
    x = RNG.standard_normal((3, 12, parts)).astype(np.float32)
    arrays = [x, None if length is None else np.array(length)]
    numbers = x[..., 0] + (1j * x[..., 1] if parts == 2 else 0)
    case = one.Case("DFT", arrays, {"axis": 1, "inverse": inverse}, 17, constants=(1,))
    told = agrees(case, in_parts(waves(numbers, length or 12, bool(inverse))))
    assert "steps in Python: 0 of" in told
