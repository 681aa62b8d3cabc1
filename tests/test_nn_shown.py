"""What models show of themselves: a tree, a table for an input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dlprim import nn
from dlprim.train.models import LanguageModel
from drawing import RNG

pytestmark = pytest.mark.any_level


TREE = """\
Sequential(  # 374 parameters
  (block): ConvBatchNorm(names=('conv', 'bn')  # 232 parameters
    (conv): Conv2d(C=3, K=8, kernel=3, stride=(2, 1), padding=1, bias=False)\
  # weight (8, 3, 3, 3): 216 parameters
    (bn): BatchNorm2d(C=8, activation='relu')  # weight (8,), bias (8,): 16 parameters
  )
  (max): MaxPool2d(kernel=2)
  (drop): Dropout(seed=3)
  (flat): Flatten()
  (fc): Linear(C=71, K=2, bias=False, activation='gelu')  # weight (2, 71): 142 parameters
)"""

TABLE = """\
layer              result         parameters  multiply-adds
-----------------------------------------------------------
Sequential         (2, 5)
  conv: Conv2d     (2, 4, 6, 6)          112          7,776
  relu: ReLU       (2, 4, 6, 6)
  flat: Flatten    (2, 144)
  fc: Linear       (2, 5)                725          1,440
-----------------------------------------------------------
total for x of (2, 3, 8, 8)              837          9,216"""


def small() -> nn.Sequential:
    layers: dict[str, nn.Module] = {"conv": nn.Conv2d(3, 4, 3)}
    return nn.Sequential(
        layers | {"relu": nn.ReLU(), "flat": nn.Flatten(), "fc": nn.Linear(144, 5)}
    )


def test_a_model_is_shown_as_a_tree() -> None:
    conv = nn.Conv2d(3, 8, 3, (2, 1), 1, bias=False)
    block = nn.ConvBatchNorm(conv, nn.BatchNorm2d(8, activation="relu"), ("conv", "bn"))
    layers = {"block": block, "max": nn.MaxPool2d(2)}
    layers |= {"drop": nn.Dropout(seed=3), "flat": nn.Flatten()}
    layers["fc"] = nn.Linear(71, 2, False, activation="gelu")
    assert repr(nn.Sequential(layers)) == TREE
    assert repr(nn.ReLU()) == "ReLU()"
    assert repr(nn.Recurrent("gru", 3, 4)).startswith(
        "Recurrent(cell='gru', C=3, K=4)  # weight_ih_l0 (12, 3), weight_hh_l0 (12, 4), bias_ih_l0"
    )


def test_a_model_of_ones_own_is_shown() -> None:
    text = repr(LanguageModel("lstm", 7, 5, 2, embedded=4))
    assert text.startswith(
        "LanguageModel(cell='lstm', V=7, hidden=5, layers=2, embedded=4  # 530 p"
    )
    assert "\n  (rnn): Recurrent(cell='lstm', C=4, K=5, layers=2)  # 460 parameters\n" in text


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.vit(3, image=16, patch=8, C=16, layers=1, heads=2),
        lambda: nn.unet(3, 2, width=4, depth=1),
        lambda: nn.gpt(7, 8, 16, 1, heads=2),
        lambda: nn.bert(7, 8, 16, 1, 2, heads=2),
    ],
)
def test_whole_models_are_shown(make: Callable[[], nn.Module]) -> None:
    model = make()
    lines = repr(model).splitlines()
    assert len([it for it in lines if "(" in it]) == len(list(model.modules()))


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if not line.startswith("---")]


def test_a_summary_is_a_table() -> None:
    model = small()
    found = model.summary((2, 3, 8, 8))
    assert words(str(found)) == words(TABLE)
    assert repr(found) == str(found)
    assert (found.parameters, found.multiply_adds) == (837, 9216)
    x = RNG.standard_normal((2, 3, 8, 8), np.float32)
    assert model.summary(x) == found
    assert model.eval().summary(x) == found


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_summary_changes_nothing(dtype: str) -> None:
    model = nn.resnet((1, 1), 8, 5, None, nn.Context(dtype))
    before = model.state_dict()
    found = model.summary((2, 3, 32, 32))
    assert found.parameters == sum(it.value.size for it in model.parameters())
    # PyTorch's multiply-adds of the same convolutions and the classifier
    convs = [it for it in found.rows if it.kind == "Conv2d"]
    assert all(
        it.multiply_adds == it.shape[0] * it.shape[2] * it.shape[3] * it.parameters
        for it in convs
        if it.shape
    )
    assert found.rows[-1].multiply_adds == 2 * 64 * 5
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value, before[name])
    with pytest.raises(RuntimeError, match="follows no training forward"):
        model.backward(np.zeros((2, 5), np.float32))


def test_a_summary_counts_products() -> None:
    layers = {"conv": nn.Conv2d(4, 6, 3, groups=2), "flat": nn.Flatten(), "same": nn.Identity()}
    model = nn.Sequential({**layers, "fc": nn.Linear(6 * 6 * 6, 5), "again": nn.Linear(5, 5)})
    found = {it.name: it.multiply_adds for it in model.summary((2, 4, 8, 8)).rows}
    assert {name: count for name, count in found.items() if count} == {
        "conv": 2 * 6 * 6 * 6 * (2 * 9),
        "fc": 2 * 216 * 5,
        "again": 2 * 5 * 5,
    }


def test_a_summary_counts_each_call_of_a_layer() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            return self.fc(self.fc(x))

    assert Twice().summary((5, 3)).multiply_adds == 2 * 5 * 3 * 3


def test_a_summary_counts_attention_and_what_is_transposed() -> None:
    attention = nn.TransformerEncoderLayer(8, 2, 16, dropout=0)
    rows = attention.summary((3, 5, 8)).rows
    products = 15 * 8 * 8 * 4 + 15 * 8 * 16 * 2 + 3 * 5 * 5 * 8 * 2
    assert sum(it.multiply_adds for it in rows) == products
    up = nn.ConvTranspose2d(4, 6, 3, stride=2).summary((2, 4, 5, 5))
    assert up.multiply_adds == 2 * 25 * 4 * 6 * 9


def test_a_summary_of_text() -> None:
    model = LanguageModel("gru", 7, 5, 2)
    model.use(nn.Context())
    for x in ((4, 3), np.zeros((4, 3), np.int64)):
        found: Any = model.summary(x)
        assert [it.shape for it in found.rows] == [(12, 7), (4, 3, 64), (4, 3, 5), (12, 7)]
        assert found.rows[2].multiply_adds == 12 * 15 * (64 + 5 + 5 + 5)


def test_a_summary_refuses_what_is_no_input() -> None:
    with pytest.raises(TypeError, match="x is 'no', expected an array or a shape"):
        small().summary("no")
    with pytest.raises(TypeError, match="x is None, expected an array or a shape"):
        small().summary(None)
    with pytest.raises(ValueError, match=r"x\[1\] is -3"):
        small().summary((2, -3, 8, 8))
