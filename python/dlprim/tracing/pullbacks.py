"""`vjp`: the value of a function, and how gradients by it become gradients by its arguments.

The joint graph is cut in two: what no gradient of a result goes into runs at once, and what the
rest reads of it is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, proxy

import numpy as np

from dlprim.graph.compiled import CompiledGraph, compile_graph
from dlprim.graph.extents import is_known
from dlprim.graph.graph import Graph, Value, sorted_nodes
from dlprim.graph.joint import gradient
from dlprim.graph.networks import Shapes
from dlprim.graph.operators.elements import is_differentiable
from dlprim.graph.passes.layers import join_layers
from dlprim.tracing.arguments import Call, float_type
from dlprim.tracing.compiled import KEPT_SHAPES, CompiledFunction, plain_function
from dlprim.tracing.gradients import differentiable, inputs_of, joined, parts_of
from dlprim.tracing.traces import Result, Trace, traced
from dlprim.tracing.trees import Tree, flattened, paths

# What the rest makes again rather than reading another copy.
_MOVES = ("reshape", "transpose")
# Networks of functions by what dtype says, as long as the functions live.
_two_ways: WeakKeyDictionary[Any, dict[str | None, TwoWays]] = WeakKeyDictionary()


class Back:
    """The way back of a function for some shapes.

    Attributes
    ----------
    value : Result
        Of the function itself.
    cotangents : tuple of Value or None
        What gradients by results have to be, for each leaf; None of those without.
    begin : int
        The first output of the network that is kept.
    """

    def __init__(
        self, made: tuple[Graph, Result], value: Result, asked: Sequence[Value | None], begin: int
    ) -> None:
        self.value, self.cotangents, self.begin = value, tuple(asked), begin
        self._graph, self._result = made
        self._network: CompiledGraph | None = None
        self._give: Callable[[Any], Any] | None = None

    def run(self, arrays: Sequence[Any], how: tuple[str, int]) -> Any:
        """Gradients by the arguments, of what is kept and gradients by results."""
        if self._network is None:
            network = compile_graph(self._graph, dtype=how[0], max_bytes=how[1])
            self._give = self._result.giver(self._graph.outputs)
            self._network = network
        assert self._give is not None
        found = self._network.run(arrays)
        return self._give(found[0] if len(found) == 1 else found)


class Joint(NamedTuple):
    """A function with its gradients.

    Attributes
    ----------
    trace : Trace
        Of the function.
    graph : Graph
        As `dlprim.graph.joint.gradient` makes it.
    grads : Result
        How gradients are given, by their places among themselves.
    asked : tuple of Value or None
        What gradients by results have to be, for each leaf; None of those without.
    """

    trace: Trace
    graph: Graph
    grads: Result
    asked: tuple[Value | None, ...]


class Gradients(CompiledFunction):
    """A function that knows its gradients, by all floats among its arguments."""

    def _joint(self, call: Call, shapes: Shapes) -> Joint:
        trace = traced(self._function, call, shapes, self._max_bytes)
        graph, value = trace.graph, trace.result
        of, grads = self._sources(call, trace)
        numbers = {it for it in value.leaves if isinstance(it, int)}
        results = [it for at, it in enumerate(graph.outputs) if at in numbers]
        results = [it for it in results if is_differentiable(it)]
        joint = gradient(join_layers(graph), results, of)
        by_value = dict(zip(results, joint.inputs[len(graph.inputs) :], strict=True))
        asked = [
            None if isinstance(it, tuple) else by_value.get(graph.outputs[it])
            for it in value.leaves
        ]
        return Joint(trace, joint, grads, tuple(asked))

    def _sources(self, call: Call, trace: Trace) -> tuple[list[Value], Result]:
        """What gradients are by, and how they are given."""
        inputs = inputs_of(call, trace.graph)
        floats = [it if it is not None and is_differentiable(it) else None for it in inputs]
        args = call.tree.parts[0]
        parts = parts_of(call.tree, self._parameters, range(len(args.parts)))
        of = differentiable(parts, call.names, floats)
        numbers = [of.index(it) if it in of else None for it in floats]
        return of, joined([it.result(numbers) for it in parts])


class TwoWays(Gradients):
    """A function whose networks give what the way back reads, too."""

    def _made(self, call: Call, shapes: Shapes) -> tuple[Trace, Back]:
        made = self._joint(call, shapes)
        trace, joint = made.trace, made.graph
        cotangents = joint.inputs[len(trace.graph.inputs) :]
        results = len(trace.graph.outputs)
        forward, back = _cut(joint, results, cotangents)
        behind = Back((back, made.grads), trace.result, made.asked, results)
        return trace._replace(graph=forward), behind

    def _whole(self, made: Trace, rest: Any) -> tuple[Graph, tuple[int, int] | None]:
        if not all(is_known(it.shape) for it in made.graph.inputs):
            raise ValueError("a graph in two parts is not recorded")
        return super()._whole(made, rest)

    def both(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Pullback]:
        """The value, and the function that takes gradients back."""
        network, _, found = self.ran(args, named)
        back: Back = network.rest
        outputs = found if isinstance(found, tuple | list) else (found,)
        how = self._dtype or "float32", self._max_bytes
        return network.give(found), Pullback(back, outputs[back.begin :], how)


class Pullback:
    """Takes gradients by a value to the arguments that it was computed of."""

    __slots__ = ("_back", "_how", "_kept")

    def __init__(self, back: Back, kept: Sequence[Any], how: tuple[str, int]) -> None:
        self._back, self._kept, self._how = back, kept, how

    def __call__(self, gradient: Any) -> Any:
        """Gradients by the arguments, of those by the value."""
        back = self._back
        found = checked_cotangents(back.cotangents, back.value.tree, gradient, "gradient")
        return back.run([*self._kept, *found], self._how)


def checked_cotangents(
    asked: Sequence[Value | None], tree: Tree, gradient: Any, name: str, whose: str = ""
) -> list[Any]:
    """Gradients by results that are nested as a tree, checked; of a result that is there twice
    their sum. The last two say what errors call it."""
    found: list[Any] = []
    if flattened(gradient, found) != tree:
        raise TypeError(
            f"{name}{whose} is nested otherwise than the result, expected a gradient for each of "
            "its arrays in its place"
        )
    sums: dict[Value, Any] = {}
    for place, (value, it) in enumerate(zip(asked, found, strict=True)):
        if value is None:
            continue
        array = np.asarray(it, value.dtype) if isinstance(it, int | float) else np.asarray(it)
        if array.dtype != value.dtype or array.shape != value.shape:
            what = "None" if it is None else f"{array.dtype} of shape {array.shape}"
            raise (TypeError if array.dtype != value.dtype else ValueError)(
                f"{paths(tree, name)[place]}{whose} is {what}, expected {value.dtype} of shape "
                f"{value.shape}, as the result is"
            )
        sums[value] = sums[value] + array if value in sums else array
    return list(sums.values())


def _cut(joint: Graph, results: int, cotangents: Sequence[Value]) -> tuple[Graph, Graph]:
    """What runs at once, with what the rest reads behind the results, and the rest."""
    behind = set(cotangents)
    nodes = []
    for node in joint.nodes:
        if not behind.isdisjoint(node.operands):
            behind.update(node.outputs)
            nodes.append(node)
    grads = joint.outputs[results:]
    nodes = list(sorted_nodes(grads, nodes))
    read = dict.fromkeys(it for node in nodes for it in node.operands)
    read.update(dict.fromkeys(grads))
    inside = {*cotangents, *(it for node in nodes for it in node.outputs)}
    makers, waiting = joint.makers(), list(read)
    while waiting:
        maker = makers.get(value := waiting.pop())
        if value not in inside and maker is not None and maker.operator in _MOVES:
            nodes.append(maker)
            inside.update(maker.outputs)
            read.update(dict.fromkeys(maker.operands))
            waiting += maker.operands
    nodes = list(sorted_nodes(grads, nodes))
    known = {*inside, *joint.constants}
    kept = [it for it in read if it not in known]
    inputs = joint.inputs[: len(joint.inputs) - len(cotangents)]
    first = (*joint.outputs[:results], *kept)
    ahead = sorted_nodes(first, joint.nodes)
    used = set(first).union(*(it.operands for it in ahead))
    constants = {it: array for it, array in joint.constants.items() if it in used}
    others = {it: array for it, array in joint.constants.items() if it in read}
    forward = Graph(inputs, first, ahead, constants)
    return forward, Graph((*kept, *cotangents), grads, tuple(nodes), others)


def vjp(
    f: Callable[..., Any], *args: Any, dtype: Any = None, **named: Any
) -> tuple[Any, Callable[[Any], Any]]:
    """The value of a function, and a function that takes a gradient by it to its arguments.

    Parameters
    ----------
    f : callable
        Written in NumPy, as for `compile`.
    *args
        Its arguments, nested as they may be.
    dtype
        As for `compile`.
    **named
        Its arguments by name, which have no gradient.

    Returns
    -------
    value
        What f returns.
    pullback : callable
        ``pullback(gradient)``, with a gradient nested as the value is, gives a tuple with a
        gradient for each of ``args``, None where they hold no floats. It may be called several
        times, and does not see what is written into arguments meanwhile.

    Raises
    ------
    TypeError, ValueError
        As `value_and_grad`.

    Notes
    -----
    Networks are kept as long as f itself, which they do not keep alive; what f reads from outside
    is in them as it was when f was traced, as for `compile`. A function or method made anew for
    each call is traced each time.

    Examples
    --------
    >>> y, pullback = dlprim.vjp(np.exp, np.zeros(2, np.float32))
    >>> pullback(np.float32([1, 2]))
    (array([1., 2.], dtype=float32),)
    """
    return _known(f, float_type(dtype)).both(args, named)


def _known(f: Any, dtype: str | None) -> TwoWays:
    """What was made for a function, or is made; it does not keep the function alive."""
    function = plain_function(f)
    try:
        by_dtype = _two_ways.setdefault(f, {})
        held = proxy(f) if function is f else function
    except TypeError:  # it has no hash or no weak references, or is no function
        return TwoWays(function, dtype, KEPT_SHAPES, None)
    if dtype not in by_dtype:
        by_dtype[dtype] = TwoWays(held, dtype, KEPT_SHAPES, None)
    return by_dtype[dtype]
