"""`dlprim.nn`: gradients of whole networks against float64, names and states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dlprim
import nn_reference as reference
from dlprim import nn
from dlprim.train.models import LanguageModel, cnn, mlp


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def shaken(model: nn.Module) -> nn.Module:
    """With parameters of which none is zero or one, so that nothing hides."""
    random = generator(9)
    for parameter in model.parameters():
        parameter.value += 0.1 * random.standard_normal(parameter.value.shape, np.float32)
    model.changed()
    return model


def trained_once(
    model: nn.Module, x: Any, targets: NDArray[np.int64], ready: Any = None
) -> tuple[float, Any]:
    loss, diff = dlprim.softmax_cross_entropy(model.forward(x), targets)
    return loss, model.backward(diff, ready)


def check_gradients(
    model: nn.Module, targets: NDArray[np.int64], logits: Callable[[Any], Any], bound: float
) -> None:
    """Against derivatives in float64 along the gradient itself and along a random direction."""
    values = {
        name: array.astype(np.float64)
        for name, array in model.state_dict().items()
        if array.dtype == np.float32
    }

    def loss(moved: Any) -> float:
        return reference.cross_entropy(logits(moved), targets)

    random = generator(3)
    for parameter in model.parameters():
        gradient = parameter.gradient.astype(np.float64)
        norm = np.linalg.norm(gradient)
        assert norm > 0, parameter.name
        for direction in (gradient / norm, random.standard_normal(gradient.shape)):
            expected = reference.derivative(loss, values, parameter.name, direction, 1e-6)
            found = float(np.sum(gradient * direction))
            scale = norm * np.linalg.norm(direction)
            assert abs(found - expected) <= bound * scale, parameter.name


@pytest.mark.parametrize("width", [4, 16])
def test_gradients_of_a_residual_network(width: int) -> None:
    blocks = (2, 1)
    model = shaken(nn.resnet(blocks, width, 5, generator()))
    x = generator(1).standard_normal((3, 3, 24, 20), np.float32)
    targets = np.array([0, 4, 2])
    values = {name: it.astype(np.float64) for name, it in model.state_dict().items()}
    logits = model.forward(x)
    np.testing.assert_allclose(
        logits, reference.resnet(x.astype(np.float64), values, blocks), rtol=1e-4, atol=1e-4
    )
    trained_once(model, x, targets)
    exact = x.astype(np.float64)
    check_gradients(model, targets, lambda moved: reference.resnet(exact, moved, blocks), 1e-3)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_gradients_of_a_language_model(cell: str) -> None:
    model = LanguageModel(cell, 11, 17, 2, generator(), embedded=5)
    model.use(nn.Context())
    x = generator(1).integers(0, 11, (6, 3))
    targets = generator(2).integers(0, 11, 18)
    assert trained_once(model, x, targets)[1] is None
    check_gradients(model, targets, lambda moved: reference.language_model(x, moved, cell, 2), 1e-4)


def test_gradients_of_a_perceptron_and_of_its_input() -> None:
    model = shaken(mlp((5, 17, 3), generator()))
    model.use(nn.Context())
    x = generator(1).standard_normal((7, 5), np.float32)
    targets = generator(2).integers(0, 3, 7)
    diff = trained_once(model, x, targets)[1]

    def logits(values: Any, src: Any = x) -> Any:
        hidden = np.maximum(src @ values["0.weight"].T + values["0.bias"], 0)
        return hidden @ values["1.weight"].T + values["1.bias"]

    check_gradients(model, targets, logits, 1e-4)
    values = {name: it.astype(np.float64) for name, it in model.state_dict().items()}

    def of_input(moved: Any) -> float:
        return reference.cross_entropy(logits(values, moved["x"]), targets)

    direction = generator(4).standard_normal(x.shape)
    expected = reference.derivative(of_input, {"x": x.astype(np.float64)}, "x", direction, 1e-6)
    assert float(np.sum(diff * direction)) == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_gradients_of_a_convolution_with_bias_and_of_its_input() -> None:
    layers: dict[str, nn.Module] = {
        "conv": nn.Conv2d(3, 6, 3, padding=1, bias=True, generator=generator()),
        "pool": nn.GlobalAvgPool2d(),
    }
    model = shaken(nn.Sequential(layers))
    model.use(nn.Context())
    x = generator(1).standard_normal((2, 3, 5, 7), np.float32)
    targets = np.array([1, 5])
    diff = trained_once(model, x, targets)[1]
    assert diff.shape == x.shape

    def logits(values: Any) -> Any:
        y = reference.conv(values.get("x", x), values["conv.weight"], 1, 1)
        return (y + values["conv.bias"].reshape(1, -1, 1, 1)).mean((2, 3))

    check_gradients(model, targets, logits, 1e-4)
    values = {name: it.astype(np.float64) for name, it in model.state_dict().items()}
    values["x"] = x.astype(np.float64)
    direction = generator(4).standard_normal(x.shape)
    expected = reference.derivative(
        lambda moved: reference.cross_entropy(logits(moved), targets), values, "x", direction, 1e-6
    )
    assert float(np.sum(diff * direction)) == pytest.approx(expected, rel=1e-4, abs=1e-6)


def networks() -> dict[str, tuple[nn.Module, Any, NDArray[np.int64]]]:
    """Small ones of every kind, with a batch."""
    language = LanguageModel("lstm", 9, 16, 1, generator(), embedded=4)
    language.use(nn.Context())
    small = cnn(1, (8, 24), 4, generator())
    small.use(nn.Context())
    random = generator(5)
    images = random.standard_normal((4, 3, 32, 32), np.float32)
    return {
        "resnet": (nn.resnet((1, 1), 8, 4, generator()), images, np.arange(4)),
        "cnn": (small, images[:, :1], np.arange(4)),
        "lstm": (language, random.integers(0, 9, (5, 3)), random.integers(0, 9, 15)),
    }


@pytest.mark.parametrize("name", ["resnet", "cnn", "lstm"])
def test_threads_do_not_change_a_bit(name: str) -> None:
    found = []
    for threads in (1, 2):
        model, x, targets = networks()[name]
        with dlprim.threads(threads):
            loss, _ = trained_once(model, x, targets)
            result = model.forward(x, training=False)
        found.append((loss, result, [it.gradient for it in model.parameters()]))
    assert found[0][0] == found[1][0]
    np.testing.assert_array_equal(found[0][1], found[1][1])
    for one, two in zip(found[0][2], found[1][2], strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("name", ["resnet", "cnn", "lstm"])
def test_gradients_become_ready_once_and_last_layers_first(name: str) -> None:
    model, x, targets = networks()[name]
    seen: list[str] = []
    kept: dict[str, NDArray[np.float32]] = {}

    def ready(parameter: nn.Parameter) -> None:
        seen.append(parameter.name)
        kept[parameter.name] = parameter.gradient.copy()

    trained_once(model, x, targets, ready)
    names = [it.name for it in model.parameters()]
    assert sorted(seen) == sorted(names)
    assert names.index(seen[0]) > names.index(seen[-1])
    for parameter in model.parameters():  # final means final
        np.testing.assert_array_equal(parameter.gradient, kept[parameter.name])


def test_another_minibatch_size_works_in_between() -> None:
    model, x, targets = networks()["resnet"]
    loss, _ = trained_once(model, x, targets)
    trained_once(model, x[:1], targets[:1])
    model.forward(x[:3], training=False)
    assert trained_once(model, x, targets)[0] == loss


def test_inference_of_another_size_of_images() -> None:
    model, x, _ = networks()["resnet"]
    small = np.ascontiguousarray(x[:, :, :16, :16])
    expected = model.forward(small, training=False)
    model.changed()
    model.forward(x, training=False)
    np.testing.assert_array_equal(model.forward(small, training=False), expected)


def test_inference_follows_changed_parameters_and_statistics() -> None:
    model, x, targets = networks()["resnet"]
    before = model.forward(x, training=False)
    trained_once(model, x, targets)  # changes running statistics only
    after = model.forward(x, training=False)
    assert not np.array_equal(before, after)
    for parameter in model.parameters():
        parameter.value *= np.float32(0.9)
    model.changed()
    assert not np.array_equal(model.forward(x, training=False), after)


def test_inference_follows_statistics_of_forward_passes_alone() -> None:
    model, x, _ = networks()["resnet"]
    model.forward(x, training=False)
    model.forward(x)  # no backward pass, as one measures statistics again
    other = nn.resnet((1, 1), 8, 4)
    other.load_state_dict(model.state_dict())
    np.testing.assert_array_equal(
        model.forward(x, training=False), other.forward(x, training=False)
    )


def test_bfloat16_is_near_float32() -> None:
    pytest.importorskip("ml_dtypes", reason="it has the type of bfloat16 arrays")
    x = generator(1).standard_normal((4, 3, 32, 32), np.float32)
    results = []
    for dtype in ("float32", "bfloat16"):
        model = nn.resnet((1, 1), 8, 4, generator(), nn.Context(dtype))
        loss, _ = trained_once(model, x, np.arange(4))
        gradients = np.concatenate([it.gradient.ravel() for it in model.parameters()])
        results.append((loss, gradients))
        assert all(it.value.dtype == np.float32 for it in model.parameters())
    assert results[0][0] == pytest.approx(results[1][0], rel=0.03)
    difference = np.linalg.norm(results[0][1] - results[1][1])
    assert difference < 0.2 * np.linalg.norm(results[0][1])


def test_state_dict_goes_to_another_model_and_refuses_by_name() -> None:
    model, x, targets = networks()["resnet"]
    trained_once(model, x, targets)
    state = model.state_dict()
    other = nn.resnet((1, 1), 8, 4)
    other.load_state_dict(state)
    np.testing.assert_array_equal(
        other.forward(x, training=False), model.forward(x, training=False)
    )
    with pytest.raises(KeyError, match=r"bn1\.bias is missing"):
        other.load_state_dict({name: it for name, it in state.items() if name != "bn1.bias"})
    with pytest.raises(KeyError, match="nothing is unknown"):
        other.load_state_dict(state | {"nothing": np.zeros(1)})
    with pytest.raises(ValueError, match=r"fc\.bias has shape \(3,\), expected \(4,\)"):
        other.load_state_dict(state | {"fc.bias": np.zeros(3)})


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_inference_of_a_batch_is_inference_of_each_image(dtype: str) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="it has the type of bfloat16 arrays")
    model = shaken(nn.resnet((2, 1, 1), 8, 4, generator(), nn.Context(dtype)))
    x = generator(1).standard_normal((7, 3, 32, 32), np.float32)
    y = model.forward(x, training=False).astype(np.float32)
    np.testing.assert_array_equal(model.forward(x, training=False).astype(np.float32), y)
    alone = [model.forward(x[n : n + 1], training=False)[0].astype(np.float32) for n in range(7)]
    np.testing.assert_allclose(y, alone, rtol=1e-4 if dtype == "float32" else 0.05, atol=0.02)
