"""Linear layers of `dlprim.nn` against float64 in both dtypes, and dropout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dlprim
import nn_reference as reference
import row_reference
from conv_reference import ACTIVATIONS
from dlprim import nn

C, K = 37, 29  # no multiple of a block
# Those of the kernel, and those that PyTorch has besides.
NAMES = ["relu", *sorted({*ACTIVATIONS, *row_reference.ACTIVATIONS})]
DTYPES = ["float32", "bfloat16"]


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def made(dtype: str, activation: str | None = None, bias: bool = True) -> nn.Linear:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="it has the type of bfloat16 arrays")
    layer = nn.Linear(C, K, activation=activation, generator=generator(), bias=bias)
    if layer.bias is not None:
        layer.bias.value[...] = generator(1).standard_normal(K, np.float32)
    layer.use(nn.Context(dtype), "fc")
    return layer


def rounded(values: Any, dtype: str) -> NDArray[np.float64]:
    """What a model of ``dtype`` computes with, in float64."""
    array = np.asarray(values, np.float32)
    if dtype == "bfloat16":
        array = dlprim.to_float32(dlprim.to_bfloat16(array))
    return array.astype(np.float64)


def within(found: Any, expected: NDArray[np.float64], dtype: str, terms: Any) -> None:
    """Sums of products whose absolute values add up to ``terms``, rounded once to ``dtype``."""
    last = np.abs(expected) * 2.0**-8 if dtype == "bfloat16" else 0
    difference = np.abs(np.asarray(found, np.float64) - expected)
    assert np.all(difference <= last + 1e-6 * terms), (difference - last).max()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_pass_is_a_sum_in_float32_of_products_of_the_dtype(dtype: str, bias: bool) -> None:
    layer = made(dtype, bias=bias)
    x = generator(2).standard_normal((6, 5, C), np.float32)
    diff_dst = generator(3).standard_normal((6, 5, K), np.float32)
    y = layer.forward(x)
    assert y.dtype == layer.context.dtype
    w, src, diff = (rounded(it, dtype) for it in (layer.weight.value, x, diff_dst))
    offset = 0 if layer.bias is None else layer.bias.value.astype(np.float64)
    within(y, src @ w.T + offset, dtype, np.abs(src) @ np.abs(w.T) + np.abs(offset))

    dx = layer.backward(diff_dst)
    within(dx, diff @ w, dtype, np.abs(diff) @ np.abs(w))
    assert (dx.shape, dx.dtype) == (x.shape, np.float32)
    rows, diff_rows = src.reshape(-1, C), diff.reshape(-1, K)
    found = layer.weight.gradient
    within(found, diff_rows.T @ rows, "float32", np.abs(diff_rows.T) @ np.abs(rows))
    if layer.bias is not None:
        within(layer.bias.gradient, diff_rows.sum(0), "float32", np.abs(diff_rows).sum(0))


@pytest.mark.parametrize("activation", NAMES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_through_activations(dtype: str, activation: str) -> None:
    layer = made(dtype, activation)
    x, diff_dst = (
        generator(seed).standard_normal((9, k), np.float32) for seed, k in ((2, C), (3, K))
    )
    layer.forward(x)
    layer.backward(diff_dst)
    assert layer.bias is not None
    values = {
        "weight": rounded(layer.weight.value, dtype),
        "bias": layer.bias.value.astype(np.float64),
    }
    src, diff = rounded(x, dtype), rounded(diff_dst, dtype)
    value = row_reference.ACTIVATIONS.get(activation)
    value = value or (lambda before: reference.activated(before, activation))

    def loss(moved: Any) -> float:
        before = src @ moved["weight"].T + moved["bias"]
        return float(np.sum(diff * value(before)))

    bound = 1e-5 if dtype == "float32" else 0.01
    for name, parameter in layer.own_parameters().items():
        gradient = parameter.gradient.astype(np.float64)
        for direction in (gradient, generator(4).standard_normal(gradient.shape)):
            expected = reference.derivative(loss, values, name, direction, 1e-6)
            scale = np.linalg.norm(gradient) * np.linalg.norm(direction)
            assert abs(np.sum(gradient * direction) - expected) <= bound * scale, name


@pytest.mark.parametrize("activation", ["leaky_relu", "elu", "selu", "softplus", "mish"])
def test_activations_behind_the_product(activation: str) -> None:
    layer = made("float32", activation)
    assert layer.bias is not None
    x = generator(2).standard_normal((3, C), np.float32)
    src, w, offset = (it.astype(np.float64) for it in (x, layer.weight.value, layer.bias.value))
    expected = row_reference.ACTIVATIONS[activation](src @ w.T + offset)
    terms = np.abs(src) @ np.abs(w.T) + np.abs(offset)
    for training in (False, True):
        within(layer.forward(x, training=training), expected, "float32", terms)
    assert layer.arguments()["activation"] == activation
    for wrong in ("prelu", ["mish"], np.ones(2)):
        with pytest.raises(
            ValueError, match=r"^activation is .*'swish', 'hardswish', 'leaky_relu'"
        ):
            nn.Linear(2, 3, activation=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", DTYPES)
def test_inference_follows_changes(dtype: str) -> None:
    layer = made(dtype, "gelu")
    x = generator(2).standard_normal((3, C), np.float32)
    y = layer.forward(x, training=False)
    np.testing.assert_array_equal(layer.forward(x, training=False), y)
    layer.weight.value *= 2
    other = nn.Linear(C, K, activation="gelu", bias=True)
    other.use(layer.context, "fc")
    other.load_state_dict(layer.state_dict())
    found = layer.forward(x[:2], training=False)
    assert not np.array_equal(found, y[:2])
    np.testing.assert_array_equal(found, other.forward(x[:2], training=False))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_no_rows_at_all(shape: tuple[int, ...]) -> None:
    layer = made("float32", "relu")
    y = layer.forward(np.empty((*shape, C), np.float32))
    assert y.shape == (*shape, K)
    assert layer.backward(y).shape == (*shape, C)
    assert not layer.weight.gradient.any()


def test_gradient_is_of_the_dtype_of_the_input() -> None:
    layer = made("bfloat16")
    x = dlprim.to_bfloat16(generator(2).standard_normal((4, C), np.float32))
    y = layer.forward(x)
    assert layer.backward(y).dtype == x.dtype


def test_dropout_drops_other_places_in_each_step_and_scales() -> None:
    layer = nn.Dropout(0.25, seed=3)
    x = np.ones((40, 50), np.float32)
    first = layer.forward(x)
    np.testing.assert_array_equal(layer.backward(x.copy()), first)
    assert set(np.unique(first)) == {0, np.float32(1 / 0.75)}
    assert layer.step == 1
    assert not np.array_equal(layer.forward(x), first)
    layer.step = 0
    np.testing.assert_array_equal(layer.forward(x), first)
    same = layer.forward(x, training=False)
    np.testing.assert_array_equal(same, x)
    assert not np.shares_memory(same, x)  # results are the caller's
    assert layer.step == 1


def test_dropout_of_what_a_model_makes_itself() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Dropout(0.5, seed=1)

        def forward(self, x: Any) -> Any:
            return x * self.drop(np.ones(50, np.float32))

    x = np.ones((3, 50), np.float32)
    y = Own()(x)
    assert set(np.unique(y)) == {0, 2}
    np.testing.assert_array_equal(y[0], y[1])


def test_each_step_drops_other_values_of_images() -> None:
    layers: dict[str, nn.Module] = {
        "conv": nn.Conv2d(3, 6, 3, padding=1, generator=generator()),
        "dropout": nn.Dropout(0.5, seed=1),
        "pool": nn.GlobalAvgPool2d(),
        "fc": nn.Linear(6, 2, generator=generator(1)),
    }
    model = nn.Sequential(layers)
    x = generator(2).standard_normal((2, 3, 5, 7), np.float32)
    losses, inferred = [], model.forward(x, training=False)
    for _ in range(3):
        loss, diff = dlprim.softmax_cross_entropy(model.forward(x), np.array([0, 1]))
        losses.append(loss)
        model.backward(diff)
        np.testing.assert_array_equal(model.forward(x, training=False), inferred)
    assert len(set(losses)) == 3
