"""Modules of one's own: what they hold is found, once, or refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dlprim import nn
from dlprim.optim import SGD

pytestmark = pytest.mark.any_level


class Holder(nn.Module):
    """Has what it is given as attributes."""

    def __init__(self, **named: Any) -> None:
        super().__init__()
        for name, it in named.items():
            setattr(self, name, it)

    def forward(self, x: Any) -> Any:
        return x


def linear() -> nn.Linear:
    return nn.Linear(2, 2)


def block(*names: str) -> nn.ConvBatchNorm:
    return nn.ConvBatchNorm(nn.Conv2d(4, 4, 1, bias=False), nn.BatchNorm2d(4), names)  # type: ignore[arg-type]


# ---------------------------------------------------------------- subclasses of layers

LAYERS: dict[str, tuple[type[Any], tuple[Any, ...]]] = {
    "Linear": (nn.Linear, (2, 2)),
    "Conv2d": (nn.Conv2d, (2, 2, 1)),
    "BatchNorm2d": (nn.BatchNorm2d, (2,)),
    "Embedding": (nn.Embedding, (2, 2)),
    "Recurrent": (nn.Recurrent, ("lstm", 2, 2)),
    "Sequential": (nn.Sequential, ({"a": nn.Linear(2, 2)},)),
    "ConvBatchNorm": (nn.ConvBatchNorm, (nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2), ("c", "b"))),
    "Residual": (nn.Residual, ([block("c1", "b1"), block("c2", "b2")],)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_subclasses_may_add_parameters_and_modules(name: str) -> None:
    kind, arguments = LAYERS[name]

    class Own(kind):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(*arguments)
            self.extra = nn.Parameter(np.ones(2))
            self.inner = nn.Linear(2, 3)
            self.alias = next(iter(super().children().values()), None)

        def forward(self, x: Any) -> Any:
            return super().forward(x)

        def children(self) -> Any:
            found = super().children()
            if name not in ("Sequential", "ConvBatchNorm", "Residual"):
                found.pop("alias", None)
            return found

    model = Own()
    model.use(nn.Context())
    state = model.state_dict()
    assert {"extra", "inner.weight", "inner.bias"} < set(state)
    assert any(it is model.extra for it in model.parameters())
    assert not any(it.startswith("alias") for it in state)
    names = [it.name for it in model.parameters()]
    assert len(set(names)) == len(names)


def test_sequential_whose_forward_skips_a_layer_is_refused() -> None:
    class Net(nn.Sequential):
        def __init__(self) -> None:
            super().__init__({"a": linear()})
            self.head = linear()

    with pytest.raises(TypeError, match=r"Net has head beside the layers .* does not run"):
        Net().parameters()

    class Named(Net):
        def __init__(self) -> None:
            super().__init__()
            self.a = self.head

        def forward(self, x: Any) -> Any:
            return self.head(super().forward(x))

    with pytest.raises(ValueError, match="two layers of Named are called 'a'"):
        Named().parameters()


def test_references_to_layers_inside_of_layers_are_no_layers_beside() -> None:
    class Net(nn.Sequential):
        def __init__(self) -> None:
            super().__init__({"body": nn.Sequential({"stem": linear()}), "fc": linear()})
            body = self.children()["body"]
            self.stem, self.ends = body.children()["stem"], [self.children()["fc"]]

    model = Net()
    assert list(model.children()) == ["body", "fc"]
    assert len(model.parameters()) == 4


def test_modules_that_skip_the_constructor_of_module_have_a_state() -> None:
    class Bare(Holder):
        def __init__(self) -> None:
            self.weight = nn.Parameter(np.ones(2))

    model = Bare()
    assert list(model.state_dict()) == ["weight"]
    model.use(nn.Context())
    assert model.weight.name == "weight"


# ---------------------------------------------------------------- where layers are found


def test_nested_lists_and_named_tuples_are_searched() -> None:
    model = Holder(blocks=[[linear()], {"x": (linear(),)}], scale=[[nn.Parameter(np.ones(2))]])
    model.use(nn.Context())
    assert [it.name for it in model.parameters()] == [
        "scale.0.0",
        "blocks.0.0.weight",
        "blocks.0.0.bias",
        "blocks.1.x.0.weight",
        "blocks.1.x.0.bias",
    ]
    with pytest.raises(TypeError, match="layers is a set that holds a Linear, expected a list"):
        Holder(layers={linear()}).parameters()
    with pytest.raises(ValueError, match=r"two entries of by are called 'by\.1'"):
        Holder(by={1: linear(), "1": linear()}).parameters()


def test_layers_of_a_class_are_refused() -> None:
    with pytest.raises(TypeError, match=r"w of Bad is a Parameter of the class.*self\.w = "):

        class Bad(Holder):
            w = nn.Parameter(np.ones(2))

    with pytest.raises(TypeError, match="fc of Worse is a Linear of the class"):

        class Worse(nn.Sequential):
            fc = linear()


# ---------------------------------------------------------------- one place for each


def twice() -> nn.Module:
    layer = linear()
    return Holder(a=layer, b=layer)


def cyclic() -> nn.Module:
    child = Holder()
    model = Holder(child=child)
    child.parent = model  # type: ignore[attr-defined]
    return model


def tied() -> nn.Module:
    one, other = linear(), linear()
    other.weight = one.weight
    return Holder(one=one, other=other)


@pytest.mark.parametrize("make", [twice, cyclic, tied])
def test_what_is_in_two_places_is_refused(make: Callable[[], nn.Module]) -> None:
    with pytest.raises(ValueError, match="in two places of the model"):
        make().parameters()
    if make is not tied:
        with pytest.raises(ValueError, match="in two places of the model"):
            make().use(nn.Context())
        with pytest.raises(ValueError, match="in two places of the model"):
            make().eval()


def test_layers_of_another_module_are_not_renamed() -> None:
    layer = linear()
    model = nn.Sequential({"a": layer})
    with pytest.raises(ValueError, match="fc of Holder is Linear 'a' of another Sequential"):
        Holder(fc=layer).use(nn.Context())
    assert list(model.state_dict()) == ["a.weight", "a.bias"]
    own = Holder(fc=linear())
    own.use(nn.Context())
    own.use(nn.Context("bfloat16"))  # again
    with pytest.raises(ValueError, match="expected a layer that is in no other"):
        nn.Sequential({"x": own.fc})  # type: ignore[attr-defined]


# ---------------------------------------------------------------- names


@pytest.mark.parametrize("name", [0, None, 1.5, b"a"])
def test_names_of_layers_are_strings(name: Any) -> None:
    with pytest.raises(TypeError, match=r"layers has the name .*, expected a string"):
        nn.Sequential({name: linear()})


def test_children_of_a_sequential_are_a_dict_of_the_callers() -> None:
    model = nn.Sequential({"a": linear()})
    model.children().pop("a")
    model.arguments()["layers"].pop("a")  # type: ignore[index]
    assert list(model.children()) == ["a"]


def test_the_two_of_a_block_are_of_their_kinds_and_names() -> None:
    conv, norm = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)
    with pytest.raises(TypeError, match=r"conv is of type BatchNorm2d, expected a dlprim\.nn\.C"):
        nn.ConvBatchNorm(norm, conv, ("a", "b"))  # type: ignore[arg-type]
    wrong: list[Any] = ["ab", None, ("a",), ("a", "a"), ("a", 1), ([], [])]
    for names in wrong:
        with pytest.raises(ValueError, match="expected two names that differ"):
            nn.ConvBatchNorm(conv, norm, names)


# ---------------------------------------------------------------- gradients


def test_gradients_are_not_cleared() -> None:
    layer, x = linear(), np.ones((1, 2), np.float32)
    for it in layer.parameters():
        with pytest.raises(TypeError, match=r"gradient of .* is None, .* nothing needs to be cle"):
            it.gradient = None  # type: ignore[assignment]
    layer.forward(x, training=True)
    layer.backward(x)
    held, before = layer.weight.gradient, layer.weight.value.copy()
    layer.weight.gradient *= 2
    layer.weight.gradient = np.full((2, 2), 3.0)  # type: ignore[assignment]
    assert layer.weight.gradient is held
    SGD(layer.parameters(), 1.0).step()
    np.testing.assert_array_equal(layer.weight.value, before - 3)
    for wrong, error in ((np.ones(3), ValueError), (np.ones((2, 2)) * 1j, TypeError)):
        with pytest.raises(error, match="gradient of"):
            layer.weight.gradient = wrong


def test_gradients_may_be_held_elsewhere() -> None:
    parameter = nn.Parameter(np.ones((2, 2)))
    parameter.gradient[...] = 5
    place = np.zeros((2, 2), np.float32)
    parameter.hold_gradient(place)
    assert parameter.gradient is place
    assert place[0, 0] == 5
    fixed = np.zeros((2, 2), np.float32)
    fixed.flags.writeable = False
    wrong: list[tuple[Any, type[Exception]]] = [
        (None, TypeError),
        (np.zeros((2, 2)), TypeError),
        (np.ma.masked_array(place), TypeError),
        (np.zeros(4, np.float32), ValueError),
        (np.zeros((2, 4), np.float32)[:, ::2], ValueError),
        (fixed, ValueError),
    ]
    for array, error in wrong:
        with pytest.raises(error, match="array"):
            parameter.hold_gradient(array)
    assert parameter.gradient is place
