"""Graphs that become integers, one for each rule, and the operators that are left of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from byte_graphs import GEOMETRY, POOL, Bytes

from dlprim.graph import Value


class Case(NamedTuple):
    """What a rule is for, and the operators that it leaves."""

    make: Callable[[Bytes], Value]
    expected: list[str]


def residual(b: Bytes) -> Value:
    x = b.images()
    y = b.apply("add", b.convolution(x), b.dequantize(b.input("r", (2, 8, 6, 6), "uint8"), 0.1, 7))
    return b.quantize(b.apply("relu", y), 0.1, 3)


def rounded(b: Bytes, dtype: str = "uint8", width: int = 6) -> tuple[Value, Value]:
    """A sum, and one of its operands, which a convolution makes in 8 bits."""
    zero = {"uint8": 120, "int8": -7}[dtype]
    x = b.dequantize(b.input("x", (2, 4, 6, width), "uint8"))
    q = b.quantize(b.convolution(x, b.floats(8)), 0.1, zero, dtype)
    r = b.dequantize(b.input("r", (2, 8, 6, width), "int8"), 0.07, -3)
    y = b.apply("add", r, b.dequantize(q, 0.1, zero))
    return b.quantize(b.apply("relu", y), 0.11, 3, "int8"), q


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
    "sum of what is rounded": Case(lambda b: rounded(b)[0], [CONVOLUTION]),
    "sum of signed bytes": Case(lambda b: rounded(b, "int8")[0], [CONVOLUTION]),
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
    "what can be no number": Case(
        lambda b: b.quantize(b.apply("sqrt", b.images()), 0.01, 3, "int8"), ["map"]
    ),
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
