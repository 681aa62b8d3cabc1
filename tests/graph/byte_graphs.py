"""Graphs with quantised arrays, written as importers write them."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlprim.graph import Builder, Value

GEOMETRY: dict[str, Any] = {
    "strides": (1, 1),
    "dilations": (1, 1),
    "padding": ((1, 1), (1, 1)),
    "groups": 1,
}
POOL: dict[str, Any] = {
    "function": "max",
    "kernel": (2, 2),
    "strides": (2, 2),
    "dilations": (1, 1),
    "padding": ((0, 0), (0, 0)),
    "counts": (3, 3),
    "counts_padding": False,
}


class Bytes(Builder):
    """A builder with what quantised models are made of."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.generator = np.random.default_rng(seed)

    def floats(self, *shape: int) -> Value:
        drawn = self.generator.standard_normal(shape).astype(np.float32)
        return self.constant(drawn, "floats")

    def scale(self, scale: Any) -> Value:
        return self.constant(np.float32(scale), "scale")

    def weights(self, *shape: int, dtype: str = "int8") -> Value:
        limits = np.iinfo(dtype)
        drawn = self.generator.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        return self.constant(drawn, "weights")

    def quantize(
        self, x: Value, scale: float = 0.05, zero: int = 100, dtype: str = "uint8"
    ) -> Value:
        zero_point = self.constant(np.asarray(zero, dtype), "zero_point")
        inputs = [x, self.scale(scale), zero_point]
        return self.emit("quantize", inputs, axis=0, dtype=dtype)[0]

    def dequantize(self, q: Value, scale: Any = 0.05, zero: Any = 100, axis: int = 0) -> Value:
        zero_point = None
        if zero is not None:
            zero_point = self.constant(np.asarray(zero, q.dtype), "zero_point")
        inputs = [q, self.scale(scale), zero_point]
        return self.emit("dequantize", inputs, axis=axis, dtype="float32")[0]

    def images(self, name: str = "x", dtype: str = "uint8", **how: Any) -> Value:
        """Floats that an input in 8 bits stands for."""
        return self.dequantize(self.input(name, (2, 4, 6, 6), dtype), **how)

    def rows(self, name: str = "x", dtype: str = "uint8", **how: Any) -> Value:
        return self.dequantize(self.input(name, (5, 12), dtype), **how)

    def convolution(self, x: Value, bias: Value | None = None, **geometry: Any) -> Value:
        """With weights of eight channels, each with a scale of its own."""
        scale = self.generator.random(8).astype(np.float32) / 500
        how = GEOMETRY | geometry
        shape = (8, x.shape[1] // how["groups"], 3, 3)
        w = self.dequantize(self.weights(*shape), scale, np.zeros(8))
        return self.emit("convolution", [x, w, bias], **how)[0]

    def product(self, x: Value) -> Value:
        scale = self.generator.random(7).astype(np.float32) / 500
        w = self.dequantize(self.weights(x.shape[-1], 7), scale, None, axis=1)
        return self.matmul(x, w)

    def clip(self, x: Value, lowest: float, highest: float) -> Value:
        kept = ("maximum", ("input", 0), ("number", lowest))
        return self.map(("minimum", kept, ("number", highest)), x)


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
