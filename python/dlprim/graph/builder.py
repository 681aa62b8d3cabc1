"""Makes graphs: what front ends write networks with.

Shapes are known throughout. What follows from constants alone is computed here, so that the
arithmetic on shapes that exporters write leaves no trace: what is no float at once, floats as a run
computes them, so that they are the same bits, when somebody asks or the graph is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dlprim.graph.expressions import Expression
from dlprim.graph.extents import derived, is_known, is_plain, may_hold, require_range
from dlprim.graph.folding import computed_as_in_a_run
from dlprim.graph.graph import Array, Graph, Node, Value, sorted_nodes
from dlprim.graph.interpret import SAME_OPERATORS, computed, has_floats
from dlprim.graph.operators import OPERATORS
from dlprim.graph.operators.elements import is_differentiable
from dlprim.graph.recorded_arrays import RecordedArray, as_array
from dlprim.graph.room import MOST_BYTES, MOST_FOLDED_BYTES, bytes_beside, require_room
from dlprim.graph.verify import named

# Of any array of a network, whether it is made or not.
_MOST_SEEN_BYTES = 1 << 40


class ValueNeededError(Exception):
    """A shape, or what else must be known ahead, depends on the contents of an input.

    Attributes
    ----------
    value : Value
        What was asked for.
    inputs : tuple of Value
        The inputs of the network that it follows from.
    """

    def __init__(self, value: Value, inputs: tuple[Value, ...]) -> None:
        super().__init__(f"{value.name} is expected to be a constant, or to follow from shapes")
        self.value = value
        self.inputs = inputs


class Builder:
    """A network in the making.

    Attributes
    ----------
    max_bytes : int
        What may be taken to compute something ahead.
    name : str
        Of the nodes that are made next.
    kept : set of Value
        Inputs whose arrays are states: a cache among them has room for what comes.
    """

    def __init__(self, max_bytes: int = MOST_BYTES) -> None:
        self.max_bytes = max_bytes
        self.kept: set[Value] = set()
        self._inputs: list[Value] = []
        self._nodes: list[Node] = []
        self._constants: dict[Value, Array] = {}
        self._waiting: dict[Value, Node] = {}  # what a run will compute of constants
        self._makers: dict[Value, Node] = {}
        self.name = ""

    @classmethod
    def of(cls, graph: Graph) -> Builder:
        """A network that begins with the nodes of a graph."""
        builder = cls()
        builder._inputs = list(graph.inputs)
        builder._nodes = list(graph.nodes)
        builder._constants = dict(graph.constants)
        builder._makers = graph.makers()
        return builder

    def add(self, graph: Graph, known: Mapping[Value, Array]) -> None:
        """Continues with a graph that began as this one, some of whose inputs are known by now."""
        self._nodes += [node for node in graph.nodes if node.outputs[0] not in self._makers]
        self._makers.update(graph.makers())
        self._constants.update({**graph.constants, **known})
        self._inputs = [value for value in self._inputs if value not in known]

    @property
    def nodes(self) -> Sequence[Node]:
        """What was emitted and not folded, in this order."""
        return self._nodes

    def input(self, name: str, shape: Sequence[int], dtype: npt.DTypeLike) -> Value:
        """An array that a run is given."""
        value = Value(name, tuple(shape), np.dtype(dtype))
        self._inputs.append(value)
        return value

    def constant(self, array: Any, name: str = "constant") -> Value:
        """An array that is known; it is kept, not copied."""
        array = as_array(array)
        # Objects are extents.
        value = Value(
            name, array.shape, np.dtype(np.int64) if array.dtype == object else array.dtype
        )
        self._constants[value] = array
        return value

    def is_constant(self, value: Value) -> bool:
        """Whether the elements of the value are known."""
        return value in self._constants or value in self._waiting

    def array(self, value: Value) -> Array:
        """The elements of a value that must be known.

        Raises
        ------
        ValueNeededError
            Where they are not.
        """
        if not self.is_constant(value):
            raise ValueNeededError(value, self._inputs_of(value))
        self._compute([value])
        return self._constants[value]

    def emit(
        self, operator: str, inputs: Sequence[Value | None], **attributes: Any
    ) -> tuple[Value, ...]:
        """The results of an operator of `dlprim.graph.operators`.

        Raises
        ------
        ValueError
            Where inputs or attributes do not fit, or a result would be too large.
        """
        entry = OPERATORS[operator]
        results = entry.infer(inputs, attributes)
        outputs = tuple(
            Value(self._name_of(operator, place), shape, dtype)
            for place, (shape, dtype) in enumerate(results)
        )
        for value in outputs:
            if max((value.nbytes, *value.shape)) > _MOST_SEEN_BYTES:
                raise ValueError(f"{value!r} has {value.nbytes} bytes, expected at most 2^40")
        node = Node(operator, tuple(inputs), outputs, attributes, self.name)
        if self._is_folded(node):
            if not self._is_computed_at_once(node):
                self._waiting.update(dict.fromkeys(outputs, node))
                return outputs
            require_room(operator, bytes_beside(node), self.max_bytes)
            arrays = [None if value is None else self._constants[value] for value in inputs]
            are_listed = not any(isinstance(it, RecordedArray) for it in arrays)
            are_listed = are_listed and is_plain(attributes)
            if are_listed and all(is_known(it.shape) and may_hold(it.dtype) for it in outputs):
                found = computed(operator, arrays, attributes)  # of extents one by one
            else:
                pairs = zip(inputs, arrays, strict=True)
                whole = [it if it is None else _whole(array, it.dtype) for it, array in pairs]
                found = derived(computed, operator, whole, attributes)
            for value, array in zip(outputs, found, strict=True):
                self._constants[value] = array
                if array.dtype == object:
                    require_range(array, value.dtype)
            return outputs
        self._nodes.append(node)
        self._makers.update(dict.fromkeys(outputs, node))
        return outputs

    def graph(self, outputs: Sequence[Value], states: Mapping[Value, Value] | None = None) -> Graph:
        """The network that gives these values, and behind which states hold others."""
        states = dict(states or {})
        results = (*outputs, *states.values())
        nodes = sorted_nodes(results, self._nodes)
        needed = set(results).union(*(node.operands for node in nodes))
        self._compute([value for value in self._waiting if value in needed])
        constants = {
            value: _whole(array, value.dtype)
            for value, array in self._constants.items()
            if value in needed
        }
        return Graph(tuple(self._inputs), tuple(outputs), nodes, constants, states=states)

    # ------------------------------------------------------------ what is often written

    def map(
        self, expression: Expression, *inputs: Value, dtype: npt.DTypeLike | None = None
    ) -> Value:
        """An expression (`dlprim.graph.expressions`) of elements, broadcast as NumPy does.

        The dtype of the result is that of the first input unless it is said.
        """
        named = np.dtype(inputs[0].dtype if dtype is None else dtype).name
        return self.emit("map", inputs, expression=expression, dtype=named)[0]

    def apply(self, function: str, *inputs: Value, dtype: npt.DTypeLike | None = None) -> Value:
        """One function of `dlprim.graph.expressions.FUNCTIONS`."""
        operands = tuple(("input", place) for place in range(len(inputs)))
        return self.map((function, *operands), *inputs, dtype=dtype)

    def cast(self, x: Value, dtype: npt.DTypeLike) -> Value:
        """x in another type: floats to integers are cut towards zero."""
        return x if x.dtype == np.dtype(dtype) else self.map(("input", 0), x, dtype=dtype)

    def reduce(self, function: str, x: Value, axes: Sequence[int], keepdims: bool = False) -> Value:
        """ "sum", "mean", "max", "min" or "product" over axes."""
        return self.emit("reduce", [x], function=function, axes=tuple(axes), keepdims=keepdims)[0]

    def sum_to(self, x: Value, shape: Sequence[int]) -> Value:
        """The sums of what an array of this shape is repeated to in x: the gradient of `expand`."""
        shape = tuple(shape)
        more = len(x.shape) - len(shape)
        spread = [
            axis
            for axis, extent in enumerate(x.shape)
            if axis < more or (shape[axis - more] == 1 and extent != 1)
        ]
        return self.reshape(self.reduce("sum", x, spread) if spread else x, shape)

    def zeros(self, shape: Sequence[int], dtype: npt.DTypeLike) -> Value:
        """An array of zeros."""
        return self.constant(
            derived(np.broadcast_to, np.zeros((), np.dtype(dtype)), tuple(shape)), "zeros"
        )

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """x in another shape of as many elements; none is -1."""
        shape = tuple(shape)
        return x if x.shape == shape else self.emit("reshape", [x], shape=shape)[0]

    def transpose(self, x: Value, axes: Sequence[int]) -> Value:
        """x with its axes in this order."""
        axes = tuple(axes)
        if axes == tuple(range(len(axes))):
            return x
        return self.emit("transpose", [x], axes=axes)[0]

    def expand(self, x: Value, shape: Sequence[int]) -> Value:
        """x repeated to this shape, to which it can be broadcast."""
        shape = tuple(shape)
        return x if x.shape == shape else self.emit("expand", [x], shape=shape)[0]

    def slice(
        self, x: Value, starts: Sequence[int], counts: Sequence[int], steps: Sequence[int]
    ) -> Value:
        """For each axis: the first element, how many, and how far apart (below 0 backwards)."""
        starts, counts, steps = tuple(starts), tuple(counts), tuple(steps)
        if counts == x.shape and all(step == 1 for step in steps):
            return x
        return self.emit("slice", [x], starts=starts, counts=counts, steps=steps)[0]

    def concat(self, parts: Sequence[Value], axis: int) -> Value:
        """The parts one after the other along an axis."""
        return parts[0] if len(parts) == 1 else self.emit("concat", parts, axis=axis)[0]

    def gather(self, x: Value, places: Value, axis: int, argument: str = "") -> Value:
        """Elements at places along an axis, as numpy.take.

        With what messages call the places, those below 0 are refused, too.
        """
        named = {"argument": argument} if argument else {}
        return self.emit("gather", [x, places], axis=axis, **named)[0]

    def matmul(self, a: Value, b: Value) -> Value:
        """As numpy.matmul."""
        return self.emit("matmul", [a, b])[0]

    def call(
        self,
        function: str,
        inputs: Sequence[Value | None],
        results: Sequence[tuple[tuple[int, ...], npt.DTypeLike]],
        **attributes: Any,
    ) -> tuple[Value, ...]:
        """A function of NumPy that `callee` of `dlprim.graph.operators.operator` has named."""
        listed = tuple((tuple(shape), np.dtype(dtype).name) for shape, dtype in results)
        return self.emit("call", inputs, function=function, results=listed, **attributes)

    # ------------------------------------------------------------ gradients

    def backward(
        self, nodes: Sequence[Node], found: dict[Value, Value], of: Iterable[Value]
    ) -> None:
        """Adds to gradients that are found those by what the nodes read, from the last one on.

        Parameters
        ----------
        nodes : sequence of Node
        found : dict of Value to Value
            By results of the nodes; those by the values ``of``, and by what they go through, join.
        of : iterable of Value
            What is not between these and a result is not looked at.

        Raises
        ------
        ValueError
            Where a node that a gradient has to pass has none: its name, its operator, and why.
        """
        depending = set(of)
        for node in nodes:
            if not depending.isdisjoint(node.operands):
                depending.update(filter(is_differentiable, node.outputs))
        for node in reversed(nodes):
            diffs = [found.get(it) if it in depending else None for it in node.outputs]
            if any(diff is not None for diff in diffs):
                parts = zip(node.inputs, self._contributions(node, diffs), strict=True)
                for operand, diff in parts:
                    if operand not in depending or operand is None or diff is None:
                        continue
                    if isinstance(diff, str):
                        raise ValueError(f"{named(node)} has no gradient by {operand.name}: {diff}")
                    self.contribute(found, operand, diff)

    def contribute(self, found: dict[Value, Value], value: Value, diff: Value) -> None:
        """Adds to the gradient by a value."""
        assert (diff.shape, diff.dtype) == (value.shape, value.dtype), (value, diff)
        found[value] = self.apply("add", found[value], diff) if value in found else diff

    def by_what_is_written(
        self,
        written: Callable[[Builder, Node], Sequence[Value | None]],
        node: Node,
        diffs: Sequence[Value | None],
    ) -> list[Value | None]:
        """The gradients by the inputs of a node, of those of nodes that compute the same.

        Parameters
        ----------
        written : callable
            Makes these nodes; what stands for outputs of the node, None for those that it leaves.
        node : Node
        diffs : sequence of Value or None
            By its outputs.
        """
        found: dict[Value, Value] = {}
        first = len(self._nodes)
        for value, diff in zip(written(self, node), diffs, strict=True):
            if value is not None and diff is not None:
                self.contribute(found, value, diff)
        self.backward(self._nodes[first:], found, filter(is_differentiable, node.operands))
        # Of a value that is read twice all falls on the first place.
        return [None if it is None else found.pop(it, None) for it in node.inputs]

    def _contributions(self, node: Node, diffs: list[Value | None]) -> Sequence[Value | str | None]:
        rule = OPERATORS[node.operator].gradient
        if isinstance(rule, str):
            raise ValueError(f"{named(node)} has no gradient: {rule}")
        self.name = f"gradient of {node.name or node.outputs[0].name}"
        try:
            return rule(self, node, diffs)
        except ValueError as error:
            raise ValueError(f"{named(node)}: {error}") from error

    # ------------------------------------------------------------ inside

    def _name_of(self, operator: str, place: int) -> str:
        name = self.name or f"{operator}_{len(self._nodes)}"
        return f"{name}.{place}" if place else name

    def _is_folded(self, node: Node) -> bool:
        if node.operator == "dequantize":  # 8-bit weights stay so: passes multiply them as they are
            return False
        if not all(map(self.is_constant, node.operands)):
            return False
        return sum(value.nbytes for value in node.outputs) <= MOST_FOLDED_BYTES

    def _is_computed_at_once(self, node: Node) -> bool:
        """Whether nothing waits for a run, in which floats might become others."""
        if not all(value in self._constants for value in node.operands):
            return False
        return node.operator in SAME_OPERATORS or not has_floats(node)

    def _compute(self, values: Sequence[Value]) -> None:
        """The elements of those of the values that wait for them."""
        missing = tuple(value for value in values if value in self._waiting)
        if not missing:
            return
        nodes = sorted_nodes(missing, self._waiting_for(missing))
        made = {value for node in nodes for value in node.outputs}
        read = {value for node in nodes for value in node.operands if value not in made}
        arrays = {value: _whole(self._constants[value], value.dtype) for value in read}
        found = computed_as_in_a_run(nodes, arrays, missing, self.max_bytes)
        for value, array in zip(missing, found, strict=True):
            self._constants[value] = array
            del self._waiting[value]

    def _waiting_for(self, values: Sequence[Value]) -> tuple[Node, ...]:
        """The nodes that the values wait for, and no others, of which there may be many."""
        found: dict[Node, None] = {}
        stack = list(values)
        while stack:
            node = self._waiting.get(stack.pop())
            if node is not None and node not in found:
                found[node] = None
                stack.extend(node.operands)
        return tuple(found)

    def _inputs_of(self, value: Value) -> tuple[Value, ...]:
        found: dict[Value, None] = {}
        seen: set[Value] = set()
        stack = [value]
        while stack:
            it = stack.pop()
            if it in seen:
                continue
            seen.add(it)
            node = self._makers.get(it)
            if node is not None:
                stack.extend(node.operands)
            elif not self.is_constant(it):
                found[it] = None
        return tuple(found)


def _whole(array: Any, dtype: np.dtype[Any]) -> Any:
    """An array of extents as one that follows from them; others as they are."""
    return derived(np.asarray, array, dtype) if array.dtype == object else array
