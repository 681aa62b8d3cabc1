"""Makes graphs of sections of programs, for inputs of known shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dlprim.graph import Builder, Graph, Value, ValueNeededError
from dlprim.graph.graph import Array
from dlprim.onnx.program import Section, Step
from dlprim.onnx.proto import ModelError
from dlprim.onnx.strings import STRING, name_of

# What the functions of operators raise where what a model says cannot be.
FAILURES = (ArithmeticError, LookupError, ValueError)
UNFORESEEN = (AssertionError, AttributeError, MemoryError, TypeError)

Shapes = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]


class ElementsNeededError(Exception):
    """A shape, or what else a network has to know, follows from elements that it is given.

    Attributes
    ----------
    steps : tuple of Step
        Of the section, which asked for them.
    inputs : tuple of str
        Those of the section that they follow from.
    reason : object
        Of the first of the steps.
    """

    def __init__(self, steps: Sequence[Step], inputs: Sequence[str], reason: object) -> None:
        super().__init__(f"{steps[0].label}: {reason}")
        self.steps, self.inputs, self.reason = tuple(steps), tuple(inputs), reason


@np.errstate(all="ignore")  # constants may be no numbers
def graph_of(
    section: Section,
    constants: Mapping[str, Array],
    shapes: Shapes,
    known: Mapping[str, Array],
    max_bytes: int,
    states: Mapping[str, str] | None = None,
) -> Graph:
    """The graph of a section; its inputs are those that are not known, in their order.

    Inputs that are states become the values that ``states`` names.

    Raises
    ------
    ModelError
        Where a node cannot do what it should with these shapes.
    ElementsNeededError
        Where a shape follows from the elements of inputs, which might be known.
    """
    builder = Builder(max_bytes)
    values: dict[str, Value] = {}
    for name in section.inputs:
        if name in known:
            values[name] = builder.constant(known[name], name)
        else:
            values[name] = builder.input(name, *shapes[name])
            if states and name in states:
                builder.kept.add(values[name])
    for name, array in constants.items():
        values[name] = builder.constant(array, name)
    run_steps(builder, section.steps, values)
    try:
        changed = {values[name]: values[then] for name, then in (states or {}).items()}
        return builder.graph([values[name] for name in section.outputs], changed)
    except (*FAILURES, *UNFORESEEN) as error:
        raise ModelError(f"what constants alone decide cannot be computed: {error}") from error


def run_steps(builder: Builder, steps: Sequence[Step], values: dict[str, Value]) -> None:
    """Writes steps, whose results are added to the values that there are by name.

    Those that ask for elements are found together: what is behind them waits, others go on.
    """
    asking: list[ElementsNeededError] = []
    for step in steps:
        if asking and not all(name in values for name in step.reads()):
            continue
        try:
            _step(builder, step, values)
        except ElementsNeededError as error:
            asking.append(error)
        except ModelError:
            if not asking:
                raise
    if asking:
        found = [step for error in asking for step in error.steps]
        names = dict.fromkeys(name for error in asking for name in error.inputs)
        raise ElementsNeededError(found, tuple(names), asking[0].reason) from asking[0]


def _step(builder: Builder, step: Step, values: dict[str, Value]) -> None:
    builder.name = step.name
    try:
        if step.is_choice:
            _choose(builder, step, values)
        elif step.bodies:
            _unroll(builder, step, values)
        else:
            _emit(builder, step, values)
    except ValueNeededError as error:
        names = [it.name for it in error.inputs]
        raise ElementsNeededError([step], names, error) from error
    except ElementsNeededError as error:  # of a step in a branch
        raise ElementsNeededError([step], error.inputs, error) from error
    except ModelError:
        raise
    except FAILURES as error:
        raise ModelError(f"{step.label}: {error}") from error
    except UNFORESEEN as error:
        given = ", ".join(f"{values[it]!r}" if it else "none" for it in step.inputs)
        raise ModelError(f"{step.label}: it cannot be computed of {given}") from error


def _choose(builder: Builder, step: Step, values: dict[str, Value]) -> None:
    """Runs one branch; what decides must be known."""
    condition = builder.array(values[step.inputs[0]])
    if condition.size != 1:
        raise ValueError(f"the condition has {condition.size} elements, expected 1")
    branch = step.bodies[0 if condition.reshape(())[()] else 1]
    run_steps(builder, branch.steps, values)
    for name, source in zip(step.outputs, branch.outputs, strict=True):
        values[name] = values[source]


def _unroll(builder: Builder, step: Step, values: dict[str, Value]) -> None:
    """Runs the body of a loop as often as a constant says, if all conditions are known."""
    body, (trips, *others) = step.bodies[0], step.inputs
    condition = others[0] if others else ""
    states = [values[name] for name in others[1:]]
    holds = values[condition] if condition else builder.constant(np.array(True))
    rows: list[list[Value]] = [[] for _ in body.outputs[1 + len(states) :]]
    for place in range(int(builder.array(values[trips]).item())):
        if not builder.array(holds).item():
            break
        given = (builder.constant(np.array(place)), holds, *states)
        values.update(zip(body.inputs, given, strict=True))
        run_steps(builder, body.steps, values)
        holds, *results = (values[name] for name in body.outputs)
        states = results[: len(states)]
        for listed, result in zip(rows, results[len(states) :], strict=True):
            listed.append(builder.reshape(result, (1, *result.shape)))
    if not all(rows):
        raise ElementsNeededError([step], (), "no step ran")
    made = [builder.concat(listed, 0) for listed in rows]
    values.update(
        (name, it) for name, it in zip(step.outputs, [*states, *made], strict=False) if name
    )


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
