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


def network(dtype: str, layout: str) -> nn.Module:
    """With widths of ResNet-50 and statistics as if trained."""
    model = nn.resnet((1, 1, 1), 64, 5, generator(), nn.Context(dtype, layout))
    random = generator(7)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.weight.value[...] = 0.7
            module.running_mean[...] = 0.3 * random.standard_normal(module.running_mean.shape)
            module.running_var[...] = 0.5 + random.random(module.running_var.shape)
    model.changed()
    return model


@pytest.mark.large
@pytest.mark.parametrize("layout", ["blocked", "NHWC"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_inference_of_any_size_and_number_is_that_of_a_new_model(dtype: str, layout: str) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="it has the type of bfloat16 arrays")
    model = network(dtype, layout)
    for n, side in ((5, 64), (1, 64), (3, 64), (2, 96), (9, 64), (4, 96), (5, 64)):
        x = generator(n).standard_normal((n, 3, side, side), np.float32)
        found = floats(model.forward(x, training=False))
        expected = floats(network(dtype, layout).forward(x, training=False))
        np.testing.assert_array_equal(found, expected)


@pytest.mark.large
def test_inference_follows_the_choice_of_algorithm() -> None:
    model = network("float32", "blocked")
    x = generator(1).standard_normal((5, 3, 64, 64), np.float32)
    expected = model.forward(x, training=False)
    for algorithm in ("direct", "auto"):
        model.context.algorithm = algorithm
        np.testing.assert_allclose(model.forward(x, training=False), expected, atol=1e-3)


def in_groups(x: Any, w: Any, stride: int, padding: int) -> Any:
    """`reference.conv` of each group."""
    count = x.shape[1] // w.shape[1]
    parts = zip(np.split(x, count, 1), np.split(w, count), strict=True)
    return np.concatenate([reference.conv(*part, stride, padding) for part in parts], 1)


# C, K, groups: whole blocks, ragged ones, blocks smaller than a vector, depthwise, more of K
SHAPES = [(128, 64, 2), (244, 122, 2), (12, 18, 3), (24, 24, 24), (8, 16, 8), (66, 66, 33)]


@pytest.mark.parametrize("layout", ["blocked", "NHWC"])
@pytest.mark.parametrize(("c", "k", "groups"), SHAPES)
def test_gradients_of_grouped_convolutions(c: int, k: int, groups: int, layout: str) -> None:
    """Between a convolution, normalisation and pooling that know no groups."""
    layers: dict[str, nn.Module] = {
        "pack": nn.Pack(),
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
    model.use(nn.Context(layout=layout))
    for _ in range(2):  # what the pool hands out is full of NaN
        model.context.buffers.give(
            *[poisoned(model.context.buffers.take((n,), np.float32)) for n in range(1, 40_000, 397)]
        )
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
    assert model.context.buffers.in_use == 0
    gone = layers["b"].children()["conv"].own_parameters()["bias"]
    assert np.abs(gone.gradient).max() < 1e-4  # normalisation takes a bias away
    trained = [it for it in model.parameters() if it is not gone]
    model.parameters = lambda: trained  # type: ignore[method-assign]
    check_gradients(model, targets, logits, 2e-3)


def poisoned(array: NDArray[np.float32]) -> NDArray[np.float32]:
    array[...] = np.nan
    return array


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_inference_of_grouped_convolutions_is_the_same_in_both_layouts(dtype: str) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="it has the type of bfloat16 arrays")
    for c, k, groups in SHAPES:
        results = []
        for layout in ("blocked", "NHWC"):
            conv = nn.Conv2d(c, k, 3, 1, 1, groups=groups, bias=False, generator=generator())
            block = nn.ConvBatchNorm(conv, nn.BatchNorm2d(k, activation="relu"), ("conv", "bn"))
            layers = {"pack": nn.Pack(), "block": block, "pool": nn.GlobalAvgPool2d()}
            model = nn.Sequential(layers)
            model.use(nn.Context(dtype, layout))
            x = generator(1).standard_normal((2, c, 6, 6), np.float32)
            results.append(floats(model.forward(x, training=False)))
            assert model.context.buffers.in_use == 0
        np.testing.assert_allclose(*results, rtol=0.02 if dtype == "bfloat16" else 1e-4, atol=1e-5)


def test_residual_of_groups_whose_blocks_differ_is_refused_by_name() -> None:
    def block(groups: int) -> nn.ConvBatchNorm:
        conv = nn.Conv2d(12, 12, 1, groups=groups, bias=False, generator=generator())
        names = (f"conv{groups}", f"bn{groups}")
        return nn.ConvBatchNorm(conv, nn.BatchNorm2d(12, activation="relu"), names)

    x = np.ones((1, 12, 2, 2), np.float32)
    for layout, fits in (("blocked", False), ("NHWC", True)):
        model = nn.Sequential({"pack": nn.Pack(), "sum": nn.Residual([block(1), block(2)])})
        model.use(nn.Context(layout=layout))
        if fits:
            assert model.forward(x).shape == x.shape
            continue
        for training in (True, False):
            with pytest.raises(ValueError, match="'sum' adds has blocks of 1 groups"):
                model.forward(x, training)


def test_residual_of_one_convolution_is_refused() -> None:
    conv = nn.Conv2d(4, 4, 1)
    with pytest.raises(ValueError, match="main holds 1 convolutions, expected two or more"):
        nn.Residual([nn.ConvBatchNorm(conv, nn.BatchNorm2d(4), ("conv", "bn"))])


def test_gradients_of_a_residual_block_with_groups_inside() -> None:
    def block(c: int, k: int, groups: int, name: str) -> nn.ConvBatchNorm:
        conv = nn.Conv2d(c, k, 1, groups=groups, bias=False, generator=generator(k))
        return nn.ConvBatchNorm(
            conv, nn.BatchNorm2d(k, activation="relu"), (f"conv{name}", f"bn{name}")
        )

    results = []
    for layout in ("blocked", "NHWC"):
        chain = [block(6, 12, 1, "1"), block(12, 12, 3, "2"), block(12, 6, 1, "3")]
        layers = {"pack": nn.Pack(), "sum": nn.Residual(chain), "pool": nn.GlobalAvgPool2d()}
        model = nn.Sequential(layers)
        model.use(nn.Context(layout=layout))
        x = generator(1).standard_normal((3, 6, 4, 4), np.float32)
        _, diff = trained_once(model, x, np.array([0, 3, 5]))
        results.append([diff, *(it.gradient for it in model.parameters())])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)
