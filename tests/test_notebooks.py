"""What notebooks show of models and formulas: well-formed HTML."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import dlprim
from dlprim import nn

pytestmark = pytest.mark.any_level


def shown(it: Any) -> ElementTree.Element:
    """As a notebook gets it, parsed: every tag is closed, every sign escaped."""
    text = it._repr_html_().replace("<details open>", '<details open="">')  # which HTML allows
    return ElementTree.fromstring(f"<div>{text}</div>")


def text_of(it: Any) -> str:
    return "".join(shown(it).itertext())


def cells(it: Any) -> list[list[str]]:
    return [["".join(cell.itertext()) for cell in row] for row in shown(it).iter("tr")]


def test_a_model_is_a_tree_that_folds() -> None:
    inner = nn.Sequential(nn.Linear(4, 5, activation="relu"), nn.Dropout())
    model = nn.Sequential({"first": nn.Sequential(inner, nn.Linear(5, 2)), "last": nn.ReLU()})
    tree = shown(model)
    assert [it.get("open") for it in tree.iter("details")] == ["", "", None]
    text = "".join(tree.itertext())
    assert "Linear(C=4, K=5, activation='relu') weight (5, 4), bias (5,): 25 parameters" in text
    assert text.startswith("Sequential() 37 parametersfirst: Sequential() 37 parameters")
    assert "last: ReLU()" in text


def test_one_layer_and_a_model_of_ones_own() -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(2, 3), nn.Linear(2, 3)

        def forward(self, x: Any) -> Any:
            return self.left(x) + self.right(x)

    assert text_of(nn.ReLU()) == "ReLU()"
    assert "right: Linear(C=2, K=3) weight (3, 2), bias (3,): 9 parameters" in text_of(Sum())


def test_a_summary_is_a_table() -> None:
    model = nn.Sequential({"fc": nn.Linear(4, 3), "act": nn.ReLU()})
    assert cells(model.summary((2, 4))) == [
        ["layer", "result", "parameters", "multiply-adds"],
        ["Sequential", "(2, 3)", "", ""],
        ["\u2003fc: Linear", "(2, 3)", "15", "24"],
        ["\u2003act: ReLU", "(2, 3)", "", ""],
        ["total for x of (2, 4)", "", "15", "24"],
    ]


FORMULAS = """
def scaled(float(N,C) x) -> (y) { y(n,c) = x(n,c) < 0 ? 0 : 2 * x(n,c) }
def sums(float(N,C) x) -> (y) { y(n) +=! x(n,c) }
"""


def test_formulas_are_text() -> None:
    both = dlprim.define(FORMULAS)
    assert "x(n,c) < 0 ? 0" in text_of(both.scaled)
    assert "y(n) +=! x(n,c)" in text_of(both)


def test_a_compiled_formula_lists_its_arrays() -> None:
    compiled = dlprim.define(FORMULAS).sums.compile((3, 5))
    assert cells(compiled) == [
        ["", "name", "type"],
        ["takes", "x", "float32[3, 5]"],
        ["gives", "y", "float32[3]"],
        ["computes", "30", "multiplications and additions"],
    ]
    assert "def sums" in text_of(compiled)


def test_a_model_from_a_file_lists_its_inputs() -> None:
    helper: Any = pytest.importorskip("onnx.helper", reason="the model is made with onnx")
    float32 = 1  # of TensorProto
    taken, given = (helper.make_tensor_value_info(name, float32, ["N", 3]) for name in ("<x>", "y"))
    graph = helper.make_graph([helper.make_node("Relu", ["<x>"], ["y"])], "g", [taken], [given])
    opsets = [helper.make_opsetid("", 18)]
    model = dlprim.onnx.load(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    assert cells(model) == [
        ["", "name", "type"],
        ["input", "<x>", "float32[N, 3]"],
        ["output", "y", "float32[N, 3]"],
    ]
    np.testing.assert_array_equal(model(-np.ones((2, 3), np.float32)), 0)
