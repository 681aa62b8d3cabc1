"""Training on shapes that a model has not met: networks of both passes come from one recording,
and give the bits of a model that meets the shape first."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dlprim import nn, optim
from dlprim.graph.compiled import RecordedGraph
from dlprim.tracing import compiled as tracing


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


def images(n: int) -> np.ndarray[Any, Any]:
    return batch((2, 8, n, n + 3))


# In front of layers whose gradients divide by how many pixels there are, or weigh them by tables.
MODELS |= {
    name: (make, images)
    for name, make in {
        "batch norm": lambda: nn.Sequential(
            nn.Conv2d(8, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
            nn.MaxPool2d(2), nn.Conv2d(16, 8, 3, padding=1), nn.BatchNorm2d(8),
            nn.GlobalAvgPool2d(), nn.Flatten(), nn.Linear(8, 5),
        ),
        "group norm": lambda: nn.Sequential(nn.GroupNorm(4, 8), nn.Conv2d(8, 8, 1)),
        "adaptive": lambda: nn.Sequential(nn.Conv2d(8, 8, 3), nn.AdaptiveAvgPool2d((2, 3))),
        "upsampled": lambda: nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(8, 8, 3)),
        "bilinear": lambda: nn.Upsample(scale_factor=1.5, mode="bilinear"),
        "means": lambda: nn.AvgPool2d(2),
    }.items()
}  # fmt: skip
MODELS["batch norm of rows"] = (
    lambda: nn.Sequential(nn.Linear(24, 8), nn.BatchNorm1d(8), nn.ReLU()),
    lambda n: batch((n, 24)),
)


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


@pytest.mark.parametrize("name", ["batch norm", "group norm", "adaptive", "gpt"])
@pytest.mark.parametrize("trains", [False, True])
def test_new_shapes_are_compiled_twice(
    name: str, trains: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they are, and recorded: in inference, whose bits are a new model's, and in steps."""
    make, given = MODELS[name]
    model = make()
    model.train() if trains else model.eval()
    step = nn.Step(model, lambda y, _: (y * y).mean(), optim.SGD(model.parameters(), lr=0.01))
    compiled, compile_graph = [], tracing.compile_graph

    def counted(*args: Any) -> Any:
        compiled.append(args)
        return compile_graph(*args)

    for extent in (18, 20, 22, 26, 28, 30):
        x, target = given(extent), np.float32(0)
        other = copy.deepcopy(model)
        with monkeypatch.context() as patch:
            patch.setattr(tracing, "compile_graph", counted)
            found = step(x, target) if trains else model(x)
        if trains:
            due = nn.Step(other, step._loss, optim.SGD(other.parameters(), lr=0.01))(x, target)
            for one, two in zip(model.parameters(), other.parameters(), strict=True):
                np.testing.assert_array_equal(one.value, two.value, err_msg=one.name)
        else:
            due = other(x)
        np.testing.assert_array_equal(found, due)
    assert len(compiled) == 2


def test_a_gradient_of_another_shape_is_refused_in_a_recorded_network() -> None:
    model = nn.Linear(4, 3)
    for n in (2, 3, 5, 6):
        y = model(batch((n, 4)))
        with pytest.raises(ValueError, match=rf".*\({n}, 3\)"):
            model.backward(np.ones((n + 1, 3), np.float32))
        model.backward(y)
