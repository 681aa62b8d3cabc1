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
    (lambda: nn.GroupNorm(1, 2), "num_groups", 2),
    (lambda: nn.GroupNorm(1, 2), "num_channels", 4),
    (lambda: nn.InstanceNorm2d(2), "num_features", 4),
    (lambda: nn.PReLU(2), "init", 0.5),
]


@pytest.mark.parametrize(("make", "name", "value"), FIXED)
def test_attributes_that_layers_are_made_with_are_fixed(
    make: Callable[[], Any], name: str, value: Any
) -> None:
    layer = make()
    before = getattr(layer, name)
    with pytest.raises(AttributeError, match=f"{name} of .* expected it to stay as it was"):
        setattr(layer, name, value)
    with pytest.raises(AttributeError, match=f"{name} of .* is deleted, expected it to stay as it"):
        delattr(layer, name)
    assert getattr(copy.deepcopy(layer), name) == before


def test_the_slopes_of_prelu_say_how_many_they_are() -> None:
    layer = nn.PReLU(3)
    with pytest.raises(AttributeError, match="num_parameters"):
        layer.num_parameters = 1  # type: ignore[misc]
    layer.weight = nn.Parameter(np.ones(1))
    assert layer.num_parameters == layer.arguments()["num_parameters"] == 1


def test_padding_that_is_an_array_is_named() -> None:
    with pytest.raises(TypeError, match=r"^padding is an array of shape \(2,\), expected"):
        nn.Conv2d(3, 4, 3, padding=np.array([1, 1]))


def test_relu_of_batch_normalisation_has_another_name() -> None:
    norm = nn.BatchNorm2d(2)
    with pytest.raises(AttributeError):
        norm.relu = True  # type: ignore[misc]
    with pytest.raises(AttributeError, match="relu of BatchNorm2d is now activation"):
        _ = norm.relu


def test_activation_of_linear_is_followed_and_checked() -> None:
    layer, x = nn.Linear(3, 2), values(4, 3)
    plain = layer.forward(x, training=False)
    layer.activation = "relu"
    np.testing.assert_array_equal(layer.forward(x, training=False), np.maximum(plain, 0))
    layer.activation = "nonsense"
    with pytest.raises(ValueError, match="activation is 'nonsense'"):
        layer.forward(x, training=False)


def test_epsilon_is_followed_in_training_and_when_folded() -> None:
    block = nn.ConvBatchNorm(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2), ("c", "b"))
    model = nn.Sequential({"block": block, "flat": nn.Flatten()})
    x = values(2, 2, 4, 4)
    before = model.forward(x, training=False)
    trained = model.forward(x, training=True)
    block.norm.eps = 100.0
    assert np.abs(model.forward(x, training=False)).max() < 0.5 * np.abs(before).max()
    assert np.abs(model.forward(x, training=True)).max() < 0.5 * np.abs(trained).max()


# ---------------------------------------------------------------- contexts


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_recurrent_follows_another_context(cell: str, training: bool) -> None:
    pytest.importorskip("ml_dtypes", reason="it has the type of bfloat16 arrays")
    layer, x = nn.Recurrent(cell, 3, 4), values(3, 2, 3)
    layer.forward(x, training=training)
    layer.use(nn.Context("bfloat16"))
    assert layer.forward(x, training=training).dtype.name == "bfloat16"
    layer.use(nn.Context())
    assert layer.forward(x, training=training).dtype == np.float32


def test_backward_in_another_context_than_forward_is_refused() -> None:
    layer = nn.Linear(3, 2)
    layer.forward(values(4, 3), training=True)
    layer.use(nn.Context())
    with pytest.raises(RuntimeError, match="follows no training forward"):
        layer.backward(values(4, 2))


def test_carried_states_are_of_as_many_sequences() -> None:
    layer = nn.LSTM(3, 4)
    layer.carry = True
    layer.forward(values(3, 2, 3), training=False)
    with pytest.raises(
        ValueError, match=r"^x of LSTM has 4 sequences and carry is True, expected 2 as"
    ):
        layer.forward(values(3, 4, 3), training=False)
    layer.states = []
    layer.forward(values(3, 4, 3), training=False)


# ---------------------------------------------------------------- arrays of the caller

READERS: dict[str, tuple[Callable[[], nn.Module], Any]] = {
    "Linear": (lambda: nn.Linear(3, 2), values(4, 3)),
    "GELU": (nn.GELU, values(4, 3)),
    "Conv2d": (lambda: nn.Conv2d(3, 2, 3), values(2, 3, 8, 8)),
    "Recurrent": (lambda: nn.GRU(3, 2), values(2, 4, 3)),
    "Flatten in front": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 2)), values(4, 3, 2)),
    "Sequential": (lambda: nn.Sequential({"fc": nn.Linear(3, 2)}), values(4, 3)),
}


@pytest.mark.parametrize("name", READERS)
def test_input_that_was_written_before_backward_is_refused(name: str) -> None:
    make, x = READERS[name]
    model, batch = make(), x.copy()
    y = model.forward(batch, training=True)
    batch[...] = batch[::-1].copy()
    dy = np.ones_like(y)
    with pytest.raises(RuntimeError, match=r"x of .* was written between its training forward and"):
        model.backward(dy)
    with pytest.raises(RuntimeError, match="follows no training forward"):
        model.backward(dy)
    model.forward(batch, training=True)
    batch_of_next = batch.copy()
    model.backward(dy)
    np.testing.assert_array_equal(batch, batch_of_next)


NO_READERS: dict[str, tuple[Callable[[], nn.Module], Any]] = {
    "ReLU": (nn.ReLU, values(4, 3)),
    "Embedding": (lambda: nn.Embedding(9, 2), np.arange(8).reshape(2, 4)),
    "Dropout in front": (lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 2)), values(4, 3)),
    "copied": (lambda: nn.Linear(3, 2), values(3, 4).T),
}


@pytest.mark.parametrize("name", NO_READERS)
def test_input_that_backward_does_not_read_may_be_written(name: str) -> None:
    make, x = NO_READERS[name]
    found = []
    for is_written in (False, True):
        nn.seed(0)
        model, batch = make(), x.copy(order="K")
        y = model.forward(batch, training=True)
        if is_written:
            batch[...] = batch[::-1].copy()
        dx = model.backward(np.ones_like(y))
        found.append([dx, *(it.gradient for it in model.parameters())])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


RESULTS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(3, 2),
    "relu": lambda: nn.Linear(3, 2, activation="relu"),
    "sigmoid": lambda: nn.Linear(3, 2, activation="sigmoid"),
    "tanh": lambda: nn.Sequential(nn.Linear(3, 2, activation="tanh"), nn.Flatten()),
    "gru": lambda: nn.GRU(3, 2),
    "identity": lambda: nn.Sequential(nn.Linear(3, 2), nn.Identity()),
    "softmax": nn.Softmax,
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_may_be_written_before_backward(name: str) -> None:
    x = values(2, 4, 3) if name == "gru" else values(4, 3)
    found = []
    for in_place in (False, True):
        nn.seed(0)
        model = RESULTS[name]()
        y = model.forward(x, training=True)
        target = np.ones_like(y)
        dx = model.backward(np.subtract(y, target, out=y) if in_place else y - target)
        found.append([dx, *(it.gradient for it in model.parameters())])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("make", [lambda: nn.Dropout(0.5, seed=1), nn.ReLU])
def test_gradient_may_be_read_only(make: Callable[[], nn.Module]) -> None:
    x, one = values(2, 3), np.float32(1)
    dx = []
    for dy in (np.ones((2, 3), np.float32), np.broadcast_to(one, (2, 3))):
        layer = make()
        layer.forward(x, training=True)
        dx.append(layer.backward(dy))
    np.testing.assert_array_equal(*dx)
    assert one == 1


# ---------------------------------------------------------------- values


WITHOUT_WORK: dict[str, Callable[[], nn.Module]] = {
    "Dropout": nn.Dropout,
    "ReLU6": nn.ReLU6,
    "Flatten": nn.Flatten,
    "ReLU": nn.ReLU,
    "Linear": lambda: nn.Linear(3, 2),
    "Sequential": lambda: nn.Sequential({"a": nn.Dropout()}),
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", WITHOUT_WORK)
def test_other_dtypes_are_refused_by_every_layer(name: str, training: bool) -> None:
    for dtype in ("float64", ">f4", "complex64", "float16", "O", "U3"):
        with pytest.raises(TypeError, match=f"^x of {name} has dtype .*, expected float"):
            WITHOUT_WORK[name]().forward(np.zeros((2, 3), dtype), training=training)
    with pytest.raises(TypeError, match="x is a masked array"):
        WITHOUT_WORK[name]().forward(np.ma.masked_array(values(2, 3)), training=training)


@pytest.mark.parametrize(
    "make", [nn.ReLU, nn.Dropout, lambda: nn.Linear(3, 2), lambda: nn.GRU(3, 2)]
)
def test_integers_are_refused_where_floats_are_due(make: Callable[[], nn.Module]) -> None:
    for dtype in ("bool", "int8", "int64", "uint16"):
        with pytest.raises(TypeError, match=rf"x has dtype {dtype}, expected float32 or bfloat16"):
            make()(np.zeros((1, 2, 3), dtype))


class Foreign:
    """An array of another library."""

    shape = (2, 3)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.ones((2, 3), np.float32)


def test_arrays_of_other_libraries_are_taken() -> None:
    for make in WITHOUT_WORK.values():
        assert type(make().forward(Foreign(), training=False)) is np.ndarray


def test_normalisation_trains_on_more_than_one_value() -> None:
    model = nn.Sequential({"bn": nn.BatchNorm2d(3), "flat": nn.Flatten()})
    before = model.state_dict()
    with pytest.raises(ValueError, match=r"x of BatchNorm2d 'bn' .* expected more than one value"):
        model.forward(values(1, 3, 1, 1), training=True)
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(array, before[name])
    model.forward(values(1, 3, 1, 1), training=False)
    model.forward(values(1, 3, 1, 2), training=True)
    model.forward(values(2, 3, 1, 1), training=True)


def test_state_of_the_models_own_arrays_may_change_places() -> None:
    model = nn.Sequential({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    state = model.state_dict()
    one, other = (it.weight.value for it in model.children().values())  # type: ignore[attr-defined]
    model.load_state_dict(state | {"a.weight": other, "b.weight": one[:]})
    np.testing.assert_array_equal(one, state["b.weight"])
    np.testing.assert_array_equal(other, state["a.weight"])
