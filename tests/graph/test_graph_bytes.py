"""Rules that compute in 8 bits: each fires, keeps values, and leaves alone what it must."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from byte_graphs import GEOMETRY, POOL, Bytes

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
    refused: list[str] = []
    result = compute_in_8_bits(graph, refused)
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
    return result, refused


class Case(NamedTuple):
    """What a rule is for, and the operators that it leaves."""

    make: Callable[[Bytes], Value]
    expected: list[str]


def residual(b: Bytes) -> Value:
    x = b.images()
    y = b.apply("add", b.convolution(x), b.dequantize(b.input("r", (2, 8, 6, 6), "uint8"), 0.1, 7))
    return b.quantize(b.apply("relu", y), 0.1, 3)


def gemm(b: Bytes) -> Value:
    scale = b.generator.random(7).astype(np.float32) / 500
    w = b.transpose(b.dequantize(b.weights(7, 12), scale, None), (1, 0))
    y = b.apply("add", b.matmul(b.rows(), w), b.floats(7))
    return b.quantize(y, 0.1)


def joined(b: Bytes) -> Value:
    x = b.images()
    y = b.concat([b.convolution(x), b.apply("sigmoid", b.input("f", (2, 1, 6, 6), "float32"))], 1)
    return b.quantize(y, 0.1)


def sums(b: Bytes, *functions: str) -> Value:
    y = b.apply("add", b.images(), b.images("z", "int8", scale=0.07, zero=-3))
    for function in functions:
        y = b.apply(function, y)
    return b.quantize(y, 0.11)


def taken(b: Bytes, sums: Value, columns: Value) -> Value:
    """Sums of integers less a computed zero point times sums of weights, as floats."""
    zero = b.cast(b.input("zero", (), "uint8"), "int32")
    product = ("multiply", ("input", 1), ("input", 2))
    return b.cast(b.map(("subtract", ("input", 0), product), sums, columns, zero), "float32")


def summed_rows(b: Bytes, dtype: str = "uint8", again: bool = False) -> Value:
    w = b.weights(12, 7)
    sums = b.emit("matmul", [b.input("x", (5, 12), dtype), w], dtype="int32")[0]
    columns = b.constant(b.array(w).astype(np.int32).sum(axis=0, keepdims=True))
    y = taken(b, sums, columns)
    return b.apply("add", y, b.cast(sums, "float32")) if again else y


def summed_images(b: Bytes, padding: Any = ((0, 0), (0, 0))) -> Value:
    w = b.weights(8, 4, 3, 3)
    x = b.input("x", (2, 4, 6, 6), "uint8")
    how = GEOMETRY | {"padding": padding, "dtype": "int32"}
    sums = b.emit("convolution", [x, w, None], **how)[0]
    columns = b.array(w).astype(np.int32).sum(axis=(1, 2, 3)).reshape(8, 1, 1)
    return taken(b, sums, b.constant(columns))


CONVOLUTION = "quantized_convolution"
FIRES: dict[str, Case] = {
    "float result": Case(lambda b: b.convolution(b.images()), [CONVOLUTION]),
    "bias": Case(lambda b: b.convolution(b.images(), b.floats(8)), [CONVOLUTION]),
    "bias of integers": Case(
        lambda b: b.convolution(
            b.images(dtype="int8", zero=-5),
            b.dequantize(b.constant(np.arange(8, dtype=np.int32)), np.full(8, 0.01), None),
        ),
        [CONVOLUTION],
    ),
    "eight bits": Case(
        lambda b: b.quantize(b.convolution(b.images(), b.floats(8)), 0.1), [CONVOLUTION]
    ),
    "signed": Case(
        lambda b: b.quantize(b.convolution(b.images(dtype="int8", zero=0)), 0.1, 0, "int8"),
        [CONVOLUTION],
    ),
    "groups": Case(
        lambda b: b.quantize(b.convolution(b.images(), groups=4, strides=(2, 1)), 0.02),
        [CONVOLUTION],
    ),
    "relu": Case(lambda b: b.apply("relu", b.convolution(b.images())), [CONVOLUTION]),
    "relu in 8 bits": Case(
        lambda b: b.quantize(b.apply("relu", b.convolution(b.images())), 0.05, 0), [CONVOLUTION]
    ),
    "clip": Case(
        lambda b: b.quantize(b.clip(b.convolution(b.images()), 0, 6), 6 / 255, 0), [CONVOLUTION]
    ),
    "residual": Case(residual, [CONVOLUTION]),
    "matrices": Case(lambda b: b.quantize(b.product(b.rows()), 0.1), ["quantized_matmul"]),
    "bias behind matrices": Case(gemm, ["quantized_matmul"]),
    "chain": Case(
        lambda b: b.quantize(
            b.convolution(b.dequantize(b.quantize(b.convolution(b.images()), 0.1), 0.1)), 0.3
        ),
        [CONVOLUTION, CONVOLUTION],
    ),
    "weights with a zero point": Case(
        lambda b: b.matmul(b.rows(), b.dequantize(b.weights(12, 7, dtype="uint8"), 0.01, 128)),
        ["quantized_matmul"],
    ),
    "the same again": Case(lambda b: b.quantize(b.images()), []),
    "moves": Case(
        lambda b: b.quantize(b.reshape(b.transpose(b.images(), (0, 2, 3, 1)), (2, 144))),
        ["transpose", "reshape"],
    ),
    "maxima": Case(lambda b: b.quantize(b.emit("pool", [b.images()], **POOL)[0]), ["pool"]),
    "maxima of a product": Case(
        lambda b: b.quantize(b.emit("pool", [b.convolution(b.images())], **POOL)[0], 0.1),
        [CONVOLUTION, "pool"],
    ),
    "padding": Case(
        lambda b: b.quantize(
            b.emit("pad", [b.images()], widths=((0, 0), (0, 0), (1, 2), (0, 1)), mode="constant")[0]
        ),
        ["pad"],
    ),
    "joined": Case(lambda b: b.quantize(b.concat([b.images(), b.images("z")], 1)), ["concat"]),
    "joined with floats": Case(joined, [CONVOLUTION, "map", "quantize", "concat"]),
    "moved in front of a product": Case(
        lambda b: b.product(b.reshape(b.images(), (24, 12))), ["reshape", "quantized_matmul"]
    ),
    "sums": Case(sums, ["map"]),
    "sums with functions": Case(lambda b: sums(b, "relu", "gelu"), ["map"]),
    "another scale": Case(
        lambda b: b.quantize(b.reshape(b.images(), (2, 144)), 0.0613), ["map", "reshape"]
    ),
    "parts with other scales": Case(
        lambda b: b.quantize(b.concat([b.images(scale=0.0613), b.images("z")], 1)),
        ["map", "concat"],
    ),
    "sums made floats": Case(
        lambda b: b.cast(
            b.emit("matmul", [b.input("x", (5, 12), "uint8"), b.weights(12, 7)], dtype="int32")[0],
            "float32",
        ),
        ["quantized_matmul"],
    ),
    "sums less a zero point": Case(summed_rows, ["quantized_matmul", "map", "map"]),
    "sums of signed bytes": Case(
        lambda b: summed_rows(b, "int8"), ["quantized_matmul", "map", "map"]
    ),
    "sums of images": Case(summed_images, [CONVOLUTION, "map", "map"]),
    "sums of padded images": Case(
        lambda b: summed_images(b, ((1, 1), (1, 1))), [CONVOLUTION, "map", "map"]
    ),
    "tables": Case(
        lambda b: b.gather(
            b.dequantize(b.weights(256, 8), 0.1, 3),
            b.emit("reshape", [b.input("places", (5, 1), "uint8")], shape=(5,))[0],
            0,
        ),
        ["reshape", "gather", "dequantize"],
    ),
}


@pytest.mark.parametrize("name", FIRES)
def test_a_rule_fires_and_keeps_values(name: str) -> None:
    b = Bytes()
    graph = b.graph([FIRES[name].make(b)])
    result, refused = check(graph)
    assert operators(result) == FIRES[name].expected
    assert refused == []
    assert operators(compute_in_8_bits(result)) == operators(result)  # and there it ends


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
    "what can be no number": Case(
        lambda b: b.quantize(b.apply("sqrt", b.images())), ["dequantize", "map", "quantize"]
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
    "no integers": "stays in floats: its weights are not quantised",
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
