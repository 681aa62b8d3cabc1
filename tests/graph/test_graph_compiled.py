"""What is compiled computes what the interpreter does, with all passes and with fewer."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim.graph import Builder, Graph, interpret
from dlprim.graph.compiled import compile_graph
from dlprim.graph.passes import PASSES, optimized
from dlprim.graph.verify import verify
from networks import (
    convolution,
    drawn,
    mobile_network,
    moving_network,
    recurrent_network,
    residual_network,
    rms_network,
    transformer,
)

NETWORKS: dict[str, Callable[[], Graph]] = {
    "residual": residual_network,
    "mobile": mobile_network,
    "transformer": transformer,
    "causal": lambda: transformer(True),
    "rms": rms_network,
    "lstm": lambda: recurrent_network("lstm"),
    "gru": lambda: recurrent_network("gru"),
    "moves": moving_network,
}
# What is left of each network, so that a rule that ceases to fire is seen.
LEFT = {
    "residual": {"convolution": 5, "matmul": 1, "map": 1, "pool": 1, "reduce": 2},
    "mobile": {"convolution": 4, "matmul": 1, "map": 1, "reduce": 2},
    "transformer": {"matmul": 6, "attention": 1, "add_normalize": 1, "map": 1},
    "causal": {"matmul": 6, "attention": 1, "add_normalize": 1, "map": 1},
    "rms": {"normalize": 1},
}


def inputs_of(graph: Graph) -> list[np.ndarray[Any, Any]]:
    return [
        drawn(*value.shape).astype(value.dtype)
        if value.dtype.kind == "f"
        else np.random.default_rng(0).integers(-10, 10, value.shape)
        for value in graph.inputs
    ]


def assert_same(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_pass_keeps_the_values(name: str) -> None:
    graph = NETWORKS[name]()
    arrays = inputs_of(graph)
    expected = interpret(graph, arrays)
    for count in range(len(PASSES) + 1):
        step = optimized(graph, count)
        verify(step)
        assert_same(interpret(step, arrays), expected)


@pytest.mark.parametrize("passes", [0, None])
@pytest.mark.parametrize("name", NETWORKS)
def test_compiled_networks_agree_with_the_interpreter(name: str, passes: int | None) -> None:
    graph = NETWORKS[name]()
    arrays = inputs_of(graph)
    compiled = compile_graph(graph, passes)
    expected = interpret(graph, arrays)
    assert_same(compiled.run(arrays), expected)
    assert_same(compiled.run(arrays), expected)
    assert compiled.peak_bytes <= 1.1 * compiled.live_bytes


@pytest.mark.parametrize("name", LEFT)
def test_passes_leave_few_nodes(name: str) -> None:
    nodes = Counter(node.operator for node in optimized(NETWORKS[name]()).nodes)
    assert {it: nodes[it] for it in nodes if it not in ("reshape", "transpose")} == LEFT[name]


def test_threads_run_one_network_with_the_same_bits() -> None:
    graph = residual_network()
    arrays = inputs_of(graph)
    compiled = compile_graph(graph)
    expected = compiled.run(arrays)
    found: list[list[Any]] = [[] for _ in range(4)]

    def run(place: int) -> None:
        for _ in range(20):
            found[place] = compiled.run(arrays)

    threads = [threading.Thread(target=run, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with dlprim.threads(1):
        found.append(compiled.run(arrays))
    for results in found:
        for one, other in zip(results, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_explain_and_profile_name_the_steps() -> None:
    graph = residual_network()
    compiled = compile_graph(graph)
    steps = compiled.profile(inputs_of(graph))
    assert {"conv2d", "linear", "formula"} <= {kind for kind, _, _ in steps}
    assert all(seconds >= 0 for _, _, seconds in steps)
    assert "conv2d" in compiled.explain()


def test_the_algorithm_of_the_process_holds_for_networks_made_afterwards() -> None:
    b = Builder()
    x = b.input("x", (1, 64, 28, 28), "float32")
    graph = b.graph([convolution(b, x, 64, 3)])
    image = drawn(1, 64, 28, 28)
    image[0, 0, 14, 14] = np.inf
    known = dlprim.get_conv_algorithm()
    nans = {}
    try:
        for algorithm in ("winograd", "direct"):
            dlprim.set_conv_algorithm(algorithm)
            nans[algorithm] = int(np.isnan(compile_graph(graph).run([image])[0]).sum())
    finally:
        dlprim.set_conv_algorithm(known)
    assert nans["direct"] == 0 < nans["winograd"]
