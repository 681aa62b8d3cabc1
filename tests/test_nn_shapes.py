"""`dlprim.nn` on images of several sizes, and convolutions whose groups have their own blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dlprim
import nn_reference as reference
from dlprim import nn
from test_nn import check_gradients, generator, shaken, trained_once


def floats(array: Any) -> NDArray[np.float32]:
    return array if array.dtype == np.float32 else dlprim.to_float32(array)


def network(dtype: str) -> nn.Module:
    """With widths of ResNet-50 and statistics as if trained."""
    model = nn.resnet((1, 1, 1), 64, 5, generator(), nn.Context(dtype))
    random = generator(7)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.weight.value[...] = 0.7
            module.running_mean[...] = 0.3 * random.standard_normal(module.running_mean.shape)
            module.running_var[...] = 0.5 + random.random(module.running_var.shape)
    model.changed()
    return model


@pytest.mark.large
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_inference_of_any_size_and_number_is_that_of_a_new_model(dtype: str) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="it has the type of bfloat16 arrays")
    model = network(dtype)
    for n, side in ((5, 64), (1, 64), (3, 64), (2, 96), (9, 64), (4, 96), (5, 64)):
        x = generator(n).standard_normal((n, 3, side, side), np.float32)
        found = floats(model.forward(x, training=False))
        expected = floats(network(dtype).forward(x, training=False))
        np.testing.assert_array_equal(found, expected)


@pytest.mark.large
def test_inference_follows_the_choice_of_algorithm() -> None:
    model = network("float32")
    x = generator(1).standard_normal((5, 3, 64, 64), np.float32)
    expected = model.forward(x, training=False)
    for algorithm in ("direct", "auto"):
        model.use(nn.Context(algorithm=algorithm))
        np.testing.assert_allclose(model.forward(x, training=False), expected, atol=1e-3)


def in_groups(x: Any, w: Any, stride: int, padding: int) -> Any:
    """`reference.conv` of each group."""
    count = x.shape[1] // w.shape[1]
    parts = zip(np.split(x, count, 1), np.split(w, count), strict=True)
    return np.concatenate([reference.conv(*part, stride, padding) for part in parts], 1)


# C, K, groups: whole blocks, ragged ones, blocks smaller than a vector, depthwise, more of K
SHAPES = [(128, 64, 2), (244, 122, 2), (12, 18, 3), (24, 24, 24), (8, 16, 8), (66, 66, 33)]


@pytest.mark.parametrize(("c", "k", "groups"), SHAPES)
def test_gradients_of_grouped_convolutions(c: int, k: int, groups: int) -> None:
    """Between a convolution, normalisation and pooling that know no groups."""
    layers: dict[str, nn.Module] = {
        "a": nn.Conv2d(2, c, 1, bias=False, generator=generator(1)),
        "b": nn.ConvBatchNorm(
            nn.Conv2d(c, k, 3, padding=1, groups=groups, bias=True, generator=generator(2)),
            nn.BatchNorm2d(k, activation="relu"),
            ("conv", "bn"),
        ),
        "pool": nn.MaxPool2d(2, 2),
        "c": nn.Conv2d(k, 5, 1, bias=False, generator=generator(3)),
        "mean": nn.GlobalAvgPool2d(),
    }
    model = shaken(nn.Sequential(layers))
    x = generator(4).standard_normal((3, 2, 6, 4), np.float32)
    targets = np.array([0, 4, 2])

    def logits(values: Any) -> Any:
        y = reference.conv(x.astype(np.float64), values["a.weight"], 1, 0)
        y = in_groups(y, values["b.conv.weight"], 1, 1)
        y = reference.batch_norm(y, values, "b.bn")
        y = reference.max_pool(np.maximum(y, 0), 2, 2, 0)
        return reference.conv(y, values["c.weight"], 1, 0).mean((2, 3))

    values = {name: it.astype(np.float64) for name, it in model.state_dict().items()}
    np.testing.assert_allclose(model.forward(x), logits(values), rtol=1e-3, atol=1e-4)
    trained_once(model, x, targets)
    gone = layers["b"].children()["conv"].own_parameters()["bias"]
    assert np.abs(gone.gradient).max() < 1e-4  # normalisation takes a bias away
    trained = [it for it in model.parameters() if it is not gone]
    model.parameters = lambda: trained  # type: ignore[method-assign]
    check_gradients(model, targets, logits, 2e-3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_inference_of_grouped_convolutions(dtype: str) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="it has the type of bfloat16 arrays")
    for c, k, groups in SHAPES:
        conv = nn.Conv2d(c, k, 3, 1, 1, groups=groups, bias=False, generator=generator())
        block = nn.ConvBatchNorm(conv, nn.BatchNorm2d(k, activation="relu"), ("conv", "bn"))
        model = nn.Sequential({"block": block, "pool": nn.GlobalAvgPool2d()})
        model.use(nn.Context(dtype))
        x = generator(1).standard_normal((2, c, 6, 6), np.float32)
        y = in_groups(x.astype(np.float64), conv.weight.value.astype(np.float64), 1, 1)
        expected = np.maximum(y / np.sqrt(1 + 1e-5), 0).mean((2, 3))
        found = floats(model.forward(x, training=False))
        bound = 0.02 if dtype == "bfloat16" else 1e-4
        np.testing.assert_allclose(found, expected, rtol=bound, atol=1e-5)


def test_residual_of_one_convolution_is_refused() -> None:
    conv = nn.Conv2d(4, 4, 1)
    with pytest.raises(ValueError, match="main holds 1 convolutions, expected two or more"):
        nn.Residual([nn.ConvBatchNorm(conv, nn.BatchNorm2d(4), ("conv", "bn"))])


def test_gradients_of_a_residual_block_with_groups_inside() -> None:
    def block(c: int, k: int, groups: int, name: str) -> nn.ConvBatchNorm:
        conv = nn.Conv2d(c, k, 1, groups=groups, bias=False, generator=generator(k))
        norm = nn.BatchNorm2d(k, activation="relu")
        return nn.ConvBatchNorm(conv, norm, (f"conv{name}", f"bn{name}"))

    chain = [block(6, 12, 1, "1"), block(12, 12, 3, "2"), block(12, 6, 2, "3")]
    model = shaken(nn.Sequential({"sum": nn.Residual(chain), "pool": nn.GlobalAvgPool2d()}))
    x = generator(1).standard_normal((3, 6, 4, 4), np.float32)
    targets = np.array([0, 3, 5])
    trained_once(model, x, targets)

    def logits(values: Any) -> Any:
        y = exact = x.astype(np.float64)
        for name in "123":
            y = in_groups(y, values[f"sum.conv{name}.weight"], 1, 0)
            y = reference.batch_norm(y, values, f"sum.bn{name}")
            y = np.maximum(y if name < "3" else y + exact, 0)
        return y.mean((2, 3))

    check_gradients(model, targets, logits, 1e-3)
