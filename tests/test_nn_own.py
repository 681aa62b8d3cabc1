"""Modules without a backward of their own: what they give, and their gradients."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import nn
from dlprim.optim import SGD
from nn_modules import Net, Scale, drawn, due, made, require_right

pytestmark = pytest.mark.any_level


def test_a_module_of_ones_own_has_gradients() -> None:
    model = made()
    assert list(model.state_dict()) == [
        "blocks.0.weight", "blocks.0.bias", "blocks.1.weight", "blocks.1.bias", "head.weight",
        "head.bias",
    ]  # fmt: skip
    require_right(model, drawn(4, 5))
    require_right(model, drawn(2, 3, 5))


def test_it_stands_among_other_layers() -> None:
    nn.seed(0)
    model = nn.Sequential({"fc": nn.Linear(5, 3), "scale": Scale(3), "drop": nn.Dropout(0.5)})
    x = drawn(4, 5)
    scaled = dlprim.linear(x, model.fc.weight.value, model.fc.bias.value) * np.linspace(1, 2, 3)
    np.testing.assert_allclose(model.forward(x, training=False), scaled, rtol=1e-5)
    y = model(x)
    assert (y == 0).any()
    dx = model.backward(np.ones_like(y))
    factors = np.where(y == 0, 0, 2) * np.linspace(1, 2, 3)
    np.testing.assert_allclose(dx, factors @ model.fc.weight.value, rtol=1e-5)


def test_steps_of_an_optimiser_learn() -> None:
    model, x = made(), drawn(64, 5)
    optimizer = SGD(model.parameters(), 0.1)
    losses = []
    for _ in range(20):
        loss, dy = dlprim.mse_loss(y := model(x), x[:, :3]), None
        dy = 2 * (y - x[:, :3]) / y.size
        model.backward(dy)
        optimizer.step()
        losses.append(float(loss))
    assert losses[-1] < 0.2 * losses[0]


def test_several_inputs_and_results() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(np.eye(3) * 2)

        def forward(self, x: Any, *, others: Any, scale: float = 1.0) -> Any:
            y = x @ self.w.T * scale
            return {"y": y, "sum": y + others[0], "place": np.argmax(y, axis=1)}

    model = Pair()
    x, z = drawn(2, 3), drawn(2, 3, seed=1)
    found = model(x, others=[z], scale=0.5)
    np.testing.assert_allclose(found["sum"], x + z, rtol=1e-6)
    np.testing.assert_array_equal(found["place"], x.argmax(axis=1))
    ones = np.ones((2, 3), np.float32)
    dx, others, scale = model.backward({"y": ones, "sum": ones, "place": None})
    np.testing.assert_allclose(dx, 2 * ones)
    np.testing.assert_allclose(others[0], ones)
    assert scale is None
    np.testing.assert_allclose(model.w.gradient, np.tile(x.sum(axis=0), (3, 1)), rtol=1e-5)


def test_a_layer_that_is_called_twice_gets_both_gradients() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 3, bias=False)

        def forward(self, x: Any) -> Any:
            return self.fc(self.fc(x))

    nn.seed(0)
    model, x = Twice(), drawn(2, 3)
    model(x)
    dy = drawn(2, 3, seed=1)
    model.backward(dy)
    w = model.fc.weight.value
    due = dy.T @ (x @ w.T) + (dy @ w).T @ x
    np.testing.assert_allclose(model.fc.weight.gradient, due, rtol=1e-4, atol=1e-5)


def test_gradients_of_what_is_not_met_are_zero_and_all_are_said_to_be_ready() -> None:
    model, x = made(), drawn(4, 5)
    spare = model.spare = nn.Linear(2, 2)
    spare.weight.gradient[...] = 7
    ready: list[Any] = []
    model.backward(np.ones_like(model(x)), ready.append)
    assert not spare.weight.gradient.any()
    assert {*map(id, ready)} == {*map(id, model.parameters())}
    assert len(ready) == len(model.parameters())


def test_copies_pickles_and_files(tmp_path: Path) -> None:
    model, x = made(), drawn(4, 5)
    y = model(x)
    nn.save(model, tmp_path / "net.dlprim")
    for other in (
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        nn.load(tmp_path / "net.dlprim", classes=[Net, Scale]),
    ):
        np.testing.assert_array_equal(other(x), y)
        other.head.bias.value[...] += 1
        np.testing.assert_allclose(other(x), y + 1, rtol=1e-5, atol=1e-6)
    with pytest.raises(RuntimeError, match="follows no training forward"):
        copy.deepcopy(model).backward(y)
    model.backward(y)


def test_threads_share_a_model() -> None:
    model = made()
    inputs = [drawn(1 + place % 4, 5, seed=place) for place in range(64)]
    expected = [due(model, x) for x in inputs]
    model.eval()
    with ThreadPoolExecutor(8) as pool:
        for y, it in zip(pool.map(model, inputs), expected, strict=True):
            np.testing.assert_allclose(y, it, rtol=1e-5, atol=1e-6)


def test_functions_that_are_compiled_take_modules_too() -> None:
    model, x = made(), drawn(4, 5)
    np.testing.assert_allclose(dlprim.compile(model)(x), model(x), rtol=1e-6)
    slope = dlprim.grad(lambda x: np.sum(model(x)))
    dx = model.backward(np.ones_like(model(x)))
    np.testing.assert_allclose(slope(x), dx, rtol=1e-5, atol=1e-6)
    model.head.weight.value[...] *= 2
    assert np.abs(slope(x) - dx).max() > 1e-3


def test_a_model_that_is_traced_is_shown() -> None:
    model = made()
    rows = {row.name: row for row in model.summary(drawn(4, 5)).rows}
    assert rows["head"].shape == (4, 3)
    assert rows["blocks.1"].parameters == 10
    assert "(blocks.0): Linear" in repr(model)


@pytest.mark.parametrize("kind", ["mse", "bce", "cross entropy"])
def test_losses_are_part_of_a_trace(kind: str) -> None:
    model, x = made(), drawn(4, 5)
    targets = np.arange(4) % 3 if kind == "cross entropy" else np.abs(drawn(4, 3, seed=1))
    criterion: Any = {
        "mse": nn.MSELoss(reduction="sum"),
        "bce": nn.BCEWithLogitsLoss(pos_weight=np.float32([1, 2, 3])),
        "cross entropy": nn.CrossEntropyLoss(label_smoothing=0.1),
    }[kind]
    loss, dy = criterion(model(x), targets)
    dx = model.backward(dy.copy())
    step = dlprim.value_and_grad(lambda x: criterion(model(x), targets, gradient=False).loss)
    value, slope = step(x)
    np.testing.assert_allclose(value, loss, rtol=1e-5)
    np.testing.assert_allclose(slope, dx, rtol=1e-4, atol=1e-6)
    found = dlprim.compile(lambda y: criterion(y, targets))(model(x))
    np.testing.assert_allclose(found[1], dy, rtol=1e-4, atol=1e-6)


class Halving(nn.MaxPool2d):
    fixed = True

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size

    kernel = property(lambda self: self.size)

    def arguments(self) -> dict[str, Any]:
        return {"size": self.size}


class Averaging(nn.AvgPool2d):
    def arguments(self) -> dict[str, Any]:
        return {"size": 2}


class Larger(nn.Upsample):
    def arguments(self) -> dict[str, Any]:
        return {"factor": 2}


class Steep(nn.LeakyReLU):
    def arguments(self) -> dict[str, Any]:
        return {"slope": 2.0}


class Filters(nn.Conv2d):
    fixed = "weight"
    K = kernel = property(lambda self: self.weight.shape[0])


class Grouped(nn.GroupNorm):
    num_channels = property(lambda self: self.weight.shape[0])

    def __init__(self, channels: int) -> None:
        super().__init__(1, channels)
        self.affine = True


class Rows(nn.LayerNorm):
    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.affine = self.elementwise_affine = True


@pytest.mark.parametrize(
    ("own", "like"),
    [
        (Halving(2), nn.MaxPool2d(2)),
        (Averaging(2, 1, 1), nn.AvgPool2d(2, 1, 1)),
        (Larger(scale_factor=2), nn.Upsample(scale_factor=2)),
        (Steep(2.0), nn.LeakyReLU(2.0)),
        (Filters(3, 4, 3, generator=np.random.default_rng(0)),
         nn.Conv2d(3, 4, 3, generator=np.random.default_rng(0))),
        (Grouped(3), nn.GroupNorm(1, 3)),
        (Rows(8), nn.LayerNorm(8)),
    ],
    ids=lambda it: type(it).__name__,
)  # fmt: skip
def test_classes_made_from_layers_have_what_they_like_beside_them(own: Any, like: Any) -> None:
    x = drawn(2, 3, 8, 8)
    np.testing.assert_array_equal(own(x), like(x))
