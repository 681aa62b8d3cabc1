"""Norms, softmax and activations as layers: gradients, dtypes, copies, refusals."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nn_reference as reference
import row_reference as rows
from dlprim import nn
from test_nn import check_gradients, generator, shaken, trained_once

TARGETS = np.array([0, 4, 2, 1, 3, 3, 2, 0])
BOUND = {"float32": 2e-5, "bfloat16": 0.03}
# The layer, what it is called as a function, and its settings.
ELEMENTWISE: list[tuple[Callable[[], nn.Module], str, dict[str, Any]]] = [
    (nn.Sigmoid, "sigmoid", {}),
    (nn.Tanh, "tanh", {}),
    (nn.GELU, "gelu", {}),
    (lambda: nn.GELU(approximate="tanh"), "gelu", {"approximate": "tanh"}),
    (nn.SiLU, "silu", {}),
    (nn.LeakyReLU, "leaky_relu", {}),
    (lambda: nn.LeakyReLU(0.3), "leaky_relu", {"negative_slope": 0.3}),
    (lambda: nn.ELU(1.5), "elu", {"alpha": 1.5}),
    (nn.SELU, "selu", {}),
    (nn.Hardsigmoid, "hardsigmoid", {}),
    (nn.Hardswish, "hardswish", {}),
    (lambda: nn.Softplus(2.0, 3.0), "softplus", {"beta": 2.0, "threshold": 3.0}),
    (nn.Mish, "mish", {}),
]
OTHERS: list[Callable[[], nn.Module]] = [
    lambda: nn.LayerNorm(6),
    lambda: nn.LayerNorm((3, 6), bias=False),
    lambda: nn.LayerNorm(6, eps=0.1, elementwise_affine=False),
    lambda: nn.RMSNorm((3, 6)),
    lambda: nn.RMSNorm(6, elementwise_affine=False),
    lambda: nn.Softmax(1),
    nn.LogSoftmax,
]
LAYERS = [*(make for make, _, _ in ELEMENTWISE), *OTHERS]


def normal(shape: tuple[int, ...], seed: int = 0) -> Any:
    return generator(seed).standard_normal(shape, np.float32)


def dense(x: Any, values: Any, name: str) -> Any:
    return x @ values[f"{name}.weight"].T + values[f"{name}.bias"]


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("place", range(len(ELEMENTWISE)))
def test_gradients_through_activations(place: int, dtype: str) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="it has the type of bfloat16 arrays")
    make, name, settings = ELEMENTWISE[place]
    layers = {
        "a": nn.Linear(7, 20, generator=generator(1)),
        "it": make(),
        "b": nn.Linear(20, 5, generator=generator(2)),
    }
    model = shaken(nn.Sequential(layers))
    model.use(nn.Context(dtype))
    x = normal((8, 7))
    _, dx = trained_once(model, x, TARGETS)
    assert dx.shape == x.shape
    assert dx.dtype == np.float32
    exact = x.astype(np.float64)

    def logits(values: Any) -> Any:
        return dense(rows.ACTIVATIONS[name](dense(exact, values, "a"), **settings), values, "b")

    check_gradients(model, TARGETS, logits, BOUND[dtype])


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("kind", ["layer", "rms", "plain", "plain rms"])
def test_gradients_through_norms_and_softmax(kind: str, dtype: str) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="it has the type of bfloat16 arrays")
    norm: nn.Module = nn.LayerNorm((3, 6)) if kind == "layer" else nn.RMSNorm((3, 6), eps=1e-3)
    if kind == "plain":
        norm = nn.LayerNorm((3, 6), elementwise_affine=False)
    if kind == "plain rms":
        norm = nn.RMSNorm((3, 6), eps=1e-3, elementwise_affine=False)
    layers = {
        "a": nn.Linear(7, 6, generator=generator(1)),
        "norm": norm,
        "shares": nn.Softmax(),
        "again": nn.LayerNorm(6, bias=False),
        "logs": nn.LogSoftmax(1),
        "flat": nn.Flatten(),
        "b": nn.Linear(18, 5, generator=generator(2)),
    }
    model = shaken(nn.Sequential(layers))
    model.use(nn.Context(dtype))
    x = normal((8, 3, 7))
    finished: list[str] = []
    trained_once(model, x, TARGETS, lambda it: finished.append(it.name))
    due = {"layer": ["norm.bias", "norm.weight"], "rms": ["norm.weight"]}.get(kind, [])
    assert [sorted(finished[:2]), finished[2], sorted(finished[3:-2]), sorted(finished[-2:])] == [
        ["b.bias", "b.weight"],
        "again.weight",
        due,
        ["a.bias", "a.weight"],
    ]

    def logits(values: Any) -> Any:
        y = dense(x.astype(np.float64), values, "a")
        one, none = np.ones((3, 6)), np.zeros((3, 6))
        if kind.endswith("rms"):
            y = rows.rms_norm(y, values.get("norm.weight", one), 1e-3)
        else:
            y = rows.layer_norm(y, values.get("norm.weight", one), values.get("norm.bias", none))
        y = rows.layer_norm(rows.softmax(y), values["again.weight"])
        return dense(rows.log_softmax(y, 1).reshape(8, 18), values, "b")

    # Differences of shares that are alike are what is left of 8 bits.
    check_gradients(model, TARGETS, logits, 1e-4 if dtype == "float32" else 0.05)


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("place", range(len(ELEMENTWISE)))
def test_gradients_through_activations_of_images(place: int, dtype: str) -> None:
    """Whose channels do not fill their blocks, where some functions are not 0 of 0."""
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="it has the type of bfloat16 arrays")
    make, name, settings = ELEMENTWISE[place]
    layers: dict[str, nn.Module] = {
        "a": nn.Conv2d(4, 6, 3, groups=2, bias=False, generator=generator(1)),
        "it": make(),
        "b": nn.Conv2d(6, 5, 1, bias=False, generator=generator(2)),
        "mean": nn.GlobalAvgPool2d(),
    }
    model = shaken(nn.Sequential(layers))
    model.use(nn.Context(dtype))
    x = normal((8, 4, 5, 5))
    _, dx = trained_once(model, x, TARGETS)
    assert dx.shape == x.shape
    assert np.isfinite(np.asarray(dx, np.float32)).all()

    def logits(values: Any) -> Any:
        halves = zip(np.split(x.astype(np.float64), 2, 1), np.split(values["a.weight"], 2),
                     strict=True)  # fmt: skip
        y = np.concatenate([reference.conv(*half, 1, 0) for half in halves], 1)
        y = rows.ACTIVATIONS[name](y, **settings)
        return reference.conv(y, values["b.weight"], 1, 0).mean((2, 3))

    check_gradients(model, TARGETS, logits, BOUND[dtype])
    values = {key: it.astype(np.float64) for key, it in model.state_dict().items()}
    found = np.asarray(model.forward(x, training=False), np.float32)
    bound = 1e-5 if dtype == "float32" else 0.05
    np.testing.assert_allclose(found, logits(values), rtol=bound, atol=bound)


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("place", range(len(LAYERS)))
def test_copies_and_pickles(place: int, dtype: str) -> None:
    layer = shaken(LAYERS[place]())
    layer.use(nn.Context(dtype), "it")
    x, dy = normal((2, 3, 6)), normal((2, 3, 6), 1)
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
    np.testing.assert_array_equal(inferred, np.asarray(y, np.float32))
    for twin in twins:
        np.testing.assert_array_equal(np.asarray(twin.eval()(x), np.float32), inferred)
    assert layer(x[:0]).shape == (0, 3, 6)


def test_repr_shows_what_is_not_by_default() -> None:
    shown = {
        "GELU()": nn.GELU(),
        "GELU(approximate='tanh')": nn.GELU("tanh"),
        "LeakyReLU(negative_slope=0.2)": nn.LeakyReLU(0.2),
        "Softplus(beta=2.0)": nn.Softplus(2.0),
        "Softmax(dim=1)": nn.Softmax(1),
        "LayerNorm(normalized_shape=4, bias=False)  # weight (4,): 4 parameters": nn.LayerNorm(
            4, bias=False
        ),
        "RMSNorm(normalized_shape=(2, 3), elementwise_affine=False)": nn.RMSNorm(
            [2, 3],  # type: ignore[arg-type]
            elementwise_affine=False,
        ),
    }
    assert [repr(it) for it in shown.values()] == list(shown)


def test_settings_are_attributes_that_act() -> None:
    layer, x = nn.ELU(1.0), np.array([-100, 1], np.float32)
    layer.alpha = 3.0
    assert layer(x).tolist() == [-3, 1]
    assert nn.LayerNorm(3).eps == 1e-5
    assert nn.Softmax(0).dim == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.GELU("fast"), "approximate is 'fast', expected one of 'none', 'tanh'"),
        (lambda: nn.ELU("1"), "alpha is '1', expected a finite number"),  # type: ignore[arg-type]
        (lambda: nn.LeakyReLU(np.nan), "negative_slope is nan, expected a finite number"),
        (lambda: nn.Softplus(-1), "beta is -1, expected a finite number above 0"),
        (lambda: nn.Softmax(0.5), "dim is 0.5, expected an integer"),  # type: ignore[arg-type]
        (lambda: nn.Softmax(2)(normal((3, 4))), r"x of Softmax has shape \(3, 4\), expected on"),
        (lambda: nn.LayerNorm(0), "normalized_shape is 0, expected an integer of at least 1"),
        (lambda: nn.LayerNorm(()), r"normalized_shape is \(\), expected an integer or a tuple"),
        (lambda: nn.RMSNorm((3, True)), r"normalized_shape\[1\] is True, expected an integer"),
        (lambda: nn.LayerNorm(3, eps=-1), "eps is -1, expected a finite number >= 0"),
        (
            lambda: nn.LayerNorm(3, bias=1),  # type: ignore[arg-type]
            "bias is 1, expected True or False",
        ),
        (lambda: nn.LayerNorm(3, 1e-5, None), "elementwise_affine is None, expected True or Fa"),  # type: ignore[arg-type]
        (
            lambda: nn.LayerNorm((3, 4))(normal((5, 4))),
            r"x of LayerNorm has shape \(5, 4\), expected \(\.\.\., 3, 4\)",
        ),
    ],
)
def test_refusals(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        call()


@pytest.mark.parametrize("dtype", BOUND)
def test_norms_take_over_from_pytorch(dtype: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an optional peer")
    pairs = [
        (nn.LayerNorm((3, 6)), torch.nn.LayerNorm((3, 6))),
        (nn.LayerNorm(6, 1e-3, bias=False), torch.nn.LayerNorm(6, 1e-3, bias=False)),
        (nn.LayerNorm(6, elementwise_affine=False), torch.nn.LayerNorm(6, 1e-5, False)),
        (nn.RMSNorm(6), torch.nn.RMSNorm(6, 1e-5)),
    ]
    x, dy = normal((8, 3, 6)), normal((8, 3, 6), 1)
    for ours, theirs in pairs:
        assert [it.value.mean() for it in ours.parameters()] == [1, 0][: len(ours.parameters())]
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
