"""Branches of a network that run side by side give the bits that its steps give in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from threads_of_python import check_two_threads

import dlprim
from dlprim import _core
from dlprim.graph import Graph, interpret
from dlprim.graph.compiled import compile_graph
from networks import drawn, heads_network, inception_network

NETWORKS: dict[str, tuple[Callable[[], Graph], int]] = {
    "inception": (inception_network, 2),
    "heads": (heads_network, 1),
    "five heads": (lambda: heads_network(rows=31, heads=5), 1),
}


def inputs_of(graph: Graph) -> list[np.ndarray[Any, Any]]:
    return [drawn(*value.shape) for value in graph.inputs]


@pytest.mark.parametrize("name", NETWORKS)
def test_branches_give_the_same_bits_on_any_number_of_threads(name: str) -> None:
    make, stretches = NETWORKS[name]
    graph = make()
    arrays = inputs_of(graph)
    compiled = compile_graph(graph)
    assert compiled.explain().count("branches that run side by side") == stretches
    assert compiled.peak_bytes <= 1.1 * compiled.live_bytes
    with dlprim.threads(1):
        expected = compiled.run(arrays)
    for found, right in zip(expected, interpret(graph, arrays), strict=True):
        scale = float(np.abs(right).max())
        np.testing.assert_allclose(found / scale, right / scale, rtol=0, atol=1e-5)
    for count in (2, 3, 4):
        with dlprim.threads(count):
            for _ in range(5):
                for found, right in zip(compiled.run(arrays), expected, strict=True):
                    np.testing.assert_array_equal(found, right)


def test_two_threads_of_python_run_one_network_with_branches() -> None:
    graph = inception_network()
    compiled = compile_graph(graph)
    one, other = ([drawn(*graph.inputs[0].shape, seed=seed)] for seed in range(2))
    check_two_threads(compiled, (one, other), 20)


def test_a_profile_has_the_steps_of_all_branches_in_the_order_of_explain() -> None:
    graph = inception_network()
    compiled = compile_graph(graph)
    lines = compiled.explain().splitlines()
    steps = compiled.profile(inputs_of(graph))
    convolutions = [name for kind, name, _ in steps if kind == "conv2d"]
    assert len(convolutions) == 2 * 8
    listed = [line for line in lines if ": conv2d(" in line]
    assert [line.split(" | ")[-1].split(": conv2d")[0] for line in listed] == convolutions
    assert {line[:6] for line in listed} == {f"  {branch} | " for branch in (1, 2, 3, 4)}


def _network_of_functions(is_python: bool) -> _core.Network:
    network = _core.Network()
    x = network.input((1 << 17,), np.float32)
    results = []
    for _ in range(2):
        value = x
        for _ in range(3):
            made = network.temporary((1 << 17,), np.float32)
            if is_python:
                network.call(np.negative, [value], [made])
            else:
                network.copy(value, made)
            value = made
        results.append(value)
    network.finish(results)
    return network


@pytest.mark.parametrize("is_python", [False, True])
def test_functions_of_python_are_in_no_branch(is_python: bool) -> None:
    network = _network_of_functions(is_python)
    assert ("side by side" in network.describe()) is not is_python
    x = drawn(1 << 17)
    with dlprim.threads(2):
        for result in network.run([x]):
            np.testing.assert_array_equal(result, -x if is_python else x)
