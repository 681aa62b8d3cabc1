"""`dlprim.nn`: gradients in bfloat16 and through dropout against float64, and bits by threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlprim
import nn_reference as reference
from dlprim import nn
from dlprim.train.models import LanguageModel, cnn
from test_nn import check_gradients, generator, shaken, trained_once

# Each layer rounds its result to 8 bits, and so its gradient.
BOUND = {"float32": 1e-5, "bfloat16": 0.01}
# Normalisation and relu after each of four layers: a value near zero passes in one precision only.
THROUGH_NORMALISATION = {"float32": 1e-3, "bfloat16": 0.08}
TARGETS = np.array([0, 4, 2, 1, 3, 3, 2, 0])


def logits_of_cnn(x: Any, values: Any, widths: int) -> Any:
    for stage in range(widths):
        for place in range(2):
            stride, name = 2 if stage > 0 and place == 0 else 1, f"{stage}.{place}"
            x = reference.conv(x, values[f"stage{name}.conv{name}.weight"], stride, 1)
            x = np.maximum(reference.batch_norm(x, values, f"stage{name}.bn{name}"), 0)
    return x.mean((2, 3)) @ values["fc.weight"].T + values["fc.bias"]


@pytest.mark.parametrize("dtype", BOUND)
def test_gradients_of_a_convolutional_network(dtype: str) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="it has the type of bfloat16 arrays")
    model = shaken(cnn(3, (16, 40), 5, generator()))
    model.use(nn.Context(dtype))
    x = generator(1).standard_normal((8, 3, 12, 10), np.float32)
    trained_once(model, x, TARGETS)
    exact = x.astype(np.float64)
    check_gradients(
        model, TARGETS, lambda values: logits_of_cnn(exact, values, 2), THROUGH_NORMALISATION[dtype]
    )


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_gradients_of_a_language_model_in_bfloat16(cell: str) -> None:
    pytest.importorskip("ml_dtypes", reason="it has the type of bfloat16 arrays")
    model = shaken(LanguageModel(cell, 11, 33, 2, generator(), embedded=8))
    model.use(nn.Context("bfloat16"))
    x = generator(1).integers(0, 11, (6, 3))
    targets = generator(2).integers(0, 11, 18)
    trained_once(model, x, targets)
    bound = BOUND["bfloat16"]
    check_gradients(
        model, targets, lambda values: reference.language_model(x, values, cell, 2), bound
    )


@pytest.mark.parametrize("dtype", BOUND)
def test_gradients_through_dropout_whose_mask_is_known(dtype: str) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="it has the type of bfloat16 arrays")
    layers: dict[str, nn.Module] = {
        "conv": nn.Conv2d(3, 6, 3, padding=1, bias=False, generator=generator(1)),
        "images": nn.Dropout(0.3, seed=7),
        "mean": nn.GlobalAvgPool2d(),
        "a": nn.Linear(6, 20, activation="gelu", generator=generator(2)),
        "rows": nn.Dropout(0.2, seed=9),
        "b": nn.Linear(20, 5, generator=generator(3)),
    }
    model = nn.Sequential(layers)
    model.use(nn.Context(dtype))
    x = generator(4).standard_normal((8, 3, 5, 4), np.float32)
    for _ in range(3):  # each step has a mask of its own
        trained_once(model, x, TARGETS)
    of_images, of_rows = (
        dlprim.dropout(np.ones(shape, np.float32), p, seed=seed, offset=2).astype(np.float64)
        for shape, p, seed in (((8, 6, 5, 4), 0.3, 7), ((8, 20), 0.2, 9))
    )
    assert {*of_images.ravel()} == {0, np.float64(np.float32(1 / 0.7))}

    def logits(values: Any) -> Any:
        y = reference.conv(x.astype(np.float64), values["conv.weight"], 1, 1) * of_images
        y = y.mean((2, 3)) @ values["a.weight"].T + values["a.bias"]
        y = reference.activated(y, "gelu") * of_rows
        return y @ values["b.weight"].T + values["b.bias"]

    check_gradients(model, TARGETS, logits, BOUND[dtype])


@pytest.mark.parametrize("dtype", BOUND)
def test_gradients_through_relu_mean_of_windows_and_flatten(dtype: str) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="it has the type of bfloat16 arrays")
    layers: dict[str, nn.Module] = {
        "conv": nn.Conv2d(4, 6, 3, padding=1, groups=2, bias=False, generator=generator(1)),
        "relu": nn.ReLU(),
        "pool": nn.AvgPool2d(2),
        "flat": nn.Flatten(),
        "a": nn.Linear(36, 20, generator=generator(2)),
        "plain": nn.ReLU(),
        "again": nn.Flatten(),
        "b": nn.Linear(20, 5, generator=generator(3)),
    }
    model = shaken(nn.Sequential(layers))
    model.use(nn.Context(dtype))
    x = generator(4).standard_normal((8, 4, 6, 4), np.float32)
    _, diff = trained_once(model, x, TARGETS)
    assert diff.shape == x.shape

    def logits(values: Any) -> Any:
        halves = zip(
            np.split(x.astype(np.float64), 2, 1), np.split(values["conv.weight"], 2), strict=True
        )
        y = np.concatenate([reference.conv(*half, 1, 1) for half in halves], 1)
        y = np.maximum(y, 0).reshape(8, 6, 3, 2, 2, 2).mean((3, 5)).reshape(8, -1)
        y = np.maximum(y @ values["a.weight"].T + values["a.bias"], 0)
        return y @ values["b.weight"].T + values["b.bias"]

    check_gradients(model, TARGETS, logits, BOUND[dtype])
    values = {name: it.astype(np.float64) for name, it in model.state_dict().items()}
    found = model.forward(x, training=False)
    found = found if dtype == "float32" else dlprim.to_float32(found)
    bound = 1e-5 if dtype == "float32" else 0.05
    np.testing.assert_allclose(found, logits(values), rtol=bound, atol=bound)


@pytest.mark.parametrize("name", ["resnet", "cnn", "gru"])
def test_threads_do_not_change_a_bit_in_bfloat16(name: str) -> None:
    pytest.importorskip("ml_dtypes", reason="it has the type of bfloat16 arrays")
    found = []
    for threads in (1, 2):
        context = nn.Context("bfloat16")
        model: nn.Module
        x: Any = generator(5).standard_normal((8, 3, 32, 32), np.float32)
        if name == "resnet":
            model = nn.resnet((1, 1), 8, 5, generator(), context)
        elif name == "cnn":
            model = cnn(3, (8, 24), 5, generator())
        else:
            model = LanguageModel("gru", 5, 16, 2, generator(), embedded=4)
            x = generator(5).integers(0, 5, (2, 4))
        model.use(context)
        with dlprim.threads(threads):
            loss, _ = trained_once(model, x, TARGETS)
            result = dlprim.to_float32(model.forward(x, training=False))
        found.append([loss, result, *(it.gradient for it in model.parameters())])
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)


def test_integers_have_no_gradient() -> None:
    model = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 2))
    y = model(np.array([[1, 2, 1], [0, 6, 1]]))
    assert model.backward(np.ones_like(y)) is None
    (table, weight, _) = model.parameters()
    expected = np.array([1, 3, 1, 0, 0, 0, 1])[:, None] * weight.value.sum(0)
    np.testing.assert_allclose(table.gradient, expected, rtol=1e-5, atol=1e-6)
