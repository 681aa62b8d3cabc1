"""Whether a graph is one: what passes are held to, each time one has run.

A pass that is wrong mostly leaves a graph that cannot be run, or a value whose shape nobody
inferred. Both are found here, at the node where it is wrong, and not far behind it.
"""

from __future__ import annotations

from dlprim.graph.graph import Graph, Node, Value
from dlprim.graph.operators import OPERATORS


def verify(graph: Graph) -> None:
    """Each value is defined once and in front of its readers; shapes and dtypes are as inferred.

    Raises
    ------
    ValueError
        With the node that is wrong by name, and what was expected.
    """
    defined: set[Value] = set()
    for value in (*graph.inputs, *graph.constants):
        _define(value, "the graph", defined)
    for value, array in graph.constants.items():
        is_rounded = (value.dtype.name, array.dtype.name) == ("bfloat16", "float32")
        if array.shape != value.shape or not (array.dtype == value.dtype or is_rounded):
            raise ValueError(
                f"the constant {value!r} has an array of {array.dtype} {list(array.shape)}"
            )
    made = {value for node in graph.nodes for value in node.outputs}
    for node in graph.nodes:
        for value in node.operands:
            if value not in defined:
                reason = "only a later node makes" if value in made else "nothing defines"
                raise ValueError(f"{named(node)} reads {value!r}, which {reason}")
        _check_results(node)
        for value in node.outputs:
            _define(value, named(node), defined)
    for value in graph.outputs:
        if value not in defined:
            raise ValueError(f"the graph returns {value!r}, which nothing defines")
    _check_states(graph, defined)


def _check_states(graph: Graph, defined: set[Value]) -> None:
    inputs = set(graph.inputs)
    for state, value in graph.states.items():
        if state not in inputs:
            raise ValueError(f"the state {state!r} is no input of the graph")
        if value not in defined:
            raise ValueError(f"the state {state!r} becomes {value!r}, which nothing defines")
        if (value.shape, value.dtype) != (state.shape, state.dtype):
            raise ValueError(f"the state {state!r} becomes {value!r}, expected its shape and dtype")


def _define(value: Value, where: str, defined: set[Value]) -> None:
    if value in defined:
        raise ValueError(f"{where} defines {value!r}, which is defined already")
    defined.add(value)


def _check_results(node: Node) -> None:
    if node.operator not in OPERATORS:
        raise ValueError(f"{named(node)} is of no operator that there is")
    try:
        results = OPERATORS[node.operator].infer(node.inputs, node.attributes)
    except KeyError as error:
        raise ValueError(f"{named(node)} lacks the attribute {error}") from error
    except (AssertionError, IndexError):
        raise ValueError(f"{named(node)} lacks an input that it needs") from None
    except ValueError as error:
        raise ValueError(f"{named(node)}: {error}") from error
    if len(results) != len(node.outputs):
        raise ValueError(f"{named(node)} has {len(node.outputs)} results, expected {len(results)}")
    for value, (shape, dtype) in zip(node.outputs, results, strict=True):
        if value.shape != shape or value.dtype != dtype:
            raise ValueError(f"{named(node)} gives {value!r}, expected {dtype}{list(shape)}")


def named(node: Node) -> str:
    """A node in a sentence."""
    called = node.name or (node.outputs[0].name if node.outputs else "without a name")
    return f"node {called} ({node.operator})"
