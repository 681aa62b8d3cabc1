"""Training on shapes that a model has not met: networks of both passes come from one recording,
and give the bits of a model that meets the shape first."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dlprim import nn
from dlprim.graph.compiled import RecordedGraph


def batch(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


def text(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).integers(0, 30, shape)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Any]]] = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(24, 32, activation="relu"), nn.Linear(32, 5)),
        lambda n: batch((n, 24)),
    ),
    "lstm": (lambda: nn.LSTM(12, 16, 2), lambda n: batch((n, 4, 12))),
    "gru": (lambda: nn.GRU(12, 16, bidirectional=True), lambda n: batch((n, 4, 12))),
    "transformer": (
        lambda: nn.TransformerEncoderLayer(16, 2, 32, 0.0),
        lambda n: batch((2, n, 16)),
    ),
    "gpt": (
        lambda: nn.gpt(V=30, length=32, C=16, layers=2, heads=2),
        lambda n: text((2, n)),
    ),
    "images": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1, activation="relu"),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * 9, 5),
        ),
        lambda n: batch((n, 3, 6, 6)),
    ),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_new_shapes_are_trained_by_one_recording(
    name: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, given = MODELS[name]
    model = make()
    model.use(nn.Context(dtype))
    replayed: list[Any] = []
    made = RecordedGraph.made

    def counted(self: RecordedGraph, *how: Any) -> Any:
        found = made(self, *how)
        replayed.append(found is not None)
        return found

    for extent in (5, 7, 9, 12, 6, 13):
        monkeypatch.setattr(RecordedGraph, "made", counted)
        x = given(extent)
        y = model(x)
        dx = model.backward(y)
        monkeypatch.undo()
        other = copy.deepcopy(model)
        expected = other(x)
        np.testing.assert_array_equal(y, expected)
        expected_dx = other.backward(expected)
        if dx is not None:
            np.testing.assert_array_equal(dx, expected_dx)
        for one, two in zip(model.parameters(), other.parameters(), strict=True):
            np.testing.assert_array_equal(one.gradient, two.gradient, err_msg=one.name)
    assert sum(replayed) >= 3


def test_a_gradient_of_another_shape_is_refused_in_a_recorded_network() -> None:
    model = nn.Linear(4, 3)
    for n in (2, 3, 5, 6):
        y = model(batch((n, 4)))
        with pytest.raises(ValueError, match=rf".*\({n}, 3\)"):
            model.backward(np.ones((n + 1, 3), np.float32))
        model.backward(y)
