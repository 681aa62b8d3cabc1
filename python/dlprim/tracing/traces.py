"""A function run once on traced arrays: the graph that it is, and how its results are nested."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dlprim.arguments.traced import RUNNING, Held, lifted
from dlprim.graph.builder import Builder
from dlprim.graph.extents import Extent
from dlprim.graph.graph import Graph, Value
from dlprim.tracing.arguments import Call
from dlprim.tracing.array import TracedArray
from dlprim.tracing.refusals import TraceError, function_line
from dlprim.tracing.tracer import Tracer
from dlprim.tracing.trees import Tree, flattened, nested


class Result(NamedTuple):
    """How results of a network are given to the caller.

    Attributes
    ----------
    tree : Tree
    leaves : tuple
        Of each leaf the number of an output, or what stands there itself in a tuple of one.
    """

    tree: Tree
    leaves: tuple[Any, ...]

    def giver(self, outputs: Sequence[Value]) -> Callable[[Any], Any]:
        """A function that makes the results of the outputs of a run, as networks give them.

        Those without axes are NumPy's scalars. It is written for the nesting at hand, as `taker`.
        """
        numbers = [f"r[{at}]" if len(outputs) > 1 else "r" for at in range(len(outputs))]
        texts = [
            it if value.shape else f"{it}[()]" for it, value in zip(numbers, outputs, strict=True)
        ]
        known: dict[str, Any] = {}
        leaves = iter(self.leaves)

        def named(it: Any) -> str:
            name = f"c{len(known)}"
            known[name] = it
            return name

        def written(tree: Tree) -> str:
            if tree.kind is None:
                leaf = next(leaves)
                return named(leaf[0]) if isinstance(leaf, tuple) else texts[leaf]
            parts = [written(it) for it in tree.parts]
            if tree.kind is dict:
                keys = map(named, tree.keys)
                return (
                    f"{{{', '.join(f'{key}: {it}' for key, it in zip(keys, parts, strict=True))}}}"
                )
            if tree.kind is list:
                return f"[{', '.join(parts)}]"
            tuples = "".join(f"{it}, " for it in parts)
            return f"({tuples})" if tree.kind is tuple else f"{named(tree.kind)}({tuples})"

        made: Callable[[Any], Any] = eval(f"lambda r: {written(self.tree)}", known)
        return made


class Trace(NamedTuple):
    """What a function is for some arguments.

    Attributes
    ----------
    graph : Graph
        Its inputs are the leaves of the arguments that vary, and behind these what outlives calls.
    result : Result
    held : tuple of Held
        Of the last inputs.
    writes : tuple of (Held, int)
        What is written behind a run, and of which output.
    ended : frozenset of Value
        Of the inputs, those whose gradient nobody wants.
    """

    graph: Graph
    result: Result
    held: tuple[Held, ...] = ()
    writes: tuple[tuple[Held, int], ...] = ()
    ended: frozenset[Value] = frozenset()


def traced(
    function: Callable[..., Any], call: Call, shapes: Sequence[tuple[int, ...]], max_bytes: int
) -> Trace:
    """The function run on traced arrays of these shapes."""
    tracer = Tracer(Builder(max_bytes))
    leaves, extents = [], iter(zip(shapes, call.arrays, strict=True))
    for leaf, name in zip(call.leaves, call.names, strict=True):
        if leaf.kind == "value":
            leaves.append(leaf.value[1])
            continue
        shape, array = next(extents)
        value = tracer.build.input(name, shape, array.dtype)
        made = TracedArray(tracer, value, leaf.kind == "number")
        made.argument = name
        leaves.append(made)
    args, named = nested(call.tree, leaves)
    before, RUNNING.tracer = RUNNING.tracer, tracer
    try:
        outputs, result = returned(tracer, function, function(*args, **named))
    finally:
        RUNNING.tracer = before
    writes = []
    for it, value in tracer.writes.values():
        if value not in outputs:
            outputs.append(value)
        writes.append((it, outputs.index(value)))
    held = tuple(it for it, _ in tracer.held.values())
    graph, ended = tracer.build.graph(outputs), frozenset(tracer.ended)
    return Trace(graph, result, held, tuple(writes), ended)


def returned(
    tracer: Tracer, function: Callable[..., Any], results: Any
) -> tuple[list[Value], Result]:
    """The values among results, one for each array of the function, and how they are nested."""
    found: list[Any] = []
    tree = flattened(results, found)
    outputs: dict[Value, int] = {}
    arrays: dict[int, Value] = {}  # by identity
    leaves: list[Any] = []
    for it in lifted(tracer, found):
        if isinstance(it, Extent):
            raise TypeError("an extent is a result, which a recording does not give")
        if isinstance(it, TracedArray | np.ndarray | np.generic) and not isinstance(it, float):
            value = arrays.get(id(it)) or tracer.value(it)
            if id(it) not in arrays and value in outputs and value.shape:
                # A copy: whoever writes into one of the results does not write into the other.
                value = tracer.build.map(("input", 0), value)
            arrays[id(it)] = value
            leaves.append(outputs.setdefault(value, len(outputs)))
        elif it is None or isinstance(it, bool | int | float | str | bytes):
            leaves.append((it,))
        else:
            raise TraceError(
                f"{function_line(function)}a result is of type {type(it).__name__}, expected "
                "arrays, numbers, str or None"
            )
    return list(outputs), Result(tree, tuple(leaves))
