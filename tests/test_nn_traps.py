"""What layers cannot follow is refused: fixed attributes, written arrays, other dtypes."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dlprim import nn

pytestmark = pytest.mark.any_level


def values(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


# ---------------------------------------------------------------- attributes

FIXED: list[tuple[Callable[[], Any], str, Any]] = [
    (lambda: nn.Conv2d(2, 2, 3), "stride", 2),
    (lambda: nn.Conv2d(2, 2, 3), "padding", 1),
    (lambda: nn.Conv2d(2, 2, 3), "dilation", 2),
    (lambda: nn.Conv2d(2, 2, 3), "groups", 2),
    (lambda: nn.Conv2d(2, 2, 3), "activation", "relu"),
    (lambda: nn.Conv2d(2, 2, 3), "first", True),
    (lambda: nn.BatchNorm2d(2), "activation", "relu"),
    (lambda: nn.Recurrent("lstm", 2, 2), "cell", "gru"),
    (lambda: nn.Recurrent("lstm", 2, 2), "K", 3),
    (lambda: nn.LSTM(2, 2), "layers", 2),
    (lambda: nn.GRU(2, 2), "bidirectional", True),
]


@pytest.mark.parametrize(("make", "name", "value"), FIXED)
def test_attributes_that_layers_are_made_with_are_fixed(
    make: Callable[[], Any], name: str, value: Any
) -> None:
    layer = make()
    before = getattr(layer, name)
    with pytest.raises(AttributeError, match=f"{name} of .* expected it to stay as it was"):
        setattr(layer, name, value)
    assert getattr(copy.deepcopy(layer), name) == before


def test_relu_of_batch_normalisation_has_another_name() -> None:
    norm = nn.BatchNorm2d(2)
    with pytest.raises(AttributeError):
        norm.relu = True  # type: ignore[misc]
    with pytest.raises(AttributeError, match="relu of BatchNorm2d is now activation"):
        _ = norm.relu


def test_activation_of_linear_is_followed_and_checked() -> None:
    layer, x = nn.Linear(3, 2), values(4, 3)
    plain = layer.forward(x, False)
    layer.activation = "relu"
    np.testing.assert_array_equal(layer.forward(x, False), np.maximum(plain, 0))
    layer.activation = "nonsense"
    with pytest.raises(ValueError, match="activation is 'nonsense'"):
        layer.forward(x, False)


def test_epsilon_is_followed_in_training_and_when_folded() -> None:
    block = nn.ConvBatchNorm(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2), ("c", "b"))
    model = nn.Sequential({"pack": nn.Pack(), "block": block, "flat": nn.Flatten()})
    x = values(2, 2, 4, 4)
    before = model.forward(x, False)
    trained = model.forward(x, True)
    block.norm.eps = 100.0
    assert np.abs(model.forward(x, False)).max() < 0.5 * np.abs(before).max()
    assert np.abs(model.forward(x, True)).max() < 0.5 * np.abs(trained).max()


# ---------------------------------------------------------------- contexts


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_recurrent_follows_another_context(cell: str, training: bool) -> None:
    pytest.importorskip("ml_dtypes", reason="it has the type of bfloat16 arrays")
    layer, x = nn.Recurrent(cell, 3, 4), values(3, 2, 3)
    layer.forward(x, training)
    layer.use(nn.Context("bfloat16"))
    assert layer.forward(x, training).dtype.name == "bfloat16"
    layer.use(nn.Context())
    assert layer.forward(x, training).dtype == np.float32


def test_backward_in_another_context_than_forward_is_refused() -> None:
    layer = nn.Linear(3, 2)
    layer.forward(values(4, 3), True)
    layer.use(nn.Context())
    with pytest.raises(RuntimeError, match="follows no training forward"):
        layer.backward(values(4, 2))


def test_carried_states_are_of_as_many_sequences() -> None:
    layer = nn.LSTM(3, 4)
    layer.carry = True
    layer.forward(values(3, 2, 3), False)
    with pytest.raises(
        ValueError, match=r"x has shape \(3, 4, 3\) and carry is True, expected 2 s"
    ):
        layer.forward(values(3, 4, 3), False)
    layer.states = []
    layer.forward(values(3, 4, 3), False)


# ---------------------------------------------------------------- arrays of the caller

READERS: dict[str, tuple[Callable[[], nn.Module], Any]] = {
    "Linear": (lambda: nn.Linear(3, 2), values(4, 3)),
    "ReLU": (nn.ReLU, values(4, 3)),
    "Recurrent": (lambda: nn.GRU(3, 2), values(2, 4, 3)),
    "Embedding": (lambda: nn.Embedding(9, 2), np.arange(8).reshape(2, 4)),
    "Flatten in front": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 2)), values(4, 3, 2)),
    "Sequential": (lambda: nn.Sequential({"fc": nn.Linear(3, 2)}), values(4, 3)),
}


@pytest.mark.parametrize("name", READERS)
def test_input_that_was_written_before_backward_is_refused(name: str) -> None:
    make, x = READERS[name]
    model, batch = make(), x.copy()
    y = model.forward(batch, True)
    batch[...] = batch[::-1].copy()
    dy = np.ones_like(y)
    with pytest.raises(RuntimeError, match=r"x of .* was written between its training forward and"):
        model.backward(dy)
    with pytest.raises(RuntimeError, match="follows no training forward"):
        model.backward(dy)
    model.forward(batch, True)
    batch_of_next = batch.copy()
    model.backward(dy)
    np.testing.assert_array_equal(batch, batch_of_next)


def test_input_that_backward_does_not_read_may_be_written() -> None:
    images = values(2, 3, 8, 8)
    model = nn.Sequential(nn.Pack(), nn.Conv2d(3, 2, 3), nn.Flatten())
    y = model.forward(images, True)
    images[...] = 0
    model.backward(np.ones_like(y))
    x = values(4, 3)
    drop = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 2))
    drop.forward(x, True)
    x[...] = 0
    drop.backward(values(4, 2))
    turned = values(3, 4).T  # which Linear copies
    layer = nn.Linear(3, 2)
    layer.forward(turned, True)
    turned[...] = 0
    layer.backward(values(4, 2))


RESULTS: dict[str, Callable[[], nn.Module]] = {
    "relu": lambda: nn.Linear(3, 2, activation="relu"),
    "sigmoid": lambda: nn.Linear(3, 2, activation="sigmoid"),
    "tanh": lambda: nn.Sequential(nn.Linear(3, 2, activation="tanh"), nn.Flatten()),
    "gru": lambda: nn.GRU(3, 2),
}


@pytest.mark.parametrize("name", RESULTS)
def test_result_that_backward_reads_and_was_written_is_refused(name: str) -> None:
    model = RESULTS[name]()
    x = values(2, 4, 3) if name == "gru" else values(4, 3)
    y = model.forward(x, True)
    y -= 1  # a loss in place
    with pytest.raises(RuntimeError, match=r"the result of .* was written .* `y -= target` not"):
        model.backward(y)
    y = model.forward(x, True)
    model.backward(y - 1)


def test_result_that_backward_does_not_read_may_be_written() -> None:
    gradients = []
    for in_place in (False, True):
        layer = nn.Linear(3, 2, generator=np.random.default_rng(1))
        y = layer.forward(values(4, 3), True)
        target = np.ones_like(y)
        layer.backward(np.subtract(y, target, out=y) if in_place else y - target)
        gradients.append(layer.weight.gradient)
    np.testing.assert_array_equal(*gradients)


@pytest.mark.parametrize("make", [lambda: nn.Dropout(0.5, seed=1), nn.ReLU])
def test_gradient_may_be_read_only(make: Callable[[], nn.Module]) -> None:
    x, one = values(2, 3), np.float32(1)
    dx = []
    for dy in (np.ones((2, 3), np.float32), np.broadcast_to(one, (2, 3))):
        layer = make()
        layer.forward(x, True)
        dx.append(layer.backward(dy))
    np.testing.assert_array_equal(*dx)
    assert one == 1


# ---------------------------------------------------------------- values


WITHOUT_WORK: dict[str, Callable[[], nn.Module]] = {
    "Dropout": nn.Dropout,
    "Flatten": nn.Flatten,
    "ReLU": nn.ReLU,
    "Linear": lambda: nn.Linear(3, 2),
    "Sequential": lambda: nn.Sequential({"a": nn.Dropout()}),
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", WITHOUT_WORK)
def test_other_dtypes_are_refused_by_every_layer(name: str, training: bool) -> None:
    for dtype in ("float64", ">f4", "complex64", "bool", "float16", "O", "U3"):
        with pytest.raises(TypeError, match=f"^x of {name} has dtype .*, expected float32 or"):
            WITHOUT_WORK[name]().forward(np.zeros((2, 3), dtype), training)
    with pytest.raises(TypeError, match="x is a masked array"):
        WITHOUT_WORK[name]().forward(np.ma.masked_array(values(2, 3)), training)


@pytest.mark.parametrize("training", [False, True])
def test_other_dtypes_are_refused_by_traced_layers(training: bool) -> None:
    for dtype in ("float64", ">f4", "complex64", "float16", "O", "U3"):
        with pytest.raises(TypeError, match=r"^x( of ReLU6)? has dtype .*, expected float"):
            nn.ReLU6().forward(np.zeros((2, 3), dtype), training=training)
    with pytest.raises(TypeError, match="x is a masked array"):
        nn.ReLU6().forward(np.ma.masked_array(values(2, 3)), training=training)


class Foreign:
    """An array of another library."""

    shape = (2, 3)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.ones((2, 3), np.float32)


def test_arrays_of_other_libraries_are_taken() -> None:
    for make in (*WITHOUT_WORK.values(), nn.ReLU6):
        assert type(make().forward(Foreign(), training=False)) is np.ndarray


def test_normalisation_trains_on_more_than_one_value() -> None:
    model = nn.Sequential({"pack": nn.Pack(), "bn": nn.BatchNorm2d(3), "flat": nn.Flatten()})
    before = model.state_dict()
    with pytest.raises(ValueError, match=r"x of BatchNorm2d 'bn' .* expected more than one value"):
        model.forward(values(1, 3, 1, 1), True)
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(array, before[name])
    model.forward(values(1, 3, 1, 1), False)
    model.forward(values(1, 3, 1, 2), True)
    model.forward(values(2, 3, 1, 1), True)


def test_state_of_the_models_own_arrays_may_change_places() -> None:
    model = nn.Sequential({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    state = model.state_dict()
    one, other = (it.weight.value for it in model.children().values())  # type: ignore[attr-defined]
    model.load_state_dict(state | {"a.weight": other, "b.weight": one[:]})
    np.testing.assert_array_equal(one, state["b.weight"])
    np.testing.assert_array_equal(other, state["a.weight"])
