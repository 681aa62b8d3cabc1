"""Pooling to a size, upsampling, borders and branches as layers: values and gradients."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import nn

BOUND = {"float32": 1e-5, "bfloat16": 0.06}
Pass = Callable[[Any], Any]


def mean(x: Any) -> Any:
    return dlprim.adaptive_avg_pool2d(x, (4, None))


def bordered(mode: str) -> tuple[Pass, Callable[[Any, Any], Any]]:
    pads = (1, 2, 3, 0)
    return lambda x: dlprim.pad(x, pads, mode), lambda dy, _: dlprim.pad_backward(dy, pads, mode)


# The layer, what it is as a function, and the gradient for a dy and the shape of x.
LAYERS: dict[str, tuple[Callable[[], nn.Module], Pass, Callable[[Any, Any], Any]]] = {
    "AdaptiveAvgPool2d": (
        lambda: nn.AdaptiveAvgPool2d((4, None)), mean, dlprim.adaptive_avg_pool2d_backward
    ),
    "whole": (
        lambda: nn.AdaptiveAvgPool2d(1),
        lambda x: dlprim.adaptive_avg_pool2d(x, 1),
        dlprim.adaptive_avg_pool2d_backward,
    ),
    "nearest": (
        lambda: nn.Upsample((4, 13)),
        lambda x: dlprim.interpolate(x, (4, 13)),
        dlprim.interpolate_backward,
    ),
    "bilinear": (
        lambda: nn.Upsample(scale_factor=(2, 1.5), mode="bilinear"),
        lambda x: dlprim.interpolate(x, None, (2, 1.5), "bilinear"),
        lambda dy, shape: dlprim.interpolate_backward(dy, shape, (2, 1.5), "bilinear"),
    ),
    "ZeroPad2d": (lambda: nn.ZeroPad2d((1, 2, 3, 0)), *bordered("constant")),
    "ReflectionPad2d": (lambda: nn.ReflectionPad2d((1, 2, 3, 0)), *bordered("reflect")),
    "ReplicationPad2d": (lambda: nn.ReplicationPad2d((1, 2, 3, 0)), *bordered("replicate")),
    "CircularPad2d": (lambda: nn.CircularPad2d((1, 2, 3, 0)), *bordered("circular")),
    "Concat": (
        lambda: nn.Concat(nn.LeakyReLU(2.0), nn.Dropout(0.0), nn.AvgPool2d(1)),
        lambda x: np.concatenate([np.where(x > 0, x, 2 * x), x, x], 1),
        lambda dy, shape: (
            dy[:, : shape[1]] + dy[:, shape[1] : 2 * shape[1]] + dy[:, 2 * shape[1] :]
        ),
    ),
}  # fmt: skip


def normal(shape: Any, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("channels", [5, 20, 64])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_the_functions(name: str, channels: int, dtype: str) -> None:
    make, value, slope = LAYERS[name]
    model = nn.Sequential({"it": make()})
    model.use(nn.Context(dtype))
    x = normal((2, channels, 9, 7))
    if name == "Concat":
        x = np.abs(x)  # where the slope of each branch is 1
    y, expected, bound = model(x), value(x), BOUND[dtype]
    assert y.shape == expected.shape
    assert y.dtype == model.context.dtype

    def wide(it: Any) -> Any:
        return dlprim.to_float32(it, dtype=dtype) if it.dtype != np.float32 else it

    np.testing.assert_allclose(wide(y), expected, atol=bound)
    dy = normal(expected.shape, 1)
    dx = model.backward(dy)
    assert dx.dtype == np.float32
    np.testing.assert_allclose(dx, slope(dy, x.shape), rtol=bound, atol=4 * bound)
    np.testing.assert_array_equal(wide(model.eval()(x)), wide(y))
    assert model(x[:0]).shape == (0, *expected.shape[1:])


@pytest.mark.parametrize("name", [it for it in LAYERS if it.endswith("Pad2d")])
def test_borders_of_plain_arrays(name: str) -> None:
    make, value, slope = LAYERS[name]
    for shape in ((2, 3, 5, 6), (5, 6)):
        layer, x = make(), normal(shape)
        y = layer(x)
        np.testing.assert_array_equal(y, value(x))
        np.testing.assert_array_equal(layer.backward(y.copy()), slope(y, shape))
    cut = nn.ZeroPad2d((-1, 0, 0, -2))
    assert cut(x).shape == (3, 5)
    images = normal((1, 3, 5, 6))
    np.testing.assert_array_equal(cut(images), images[:, :, :3, 1:])


@pytest.mark.parametrize("dim", [1, -1])
def test_branches_on_plain_arrays(dim: int) -> None:
    nn.seed(0)
    layers = {"a": nn.Linear(4, 3), "b": nn.Sequential(nn.Linear(4, 5), nn.Tanh())}
    model = nn.Concat(layers, dim=dim)
    x, dy = normal((6, 4)), normal((6, 8), 1)
    one, two = copy.deepcopy(layers["a"]), copy.deepcopy(layers["b"])
    finished: list[str] = []
    y, dx = model(x), model.backward(dy.copy(), lambda it: finished.append(it.name))
    np.testing.assert_array_equal(y, np.concatenate([one(x), two(x)], 1))
    parts = one.backward(dy[:, :3].copy()), two.backward(dy[:, 3:].copy())
    np.testing.assert_allclose(dx, parts[0] + parts[1], atol=1e-6)
    assert [it.rpartition(".")[0] for it in finished] == ["b.0", "b.0", "a", "a"]
    assert len(set(finished)) == 4
    assert list(model.state_dict()) == ["a.weight", "a.bias", "b.0.weight", "b.0.bias"]
    for it, twin in zip(model.parameters(), [*one.parameters(), *two.parameters()], strict=True):
        np.testing.assert_array_equal(it.gradient, twin.gradient)
    model.a = nn.Linear(4, 1)
    assert model(x).shape == (6, 6)
    assert model["a"] is model[0]


@pytest.mark.parametrize("widths", [(64, 64), (5, 70), (12, 12)])
def test_branches_of_convolutions_train(widths: tuple[int, int]) -> None:
    """As two models whose results are joined behind them."""
    nn.seed(0)
    branches = [nn.Conv2d(8, widths[0], 3, padding=1), nn.Conv2d(8, widths[1], 1, groups=1)]
    model = nn.Sequential({"both": nn.Concat(*branches)})
    alone = [nn.Sequential({"it": copy.deepcopy(it)}) for it in branches]
    for it in (model, *alone):
        it.use(nn.Context(algorithm="direct"))
    x = normal((2, 8, 6, 6))
    for _ in range(3):
        y = model(x)
        dy = normal(y.shape, 1)
        np.testing.assert_allclose(y, np.concatenate([it(x) for it in alone], 1), atol=1e-5)
        dx = model.backward(dy)
        parts = dlprim.split(dy, widths, 1)
        others = [it.backward(part) for it, part in zip(alone, parts, strict=True)]
        np.testing.assert_allclose(dx, others[0] + others[1], atol=1e-4)


@pytest.mark.parametrize("name", LAYERS)
def test_copies_and_pickles(name: str) -> None:
    model = nn.Sequential({"it": LAYERS[name][0]()})
    x = normal((2, 5, 9, 7))
    y = model(x)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert repr(twin) == repr(model)
        with pytest.raises(RuntimeError, match="follows no training forward"):
            twin.backward(y)
        np.testing.assert_array_equal(twin(x), y)


def test_repr_shows_what_is_not_by_default() -> None:
    shown = {
        "AdaptiveAvgPool2d(output_size=3)": nn.AdaptiveAvgPool2d([3, 3]),
        "AdaptiveAvgPool2d(output_size=(None, 2))": nn.AdaptiveAvgPool2d((None, 2)),
        "Upsample(scale_factor=2)": nn.Upsample(scale_factor=2),
        "Upsample(size=(3, 4), mode='bilinear', align_corners=True)": nn.Upsample(
            (3, 4), None, "bilinear", True
        ),
        "ZeroPad2d(padding=1)": nn.ZeroPad2d((1, 1, 1, 1)),
        "CircularPad2d(padding=(1, 0, 0, 2))": nn.CircularPad2d((1, 0, 0, 2)),
    }
    assert [repr(it) for it in shown.values()] == list(shown)


IMAGES = normal((1, 3, 4, 4))
IN = r"\S*test_nn_extents\.py, line \d+, in "


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.AdaptiveAvgPool2d(0), "output_size is 0, expected an integer of at least 1"),
        (lambda: nn.AdaptiveAvgPool2d((1, 2, 3)), r"output_size is \(1, 2, 3\), expected"),
        (lambda: nn.AdaptiveAvgPool2d(1)(normal((3, 3))), f"{IN}AdaptiveAvgPool2d: x has shape"),
        (nn.Upsample, "neither size nor scale_factor is given"),
        (lambda: nn.Upsample(2, mode="cubic"), "mode is 'cubic', expected one of"),
        (
            lambda: nn.Upsample(scale_factor=0.1)(IMAGES),
            rf"{IN}Upsample: scale_factor is 0\.1, which makes 0\.4",
        ),
        (lambda: nn.ZeroPad2d((1, 2)), r"padding is \(1, 2\), expected an integer or \(left"),  # type: ignore[arg-type]
        (lambda: nn.ReflectionPad2d(-1), "padding is -1, expected an integer of at least 0"),
        (lambda: nn.ReflectionPad2d(4)(IMAGES), f"{IN}ReflectionPad2d: axis 3 of x has 4 elements"),
        (
            lambda: nn.ZeroPad2d(1)(normal(3)),
            f"{IN}ZeroPad2d: pad holds 4 numbers, expected a pair for each of",
        ),
        (lambda: nn.Concat({}), "layers is empty, expected at least one branch"),
        (lambda: nn.Concat(nn.ReLU(), dim=0.5), r"dim is 0\.5, expected an integer"),  # type: ignore[arg-type]
        (
            lambda: nn.Concat(nn.ReLU(), nn.Flatten())(IMAGES),
            rf"{IN}Concat: arrays of \[1, 3, 4, 4\] and \[1, 48\] cannot be joined",
        ),
        (
            lambda: nn.Sequential({"both": nn.Concat(nn.ReLU(), nn.MaxPool2d(2))})(IMAGES),
            rf"{IN}Concat 'both': arrays of \[1, 3, 4, 4\] and \[1, 3, 2, 2\] cannot be joined",
        ),
    ],
)
def test_refusals(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        call()


@pytest.mark.parametrize("kind", ["ZeroPad2d", "ReflectionPad2d", "ReplicationPad2d"])
def test_layers_of_pytorch(kind: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an optional peer")
    x = normal((2, 3, 9, 7))
    for ours, theirs in [
        (getattr(nn, kind)((1, 2, 3, 0)), getattr(torch.nn, kind)((1, 2, 3, 0))),
        (nn.AdaptiveAvgPool2d((4, None)), torch.nn.AdaptiveAvgPool2d((4, None))),
        (nn.Upsample(None, 1.7, "bilinear"), torch.nn.Upsample(None, 1.7, "bilinear")),
    ]:
        found = nn.Sequential({"it": ours})(x)
        np.testing.assert_allclose(found, theirs(torch.from_numpy(x)).numpy(), atol=1e-5)
