"""What is no graph is refused in a sentence that names the node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlprim.graph import Builder, Graph, Node, Value
from dlprim.graph.text import parse, text_of
from dlprim.graph.verify import verify

pytestmark = pytest.mark.any_level

FLOAT = np.dtype(np.float32)


def relu(x: Value, y: Value, name: str, **more: Any) -> Node:
    attributes = {"expression": ("relu", ("input", 0)), "dtype": "float32"}
    return Node("map", (x,), (y,), attributes | more, name)


def value(name: str, *shape: int) -> Value:
    return Value(name, shape, FLOAT)


def test_graphs_of_the_builder_are_graphs() -> None:
    b = Builder()
    x = b.input("x", (2, 3), "float32")
    w = b.constant(np.ones((3, 4), np.float32), "w")
    verify(b.graph([b.apply("relu", b.matmul(x, w)), x]))


def test_a_value_is_defined_in_front_of_its_readers() -> None:
    x, a, b = value("x", 3), value("a", 3), value("b", 3)
    nodes = (relu(b, a, "first"), relu(a, b, "second"))
    with pytest.raises(ValueError, match=r"node first .map. reads b: .* only a later node makes"):
        verify(Graph((x,), (b,), nodes, {}))
    with pytest.raises(ValueError, match=r"node first .map. reads a: .* nothing defines"):
        verify(Graph((x,), (b,), (relu(a, b, "first"),), {}))
    with pytest.raises(ValueError, match=r"the graph returns b: .* nothing defines"):
        verify(Graph((x,), (b,), (), {}))


def test_a_value_is_defined_once() -> None:
    x, y = value("x", 3), value("y", 3)
    with pytest.raises(ValueError, match=r"node again .map. defines y: .* defined already"):
        verify(Graph((x,), (y,), (relu(x, y, "first"), relu(x, y, "again")), {}))
    with pytest.raises(ValueError, match=r"the graph defines x: .* defined already"):
        verify(Graph((x,), (x,), (), {x: np.ones(3, np.float32)}))


def test_results_are_as_inferred() -> None:
    x, y = value("x", 3), value("y", 4)
    with pytest.raises(ValueError, match=r"node n .map. gives y: .*4.*, expected float32\[3\]"):
        verify(Graph((x,), (y,), (relu(x, y, "n"),), {}))
    with pytest.raises(ValueError, match=r"node n .map. gives y: .*, expected float64\[3\]"):
        verify(Graph((x,), (x,), (relu(x, value("y", 3), "n", dtype="float64"),), {}))
    wrong = Node("reshape", (x,), (y,), {"shape": (4,)}, "n")
    with pytest.raises(ValueError, match=r"node n .reshape.: an array of \[3\] cannot be reshaped"):
        verify(Graph((x,), (y,), (wrong,), {}))
    with pytest.raises(ValueError, match=r"node n .reshape. lacks the attribute 'shape'"):
        verify(Graph((x,), (y,), (Node("reshape", (x,), (y,), {}, "n"),), {}))
    with pytest.raises(ValueError, match=r"node n .reshape. lacks an input"):
        verify(Graph((x,), (y,), (Node("reshape", (None,), (y,), {"shape": (4,)}, "n"),), {}))
    both = Node("map", (x,), (value("y", 3), y), relu(x, x, "").attributes, "n")
    with pytest.raises(ValueError, match=r"node n .map. has 2 results, expected 1"):
        verify(Graph((x,), (y,), (both,), {}))
    with pytest.raises(ValueError, match=r"node y .nonsense. is of no operator that there is"):
        verify(Graph((x,), (y,), (Node("nonsense", (x,), (y,)),), {}))


def test_constants_have_their_arrays() -> None:
    x = value("x", 3)
    for array in (np.ones(4, np.float32), np.ones(3)):
        with pytest.raises(ValueError, match=r"the constant x: .* has an array of"):
            verify(Graph((), (x,), (), {x: array}))


TEXT = """
graph(x: float32[1, 2, 5, 5], mask: bool[]) -> (y, x)
w: float32[4, 2, 3, 3] = constant(...)
size: int64[2] = constant([2, 9])
c: float32[1, 4, 3, 3] = convolution(x, w, none, strides=(1, 1), dilations=(1, 1), \
padding=((0, 0), (0, 0)), groups=1)
y: float32[1, 4, 9] = reshape(c, shape=(1, 4, 9))
"""


def test_text_is_read_as_it_is_written() -> None:
    graph = parse(TEXT)
    verify(graph)
    assert text_of(graph).strip() == TEXT.strip()
    assert [array.tolist() for array in graph.constants.values()][1] == [2, 9]
    w = np.ones((4, 2, 3, 3), np.float32)
    assert (next(iter(parse(TEXT, {"w": w}).constants.values())) == w).all()


def test_text_has_a_name_for_each_value_and_infinities() -> None:
    b = Builder()
    x = b.input("x (of, all)", (3,), "float32")
    b.name = "x (of, all)"
    y = b.map(("minimum", ("input", 0), ("number", float("inf"))), x)
    graph = parse(text_of(b.graph([y])))
    assert [value.name for value in (*graph.inputs, *graph.outputs)] == ["x_of_all_", "x_of_all_#2"]
    assert graph.nodes[0].attributes["expression"][2] == ("number", float("inf"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 3", r"expected to read graph\(inputs\)"),
        ("graph(x: float32[1]) -> (y)\ny = relu(x)", "expected to read name: type"),
        ("graph(x: float32[1]) -> (y)", "y is read before it is defined"),
    ],
)
def test_what_is_no_text_of_a_graph_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(text)
