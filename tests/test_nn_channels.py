"""Layers of channels, GroupNorm, InstanceNorm2d and PReLU: gradients, copies, refusals."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlprim
import nn_reference as reference
import row_reference as rows
from dlprim import nn
from test_nn import check_gradients, generator, shaken, trained_once

TARGETS = np.array([0, 4, 2, 1, 3, 3, 2, 0])
BOUND = {"float32": 3e-5, "bfloat16": 0.05}
# Of 6 channels: a layer, and what it is of x and of the parameters there are.
LAYERS: list[tuple[Callable[[], nn.Module], Callable[..., Any]]] = [
    (lambda: nn.GroupNorm(2, 6), lambda x, *it: rows.group_norm(x, 2, *it)),
    (lambda: nn.GroupNorm(6, 6, 1e-3), lambda x, *it: rows.group_norm(x, 6, *it, eps=1e-3)),
    (lambda: nn.GroupNorm(1, 6, affine=False), lambda x: rows.group_norm(x, 1)),
    (lambda: nn.InstanceNorm2d(6), lambda x: rows.group_norm(x, 6)),
    (lambda: nn.InstanceNorm2d(6, affine=True), lambda x, *it: rows.group_norm(x, 6, *it)),
    (lambda: nn.PReLU(6), rows.prelu),
    (lambda: nn.PReLU(1, 0.1), rows.prelu),
]


def normal(shape: tuple[int, ...], seed: int = 0) -> Any:
    return generator(seed).standard_normal(shape, np.float32)


def applied(exact: Callable[..., Any], x: Any, values: Any) -> Any:
    names = [it for it in ("it.weight", "it.bias") if it in values]
    return exact(x, *(values[it] for it in names))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("place", range(len(LAYERS)))
def test_gradients_between_convolutions(place: int, dtype: str, groups: int) -> None:
    """Whose channels do not fill their blocks; what a sigmoid leaves beside them is not 0.

    Behind a norm there is something that is not linear: the mean of its channels is 0.
    """
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="it has the type of bfloat16 arrays")
    make, exact = LAYERS[place]
    is_norm = exact is not rows.prelu
    layers: dict[str, nn.Module] = {
        "a": nn.Conv2d(4, 6, 3, groups=groups, bias=False, generator=generator(1)),
        "between": nn.Sigmoid() if is_norm else nn.Tanh(),
        "it": make(),
        "after": nn.SiLU(),
        "b": nn.Conv2d(6, 5, 1, bias=False, generator=generator(2)),
        "mean": nn.GlobalAvgPool2d(),
    }
    model = shaken(nn.Sequential(layers))
    model.use(nn.Context(dtype))
    x = normal((8, 4, 5, 5))
    finished: list[str] = []
    _, dx = trained_once(model, x, TARGETS, lambda it: finished.append(it.name))
    own = [f"it.{name}" for name in layers["it"].own_parameters()]
    assert [finished[0], sorted(finished[1:-1]), finished[-1]] == [
        "b.weight",
        sorted(own),
        "a.weight",
    ]
    assert dx.shape == x.shape

    def logits(values: Any) -> Any:
        parts = zip(np.split(x.astype(np.float64), groups, 1),
                    np.split(values["a.weight"], groups), strict=True)  # fmt: skip
        y = np.concatenate([reference.conv(*part, 1, 0) for part in parts], 1)
        y = applied(exact, rows.sigmoid(y) if is_norm else np.tanh(y), values)
        return reference.conv(y * rows.sigmoid(y), values["b.weight"], 1, 0).mean((2, 3))

    check_gradients(model, TARGETS, logits, BOUND[dtype])
    values = {key: it.astype(np.float64) for key, it in model.state_dict().items()}
    found = np.asarray(model.forward(x, training=False), np.float32)
    bound = 3e-5 if dtype == "float32" else 0.05
    np.testing.assert_allclose(found, logits(values), rtol=bound, atol=bound)


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("place", range(len(LAYERS)))
def test_copies_and_pickles(place: int, dtype: str) -> None:
    layer = shaken(LAYERS[place][0]())
    layer.use(nn.Context(dtype), "it")
    x, dy = normal((2, 6, 3, 4)), normal((2, 6, 3, 4), 1)
    y, dx = layer(x), layer.backward(dy)
    layer(x)
    twins = copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))
    for twin in twins:
        assert repr(twin) == repr(layer)
        with pytest.raises(RuntimeError, match="follows no training forward"):
            twin.backward(dy)
        np.testing.assert_array_equal(np.asarray(twin(x)), np.asarray(y))
        np.testing.assert_array_equal(np.asarray(twin.backward(dy)), np.asarray(dx))
    inferred = np.asarray(layer.eval()(x), np.float32)
    # Weights of groups that are constants run in another step, which rounds otherwise.
    is_folded = isinstance(layer, nn.GroupNorm | nn.InstanceNorm2d) and layer.weight is not None
    bound = 1e-6 if is_folded and dtype == "float32" else 0
    np.testing.assert_allclose(inferred, np.asarray(y, np.float32), rtol=bound, atol=bound / 4)
    for twin in twins:
        np.testing.assert_array_equal(np.asarray(twin.eval()(x), np.float32), inferred)
    assert layer(x[:0]).shape == (0, 6, 3, 4)


@pytest.mark.parametrize("place", range(len(LAYERS)))
def test_no_images_at_all(place: int) -> None:
    layer = LAYERS[place][0]()
    y = layer(np.zeros((0, 6, 3, 4), np.float32))
    assert y.shape == (0, 6, 3, 4)
    assert layer.backward(y).shape == (0, 6, 3, 4)
    assert not any(it.gradient.any() for it in layer.parameters())


def test_plain_arrays_of_any_number_of_axes() -> None:
    for shape in [(4, 6), (4, 6, 3), (2, 6, 2, 3, 4)]:
        x = normal(shape)
        np.testing.assert_array_equal(nn.GroupNorm(3, 6)(x), dlprim.group_norm(x, 3))
        slopes = np.full(6, 0.25, np.float32)
        np.testing.assert_array_equal(nn.PReLU(6)(x), dlprim.prelu(x, slopes))
    assert nn.PReLU()(np.array([-4, 1], np.float32)).tolist() == [-1, 1]


def test_repr_and_attributes() -> None:
    shown = {
        "GroupNorm(num_groups=2, num_channels=6)  # weight (6,), bias (6,): 12 parameters": (
            nn.GroupNorm(2, 6)
        ),
        "GroupNorm(num_groups=2, num_channels=6, eps=0.1, affine=False)": nn.GroupNorm(
            2, 6, 0.1, False
        ),
        "InstanceNorm2d(num_features=6)": nn.InstanceNorm2d(6),
        "PReLU()  # weight (1,): 1 parameters": nn.PReLU(),
        "PReLU(num_parameters=6, init=0.5)  # weight (6,): 6 parameters": nn.PReLU(6, 0.5),
    }
    assert [repr(it) for it in shown.values()] == list(shown)
    norm = nn.GroupNorm(2, 6)
    assert (norm.num_groups, norm.num_channels, norm.eps) == (2, 6, 1e-5)
    assert nn.InstanceNorm2d(6).num_features == 6


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.GroupNorm(4, 6), "num_groups is 4, expected a divisor of num_channels = 6"),
        (lambda: nn.GroupNorm(0, 6), "num_groups is 0, expected an integer of at least 1"),
        (lambda: nn.GroupNorm(2, 6, -1), "eps is -1, expected a finite number >= 0"),
        (
            lambda: nn.GroupNorm(2, 6, affine=1),  # type: ignore[arg-type]
            "affine is 1, expected True or False",
        ),
        (lambda: nn.InstanceNorm2d(0), "num_features is 0, expected an integer of at least 1"),
        (lambda: nn.PReLU(0), "num_parameters is 0, expected an integer of at least 1"),
        (lambda: nn.PReLU(1, np.nan), "init is nan, expected a finite number"),
        (
            lambda: nn.GroupNorm(2, 6)(normal((2, 5, 3))),
            r"x of GroupNorm has shape \(2, 5, 3\), expected \(N, 6, \.\.\.\)",
        ),
        (
            lambda: nn.InstanceNorm2d(6)(normal((2, 6, 3))),
            r"x of InstanceNorm2d has shape \(2, 6, 3\), expected \(N, 6, H, W\)",
        ),
        (
            lambda: nn.PReLU(6)(normal((6,))),
            r"x of PReLU has shape \(6,\), expected \(N, 6, \.\.\.\)",
        ),
        (
            lambda: nn.PReLU(6)(normal((1, 4, 4, 4))),
            r"x of PReLU has shape \(1, 4, 4, 4\), expected \(N, 6, \.\.\.\)",
        ),
    ],
)
def test_refusals(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        call()


@pytest.mark.parametrize("dtype", BOUND)
def test_layers_take_over_from_pytorch(dtype: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an optional peer")
    pairs = [
        (nn.GroupNorm(3, 6), torch.nn.GroupNorm(3, 6)),
        (nn.GroupNorm(2, 6, 1e-3, False), torch.nn.GroupNorm(2, 6, 1e-3, False)),
        (nn.InstanceNorm2d(6), torch.nn.InstanceNorm2d(6)),
        (nn.InstanceNorm2d(6, affine=True), torch.nn.InstanceNorm2d(6, affine=True)),
        (nn.PReLU(), torch.nn.PReLU()),
        (nn.PReLU(6, 0.1), torch.nn.PReLU(6, 0.1)),
    ]
    x, dy = normal((3, 6, 5, 7)), normal((3, 6, 5, 7), 1)
    for ours, theirs in pairs:
        first = {key: it.numpy() for key, it in theirs.state_dict().items()}
        for key, value in ours.state_dict().items():
            np.testing.assert_array_equal(value, first.pop(key))
        assert not first
        ours.use(nn.Context(dtype))
        state = shaken(ours).state_dict()
        theirs.load_state_dict({key: torch.from_numpy(it) for key, it in state.items()})
        leaf = torch.from_numpy(x).requires_grad_()
        theirs(leaf).backward(torch.from_numpy(dy))
        ours(x)
        dx = np.asarray(ours.backward(dy), np.float32)
        bound = 1e-5 if dtype == "float32" else 0.03
        np.testing.assert_allclose(dx, leaf.grad.numpy(), rtol=bound, atol=bound)
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            scale = max(1, float(other.grad.abs().max()))
            np.testing.assert_allclose(one.gradient, other.grad.numpy(), atol=bound * scale)
