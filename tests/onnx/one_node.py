"""Models of one node, and what ONNX Runtime computes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

import dlprim.onnx
from dlprim.graph import Builder, Graph
from dlprim.onnx.registry import operator_for

MICROSOFT = "com.microsoft"
Arrays = Sequence[np.ndarray | None]


class Case(NamedTuple):
    """A node: which, its inputs, which of them are constants, how many outputs it has."""

    op: str
    arrays: Arrays
    attributes: dict[str, Any]
    opset: int = 21
    domain: str = ""
    constants: Sequence[int] = ()
    outputs: int = 1


def model(case: Case) -> Any:
    """The node as a model, whose outputs may be of any shape."""
    names, inputs, initializers = [], [], []
    for place, array in enumerate(case.arrays):
        names.append("" if array is None else f"x{place}")
        if array is None:
            continue
        if place in case.constants:
            initializers.append(numpy_helper.from_array(array, names[-1]))
        else:
            dtype = helper.np_dtype_to_tensor_dtype(array.dtype)
            inputs.append(helper.make_tensor_value_info(names[-1], dtype, array.shape))
    results = [f"y{place}" for place in range(case.outputs)]
    node = helper.make_node(case.op, names, results, domain=case.domain, **case.attributes)
    outputs = [onnx.ValueInfoProto(name=name) for name in results]
    opsets = [helper.make_opsetid("", case.opset)]
    opsets += [helper.make_opsetid(case.domain, 1)] if case.domain else []
    graph = helper.make_graph([node], "one", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def given(case: Case) -> dict[str, np.ndarray]:
    """Its inputs by name."""
    rows = enumerate(case.arrays)
    return {f"x{i}": it for i, it in rows if it is not None and i not in case.constants}


def by_runtime(case: Case) -> list[np.ndarray]:
    """Its outputs by ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    content = model(case).SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    results: list[np.ndarray] = session.run(None, given(case))
    return results


def by_dlprim(case: Case, like: Sequence[np.ndarray] | None = None) -> list[np.ndarray]:
    """Its outputs here; declared to be of the types of these, or of the first input."""
    made = model(case)
    first = next(it for it in case.arrays if it is not None)
    for place, output in enumerate(made.graph.output):
        dtype = (first if like is None else like[place]).dtype
        kind = helper.np_dtype_to_tensor_dtype(dtype)
        output.CopyFrom(helper.make_tensor_value_info(output.name, kind, None))
    results = dlprim.onnx.load(made)(**given(case))
    return list(results) if isinstance(results, tuple) else [results]


def graph(case: Case) -> Graph:
    """The nodes that the importer writes for it."""
    builder = Builder()
    values = []
    for place, array in enumerate(case.arrays):
        if array is None:
            values.append(None)
        elif place in case.constants:
            values.append(builder.constant(array, f"x{place}"))
        else:
            values.append(builder.input(f"x{place}", array.shape, array.dtype))
    found = operator_for(case.domain, case.op, 1 if case.domain else case.opset)
    assert found is not None, case.op
    results = found.function(builder, *values, **case.attributes)
    results = results if isinstance(results, tuple) else (results,)
    return builder.graph(results[: case.outputs])
