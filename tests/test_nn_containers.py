"""Who contains whom: layers in one place each, and modules of one's own."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from dlprim import nn

pytestmark = pytest.mark.any_level


def pair(name: str, c: int = 4) -> nn.ConvBatchNorm:
    return nn.ConvBatchNorm(nn.Conv2d(c, c, 1), nn.BatchNorm2d(c), (f"conv{name}", f"bn{name}"))


def test_a_layer_of_two_containers_is_refused_and_keeps_its_name() -> None:
    layer = nn.Linear(3, 3)
    model = nn.Sequential({"a": nn.Linear(3, 3), "b": layer})
    twin = copy.deepcopy(model)
    with pytest.raises(ValueError, match=r"layers\['c'\] is Linear 'b' of another Sequential"):
        nn.Sequential({"c": layer})
    with pytest.raises(ValueError, match=r"layers\['c'\] is Linear 'b' of another Sequential"):
        nn.Sequential({"c": twin.children()["b"]})
    assert layer.name == "b"
    assert [it.name for it in model.parameters()] == ["a.weight", "a.bias", "b.weight", "b.bias"]


def test_a_layer_twice_is_refused() -> None:
    layer, block = nn.ReLU(), pair("1")
    with pytest.raises(ValueError, match=r"layers\['b'\] is the same layer as layers\['a'\]"):
        nn.Sequential({"a": layer, "b": layer})
    with pytest.raises(ValueError, match=r"main\[1\] is the same layer as main\[0\]"):
        nn.Residual([block, block])
    first = nn.Residual([block, pair("2")])
    with pytest.raises(ValueError, match=r"shortcut is ConvBatchNorm.* of another Residual"):
        nn.Residual([pair("1"), pair("2")], block)
    with pytest.raises(ValueError, match="norm is BatchNorm2d 'bn1' of another ConvBatchNorm"):
        nn.ConvBatchNorm(nn.Conv2d(4, 4, 1), block.norm, ("conv", "bn"))
    assert first.parameters()[0].name == "conv1.weight"


def test_what_is_no_layer_is_refused() -> None:
    with pytest.raises(TypeError, match=r"conv is of type NoneType, expected a dlprim\.nn\.Conv2d"):
        nn.ConvBatchNorm(None, nn.BatchNorm2d(4), ("conv", "bn"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="main is of type NoneType, expected a list of ConvBatch"):
        nn.Residual(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"main\[1\] is of type ReLU, expected a ConvBatchNorm"):
        nn.Residual([pair("1"), nn.ReLU()])  # type: ignore[list-item]


def test_a_layer_is_free_again_when_its_container_is_gone_and_its_copies_are() -> None:
    layer = nn.Linear(3, 3)
    nn.Sequential({"a": layer})
    model = nn.Sequential({"b": layer})
    with pytest.raises(ValueError, match="of another Sequential"):
        nn.Sequential({"new": nn.Linear(3, 3), "old": layer})
    other = nn.Sequential({"c": copy.deepcopy(layer)})
    assert (model.parameters()[0].name, other.parameters()[0].name) == ("b.weight", "c.weight")
    assert nn.Sequential({"inner": model}).parameters()[0].name == "inner.b.weight"


class Gated(nn.Module):
    """A module that says nothing of its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(np.ones(5, np.float32))
        self.left = nn.Linear(3, 5)
        self.right = nn.Linear(3, 5, activation="sigmoid")

    def forward(self, x: Any) -> Any:
        return self.scale * self.left(x) * self.right(x)


def test_a_module_of_ones_own_has_the_layers_that_are_its_attributes() -> None:
    model = nn.Sequential({"gate": Gated(), "fc": nn.Linear(5, 2)})
    names = ["gate.scale"]
    names += [f"gate.{side}.{it}" for side in ("left", "right") for it in ("weight", "bias")]
    names += ["fc.weight", "fc.bias"]
    assert [it.name for it in model.parameters()] == names
    assert list(model.state_dict()) == names
    x = np.random.default_rng(0).standard_normal((4, 3), np.float32)
    model.backward(np.ones_like(model.forward(x)))
    assert all(it.gradient.any() for it in model.parameters())
    for it in model.parameters():
        it.value[...] = 0
    model.changed()
    assert not np.array(model.forward(x, training=False)).any()


def test_use_takes_a_context() -> None:
    with pytest.raises(TypeError, match=r"context is None, expected a dlprim\.nn\.Context"):
        nn.Linear(3, 4).use(None)  # type: ignore[arg-type]


def test_layers_of_a_block_have_names_of_their_own() -> None:
    with pytest.raises(ValueError, match="two layers of the block are called 'conva', expected"):
        nn.Residual([pair("a"), pair("a")])
    with pytest.raises(ValueError, match=r"names is .*, expected two names that differ"):
        nn.ConvBatchNorm(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), ("it", "it"))


def test_layers_of_a_sequence_are_arguments_too() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    assert list(model.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert model(np.ones((5, 3), np.float32)).shape == (5, 2)
    for wrong in ((nn.ReLU(), 3), ([nn.ReLU()],), ({"a": nn.ReLU(), "b": 3},)):
        with pytest.raises(TypeError, match=r"layers .* expected"):
            nn.Sequential(*wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="layers is a dict and not the only argument"):
        nn.Sequential({"a": nn.ReLU()}, nn.ReLU())


def test_a_sequence_does_not_follow_the_dict_it_was_made_of() -> None:
    layers = {"a": nn.Linear(3, 3)}
    model = nn.Sequential(layers)
    layers["b"] = nn.Linear(3, 1)
    assert model(np.ones((5, 3), np.float32)).shape == (5, 3)


class Stack(nn.Module):
    """A module that keeps its layers in lists and dicts."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = [nn.Linear(3, 3), nn.Linear(3, 3)]
        self.heads = {"a": nn.Linear(3, 2), "b": (1, 2)}
        self.scales = (nn.Parameter(np.ones(2)), 3)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.heads["a"](x) * self.scales[0]


def test_layers_in_lists_and_dicts_are_found() -> None:
    model = nn.Sequential(Stack())
    names = ["scales.0", "blocks.0.weight", "blocks.0.bias", "blocks.1.weight", "blocks.1.bias"]
    assert list(model.state_dict()) == [
        f"0.{it}" for it in (*names, "heads.a.weight", "heads.a.bias")
    ]
    stack: Any = model.children()["0"]
    assert stack.blocks[1].context is model.context
    before = model.eval()(np.ones((2, 3), np.float32))
    assert not stack.blocks[0].training
    stack.blocks[1].weight.value *= 2
    assert (model(np.ones((2, 3), np.float32)) != before).any()
