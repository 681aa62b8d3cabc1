"""What calibration decides, and that graphs with it compute in 8 bits and lose little."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byte_graphs import GEOMETRY, POOL

from dlprim.graph import Builder, Graph, Value, interpret
from dlprim.graph.passes import optimized
from dlprim.graph.passes.precision import compute_in_8_bits
from dlprim.graph.passes.precision.parameters import Parameters
from dlprim.graph.quantization import Settings, Table, calibrate, insert
from dlprim.graph.quantization.ranges import ranges
from dlprim.graph.verify import verify


class Network(Builder):
    """Two residual blocks behind a pool, then means and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = np.random.default_rng(0)

    def drawn(self, *shape: int) -> Value:
        fan = np.sqrt(np.prod(shape[1:])).astype(np.float32)
        return self.constant(self.generator.standard_normal(shape, np.float32) / fan)

    def convolution(self, name: str, x: Value, channels: int, size: int = 3) -> Value:
        self.name = name
        inputs = [x, self.drawn(channels, x.shape[1], size, size), self.drawn(channels)]
        around = ((size // 2, size // 2),) * 2
        y = self.emit("convolution", inputs, **GEOMETRY | {"padding": around})[0]
        self.name = ""
        return y

    def block(self, name: str, x: Value, channels: int) -> Value:
        y = self.apply("relu", self.convolution(f"{name}a", x, channels))
        y = self.convolution(f"{name}b", y, channels)
        if channels != x.shape[1]:
            x = self.convolution(f"{name}c", x, channels, 1)
        return self.apply("relu", self.apply("add", y, x))


def network(samples: int = 2) -> Graph:
    b = Network()
    x = b.input("image", (samples, 3, 12, 12), "float32")
    y = b.apply("relu", b.convolution("first", x, 16))
    y = b.emit("pool", [y], **POOL | {"counts": (6, 6)})[0]
    y = b.block("two", b.block("one", y, 16), 32)
    y = b.reduce("mean", y, (2, 3))
    b.name = "last"
    y = b.matmul(y, b.drawn(32, 10))
    return b.graph([b.apply("add", y, b.drawn(10))])


def images(samples: int, seed: int) -> list[Any]:
    return [np.random.default_rng(seed).standard_normal((samples, 3, 12, 12), np.float32)]


GRAPH = network()
BATCHES = [(GRAPH, images(2, seed)) for seed in range(3)]
LAYERS = ["first", "onea", "oneb", "twoa", "twob", "twoc", "last"]


def operators(graph: Graph, table: Table) -> list[str]:
    whole = insert(graph, table)
    verify(whole)
    return [node.operator for node in compute_in_8_bits(whole).nodes]


def relative_error(graph: Graph, table: Table, arrays: list[Any]) -> float:
    expected = interpret(graph, arrays)[0]
    (result,) = interpret(compute_in_8_bits(insert(graph, table)), arrays)
    return float(np.linalg.norm(result - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("method", ["minmax", "percentile", "entropy"])
def test_all_between_the_first_layer_and_the_last_one_is_in_8_bits(
    method: str, symmetric: bool
) -> None:
    table = calibrate(BATCHES, Settings(method=method, symmetric=symmetric))
    assert sorted(name.split(":")[0] for name in table.layers) == sorted(LAYERS)
    layer = "quantized_convolution"
    expected = ["quantize", layer, "pool", *[layer] * 5]
    expected += ["dequantize", "reduce", "quantize", "quantized_matmul"]
    assert operators(GRAPH, table) == expected
    assert {it.dtype for it in table.arrays.values()} == {"int8" if symmetric else "uint8"}
    assert relative_error(GRAPH, table, images(2, 9)) < 0.03
    # The same table for other shapes.
    other = network(3)
    assert operators(other, table) == expected
    assert relative_error(other, table, images(3, 9)) < 0.03


def test_layers_stay_in_floats_by_name_and_by_their_error() -> None:
    table = calibrate(BATCHES, Settings(exclude=frozenset({"oneb", "last"})))
    assert not {"oneb:convolution", "last:matmul"} & {*table.layers, *table.excluded}
    assert {"convolution", "matmul"} <= set(operators(GRAPH, table))
    worst = max(errors := calibrate(BATCHES, Settings()).layers, key=lambda it: errors[it])
    table = calibrate(BATCHES, Settings(max_error=errors[worst] * 0.999))
    assert table.excluded == {worst: errors[worst]}
    assert table.layers == {name: it for name, it in errors.items() if name != worst}
    assert operators(GRAPH, table).count(worst.split(":")[1]) == 1
    with pytest.raises(ValueError, match="exclude names 'onex', which is no node of the model"):
        calibrate(BATCHES, Settings(exclude=frozenset({"onex"})))
    with pytest.raises(ValueError, match="no layer that can be quantised and is not excluded"):
        calibrate(BATCHES, Settings(exclude=frozenset(LAYERS)))


def test_products_of_what_is_computed_softmax_and_norms_stay_in_floats() -> None:
    b = Network()
    x = b.input("x", (5, 16), "float32")
    mask = b.input("mask", (5, 5), "float32")
    q, k = b.matmul(x, b.drawn(16, 16)), b.matmul(x, b.drawn(16, 16))
    scores = b.apply("add", b.matmul(q, b.transpose(k, (1, 0))), mask)
    y = b.matmul(b.emit("softmax", [scores], axis=-1, log=False)[0], x)
    inputs = [y, b.drawn(16), b.drawn(16)]
    y = b.emit("normalize", inputs, axes=1, rms=False, epsilon=1e-5)[0]
    graph = b.graph([b.apply("add", y, x)])
    arrays = [np.random.default_rng(0).standard_normal(it.shape, np.float32) for it in graph.inputs]
    arrays[1][:] = np.finfo(np.float32).min * (np.arange(5) > 2)
    table = calibrate([(graph, arrays)], Settings())
    assert list(table.arrays) == ["x"]
    assert operators(graph, table) == [
        "quantize", "quantized_matmul", "quantized_matmul", "transpose", "matmul", "map",
        "softmax", "matmul", "normalize", "map",
    ]  # fmt: skip
    assert relative_error(graph, table, arrays) < 0.03


def attending(samples: int = 2, scaled: str = "scores") -> Graph:
    """Heads of a residual stream, scaled as exporters do it."""
    b = Network()
    x = b.input("x", (samples, 7, 24), "float32")
    mask = b.input("mask", (samples, 1, 1, 7), "float32")

    def heads(name: str, axes: tuple[int, ...]) -> Value:
        b.name = name
        y = b.apply("add", b.matmul(x, b.drawn(24, 24)), b.drawn(24))
        return b.transpose(b.reshape(y, (samples, 7, 3, 8)), axes)

    q, k, v = heads("q", (0, 2, 1, 3)), heads("k", (0, 2, 3, 1)), heads("v", (0, 2, 1, 3))
    b.name = "scores"
    root = b.constant(np.float32(8**-0.25))
    if scaled == "operands":
        q, k = b.apply("multiply", q, root), b.apply("multiply", root, k)
    scores = b.matmul(q, k)
    if scaled == "scores":
        scores = b.apply("divide", scores, b.constant(np.float32(8**0.5)))
    shares = b.emit("softmax", [b.apply("add", scores, mask)], axis=-1, log=False)[0]
    b.name = "attend"
    y = b.reshape(b.transpose(b.matmul(shares, v), (0, 2, 1, 3)), (samples, 7, 24))
    b.name = "last"
    return b.graph([b.apply("add", b.matmul(y, b.drawn(24, 24)), x)])


def attended(samples: int, seed: int) -> list[Any]:
    generator = np.random.default_rng(seed)
    mask = np.where(generator.random((samples, 1, 1, 7)) < 0.8, np.float32(0), np.float32(-1e9))
    return [generator.standard_normal((samples, 7, 24), np.float32), mask]


@pytest.mark.parametrize("method", ["minmax", "percentile", "entropy"])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("scaled", ["scores", "operands"])
def test_attention_multiplies_bytes_and_moves_them(
    scaled: str, symmetric: bool, method: str
) -> None:
    graph = attending(scaled=scaled)
    batches = [(graph, attended(2, seed)) for seed in range(3)]
    table = calibrate(batches, Settings(method=method, symmetric=symmetric))
    assert list(table.layers) == [
        "q:matmul", "k:matmul", "v:matmul", "attend:matmul", "last:matmul",
    ]  # fmt: skip
    assert 0 < table.layers["attend:matmul"] < 0.05
    for samples in (2, 3):
        other = attending(samples, scaled)
        whole = optimized(insert(other, table))
        verify(whole)
        moves = ("reshape", "transpose", "expand")
        assert [it.operator for it in whole.nodes if it.operator not in moves] == [
            "quantize", *["quantized_matmul"] * 3, "quantized_attention", "quantized_matmul", "map",
        ]  # fmt: skip
        arrays = attended(samples, 9)
        (right,), (found,) = interpret(other, arrays), interpret(whole, arrays)
        assert np.linalg.norm(found - right) / np.linalg.norm(right) < 0.03


@pytest.mark.parametrize("name", ["scores", "attend"])
def test_attention_stays_in_floats_as_a_whole(name: str) -> None:
    graph = attending()
    batches = [(graph, attended(2, 0))]
    table = calibrate(batches, Settings(exclude=frozenset({name})))
    assert "attend:matmul" not in {*table.layers, *table.excluded}
    assert "attention" in [it.operator for it in optimized(insert(graph, table)).nodes]
    errors = calibrate(batches, Settings(max_error=0)).excluded
    table = calibrate(batches, Settings(max_error=errors["attend:matmul"] * 0.999))
    assert "attend:matmul" in table.excluded
    assert "scores:softmax" not in table.arrays


def visited(*batches: Any) -> Any:
    def visit(see: Any) -> None:
        for batch in batches:
            see([np.asarray(batch, np.float32)])

    return visit


def test_ranges_hold_zero_and_leave_out_what_is_rare() -> None:
    drawn = np.random.default_rng(0).standard_normal(100_000)
    assert ranges(visited([3, 5], [-1, 2]), 1, "minmax", 0, False) == [(-1, 5)]
    assert ranges(visited([3, 5]), 1, "minmax", 0, False) == [(0, 5)]
    rare = visited(drawn, [1000.0])
    assert ranges(rare, 1, "minmax", 0, False)[0][1] == 1000
    low, high = ranges(rare, 1, "percentile", 99, False)[0]
    assert drawn.min() <= low < -1
    assert 1 < high < 5
    less = visited(drawn, [40.0])
    for symmetric in (False, True):
        low, high = ranges(less, 1, "entropy", 0, symmetric)[0]
        assert 3 < high < 10
    assert ranges(visited(np.zeros(9)), 1, "entropy", 0, False) == [(0, 0)]
    assert ranges(visited(np.zeros(9)), 1, "percentile", 99, False) == [(0, 0)]
    assert ranges(visited(np.zeros(0)), 1, "percentile", 99, False) == [(0, 0)]
    for value in (np.nan, np.inf):
        with pytest.raises(ValueError, match="no finite numbers"):
            ranges(visited([1, value]), 1, "minmax", 0, False)


def test_a_table_is_read_as_it_is_written() -> None:
    table = calibrate(BATCHES, Settings(max_error=0.0085))
    assert table.excluded
    assert Table.of(table.document()) == table


@pytest.mark.parametrize(
    "document",
    [
        None,
        {},
        {"arrays": [], "layers": {}, "excluded": {}},
        {"arrays": {"x": [1, 2]}, "layers": {}, "excluded": {}},
        {"arrays": {"x": [1, 2, "int4"]}, "layers": {}, "excluded": {}},
        {"arrays": {"x": [0, 2, "int8"]}, "layers": {}, "excluded": {}},
        {"arrays": {}, "layers": {"x": "far"}, "excluded": {}},
    ],
)
def test_what_is_no_table_is_refused(document: Any) -> None:
    with pytest.raises(ValueError, match="its quantisation table"):
        Table.of(document)


def test_what_a_graph_does_not_have_is_left_out() -> None:
    table = Table({"other:map": Parameters(1.0, 0, "int8")}, {"other:matmul": 0.0}, {})
    assert operators(GRAPH, table) == [node.operator for node in GRAPH.nodes]
