"""Makes graphs of programs, for inputs of known shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dlprim.graph import Builder, Graph, Value, ValueNeededError
from dlprim.graph.graph import Array
from dlprim.onnx.program import Block, Program, Step
from dlprim.onnx.proto import ModelError
from dlprim.onnx.strings import STRING, name_of

# Inputs that shapes may follow from: integers, or of few elements; a graph is made for each value.
MOST_KNOWN_ELEMENTS = 4096
MOST_KNOWN_BYTES = 1 << 20
# What the functions of operators raise where what a model says cannot be.
_FAILURES = (ArithmeticError, LookupError, ValueError)
_UNFORESEEN = (AssertionError, AttributeError, MemoryError, TypeError)

Shapes = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]


@np.errstate(all="ignore")  # constants may be no numbers
def graph_of(program: Program, shapes: Shapes, known: Mapping[str, Array], max_bytes: int) -> Graph:
    """The graph of a program; its inputs are those that are not known, in their order.

    Raises
    ------
    ModelError
        Where a node cannot do what it should with these shapes.
    ValueNeededError
        Where a shape follows from the elements of inputs, which might be known.
    """
    builder = Builder(max_bytes)
    values: dict[str, Value] = {}
    for port in program.inputs:
        if port.name in known:
            values[port.name] = builder.constant(known[port.name], port.name)
        else:
            values[port.name] = builder.input(port.name, *shapes[port.name])
    for name, array in program.constants.items():
        values[name] = builder.constant(array, name)
    _run(builder, program.block, values)
    try:
        return builder.graph([values[name] for name in program.block.outputs])
    except (*_FAILURES, *_UNFORESEEN) as error:
        raise ModelError(f"what constants alone decide cannot be computed: {error}") from error


def _run(builder: Builder, block: Block, values: dict[str, Value]) -> None:
    for step in block.steps:
        builder.name = step.name
        try:
            if step.branches:
                _choose(builder, step, values)
            else:
                _emit(builder, step, values)
        except ValueNeededError as error:
            if not error.inputs or not all(may_be_known(it) for it in error.inputs):
                raise ModelError(f"{step.label}: {error}") from error
            raise
        except ModelError:
            raise
        except _FAILURES as error:
            raise ModelError(f"{step.label}: {error}") from error
        except _UNFORESEEN as error:
            given = ", ".join(f"{values[it]!r}" if it else "none" for it in step.inputs)
            raise ModelError(f"{step.label}: it cannot be computed of {given}") from error


def may_be_known(value: Value | Array) -> bool:
    """Whether graphs may be made for the elements of such an input."""
    is_index = value.dtype.kind in "biu" and value.nbytes <= MOST_KNOWN_BYTES
    return is_index or value.size <= MOST_KNOWN_ELEMENTS


def _choose(builder: Builder, step: Step, values: dict[str, Value]) -> None:
    """Runs one branch; what decides must be known."""
    condition = builder.array(values[step.inputs[0]])
    if condition.size != 1:
        raise ValueError(f"the condition has {condition.size} elements, expected 1")
    branch = step.branches[0 if condition.reshape(())[()] else 1]
    _run(builder, branch, values)
    for name, source in zip(step.outputs, branch.outputs, strict=True):
        values[name] = values[source]


def _emit(builder: Builder, step: Step, values: dict[str, Value]) -> None:
    assert step.function is not None
    operands = [values[name] if name else None for name in step.inputs]
    for place, value in enumerate(operands):
        types = step.types[min(place, len(step.types) - 1)] if step.types else frozenset()
        is_known = types or (value is not None and value.dtype == STRING)
        if value is not None and is_known and value.dtype.name not in types:
            listed = f"one of {', '.join(sorted(map(name_of, types)))}" if types else "numbers"
            raise ValueError(f"input {place} is of {name_of(value.dtype.name)}, expected {listed}")
    results = step.function(builder, *operands, **step.attributes)
    if isinstance(results, Value):
        results = (results,)
    if len(results) < len(step.outputs):
        raise ValueError(f"it gives {len(results)} outputs, expected {len(step.outputs)}")
    for name, value in zip(step.outputs, results, strict=False):
        if name:
            values[name] = value
