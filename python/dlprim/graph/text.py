"""Graphs as text, one node a line, and back: what tests are written in and people read.

    graph(x: float32[1, 3, 8, 8]) -> (y)
    w: float32[4, 3, 3, 3] = constant(...)
    c: float32[1, 4, 6, 6] = convolution(x, w, none, strides=(1, 1), ...)
    y: float32[1, 4, 6, 6] = map(c, expression=('relu', ('input', 0)), dtype='float32')
    s <- y

The last line says what a state becomes, if there is one.

``none`` is an operand that is left out. Names that are taken, or hold what separates names, are
changed. Of large constants the elements are left out.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from dlprim.arguments.floats import dtype_named
from dlprim.graph.graph import Array, Graph, Node, Value

_NAME = r"[^\s(),=:\[\]]+"
_TYPED = re.compile(rf"({_NAME}): (\w+)\[([\d, ]*)\]")
_OPERAND = re.compile(rf"({_NAME})(?:, |$)")
_NODE = re.compile(r"(\w+)\((.*)\)", re.DOTALL)
_HEAD = re.compile(r"graph\((.*)\) -> \((.*)\)")
_MOST_SHOWN = 16  # elements of a constant


def text_of(graph: Graph) -> str:
    """The graph as `parse` reads it."""
    names = _unique_names(graph)

    def typed(value: Value) -> str:
        return f"{names[value]}: {value.dtype.name}[{', '.join(map(str, value.shape))}]"

    inputs = ", ".join(typed(value) for value in graph.inputs)
    lines = [f"graph({inputs}) -> ({', '.join(names[value] for value in graph.outputs)})"]
    for value, array in graph.constants.items():
        shown = repr(array.tolist()) if array.size <= _MOST_SHOWN else "..."
        lines.append(f"{typed(value)} = constant({shown})")
    for node in graph.nodes:
        parts = ["none" if value is None else names[value] for value in node.inputs]
        parts += [f"{name}={value!r}" for name, value in node.attributes.items()]
        results = ", ".join(typed(value) for value in node.outputs)
        lines.append(f"{results} = {node.operator}({', '.join(parts)})")
    lines += [f"{names[state]} <- {names[value]}" for state, value in graph.states.items()]
    return "\n".join(lines) + "\n"


def parse(text: str, arrays: Mapping[str, Array] | None = None, seed: int = 0) -> Graph:
    """The graph that a text describes.

    Parameters
    ----------
    text : str
    arrays : mapping of str to ndarray, optional
        Constants whose elements the text leaves out, by name; others are drawn.
    seed : int
        Of the generator that draws them.

    Raises
    ------
    ValueError
        A line is not as `text_of` writes it; the graph is not verified.
    """
    head, *lines = (line for line in text.strip().splitlines() if line.strip())
    parts = _HEAD.fullmatch(head.strip())
    if parts is None:
        raise ValueError(f"{head!r} is expected to read graph(inputs) -> (outputs)")
    reader = _Reader(arrays or {}, seed)
    inputs = reader.defined(parts[1])
    states: dict[Value, Value] = {}
    for line in lines:
        state, arrow, value = line.strip().partition(" <- ")
        if arrow and "(" not in state:
            states[reader.value(state)] = reader.value(value)
        else:
            reader.read(line.strip())
    outputs = tuple(reader.value(name) for name in parts[2].split(", ") if name)
    return Graph(inputs, outputs, tuple(reader.nodes), reader.constants, states=states)


def _unique_names(graph: Graph) -> dict[Value, str]:
    names: dict[Value, str] = {}
    taken = {"none"}
    values = [*graph.inputs, *graph.constants]
    values += [value for node in graph.nodes for value in node.outputs]
    for value in values:
        plain = re.sub(r"[\s(),=:\[\]]+", "_", value.name) or "_"
        name, count = plain, 1
        while name in taken:
            count += 1
            name = f"{plain}#{count}"
        taken.add(name)
        names[value] = name
    return names


class _Reader:
    """What has been read of a text."""

    def __init__(self, arrays: Mapping[str, Array], seed: int) -> None:
        self.nodes: list[Node] = []
        self.constants: dict[Value, Array] = {}
        self._arrays = arrays
        self._generator = np.random.default_rng(seed)
        self._values: dict[str, Value] = {}

    def value(self, name: str) -> Value:
        if name not in self._values:
            raise ValueError(f"{name} is read before it is defined")
        return self._values[name]

    def defined(self, text: str) -> tuple[Value, ...]:
        """The values of a list of names with types."""
        found = []
        for name, dtype, extents in _TYPED.findall(text):
            shape = tuple(int(extent) for extent in extents.split(",") if extent.strip())
            self._values[name] = Value(name, shape, dtype_named(dtype))
            found.append(self._values[name])
        return tuple(found)

    def read(self, line: str) -> None:
        left, _, right = line.partition(" = ")
        parts = _NODE.fullmatch(right)
        if parts is None or not _TYPED.match(left):
            raise ValueError(f"{line!r} is expected to read name: type[shape] = operator(...)")
        operator, rest = parts.groups()
        if operator == "constant":
            (value,) = self.defined(left)
            self.constants[value] = self._elements(value, rest)
            return
        inputs: list[Value | None] = []
        while (operand := _OPERAND.match(rest)) is not None:
            inputs.append(None if operand[1] == "none" else self.value(operand[1]))
            rest = rest[operand.end() :]
        attributes = _attributes(rest)
        outputs = self.defined(left)
        self.nodes.append(Node(operator, tuple(inputs), outputs, attributes, outputs[0].name))

    def _elements(self, value: Value, text: str) -> Array:
        if text != "...":
            return np.asarray(_literal(ast.parse(text, mode="eval").body), value.dtype).reshape(
                value.shape
            )
        if value.name in self._arrays:
            return np.asarray(self._arrays[value.name], value.dtype)
        if np.issubdtype(value.dtype, np.integer):
            limits = np.iinfo(value.dtype)
            lowest, highest = max(limits.min, -127), min(limits.max, 127)
            whole = self._generator.integers(lowest, highest, value.shape, endpoint=True)
            return np.asarray(whole, value.dtype)
        return np.asarray(self._generator.standard_normal(value.shape) / 4).astype(value.dtype)


def _attributes(text: str) -> dict[str, Any]:
    call = ast.parse(f"_({text})", mode="eval").body
    assert isinstance(call, ast.Call)
    return {str(it.arg): _literal(it.value) for it in call.keywords}


class _Infinite(ast.NodeTransformer):
    """inf and nan, which repr writes and no literal is."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(math.inf if node.id == "inf" else math.nan)


def _literal(tree: ast.expr) -> Any:
    return ast.literal_eval(_Infinite().visit(tree))
