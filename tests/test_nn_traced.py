"""Layers of this package in a trace: what their passes by hand give."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dlprim import nn

pytestmark = pytest.mark.any_level


class Whole(nn.Module):
    """A module that is traced, with what is in it."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any) -> Any:
        return self.inner(*args)


def images(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Pack(), *layers, nn.Flatten())


def bottleneck(C: int, K: int, stride: int) -> nn.Residual:
    def both(c: int, k: int, step: int, name: str, activation: str | None) -> nn.ConvBatchNorm:
        conv = nn.Conv2d(c, k, 3, step, 1, bias=False)
        return nn.ConvBatchNorm(
            conv, nn.BatchNorm2d(k, activation=activation), (f"conv{name}", f"bn{name}")
        )

    shortcut = None if C == K else both(C, K, stride, "0", None)
    return nn.Residual([both(C, K, stride, "1", "relu"), both(K, K, 1, "2", "relu")], shortcut)


Made = tuple[Callable[[], nn.Module], tuple[int, ...]]
MODELS: dict[str, Made] = {
    "linear": (lambda: nn.Linear(5, 3), (4, 5)),
    "linear with relu": (lambda: nn.Linear(5, 3, activation="relu"), (2, 3, 5)),
    "linear with elu": (lambda: nn.Linear(5, 3, bias=False, activation="elu"), (4, 5)),
    "conv": (lambda: images(nn.Conv2d(4, 6, 3, 2, ((1, 0), (2, 1)))), (2, 4, 9, 8)),
    "conv of groups": (
        lambda: images(nn.Conv2d(4, 8, 3, padding="same", groups=2, activation="relu")),
        (2, 4, 6, 5),
    ),
    "batch norm": (lambda: images(nn.BatchNorm2d(5, activation="relu")), (3, 5, 4, 4)),
    "residual": (lambda: images(bottleneck(6, 6, 1)), (3, 6, 5, 5)),
    "residual with a shortcut": (lambda: images(bottleneck(6, 9, 2)), (3, 6, 6, 6)),
    "max pool": (lambda: images(nn.MaxPool2d(3, 2, 1)), (2, 3, 7, 6)),
    "mean pool": (lambda: images(nn.AvgPool2d(2, None, 1, count_include_pad=False)), (2, 3, 6, 6)),
    "global pool": (lambda: nn.Sequential(nn.Pack(), nn.GlobalAvgPool2d()), (2, 3, 6, 6)),
    "adaptive pool": (lambda: images(nn.AdaptiveAvgPool2d((2, 3))), (2, 3, 7, 6)),
    "upsample": (lambda: images(nn.Upsample(scale_factor=2, mode="bilinear")), (2, 3, 4, 5)),
    "lstm": (lambda: nn.LSTM(4, 5, 2, bidirectional=True), (6, 3, 4)),
    "gru": (lambda: nn.GRU(4, 5), (6, 3, 4)),
    "layer norm": (lambda: nn.LayerNorm((3, 5)), (4, 3, 5)),
    "layer norm without": (lambda: nn.LayerNorm(5, bias=False), (4, 3, 5)),
    "rms norm": (lambda: nn.RMSNorm(5), (4, 5)),
    "group norm": (lambda: nn.GroupNorm(2, 6), (3, 6, 4)),
    "instance norm": (lambda: nn.InstanceNorm2d(3, affine=True), (2, 3, 4, 5)),
    "prelu": (lambda: nn.PReLU(3), (4, 3, 2)),
    "softmax": (lambda: nn.Softmax(1), (4, 3, 2)),
    "log softmax": (lambda: nn.LogSoftmax(), (4, 3)),
    "zero padding": (lambda: images(nn.ZeroPad2d((1, 2, 0, 3))), (2, 3, 4, 5)),
    "reflection": (lambda: nn.ReflectionPad2d(2), (2, 3, 4, 5)),
    "replication": (lambda: nn.ReplicationPad2d((1, 0, 2, 1)), (2, 3, 4, 5)),
    "circular": (lambda: nn.CircularPad2d(1), (2, 3, 4, 5)),
    "concat": (lambda: nn.Concat(nn.Linear(5, 3), nn.Linear(5, 2)), (4, 5)),
    "dropout": (lambda: nn.Dropout(0.3, seed=7), (40, 5)),
    "resnet": (lambda: nn.resnet((1, 1, 1), 8, 4), (2, 3, 32, 32)),
    **{
        kind.__name__: (kind, (4, 7))
        for kind in (
            nn.ReLU, nn.Sigmoid, nn.Tanh, nn.GELU, nn.SiLU, nn.LeakyReLU, nn.ELU, nn.SELU,
            nn.Hardsigmoid, nn.Hardswish, nn.Softplus, nn.Mish,
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_layer_that_is_traced_gives_what_it_gives_by_hand(name: str) -> None:
    nn.seed(0)
    make, shape = MODELS[name]
    by_hand = make()
    traced = Whole(copy.deepcopy(by_hand))
    rng = np.random.default_rng(0)
    for training in (True, True, False):
        x = rng.standard_normal(shape, np.float32)
        by_hand.train(training)
        traced.train(training)
        y, found = by_hand(x), traced(x)
        close(found, y)
        if training:
            dy = rng.standard_normal(y.shape, np.float32)
            dx, due = traced.backward(dy), by_hand.backward(dy.copy())
            if due is not None:  # of a layer with first=True
                close(dx, due)
            pairs = zip(traced.parameters(), by_hand.parameters(), strict=True)
            for one, other in pairs:
                close(one.gradient, other.gradient)
    state = by_hand.state_dict()
    for key, array in traced.state_dict().items():
        close(array, state[key.removeprefix("inner.")])


def close(found: Any, due: Any) -> None:
    assert found.shape == due.shape
    scale = float(np.abs(due).max(initial=1))
    np.testing.assert_allclose(found, due, rtol=1e-4, atol=2e-5 * scale)


def test_integers_have_no_gradient() -> None:
    nn.seed(0)
    model = Whole(nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 2)))
    x = np.array([[1, 2, 1], [0, 6, 1]])
    y = model(x)
    dy = np.ones_like(y)
    assert model.backward(dy) is None
    table = model.inner[0].weight.gradient
    np.testing.assert_array_equal(np.abs(table).sum(axis=1) > 0, [1, 1, 1, 0, 0, 0, 1])


def test_lengths_are_given_beside_x() -> None:
    nn.seed(0)
    lstm = nn.LSTM(3, 4)
    model = Whole(copy.deepcopy(lstm))
    x, lengths = np.random.default_rng(0).random((5, 2, 3), np.float32), np.array([3, 5])
    np.testing.assert_allclose(
        model(x, lengths), lstm.forward(x, True, lengths=lengths), rtol=1e-5, atol=1e-6
    )
    dx, none = model.backward(np.ones((5, 2, 4), np.float32))
    assert none is None
    assert not dx[3:, 0].any()


def test_a_model_in_bfloat16_is_near_float32() -> None:
    nn.seed(0)
    model = Whole(nn.Sequential(nn.Linear(64, 64, activation="tanh"), nn.Linear(64, 8)))
    twin = copy.deepcopy(model)
    twin.use(nn.Context("bfloat16"))
    x = np.random.default_rng(0).standard_normal((32, 64), np.float32)
    dy = np.random.default_rng(1).standard_normal((32, 8), np.float32)
    y, near = model(x), twin(x)
    assert 0 < np.abs(near - y).max() < 0.05
    dx, about = model.backward(dy), twin.backward(dy)
    assert np.linalg.norm(about - dx) < 0.02 * np.linalg.norm(dx)
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        error = np.linalg.norm(other.gradient - one.gradient)
        assert error < 0.02 * np.linalg.norm(one.gradient)


@pytest.mark.parametrize("kind", [nn.LayerNorm, nn.RMSNorm])
def test_norms_without_parameters_are_of_all_their_axes(kind: Any) -> None:
    norm = kind((3, 6), elementwise_affine=False)
    model, rng = Whole(copy.deepcopy(norm)), np.random.default_rng(0)
    x, dy = (rng.standard_normal((4, 3, 6), np.float32) for _ in range(2))
    np.testing.assert_allclose(model(x), norm(x), atol=1e-5)
    np.testing.assert_allclose(model.backward(dy), norm.backward(dy.copy()), atol=1e-5)


def test_borders_that_take_away() -> None:
    border = nn.ZeroPad2d((-1, 2, 0, -2))
    model, rng = Whole(copy.deepcopy(border)), np.random.default_rng(0)
    x, dy = rng.random((2, 5, 6), np.float32), rng.random((2, 3, 7), np.float32)
    np.testing.assert_array_equal(model(x), border(x))
    np.testing.assert_array_equal(model.backward(dy), border.backward(dy.copy()))
    with pytest.raises(ValueError, match="pad takes -4 and -4 from axis 2"):
        Whole(nn.ZeroPad2d((-4, -4, 0, 0)))(x)


def test_packed_images_are_no_input() -> None:
    packed = nn.Pack()(np.ones((1, 3, 4, 4), np.float32))
    with pytest.raises(TypeError, match="x of Whole is of type Images, expected a plain array"):
        Whole(nn.ReLU())(packed)


def test_another_context_ends_a_training_forward() -> None:
    model = Whole(nn.ReLU())
    y = model(np.ones((2, 3), np.float32))
    model.use(nn.Context("bfloat16"))
    with pytest.raises(RuntimeError, match="follows no training forward"):
        model.backward(y)
