"""Makes graphs: what front ends write networks with.

Shapes are known throughout. What follows from constants alone is computed at once, so that the
arithmetic on shapes that exporters write leaves no trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dlprim.graph.expressions import Expression
from dlprim.graph.extents import is_known
from dlprim.graph.graph import Array, Graph, Node, Value, sorted_nodes
from dlprim.graph.operators import OPERATORS

# Of an array that is computed ahead. A larger one costs more to keep than to compute.
MOST_FOLDED_BYTES = 1 << 26
# Of any array of a network.
MOST_BYTES = 1 << 40


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
    """A network in the making."""

    def __init__(self) -> None:
        self._inputs: list[Value] = []
        self._nodes: list[Node] = []
        self._constants: dict[Value, Array] = {}
        self._makers: dict[Value, Node] = {}
        self.name = ""  # of the nodes that are made next

    def input(self, name: str, shape: Sequence[int], dtype: npt.DTypeLike) -> Value:
        """An array that a run is given."""
        value = Value(name, tuple(shape), np.dtype(dtype))
        self._inputs.append(value)
        return value

    def constant(self, array: Any, name: str = "constant") -> Value:
        """An array that is known; it is kept, not copied."""
        array = np.asarray(array)
        # Objects are extents.
        value = Value(
            name, array.shape, np.dtype(np.int64) if array.dtype == object else array.dtype
        )
        self._constants[value] = array
        return value

    def is_constant(self, value: Value) -> bool:
        """Whether the elements of the value are known."""
        return value in self._constants

    def array(self, value: Value) -> Array:
        """The elements of a value that must be known.

        Raises
        ------
        ValueNeededError
            Where they are not.
        """
        if value not in self._constants:
            raise ValueNeededError(value, self._inputs_of(value))
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
            if value.nbytes > MOST_BYTES:
                raise ValueError(f"{value!r} has {value.nbytes} bytes, expected at most 2^40")
        node = Node(operator, tuple(inputs), outputs, attributes, self.name)
        if self._is_folded(node):
            arrays = [None if value is None else self._constants[value] for value in inputs]
            for value, array in zip(outputs, entry.compute(arrays, attributes), strict=True):
                self._constants[value] = np.asarray(array)
            return outputs
        self._nodes.append(node)
        self._makers.update(dict.fromkeys(outputs, node))
        return outputs

    def graph(self, outputs: Sequence[Value]) -> Graph:
        """The network that gives these values."""
        nodes = sorted_nodes(outputs, self._nodes)
        needed = set(outputs).union(*(node.operands for node in nodes))
        constants = {
            value: array.astype(value.dtype) if array.dtype == object else array
            for value, array in self._constants.items()
            if value in needed
        }
        return Graph(tuple(self._inputs), tuple(outputs), nodes, constants)

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

    def gather(self, x: Value, places: Value, axis: int) -> Value:
        """Elements at places along an axis, as numpy.take."""
        return self.emit("gather", [x, places], axis=axis)[0]

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

    # ------------------------------------------------------------ inside

    def _name_of(self, operator: str, place: int) -> str:
        name = self.name or f"{operator}_{len(self._nodes)}"
        return f"{name}.{place}" if place else name

    def _is_folded(self, node: Node) -> bool:
        if node.operator == "dequantize":  # 8-bit weights stay so: passes multiply them as they are
            return False
        if not all(value in self._constants for value in node.operands):
            return False
        if not all(is_known(value.shape) for value in node.outputs):
            return False
        return sum(value.nbytes for value in node.outputs) <= MOST_FOLDED_BYTES

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
            elif it not in self._constants:
                found[it] = None
        return tuple(found)
