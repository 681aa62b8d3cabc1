"""Forward and backward as one graph: which passes and steps it comes to, and that it is right."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dlprim
from dlprim.graph import Builder, Graph, Value, gradient, interpret
from dlprim.graph.compiled import CompiledGraph, compile_graph
from drawing import RNG, seed_by

Arrays = list[np.ndarray[Any, Any]]
Shape = tuple[int, ...]


def joint_of(make: Callable[..., Value], *shapes: Shape) -> Graph:
    """Of the first arguments, which are floats, all of them weights or inputs."""
    seed_by(str(shapes))
    b = Builder()
    inputs = [b.input(f"x{place}", shape, "float32") for place, shape in enumerate(shapes)]
    y = make(b, *inputs)
    return gradient(b.graph([y]), [y], inputs)


def drawn(graph: Graph) -> Arrays:
    return [RNG.standard_normal(it.shape).astype(it.dtype) for it in graph.inputs]


def checked(graph: Graph, dtype: str = "float32", tolerance: float = 2e-4) -> CompiledGraph:
    """Compiled: no call of Python, and what the interpreter computes in float64."""
    compiled, arrays = compile_graph(graph, dtype=dtype), drawn(graph)
    assert compiled.steps()[1] == 0, compiled.explain()
    for found, right in zip(compiled.run(arrays), interpret(graph, arrays), strict=True):
        assert found.dtype == right.dtype
        exact = np.asarray(right, np.float64)
        atol = tolerance * (1 + np.abs(exact).max(initial=0))
        np.testing.assert_allclose(np.float64(found), exact, rtol=tolerance, atol=atol)
    return compiled


def operators(compiled: CompiledGraph) -> list[str]:
    return [node.operator for node in compiled.graph.nodes]


def linear(b: Builder, x: Value, w: Value, bias: Value | None = None) -> Value:
    y = b.matmul(x, b.transpose(w, (1, 0)))
    return y if bias is None else b.apply("add", y, bias)


def layer_norm(b: Builder, x: Value, weight: Value, bias: Value) -> Value:
    return b.emit("normalize", [x, weight, bias], axes=1, epsilon=1e-5, rms=False)[0]


# ---------------------------------------------------------------- products


@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid", "relu6"])
@pytest.mark.parametrize("shape", [(5, 7), (2, 3, 16), (64, 33)])
def test_layers_end_with_bias_and_activation(activation: str, shape: Shape) -> None:
    """Of what a run computes, too; gradients by weights and biases need no pass of their own."""

    def make(b: Builder, x: Value, w: Value, bias: Value) -> Value:
        return b.apply(activation, linear(b, x, w, bias))

    compiled = checked(joint_of(make, shape, (19, shape[-1]), (19,)))
    first = next(node for node in compiled.graph.nodes if node.operator == "matmul")
    assert first.attributes["activation"] == activation
    assert len(first.inputs) == 3
    assert "copy" not in compiled.explain()
    assert re.findall(r": (\w+)\(", compiled.explain()) == ["formula"] * 4


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "swish", "hardswish"])
def test_activations_that_need_their_argument(activation: str) -> None:
    """The product ends with the bias; the gradient by that comes with the activation's."""

    def make(b: Builder, x: Value, w: Value, bias: Value) -> Value:
        return b.apply(activation, linear(b, x, w, bias))

    compiled = checked(joint_of(make, (40, 24), (48, 24), (48,)))
    first = next(node for node in compiled.graph.nodes if node.operator == "matmul")
    assert first.attributes.get("activation") is None
    assert len(first.inputs) == 3
    assert re.findall(r": (\w+)\(", compiled.explain()) == ["formula"] * 5


def test_a_bias_of_another_shape_or_type_stays_a_sum() -> None:
    def make(b: Builder, x: Value, w: Value, column: Value, batch: Value) -> Value:
        y = b.apply("add", linear(b, x, w), column)
        return b.apply("add", b.matmul(y, batch), b.reduce("sum", column, (0, 1)))

    checked(joint_of(make, (6, 7), (5, 7), (6, 1), (3, 5, 4)))


def test_gradients_by_slices_are_put_behind_each_other() -> None:
    """In the order in which they are read, and not added to zeros."""

    def make(b: Builder, x: Value, w: Value) -> Value:
        rows = b.transpose(b.reshape(linear(b, x, w), (2, 5, 3, 8)), (2, 0, 1, 3))
        q, k, v = (b.slice(rows, (at, 0, 0, 0), (1, 2, 5, 8), (1, 1, 1, 1)) for at in range(3))
        return b.apply("multiply", b.apply("exp", b.apply("multiply", q, k)), v)

    compiled = checked(joint_of(make, (2, 5, 12), (24, 12)))
    assert "pad" not in operators(compiled)
    assert "concat" in operators(compiled)
    assert compiled.explain().count(": copy(") == 3


def test_slices_that_leave_something_out_or_overlap_are_added() -> None:
    def make(b: Builder, x: Value) -> Value:
        low = b.slice(x, (0, 0), (3, 4), (1, 1))
        high = b.slice(x, (2, 0), (3, 4), (1, 1))
        return b.apply("multiply", b.apply("exp", low), high)

    checked(joint_of(make, (5, 4)))
    checked(joint_of(make, (6, 4)))


# ---------------------------------------------------------------- norms and losses


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(3, 20, 64), (1, 7, 33)])
def test_a_residual_block(shape: Shape, dtype: str) -> None:
    """Its norms and their gradients are steps that take the sums around them along."""

    def make(b: Builder, x: Value, w: Value, v: Value, weight: Value, bias: Value) -> Value:
        y = b.apply("add", x, linear(b, layer_norm(b, x, weight, bias), w))
        return b.apply("add", y, linear(b, b.apply("gelu", layer_norm(b, y, weight, bias)), v))

    width = shape[-1]
    joint = joint_of(make, shape, (width, width), (width, width), (width,), (width,))
    compiled = checked(joint, dtype, 2e-4 if dtype == "float32" else 5e-2)
    made = operators(compiled)
    assert made.count("add_normalize") == 1
    assert made.count("normalize_gradient") == 2
    text = compiled.explain()
    assert text.count(": add_layer_norm_backward(") == 2
    assert text.count(": add_layer_norm(") == 1


def test_rms_norms_of_weights_that_a_run_is_given() -> None:
    def make(b: Builder, x: Value, weight: Value) -> Value:
        return b.emit("normalize", [x, weight, None], axes=1, epsilon=1e-6, rms=True)[0]

    compiled = checked(joint_of(make, (70, 48), (48,)))
    assert ": rms_norm_backward(" in compiled.explain()


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("log", [False, True])
def test_softmaxes(axis: int, log: bool) -> None:
    compiled = checked(
        joint_of(lambda b, x: b.emit("softmax", [x], axis=axis, log=log)[0], (4, 6, 17))
    )
    assert f": {'log_' * log}softmax_backward(" in compiled.explain()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_cross_entropy_is_one_step(reduction: str, dtype: str) -> None:
    def make(b: Builder, x: Value, w: Value, weight: Value) -> Value:
        targets = b.constant(np.array([[0, 6, 3], [2, -1, 6]]), "targets")
        inputs = [linear(b, x, w), targets, b.apply("exp", weight)]
        how = {"ignored": -1, "reduction": reduction, "smoothing": 0.1}
        return b.emit("cross_entropy", inputs, **how)[0]

    joint = joint_of(make, (2, 3, 16), (7, 16), (7,))
    one = Graph(joint.inputs, joint.outputs[:3], joint.nodes, joint.constants)
    compiled = checked(one, dtype, 2e-4 if dtype == "float32" else 3e-2)
    assert compiled.explain().count(": cross_entropy(") == 1


def test_a_loss_that_nobody_differentiates_makes_no_gradient() -> None:
    b = Builder()
    x = b.input("x", (300, 40), "float32")
    targets = b.constant(np.zeros(300, np.int64), "targets")
    how = {"ignored": -1, "reduction": "mean", "smoothing": 0.0}
    y = b.emit("cross_entropy", [x, targets], **how)[0]
    assert checked(b.graph([y])).peak_bytes == 0


def test_elements_are_dropped_forward_and_backward_alike() -> None:
    def make(b: Builder, x: Value) -> Value:
        offset = b.constant(np.array(3), "offset")
        return b.apply("exp", b.emit("dropout", [x, offset], p=0.3, seed=11)[0])

    joint = joint_of(make, (9, 150))
    checked(joint)
    x, ones = np.ones((9, 150), np.float32), np.ones((9, 150), np.float32)
    _, by = compile_graph(joint).run([x, ones])
    kept = dlprim.dropout(x, 0.3, seed=11, offset=3)
    np.testing.assert_allclose(by, kept * np.exp(kept), rtol=1e-5)


# ---------------------------------------------------------------- sums


@pytest.mark.parametrize("rows", [1, 2, 63, 64, 65, 1000, 5000])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_sums_come_with_the_map_that_they_are_of(rows: int, dtype: Any) -> None:
    b = Builder()
    x, y = (b.input(name, (rows, 37), np.dtype(dtype)) for name in "xy")
    z = b.apply("multiply", x, b.apply("tanh", y))
    total = b.reduce("sum", b.cast(z, np.float32), (0,))
    compiled = compile_graph(b.graph([z, total]))
    arrays = drawn(Graph((x, y), (), (), {}))
    found, sums = compiled.run(arrays)
    exact = np.float64(arrays[0]) * np.tanh(np.float64(arrays[1]))
    size = 1e-5 if dtype == np.float32 else 1e-2
    np.testing.assert_allclose(np.float64(found), exact, rtol=size, atol=size)
    atol = size * np.abs(exact).sum(axis=0)
    assert (np.abs(sums - np.float64(found).sum(axis=0)) <= atol).all()


def test_rows_that_are_no_numbers_spoil_their_columns_alone() -> None:
    def make(b: Builder, x: Value, w: Value, bias: Value) -> Value:
        return b.apply("gelu", linear(b, x, w, bias))

    joint = joint_of(make, (80, 12), (20, 12), (20,))
    arrays = drawn(joint)
    arrays[3][70, 4], arrays[3][2, 5] = np.nan, np.inf
    y, by_x, by_w, by_bias = compile_graph(joint).run(arrays)
    assert np.isfinite(y).all()
    assert np.isnan(by_bias[4])
    assert np.isinf(by_bias[5]) or np.isnan(by_bias[5])
    assert np.isfinite(np.delete(by_bias, (4, 5))).all()
    assert np.isfinite(np.delete(by_x, (2, 70), 0)).all()
    assert np.isfinite(np.delete(by_w, (4, 5), 0)).all()


@pytest.mark.parametrize(("rows", "width"), [(0, 5), (3, 0)])
def test_nothing_at_all(rows: int, width: int) -> None:
    def make(b: Builder, x: Value, w: Value, bias: Value, weight: Value) -> Value:
        y = b.apply("relu", linear(b, layer_norm(b, x, weight, weight), w, bias))
        return b.emit("softmax", [y], axis=1, log=True)[0]

    joint = joint_of(make, (rows, 4), (width, 4), (width,), (4,))
    arrays = drawn(joint)
    for found, right in zip(
        compile_graph(joint).run(arrays), interpret(joint, arrays), strict=True
    ):
        assert found.shape == right.shape
        assert not found.any()


def test_results_are_the_same_bits_for_any_number_of_threads() -> None:
    def make(b: Builder, x: Value, w: Value, bias: Value, weight: Value, shift: Value) -> Value:
        y = b.apply("add", x, b.apply("gelu", linear(b, x, w, bias)))
        y = layer_norm(b, y, weight, shift)
        offset = b.constant(np.array(1), "offset")
        (y,) = b.emit("dropout", [y, offset], p=0.2, seed=3)
        targets = b.constant(np.arange(260) % 96, "targets")
        how = {"ignored": -1, "reduction": "mean", "smoothing": 0.1}
        return b.emit("cross_entropy", [linear(b, y, w), targets], **how)[0]

    joint = joint_of(make, (260, 96), (96, 96), (96,), (96,), (96,))
    compiled, arrays = compile_graph(joint), drawn(joint)
    assert same_bits(compiled.run, arrays)


def same_bits(run: Callable[[Sequence[Any]], Any], arrays: Arrays) -> bool:
    before, results = dlprim.get_num_threads(), []
    try:
        for count in (1, 2, 4):
            dlprim.set_num_threads(count)
            results.append([it.tobytes() for it in run(arrays)])
    finally:
        dlprim.set_num_threads(before)
    return results[0] == results[1] == results[2]
