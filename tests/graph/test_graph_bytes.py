"""Rules that compute in 8 bits: each fires, keeps values, and leaves alone what it must."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byte_cases import CONVOLUTION, FIRES, Case, rounded, summed_rows
from byte_graphs import POOL, Bytes

from dlprim.graph import Graph, Value, interpret
from dlprim.graph.passes.precision import compute_in_8_bits
from dlprim.graph.verify import verify


def drawn(graph: Graph, seed: int) -> list[Any]:
    generator = np.random.default_rng(seed)
    arrays: list[Any] = []
    for value in graph.inputs:
        if np.issubdtype(value.dtype, np.integer):
            limits = np.iinfo(value.dtype.name)
            lowest, highest = max(-128, limits.min), min(255, limits.max)
            whole = generator.integers(lowest, highest, value.shape, endpoint=True)
            arrays.append(whole.astype(value.dtype))
        else:
            arrays.append(3 * generator.standard_normal(value.shape).astype(np.float32))
    return arrays


def operators(graph: Graph) -> list[str]:
    return [node.operator for node in graph.nodes]


def check(graph: Graph) -> tuple[Graph, list[str]]:
    """The graph in 8 bits, which gives the same, but for one step where halves are rounded."""
    result = compute_in_8_bits(graph)
    verify(result)
    for seed in range(3):
        arrays = drawn(graph, seed)
        for was, it in zip(interpret(graph, arrays), interpret(result, arrays), strict=True):
            assert (was.dtype, was.shape) == (it.dtype, it.shape)
            if was.dtype.kind in "iu":
                difference = np.abs(was.astype(int) - it.astype(int))
                assert difference.max(initial=0) <= 1
                assert (difference > 0).mean() < 0.01
                assert len(np.unique(was)) > 10  # not all saturated
            else:
                assert np.allclose(was, it, rtol=1e-5, atol=1e-5 * np.abs(was).max(initial=0))
    return result, list(result.refused.values())


@pytest.mark.parametrize("name", FIRES)
def test_a_rule_fires_and_keeps_values(name: str) -> None:
    b = Bytes()
    graph = b.graph([FIRES[name].make(b)])
    result, refused = check(graph)
    assert operators(result) == FIRES[name].expected
    assert refused == []
    assert operators(compute_in_8_bits(result)) == operators(result)  # and there it ends


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("seed", range(4))
def test_sums_in_kernels_round_as_maps_do(seed: int, dtype: str) -> None:
    results = []
    for count in (1, 2):  # the convolution's bytes are read by the sum alone, and not
        b = Bytes(seed)
        graph = compute_in_8_bits(b.graph(rounded(b, dtype)[:count]))
        assert operators(graph) == [CONVOLUTION, "map"][:count]
        results.append(interpret(graph, drawn(graph, seed))[0])
    np.testing.assert_array_equal(*results)


def shared(b: Bytes) -> Value:
    y = b.convolution(b.images())
    return b.apply("add", b.dequantize(b.quantize(y, 0.1), 0.1), y)


def other_residual(b: Bytes) -> Value:
    r = b.dequantize(b.input("r", (2, 8, 6, 6), "int8"), 0.1, 7)
    return b.quantize(b.apply("add", b.convolution(b.images()), r), 0.1)


def empty_windows(b: Bytes) -> Value:
    more = POOL | {"padding": ((2, 2), (0, 0)), "counts": (5, 3)}
    return b.quantize(b.emit("pool", [b.images()], **more)[0])


STAYS: dict[str, Case] = {
    "no integers": Case(
        lambda b: b.emit("convolution", [b.images(), b.floats(8, 4, 1, 1)], **FLAT)[0],
        ["dequantize", "convolution"],
    ),
    "float operand": Case(
        lambda b: b.convolution(b.input("f", (2, 4, 6, 6), "float32")), ["convolution"]
    ),
    "zero points of weights": Case(
        lambda b: b.matmul(b.rows(), b.dequantize(b.weights(12, 7, dtype="uint8"), 0.01, 3)),
        ["dequantize", "matmul"],
    ),
    "scales along the sum": Case(
        lambda b: b.matmul(b.rows(), b.dequantize(b.weights(12, 7), np.full(12, 0.01), None)),
        ["dequantize", "matmul"],
    ),
    "scales of channels of x": Case(
        lambda b: b.product(b.rows(scale=np.full(12, 0.1), zero=np.zeros(12), axis=1)),
        ["dequantize", "matmul"],
    ),
    "both computed": Case(
        lambda b: b.matmul(b.rows(), b.transpose(b.rows("z"), (1, 0))),
        ["dequantize", "dequantize", "transpose", "matmul"],
    ),
    "sums beyond 32 bits": Case(
        lambda b: b.matmul(
            b.dequantize(b.input("x", (1, 70000), "uint8")),
            b.dequantize(b.constant(np.full((70000, 1), 127, np.int8)), 0.01, 0),
        ),
        ["dequantize", "matmul"],
    ),
    "read twice": Case(shared, [CONVOLUTION, "quantize", "dequantize", "map"]),
    "residual of another type": Case(
        other_residual, [CONVOLUTION, "dequantize", "map", "quantize"]
    ),
    "padding with a number": Case(
        lambda b: b.quantize(
            b.emit(
                "pad",
                [b.images(), b.constant(np.float32(1))],
                widths=((0, 0), (0, 0), (1, 2), (0, 1)),
                mode="constant",
            )[0]
        ),
        ["dequantize", "pad", "quantize"],
    ),
    "windows of padding": Case(empty_windows, ["dequantize", "pool", "quantize"]),
    "means": Case(
        lambda b: b.quantize(b.emit("pool", [b.images()], **POOL | {"function": "mean"})[0]),
        ["dequantize", "pool", "quantize"],
    ),
    "floats in between": Case(
        lambda b: b.quantize(b.apply("add", b.images(), b.input("f", (2, 4, 6, 6), "float32"))),
        ["dequantize", "map", "quantize"],
    ),
    "other activations": Case(
        lambda b: b.quantize(b.apply("gelu", b.convolution(b.images()))),
        [CONVOLUTION, "map", "quantize"],
    ),
    "sums read twice": Case(
        lambda b: summed_rows(b, again=True), ["matmul", "map", "map", "map", "map", "map"]
    ),
    "sums of integers": Case(
        lambda b: b.emit(
            "matmul", [b.input("x", (5, 12), "uint8"), b.weights(12, 7)], dtype="int32"
        )[0],
        ["matmul"],
    ),
}
FLAT = {"strides": (1, 1), "dilations": (1, 1), "padding": ((0, 0), (0, 0)), "groups": 1}
SAID = {
    "no integers": "its weights are not quantised",
    "zero points of weights": "do not fit into int8",
    "scales along the sum": "scales along axis 0, which is summed",
    "sums beyond 32 bits": "its sums can leave 32 bits",
    "both computed": "its weights are computed, expected constants",
}


@pytest.mark.parametrize("name", STAYS)
def test_a_near_miss_stays_and_says_why(name: str) -> None:
    b = Bytes()
    graph = b.graph([STAYS[name].make(b)])
    result, refused = check(graph)
    assert operators(result) == STAYS[name].expected
    assert len(refused) == (name in SAID)
    assert SAID.get(name, "") in "".join(refused)
