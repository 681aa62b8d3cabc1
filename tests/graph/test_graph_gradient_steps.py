"""What gradients are made of runs as steps of the core, not as calls of Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dlprim
from dlprim.graph import Builder, Graph, Value, gradient, interpret
from dlprim.graph.compiled import compile_graph
from drawing import RNG

Arrays = list[np.ndarray[Any, Any]]


def _drawn(graph: Graph) -> Arrays:
    return [RNG.standard_normal(it.shape).astype(it.dtype) for it in graph.inputs]


def _check(graph: Graph, arrays: Sequence[Any], tolerance: float = 1e-4) -> None:
    """No call of Python, and what the interpreter computes in float64."""
    compiled = compile_graph(graph)
    assert compiled.steps()[1] == 0, compiled.explain()
    for found, right in zip(compiled.run(arrays), interpret(graph, arrays), strict=True):
        right = np.float64(right)
        atol = tolerance * (1 + np.abs(right).max())
        np.testing.assert_allclose(np.float64(found), right, rtol=tolerance, atol=atol)


def _joint(make: Callable[..., Value], *shapes: tuple[int, ...], dtype: Any = "float32") -> Graph:
    b = Builder()
    inputs = [b.input(f"x{place}", shape, dtype) for place, shape in enumerate(shapes)]
    y = make(b, *inputs)
    return gradient(b.graph([y]), [y], inputs)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("x", "w", "stride", "padding", "groups"),
    [
        ((2, 16, 14, 14), (32, 16, 3, 3), (1, 1), ((1, 1), (1, 1)), 1),
        ((2, 3, 23, 21), (8, 3, 7, 7), (2, 2), ((3, 3), (3, 3)), 1),
        ((2, 12, 9, 8), (12, 1, 3, 3), (2, 1), ((0, 1), (1, 2)), 12),
        ((3, 8, 7, 7), (6, 4, 1, 1), (2, 2), ((0, 0), (0, 0)), 2),
        ((2, 6, 33), (4, 6, 5), (3,), ((2, 1),), 1),
    ],
)
def test_convolutions(
    x: tuple[int, ...], w: tuple[int, ...], stride: Any, padding: Any, groups: int, dtype: str
) -> None:
    """Of weights that a run is given, forward and both ways backward."""
    form = {"strides": stride, "padding": padding, "groups": groups}
    form["dilations"] = (1,) * len(stride)
    kind = np.dtype(np.float32 if dtype == "float32" else ml_dtypes.bfloat16)
    joint = _joint(lambda b, *v: b.emit("convolution", v, **form)[0], x, w, dtype=kind)
    assert [node.operator for node in joint.nodes] == [
        "convolution",
        "transposed_convolution",
        "convolution_weights_gradient",
    ]
    _check(joint, _drawn(joint), 1e-4 if dtype == "float32" else 2e-2)


@pytest.mark.parametrize("function", ["max", "mean"])
def test_pools(function: str) -> None:
    how = {"kernel": (3, 2), "strides": (2, 2), "dilations": (1, 1), "counts": (4, 3)}
    how |= {"padding": ((1, 1), (0, 0)), "counts_padding": False, "function": function}
    joint = _joint(lambda b, x: b.emit("pool", [x], **how)[0], (2, 19, 7, 6))
    _check(joint, _drawn(joint))
    same = [np.zeros((2, 19, 7, 6), np.float32), *_drawn(joint)[1:]]
    _check(joint, same)  # where all elements are as large


def test_norms_and_elements_of_parameters_that_a_run_is_given() -> None:
    def make(b: Builder, x: Value, weight: Value, bias: Value, more: Value) -> Value:
        (y,) = b.emit("normalize", [x, weight, bias], axes=1, epsilon=1e-5, rms=False)
        (y,) = b.emit("normalize", [b.apply("gelu", y), more, None], axes=1, epsilon=1e-5, rms=True)
        return b.emit("batch_norm", [y, weight, bias], epsilon=1e-5)[0]

    joint = _joint(make, (9, 64), (64,), (64,), (64,))
    _check(joint, _drawn(joint))


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_tables(axis: int, kind: Any, dtype: str) -> None:
    """Rows that are read many times, never, and from the end."""
    b = Builder()
    x = b.input("x", (40, 24), np.dtype(np.float32 if dtype == "float32" else ml_dtypes.bfloat16))
    places = b.input("places", (3, 50), kind)
    y = b.gather(x, places, axis)
    joint = gradient(b.graph([y]), [y], [x])
    table, _, weights = _drawn(joint)
    indices = RNG.integers(-x.shape[axis], x.shape[axis], (3, 50)).astype(kind)
    scatter = Graph(joint.inputs, joint.outputs[1:], joint.nodes, joint.constants)
    _check(scatter, [table, indices, weights], 1e-5 if dtype == "float32" else 2e-2)
    indices[1, 7] = x.shape[axis]
    with pytest.raises(IndexError, match="outside of"):
        compile_graph(scatter).run([table, indices, weights])


def test_results_are_the_same_bits_for_any_number_of_threads() -> None:
    def make(b: Builder, table: Value, w: Value, image: Value, filters: Value) -> Value:
        places = b.constant(np.arange(256).reshape(16, 16) % 11)
        rows = b.matmul(b.gather(table, places, 0), w)
        form = {"strides": (1, 1), "dilations": (1, 1), "padding": ((1, 1), (1, 1)), "groups": 1}
        (y,) = b.emit("convolution", [image, filters], **form)
        total = b.reduce("sum", b.apply("tanh", rows), (0, 1, 2))
        return b.apply("multiply", total, b.reduce("mean", y, (0, 1, 2, 3)))

    joint = _joint(make, (11, 32), (32, 48), (4, 16, 12, 12), (16, 16, 3, 3))
    compiled, arrays = compile_graph(joint), _drawn(joint)
    before, results = dlprim.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            dlprim.set_num_threads(count)
            results.append([it.tobytes() for it in compiled.run(arrays)])
    finally:
        dlprim.set_num_threads(before)
    assert results[0] == results[1] == results[2]
