"""Nodes of constants, which are computed ahead, give the bits that they give in a run.

Every case of ONNX's node tests is run with its numbers and with special values in their place: once
with all inputs constants, and once with one of them given, as in most networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import dlprim.onnx
from dlprim.graph import Builder, interpret
from dlprim.graph.compiled import compile_graph

onnx: Any = pytest.importorskip("onnx.numpy_helper", reason="onnx has the cases")
pytest.importorskip("onnx.backend.test.case.node", reason="onnx has the cases")
node_cases: Any = import_module("node_cases")

_FINITE = (1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 3, -3, 6, 88.8, -104, 1e-4, 1e-45, -1e-45, 1.2e-38)
SPECIAL = np.array([-np.inf, np.inf, np.nan, 0, -0.0, 3.4028235e38, -3.4028235e38, *_FINITE])
_FLOATS = ("float32", "bfloat16")


def bits(array: np.ndarray) -> np.ndarray:
    """What is compared: all NaN are one."""
    array = np.ascontiguousarray(array)
    if array.dtype.kind not in "fV":
        return array
    whole = array.view(f"u{array.dtype.itemsize}")
    return np.where(np.isnan(array.astype(np.float64)), 77, whole)


def results(case: Any, arrays: Sequence[np.ndarray], given: int | None) -> list[np.ndarray] | str:
    """The outputs where one input is given and the others are constants, or why there are none."""
    model = type(case.model)()
    model.CopyFrom(case.model)
    inputs = list(model.graph.input)
    del model.graph.input[:]
    feeds = {}
    for place, (proto, array) in enumerate(zip(inputs, arrays, strict=True)):
        if place == given:
            model.graph.input.append(proto)
            feeds[proto.name] = array
        else:
            model.graph.initializer.append(onnx.from_array(array, proto.name))
    try:
        return dlprim.onnx.load(model).run(feeds)
    except ValueError as error:
        return str(error)


def with_special_values(array: np.ndarray, shift: int) -> np.ndarray:
    if array.dtype.name not in _FLOATS:
        return array
    return np.resize(np.roll(SPECIAL, -shift), array.shape).astype(array.dtype)


def arrays_in(results: Sequence[Any]) -> list[np.ndarray]:
    """Of results, some of which may be lists of arrays."""
    return [it for found in results for it in (found if isinstance(found, list) else [found])]


def fault(case: Any, arrays: Sequence[np.ndarray]) -> str:
    first = next(place for place, it in enumerate(arrays) if it.dtype.name in _FLOATS)
    run, folded = results(case, arrays, first), results(case, arrays, None)
    if isinstance(run, str) or isinstance(folded, str):
        # What is known to be no scale is refused; what is computed of it is the lowest number.
        is_alike = isinstance(run, str) and isinstance(folded, str)
        is_refused = is_alike or "a scale is no finite number" in str(folded)
        return "" if is_refused else f"in a run {run}, folded {folded}"
    for one, other in zip(arrays_in(run), arrays_in(folded), strict=True):
        if one.dtype != other.dtype or not np.array_equal(bits(one), bits(other)):
            return f"in a run {one}, folded {other}"
    return ""


def arrays_of(case: Any) -> list[np.ndarray]:
    """The inputs of a case of one node; none where there are no floats, or other values."""
    if case.name.endswith(("expanded", "_ver18", "_ver26")) or not case.data_sets:
        return []
    arrays = [node_cases.array(it) for it in case.data_sets[0][0]]
    kinds = {it.type.WhichOneof("value") for it in case.model.graph.input}
    if kinds != {"tensor_type"} or not all(isinstance(it, np.ndarray) for it in arrays):
        return []
    return arrays if any(it.dtype.name in _FLOATS for it in arrays) else []


@pytest.mark.parametrize("module", node_cases.MODULES)
def test_what_is_folded_has_the_bits_of_a_run(module: str) -> None:
    found = {}
    for name, case in node_cases.cases(module).items():
        arrays = arrays_of(case)
        for shift in (None, len(name)) if arrays else ():
            drawn = arrays
            if shift is not None:
                drawn = [with_special_values(it, shift + at) for at, it in enumerate(arrays)]
            if problem := fault(case, drawn):
                found[name] = problem
    assert found == {}


@pytest.mark.parametrize("dtype", _FLOATS)
@pytest.mark.parametrize("function", ["gelu", "relu"])
def test_the_oracle_knows_the_limits(function: str, dtype: str) -> None:
    x = SPECIAL.astype(dtype)
    builder = Builder()
    graph = builder.graph([builder.apply(function, builder.input("x", x.shape, x.dtype))])
    (found,), (right,) = compile_graph(graph).run([x]), interpret(graph, [x])
    is_special = ~(np.isfinite(right.astype(float)) & (right != 0))
    assert np.array_equal(bits(found)[is_special], bits(right)[is_special])


def test_constants_of_several_nodes_are_computed_as_in_a_run() -> None:
    x = np.linspace(-5, 5, 101, dtype=np.float32)

    def made(builder: Builder, value: Any) -> Any:
        y = builder.apply("exp", builder.apply("tanh", value))
        return builder.reduce("sum", builder.map(("multiply", ("input", 0), ("input", 0)), y), [0])

    builder = Builder()
    folded = made(builder, builder.constant(x))
    assert builder.is_constant(folded)
    known = builder.array(folded)
    other = Builder()
    graph = other.graph([made(other, other.input("x", x.shape, x.dtype))])
    assert np.array_equal(bits(known), bits(compile_graph(graph).run([x])[0]))
    assert builder.graph([folded]).nodes == ()
