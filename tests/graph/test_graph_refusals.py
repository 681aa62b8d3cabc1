"""What passes leave as it was is explained, and what goes wrong in one is said with its node."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dlprim.graph import Builder, Graph, Value, passes
from dlprim.graph.compiled import compile_graph
from dlprim.graph.graph import Node
from dlprim.graph.passes.draft import CompileError, Draft

pytestmark = pytest.mark.any_level


def attention(b: Builder, what: str) -> list[Value]:
    q, k, v = (b.input(name, (2, 3, 8, 8), "float32") for name in "qkv")
    if what == "axes":
        q, k, v = (b.reshape(it, (1, 2, 3, 8, 8)) for it in (q, k, v))
    b.name = "scores"
    scores = b.matmul(q, b.transpose(k, (*range(len(q.shape) - 2), *range(len(q.shape))[:-3:-1])))
    b.name = "shares"
    x = b.apply("exp", scores) if what == "function" else scores
    shares = b.emit("softmax", [x], axis=-2 if what == "axis" else -1, log=False)[0]
    b.name = "attend"
    y = b.matmul(shares, v)
    b.name = "more"
    others = {"weights": [b.apply("exp", shares)], "scores": [b.apply("exp", scores)]}
    return [y, *others.get(what, [])]


ATTENTION = {
    "axis": "its weights are no softmax along the last axis",
    "weights": "its weights are used twice",
    "scores": "its scores are used twice",
    "function": "its scores are no scaled product with masks added",
    "axes": "operands have 5 and 5 axes, expected 3 or 4",
}


@pytest.mark.parametrize("what", ATTENTION)
def test_attention_that_is_none_is_explained(what: str) -> None:
    b = Builder()
    explained = compile_graph(b.graph(attention(b, what))).explain()
    assert f"not attention: matmul attend: {ATTENTION[what]}" in explained


def test_what_is_recognised_is_not_refused() -> None:
    b = Builder()
    assert "not " not in compile_graph(b.graph(attention(b, ""))).explain()


def product(b: Builder) -> Value:
    b.name = "product"
    y = b.matmul(b.input("x", (4, 32), "float32"), b.constant(np.ones((32, 16), np.float32)))
    b.name = "behind"
    return y


def read_twice(b: Builder) -> list[Value]:
    y = product(b)
    return [b.apply("relu", y), y]


def another_function(b: Builder) -> list[Value]:
    return [b.apply("exp", product(b))]


def not_by_channel(b: Builder) -> list[Value]:
    return [b.apply("add", product(b), b.constant(np.arange(4, dtype=np.float32).reshape(4, 1)))]


def a_smaller_array(b: Builder) -> list[Value]:
    return [b.apply("add", product(b), b.input("z", (16,), "float32"))]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (read_twice, "the product 'product' is used twice"),
        (another_function, "kernels do not compute what it does"),
        (not_by_channel, "what it multiplies or adds is not one number for each channel"),
        (a_smaller_array, "what it adds to the product is no array of its shape and type"),
    ],
)
def test_epilogues_that_are_none_are_explained(
    make: Callable[[Builder], list[Value]], reason: str
) -> None:
    b = Builder()
    explained = compile_graph(b.graph(make(b))).explain()
    assert f"not an epilogue: map behind: {reason}" in explained


def test_products_in_floats_and_plain_convolutions_are_explained_in_few_lines() -> None:
    b = Builder()
    steps = b.constant(np.float32(0.1)), b.constant(np.uint8(3))
    outputs = []
    for place in range(40):
        b.name = f"layer{place}"
        x = b.input(f"x{place}", (1, 2, 4, 4, 4), "uint8")
        floats = b.emit("dequantize", [x, *steps], axis=0, dtype="float32")[0]
        w = b.constant(np.ones((3, 2, 1, 1, 1), np.float32))
        geometry = {
            "strides": (1,) * 3, "padding": ((0, 0),) * 3, "dilations": (1,) * 3, "groups": 1,
        }  # fmt: skip
        outputs.append(b.emit("convolution", [floats, w, None], **geometry)[0])
    lines = compile_graph(b.graph(outputs)).explain().splitlines()
    refused = [it for it in lines if it.startswith("not ")]
    assert refused[0] == (
        "not a product of 8 bits: convolution layer0: its weights are not quantised"
    )
    assert len(refused) == 24
    assert lines[-1] == "and 56 more"


def graph() -> Graph:
    b = Builder()
    b.name = "first"
    return b.graph([b.apply("exp", b.input("x", (3,), "float32"))])


def test_what_goes_wrong_names_pass_and_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(graph: Graph) -> Graph:
        def rule(draft: Draft, node: Node) -> None:
            raise KeyError("what is not there")

        return Draft(graph).apply(rule)

    monkeypatch.setattr(passes, "PASSES", (faulty,))
    words = "the pass faulty fails, node map 'first': KeyError: 'what is not there'"
    with pytest.raises(CompileError, match=words):
        compile_graph(graph())

    def whole(graph: Graph) -> Graph:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(passes, "PASSES", (whole,))
    with pytest.raises(CompileError, match="the pass whole fails: ZeroDivisionError: by zero"):
        compile_graph(graph())


def test_what_goes_wrong_in_a_step_names_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    from dlprim.graph import lowering

    def faulty(*_: object) -> bool:
        raise IndexError("out of range")

    monkeypatch.setitem(lowering.LOWERS, "map", faulty)
    words = "the steps of node map 'first' cannot be made: IndexError: out of range"
    with pytest.raises(CompileError, match=words):
        compile_graph(graph())
    monkeypatch.setitem(lowering.LOWERS, "map", out_of_memory)
    with pytest.raises(MemoryError):
        compile_graph(graph())


def out_of_memory(*_: object) -> bool:
    raise MemoryError
