"""The networks of bench/shapes/graphs.csv as graphs, for plans to be priced.

As exporters write them, with one set of weights for all layers of a shape: what weights hold, no
plan asks.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dlprim.graph import Builder, Graph, Value

SHAPES = Path(__file__).parents[1] / "bench" / "shapes"
_RESNET50 = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # width, blocks, stride
# Expansion, channels, blocks and stride of MobileNetV2's stages.
_MOBILE = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
    (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip
_LAYERS = 2  # of the twelve of transformers, which are alike


def rows(name: str) -> list[dict[str, str]]:
    """Of a workload file."""
    with (SHAPES / name).open() as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def priced_network(row: dict[str, str], batch: int) -> Graph:
    """Of a row of graphs.csv."""
    made = _Network()
    if row["kind"] == "mlp":
        return made.perceptron(batch, [int(width) for width in row["layers"].split("x")])
    sizes = {key: int(row[key] or 0) for key in ("seq", "hidden", "heads")}
    if row["kind"] == "mha":
        return made.attention_alone(batch, **sizes)
    builders: dict[str, Callable[..., Graph]] = {
        "resnet50": made.resnet50,
        "mobilenet_v2": made.mobilenet_v2,
        "bert_base": made.bert,
        "bert_base_384": made.bert,
        "gpt2_prefill": made.gpt2,
        "vit_b16": made.vit,
    }
    return builders[row["name"]](batch, **sizes)


class _Network:
    def __init__(self) -> None:
        self.builder = Builder()
        self._drawn: dict[Any, np.ndarray[Any, Any]] = {}

    def _constant(self, *shape: int, role: str = "") -> Value:
        key = (shape, role)
        if key not in self._drawn:
            random = np.random.default_rng([len(self._drawn), *shape])
            self._drawn[key] = random.standard_normal(shape, np.float32)
        return self.builder.constant(self._drawn[key])

    # ------------------------------------------------------------ rows

    def perceptron(self, batch: int, widths: list[int]) -> Graph:
        x = self.builder.input("x", (batch, widths[0]), "float32")
        for width in widths[1:]:
            x = self.builder.apply("relu", self._linear(x, width))
        return self.builder.graph([x])

    def attention_alone(self, batch: int, seq: int, hidden: int, heads: int) -> Graph:
        b = self.builder
        shape = (batch, heads, seq, hidden // heads)
        q, k, v = (b.input(name, shape, "float32") for name in "qkv")
        mask = b.input("mask", (batch, 1, 1, seq), "float32")
        return b.graph([self._joined(self._attention(q, k, v, mask))])

    def resnet50(self, batch: int, **_: int) -> Graph:
        b = self.builder
        x = b.input("x", (batch, 3, 224, 224), "float32")
        x = self._pool(b.apply("relu", self._convolution(x, 64, 7, 2)))
        for width, blocks, first in _RESNET50:
            for stride in (first, *[1] * (blocks - 1)):
                y = b.apply("relu", self._convolution(x, width, 1))
                y = b.apply("relu", self._convolution(y, width, 3, stride))
                y = self._convolution(y, 4 * width, 1)
                if x.shape != y.shape:
                    x = self._convolution(x, 4 * width, 1, stride, role="shortcut")
                x = b.apply("relu", b.apply("add", y, x))
        return b.graph([self._linear(b.reduce("mean", x, (2, 3)), 1000)])

    def mobilenet_v2(self, batch: int, **_: int) -> Graph:
        b = self.builder
        x = self._clipped(
            self._convolution(b.input("x", (batch, 3, 224, 224), "float32"), 32, 3, 2)
        )
        for expansion, outputs, blocks, first in _MOBILE:
            for stride in (first, *[1] * (blocks - 1)):
                wide = expansion * x.shape[1]
                y = x if expansion == 1 else self._clipped(self._convolution(x, wide, 1))
                y = self._clipped(self._convolution(y, wide, 3, stride, groups=wide))
                y = self._convolution(y, outputs, 1)
                x = b.apply("add", x, y) if x.shape == y.shape else y
        x = self._clipped(self._convolution(x, 1280, 1))
        return b.graph([self._linear(b.reduce("mean", x, (2, 3)), 1000)])

    def bert(self, batch: int, seq: int, hidden: int, heads: int) -> Graph:
        b = self.builder
        ids = b.input("input_ids", (batch, seq), "int64")
        given = b.cast(b.input("attention_mask", (batch, seq), "int64"), "float32")
        one, least = (b.constant(np.float32(number)) for number in (1, -3.4e38))
        mask = b.apply("multiply", b.apply("subtract", one, given), least)
        mask = b.reshape(mask, (batch, 1, 1, seq))
        x = b.gather(self._constant(30522, hidden), ids, 0)
        x = self._norm(b.apply("add", x, self._constant(seq, hidden, role="positions")))
        for _ in range(_LAYERS):
            x = self._norm(b.apply("add", self._heads(x, heads, mask), x))
            x = self._norm(b.apply("add", self._wide(x, "gelu"), x))
        return b.graph([x])

    def gpt2(self, batch: int, seq: int, hidden: int, heads: int) -> Graph:
        b = self.builder
        ids = b.input("input_ids", (batch, seq), "int64")
        hidden_ones = np.where(np.tri(seq, dtype=bool), 0, np.finfo(np.float32).min)
        mask = b.constant(hidden_ones.astype(np.float32)[None, None])
        table = self._constant(50257, hidden)
        x = b.apply("add", b.gather(table, ids, 0), self._constant(seq, hidden, role="positions"))
        for _ in range(_LAYERS):
            x = b.apply("add", self._heads(self._norm(x), heads, mask), x)
            x = b.apply("add", self._wide(self._norm(x), "gelu_tanh"), x)
        last = b.slice(x, (0, seq - 1, 0), (batch, 1, hidden), (1, 1, 1))
        return b.graph([b.matmul(self._norm(last), b.transpose(table, (1, 0)))])

    def vit(self, batch: int, seq: int, hidden: int, heads: int) -> Graph:
        b = self.builder
        x = self._convolution(b.input("x", (batch, 3, 224, 224), "float32"), hidden, 16, 16, pad=0)
        x = b.transpose(b.reshape(x, (batch, hidden, seq - 1)), (0, 2, 1))
        first = b.expand(self._constant(1, 1, hidden), (batch, 1, hidden))
        x = b.apply("add", b.concat([first, x], 1), self._constant(seq, hidden, role="positions"))
        for _ in range(_LAYERS):
            x = b.apply("add", self._heads(self._norm(x), heads, None), x)
            x = b.apply("add", self._wide(self._norm(x), "gelu"), x)
        return b.graph([self._norm(x)])

    # ------------------------------------------------------------ layers

    def _linear(self, x: Value, width: int, role: str = "") -> Value:
        product = self.builder.matmul(x, self._constant(x.shape[-1], width, role=role))
        return self.builder.apply("add", product, self._constant(width, role=role))

    def _convolution(self, x: Value, k: int, size: int, stride: int = 1, **options: Any) -> Value:
        groups, pad = options.get("groups", 1), options.get("pad", size // 2)
        role = options.get("role", "")
        w = self._constant(k, x.shape[1] // groups, size, size, role=role)
        y = self.builder.emit(
            "convolution", [x, w],
            groups=groups, strides=(stride,) * 2, dilations=(1, 1), padding=((pad, pad),) * 2,
        )[0]  # fmt: skip
        return self.builder.apply("add", y, self._constant(k, 1, 1, role=role))

    def _pool(self, x: Value) -> Value:
        side = x.shape[2] // 2
        return self.builder.emit(
            "pool", [x],
            function="max", kernel=(3, 3), strides=(2, 2), dilations=(1, 1),
            padding=((1, 1),) * 2, counts=(side, side), counts_padding=False,
        )[0]  # fmt: skip

    def _clipped(self, x: Value) -> Value:
        low, high = (self.builder.constant(np.float32(limit)) for limit in (0, 6))
        return self.builder.apply("minimum", self.builder.apply("maximum", x, low), high)

    def _norm(self, x: Value) -> Value:
        weights = [self._constant(x.shape[-1], role=role) for role in ("scale", "shift")]
        return self.builder.emit(
            "normalize", [x, *weights], axes=1, epsilon=1e-5, rms=False
        )[0]  # fmt: skip

    def _wide(self, x: Value, activation: str) -> Value:
        wide = self.builder.apply(activation, self._linear(x, 4 * x.shape[-1]))
        return self._linear(wide, x.shape[-1])

    def _heads(self, x: Value, heads: int, mask: Value | None) -> Value:
        n, seq, hidden = x.shape
        q, k, v = (
            self.builder.transpose(
                self.builder.reshape(
                    self._linear(x, hidden, role), (n, seq, heads, hidden // heads)
                ),
                (0, 2, 1, 3),
            )
            for role in "qkv"
        )
        return self._linear(self._joined(self._attention(q, k, v, mask)), hidden, "joined")

    def _attention(self, q: Value, k: Value, v: Value, mask: Value | None) -> Value:
        b = self.builder
        scale = b.constant(np.float32(q.shape[-1] ** -0.5))
        scores = b.apply("multiply", b.matmul(q, b.transpose(k, (0, 1, 3, 2))), scale)
        if mask is not None:
            scores = b.apply("add", scores, mask)
        return b.matmul(b.emit("softmax", [scores], axis=-1, log=False)[0], v)

    def _joined(self, heads: Value) -> Value:
        n, count, seq, size = heads.shape
        return self.builder.reshape(
            self.builder.transpose(heads, (0, 2, 1, 3)), (n, seq, count * size)
        )
