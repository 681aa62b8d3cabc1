"""What a network's plan allows on threads that are not there."""

from __future__ import annotations

import re

import numpy as np
import pytest

from dlprim.graph import Builder, Graph, interpret
from dlprim.graph.compiled import CompiledGraph, compile_graph
from networks import linear


def perceptron(rows: int) -> Graph:
    """Linear layers as wide as ConvNeXt-tiny has them."""
    builder = Builder()
    hidden = builder.apply(
        "relu", linear(builder, builder.input("x", (rows, 384), "float32"), 1536)
    )
    return builder.graph([linear(builder, hidden, 384)])


def speedup(compiled: CompiledGraph, threads: int) -> float:
    found = re.match(
        rf"{threads} threads: ([0-9.]+) times as fast as one", compiled.explain(threads)
    )
    assert found
    return float(found[1])


@pytest.mark.parametrize("rows", [196, 784])
def test_rows_that_pieces_do_not_divide_leave_nobody_waiting(rows: int) -> None:
    compiled = compile_graph(perceptron(rows))
    for threads, least in {2: 0.96, 4: 0.9, 16: 0.6}.items():
        assert speedup(compiled, threads) / threads >= least


@pytest.mark.parametrize("rows", [4, 196])
def test_a_price_before_the_first_run_changes_no_result(rows: int) -> None:
    """Nothing that is made once is made while kernels compute nothing."""
    graph = perceptron(rows)
    x = np.random.default_rng(1).standard_normal((rows, 384), np.float32)
    compiled = compile_graph(graph)
    compiled.explain(4)
    (found,), (right,) = compiled.run([x]), interpret(graph, [x])
    scale = np.abs(right).max()
    np.testing.assert_allclose(found / scale, right / scale, rtol=0, atol=1e-5)


def test_every_step_is_listed() -> None:
    compiled = compile_graph(perceptron(196))
    x = np.ones((196, 384), np.float32)
    before = compiled.run([x])
    lines = compiled.explain(4).splitlines()
    assert len(lines) == 1 + len(compiled.profile([x]))
    assert all(re.search(r" x +[0-9.]+%  .*: (\d+ tasks in \d+ loops|on one thread)$", it)
               for it in lines[1:])  # fmt: skip
    assert np.array_equal(compiled.run([x])[0], before[0])


def test_wrong_numbers_are_refused() -> None:
    compiled = compile_graph(perceptron(4))
    with pytest.raises(ValueError, match="threads is 0, expected 1 to 1024"):
        compiled.explain(0)
    with pytest.raises(TypeError, match="threads is of type str"):
        compiled.explain("4")  # type: ignore[arg-type]
