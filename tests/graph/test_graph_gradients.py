"""Gradients of graphs: every operator against differences of the interpreter in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradient_calls  # noqa: F401  (which has more cases, as the next one)
import gradient_layers  # noqa: F401
import numpy as np
import pytest
from gradient_cases import CASES, Case, differentiable_functions, map_case

import dlprim.onnx.operators  # noqa: F401  (which names functions of calls)
from dlprim.graph import Builder, Graph, gradient, interpret
from dlprim.graph.compiled import compile_graph
from dlprim.graph.derivatives import DERIVATIVES
from dlprim.graph.expressions import FUNCTIONS
from dlprim.graph.operators import CALLS, OPERATORS
from dlprim.graph.verify import verify
from drawing import RNG, seed_by

Arrays = list[np.ndarray[Any, Any]]
_STEP = 1e-5
# Formulas, which the core computes in float32 alone, have a test of their own.
DRAWN = [name for name in CASES if name != "formula"]
ROWS = [(name, place) for name in DRAWN for place in range(len(CASES[name]))]


def _graph(case: Case, name: str, dtype: str) -> tuple[Graph, Graph]:
    """The graph of a case, and the joint one by all inputs."""
    seed_by(name)
    b = Builder()
    outputs = case(b, dtype)
    graph = b.graph(outputs)
    joint = gradient(graph, graph.outputs, graph.inputs)
    verify(joint)
    return graph, joint


def _drawn(graph: Graph) -> tuple[Arrays, Arrays]:
    """Inputs, and what outputs are weighted by."""
    inputs, outputs = graph.inputs, graph.outputs
    return (
        [np.asarray(RNG.standard_normal(it.shape)) for it in inputs],
        [np.asarray(RNG.standard_normal(it.shape)) for it in outputs],
    )


def _slopes(graph: Graph, arrays: Arrays, cotangents: Arrays, along: Arrays) -> float:
    """The difference of the weighted sum of outputs along a direction, over the step."""

    def total(sign: float) -> float:
        moved = [x + sign * _STEP * d for x, d in zip(arrays, along, strict=True)]
        results = interpret(graph, moved)
        return sum(float(np.sum(y * c)) for y, c in zip(results, cotangents, strict=True))

    return (total(1) - total(-1)) / (2 * _STEP)


def _check_differences(graph: Graph, arrays: Arrays, cotangents: Arrays, found: Arrays) -> None:
    """In three directions for each input."""
    for place, by in enumerate(found):
        for _ in range(3):
            along = [np.zeros_like(it) for it in arrays]
            along[place] = RNG.standard_normal(arrays[place].shape)
            expected = _slopes(graph, arrays, cotangents, along)
            size = float(np.sum(np.abs(by * along[place])))
            assert abs(np.sum(by * along[place]) - expected) <= 1e-6 * (1 + size), place


def _check(case: Case, name: str, compiled_too: bool = True) -> None:
    graph, joint = _graph(case, name, "float64")
    arrays, cotangents = _drawn(graph)
    results = interpret(joint, [*arrays, *cotangents])
    found = results[len(graph.outputs) :]
    for value, array in zip(graph.inputs, found, strict=True):
        assert array.shape == value.shape
        assert array.dtype == value.dtype
    _check_differences(graph, arrays, cotangents, found)
    if compiled_too:
        _, single = _graph(case, name, "float32")
        _check_rounding(single, [*arrays, *cotangents], results)


def _check_rounding(joint: Graph, arrays: Sequence[Any], expected: Arrays) -> None:
    made = compile_graph(joint).run([np.asarray(it, np.float32) for it in arrays])
    for found, right in zip(made, expected, strict=True):
        atol = 1e-5 * (1 + float(np.max(np.abs(right), initial=0)))
        np.testing.assert_allclose(found, right, rtol=2e-4, atol=atol)


@pytest.mark.parametrize(("operator", "place"), ROWS)
def test_gradients_are_differences(operator: str, place: int) -> None:
    _check(CASES[operator][place], f"{operator} {place}")


@pytest.mark.parametrize(("function", "count"), differentiable_functions())
def test_derivatives_are_differences(function: str, count: int) -> None:
    _check(map_case(function, count), function)


def test_formulas_have_the_gradients_of_the_notation() -> None:
    """Of a convolution, which is there as an operator."""
    seed_by("formula")
    b = Builder()
    (y,) = CASES["formula"][0](b, "float32")
    graph = b.graph([y])
    how = {"groups": 1, "strides": (1,), "dilations": (1,), "padding": ((0, 0),)}
    (other,) = b.emit("convolution", graph.inputs, **how)
    twin = b.graph([other])
    arrays = [RNG.standard_normal(it.shape).astype(np.float32) for it in (*graph.inputs, y)]
    expected = interpret(gradient(twin, [other], graph.inputs), arrays)
    joint = gradient(graph, [y], graph.inputs)
    _check_rounding(joint, arrays, expected)
    for found, right in zip(interpret(joint, arrays), expected, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------- the tables


def test_every_operator_has_a_gradient_or_a_reason_for_none() -> None:
    """And a test: a new row decides, and is drawn above."""
    tables = {**OPERATORS, **CALLS}
    del tables["call"]
    reasons = {name: row.gradient for name, row in tables.items() if isinstance(row.gradient, str)}
    assert all(len(reason.split()) > 2 for reason in reasons.values()), reasons
    assert set(tables) - set(reasons) == set(CASES) - set(reasons)
    assert set(DERIVATIVES) == set(FUNCTIONS)


@pytest.mark.parametrize("operator", DRAWN)
def test_gradients_have_gradients(operator: str) -> None:
    """They are nodes like others, but for those that say why not."""
    case, name = CASES[operator][0], f"second {operator}"
    graph, joint = _graph(case, name, "float64")
    values = [*graph.inputs, *joint.inputs[len(graph.inputs) :]]
    of = [joint.outputs[place] for place in range(len(graph.outputs), len(joint.outputs))]
    known = [it for it in of if it in joint.makers()]
    try:
        second = gradient(joint, known, values)
    except ValueError as error:
        assert "gradient" in str(error)  # noqa: PT017  (not all are refused)
        return
    arrays, cotangents = _drawn(graph)
    weights = [RNG.standard_normal(it.shape) for it in known]
    results = interpret(second, [*arrays, *cotangents, *weights])
    part = Graph(joint.inputs, tuple(known), joint.nodes, joint.constants)
    _check_differences(part, [*arrays, *cotangents], weights, results[len(joint.outputs) :])


# ---------------------------------------------------------------- the contract


def test_the_joint_graph_keeps_its_promises() -> None:
    b = Builder()
    x, unused = b.input("x", (2, 3), "float32"), b.input("unused", (4,), "float32")
    w = b.constant(np.ones((3, 2), np.float32), "w")
    y = b.apply("tanh", b.matmul(x, w))
    z = b.reduce("sum", y, (0, 1))
    graph = b.graph([y, z])
    joint = gradient(graph, [z, y, z], [w, unused, y, x])
    verify(joint)
    assert joint.inputs[:2] == graph.inputs
    assert [it.shape for it in joint.inputs[2:]] == [(), (2, 2), ()]
    assert joint.outputs[:2] == graph.outputs
    assert [it.shape for it in joint.outputs[2:]] == [(3, 2), (4,), (2, 2), (2, 3)]
    arrays = [np.float32(RNG.standard_normal((2, 3))), np.ones(4, np.float32)]
    one, zero = np.ones((), np.float32), np.zeros((2, 2), np.float32)
    _, _, by_w, by_unused, by_y, by_x = interpret(joint, [*arrays, one, zero, one])
    slope = 2 * (1 - np.tanh(arrays[0] @ np.ones((3, 2))) ** 2)
    np.testing.assert_allclose(by_y, np.full((2, 2), 2))
    np.testing.assert_allclose(by_w, arrays[0].T @ slope, rtol=1e-5)
    np.testing.assert_allclose(by_x, slope @ np.ones((2, 3)), rtol=1e-5)
    assert not by_unused.any()


def test_integers_and_conditions_carry_no_gradient() -> None:
    b = Builder()
    x = b.input("x", (5,), "float32")
    is_above = b.map(("greater", ("input", 0), ("number", 0.0)), x, dtype="bool")
    whole = b.cast(b.map(("multiply", ("input", 0), ("number", 2.5)), x), "int32")
    y = b.map(
        ("where", ("input", 0), ("input", 1), ("input", 2)), is_above, x, whole, dtype="float32"
    )
    graph = b.graph([y])
    joint = gradient(graph, [y], [x])
    given = np.float32([-1, 2, 0, 3, -4])
    _, by = interpret(joint, [given, np.full(5, 3, np.float32)])
    np.testing.assert_array_equal(by, np.where(given > 0, 3, 0))
    with pytest.raises(ValueError, match="expected floats"):
        gradient(graph, [y], [whole])
    with pytest.raises(ValueError, match="expected values of the graph"):
        gradient(graph, [b.input("other", (5,), "float32")], [x])


def test_equal_elements_share_and_kinks_are_flat() -> None:
    """As in PyTorch; windows pass it to the first."""
    b = Builder()
    x = b.input("x", (4,), "float64")
    zeros = b.constant(np.zeros(4))
    y = [b.apply("maximum", x, zeros), b.apply("relu", x), b.apply("abs", x)]
    y.append(b.reduce("max", x, (0,)))
    how = {"strides": (4,), "dilations": (1,), "padding": ((0, 0),), "counts": (1,)}
    image = b.reshape(x, (1, 1, 4))
    y += b.emit("pool", [image], function="max", kernel=(4,), counts_padding=False, **how)
    graph = b.graph(y)
    by = []
    for value in y:
        joint = gradient(graph, [value], [x])
        by.append(interpret(joint, [np.zeros(4), np.ones(value.shape)])[-1].tolist())
    assert by == [[0.5] * 4, [0] * 4, [0] * 4, [0.25] * 4, [1, 0, 0, 0]]


def test_what_has_no_gradient_is_refused_by_name_where_it_is_needed() -> None:
    b = Builder()
    x = b.input("x", (3,), "float32")
    b.name = "rounding"
    scale = b.constant(np.float32(0.1))
    (q,) = b.emit("quantize", [x, scale, None], dtype="int8", axis=0)
    (back,) = b.emit(
        "dequantize", [b.input("q", (3,), "int8"), scale, None], dtype="float32", axis=0
    )
    y = b.apply("multiply", x, back)
    graph = b.graph([y, q])
    assert len(gradient(graph, [y], [x]).outputs) == 3
    with pytest.raises(ValueError, match=r"node rounding \(dequantize\) has no gradient: 8-bit"):
        gradient(graph, [y], [scale])
    form = [((3,), x.dtype)]
    b.name = "votes"
    (z,) = b.call("bit_cast", [x], form, dtype="float32")
    with pytest.raises(ValueError, match=r"node votes \(call\): bit_cast has no gradient: it"):
        gradient(b.graph([z]), [z], [x])


def test_a_recurrent_layer_with_other_functions_is_refused() -> None:
    b = Builder()
    x, w, r = (
        b.input(n, s, "float32") for n, s in (("x", (2, 3, 4)), ("w", (5, 4)), ("r", (5, 5)))
    )
    functions = (("Softsign", 0.0, 0.0),)
    inputs = [x, w, r, None, None, None, None]
    y = b.emit("recurrent", inputs, cell="rnn", reverse=False, functions=functions)[0]
    with pytest.raises(ValueError, match="no gradient where functions is"):
        gradient(b.graph([y]), [y], [x])


@pytest.mark.parametrize("shape", [(0, 4, 5), (3, 4, 0), (0, 0, 0)])
def test_shapes_of_zero(shape: tuple[int, ...]) -> None:
    """Gradients of nothing are nothing, those by what nothing was made of are zeros."""
    b = Builder()
    x, w = b.input("x", shape, "float32"), b.input("w", (shape[2], 3), "float32")
    y = b.matmul(b.emit("softmax", [x], axis=1, log=False)[0], w)
    (y,) = b.emit("normalize", [y, None, None], axes=1, epsilon=1e-5, rms=False)
    z = b.reduce("sum", b.apply("multiply", y, y), (0, 1, 2))
    joint = gradient(b.graph([z]), [z], [x, w])
    verify(joint)
    arrays = [np.ones(it.shape, np.float32) for it in joint.inputs]
    for run in (compile_graph(joint).run, lambda given: interpret(joint, given)):
        _, by_x, by_w = run(arrays)
        assert by_x.shape == x.shape
        np.testing.assert_array_equal(by_w, np.zeros(w.shape))


def test_a_convolution_without_a_window_gives_zeros() -> None:
    b = Builder()
    x, w = b.input("x", (1, 3, 2, 2), "float32"), b.input("w", (4, 3, 3, 3), "float32")
    how = {"groups": 1, "strides": (1, 1), "dilations": (1, 1), "padding": ((0, 0), (0, 0))}
    (y,) = b.emit("convolution", [x, w], **how)
    joint = gradient(b.graph([y]), [y], [x, w])
    arrays = [np.ones(it.shape, np.float32) for it in joint.inputs]
    for found in (interpret(joint, arrays), compile_graph(joint).run(arrays)):
        assert [it.shape for it in found] == [(1, 4, 0, 0), x.shape, w.shape]
        assert not found[1].any()
        assert not found[2].any()
