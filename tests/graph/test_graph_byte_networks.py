"""Small networks in 8 bits, drawn at random, on one thread and two: sizes that cases leave out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byte_graphs import Bytes

import dlprim
from dlprim.graph import Graph, Value, interpret
from dlprim.graph.compiled import compile_graph

pytestmark = pytest.mark.every_level

CHANNELS = (3, 5, 8, 16, 24, 40, 64, 96)


class Drawn(Bytes):
    """A network of convolutions, sums, maxima and joins, each of which ends in 8 bits."""

    def choose(self, *choices: Any) -> Any:
        return choices[int(self.generator.integers(len(choices)))]

    def in_8_bits(self, y: Value) -> Value:
        dtype, zeros = self.choose(("uint8", (0, 120)), ("int8", (-7, 0)))
        scale, zero = float(self.generator.uniform(0.02, 0.2)), self.choose(*zeros)
        return self.dequantize(self.quantize(y, scale, zero, dtype), scale, zero)

    def filtered(self, x: Value, channels: int, size: int, groups: int = 1, **how: Any) -> Value:
        shape = (channels, x.shape[1] // groups, size, size)
        spread = 20 * np.sqrt(np.prod(shape[1:]))
        scale = (self.generator.uniform(0.3, 1, channels) / spread).astype(np.float32)
        w = self.dequantize(self.weights(*shape), scale, self.choose(None, np.zeros(channels)))
        bias = self.choose(None, self.floats(channels))
        around = how.get("dilations", (1, 1))[0] * (size // 2)
        how = {"strides": (1, 1), "dilations": (1, 1)} | how
        padding = ((around, around), (around, around))
        y = self.emit("convolution", [x, w, bias], **how, padding=padding, groups=groups)[0]
        function = self.choose("none", "relu", "clip")
        return self.clip(y, 0, 6) if function == "clip" else self.applied(function, y)

    def applied(self, function: str, y: Value) -> Value:
        return y if function == "none" else self.apply(function, y)

    def next_layer(self, x: Value) -> Value:
        channels, size = x.shape[1], self.choose(1, 1, 3, 5)
        steps = self.choose((1, 1), (2, 2))
        kind = self.choose("more", "more", "each", "sum", "sum", "maxima", "join")
        if kind == "more":
            how = {"strides": steps, "dilations": self.choose((1, 1), (2, 2))}
            return self.in_8_bits(self.filtered(x, self.choose(*CHANNELS), size, **how))
        if kind == "each":
            return self.in_8_bits(self.filtered(x, channels, size, channels, strides=steps))
        if kind == "join":
            y = self.in_8_bits(self.filtered(x, self.choose(*CHANNELS), 1))
            return self.in_8_bits(self.concat([x, y], 1))
        if kind == "maxima":
            how = {"strides": (1, 1), "dilations": (1, 1), "padding": ((1, 1), (1, 1))}
            how |= {"kernel": (3, 3), "counts": x.shape[2:], "counts_padding": False}
            return self.in_8_bits(self.emit("pool", [x], function="max", **how)[0])
        y = self.filtered(x, channels, size)
        y = self.choose(y, self.in_8_bits(y))
        y = self.apply("add", *self.choose((x, y), (y, x)))
        return self.in_8_bits(self.applied(self.choose("none", "relu"), y))

    def network(self) -> Graph:
        height, width = (int(n) for n in self.generator.integers(3, 30, 2))
        shape = (self.choose(1, 2, 3), self.choose(*CHANNELS), height, width)
        y = self.dequantize(self.input("x", shape, self.choose("uint8", "int8")), 0.05, 3)
        for _ in range(self.choose(1, 2, 3, 4)):
            y = self.next_layer(y)
        return self.graph([self.choose(y, self.quantize(y, 0.1))])


@pytest.mark.parametrize("seed", range(60))
def test_drawn_networks_give_what_their_nodes_say(seed: int) -> None:
    graph = Drawn(seed).network()
    limits = np.iinfo(graph.inputs[0].dtype)
    random = np.random.default_rng(seed)
    drawn = random.integers(limits.min, limits.max, graph.inputs[0].shape, endpoint=True)
    x = drawn.astype(graph.inputs[0].dtype)
    compiled = compile_graph(graph)
    results = []
    for count in (1, 2):
        dlprim.set_num_threads(count)
        results.append(np.array(compiled.run([x])[0]))
    np.testing.assert_array_equal(*results)
    (expected,) = interpret(graph, [x])
    assert (results[0].dtype, results[0].shape) == (expected.dtype, expected.shape)
    difference = np.abs(results[0].astype(np.float64) - expected)
    step = 1 if expected.dtype.kind in "iu" else 1e-4 * np.abs(expected).max()
    # Where sums are rounded again, a half may fall to the other side.
    assert (difference > step).mean() < 0.01
