"""What can be said with less: the same twice, moves of moves, numbers that were arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlprim.graph.expressions import Expression, inputs_of, number, operand, substituted
from dlprim.graph.extents import derived
from dlprim.graph.graph import Graph, Node, Value
from dlprim.graph.interpret import computed
from dlprim.graph.operators.elements import broadcast_shape
from dlprim.graph.passes.draft import Draft
from dlprim.graph.room import MOST_FOLDED_BYTES


def fold_constants(graph: Graph) -> Graph:
    """Computes what constants alone decide."""

    def rule(draft: Draft, node: Node) -> Sequence[Value] | None:
        if not node.operands or not all(value in draft.constants for value in node.operands):
            return None
        if sum(value.nbytes for value in node.outputs) > MOST_FOLDED_BYTES:
            return None
        arrays = [
            None if it is None else draft.constants[it].astype(it.dtype, copy=False)
            for it in node.inputs
        ]
        results = derived(computed, node.operator, arrays, dict(node.attributes))
        return [
            draft.constant(array, value.name)
            for array, value in zip(results, node.outputs, strict=True)
        ]

    return Draft(graph).apply(rule)


def merge_equal_nodes(graph: Graph) -> Graph:
    """Computes once what several nodes compute of the same values."""
    known: dict[Any, Node] = {}

    def rule(draft: Draft, node: Node) -> Sequence[Value] | None:
        attributes = tuple(sorted((name, repr(it)) for name, it in node.attributes.items()))
        first = known.setdefault((node.operator, node.inputs, attributes), node)
        return None if first is node else first.outputs

    return Draft(graph).apply(rule)


def join_training(graph: Graph) -> Graph:
    """Lets recurrent layers keep what their gradients read, instead of running for it once more."""

    def key(node: Node) -> Any:
        others = {name: it for name, it in node.attributes.items() if name != "training"}
        return node.inputs, tuple(sorted((name, repr(it)) for name, it in others.items()))

    layers = [node for node in graph.nodes if node.operator == "recurrent"]
    trained = {key(node) for node in layers if node.attributes.get("training")}
    joined = {node for node in layers if key(node) in trained}
    known: dict[Any, Sequence[Value]] = {}

    def rule(draft: Draft, node: Node) -> Sequence[Value] | None:
        if draft.original(node) not in joined:
            return None
        it = key(node)
        if it not in known:
            attributes = {**node.attributes, "training": True}
            known[it] = draft.emit(node.operator, node.inputs, node.name, **attributes)
        return known[it]

    return Draft(graph).apply(rule) if trained else graph


def inline_numbers(graph: Graph) -> Graph:
    """Writes constants of one element into the expressions of maps, and drops what is not read."""

    def rule(draft: Draft, node: Node) -> Sequence[Value] | None:
        if node.operator != "map":
            return None
        inputs: list[Value] = []
        operands = []
        read = set(inputs_of(node.attributes["expression"]))
        for place, value in enumerate(node.operands):
            # What gives the result its shape stays.
            known = draft.number(value) if len(value.shape) <= len(node.output.shape) else None
            if (known is not None and value.dtype.kind in "fV") or place not in read:
                operands.append(number(known if known is not None else 0.0))
            else:
                if value not in inputs:
                    inputs.append(value)
                operands.append(operand(inputs.index(value)))
        expression = without_ones(substituted(node.attributes["expression"], operands))
        if not inputs or len(inputs) == len(node.operands):
            return None
        if broadcast_shape(*(value.shape for value in inputs)) != node.output.shape:
            return None
        dtype = node.attributes["dtype"]
        return draft.emit("map", inputs, node.name, expression=expression, dtype=dtype)

    return Draft(graph).apply(rule)


def without_ones(expression: Expression) -> Expression:
    """The expression without products with 1 and quotients by it."""
    name, *parts = expression
    if name in ("input", "number"):
        return expression
    made, one = [without_ones(it) for it in parts], number(1.0)
    if name in ("multiply", "divide") and made[1] == one:
        return made[0]
    return made[1] if name == "multiply" and made[0] == one else (name, *made)


def _turned_product(draft: Draft, node: Node) -> Sequence[Value] | None:
    """The transpose of a product that a run computes, as that of the other factors.

    Which the kernel writes as it is read: as gradients by weights are.
    """
    product = draft.only_maker(node.operands[0], "matmul")
    axes = node.attributes["axes"]
    last = len(axes) - 2
    if product is None or axes != (*range(last), last + 1, last):
        return None
    factors = product.operands
    is_plain = len(product.inputs) == 2 and all(len(it.shape) == len(axes) for it in factors)
    if not is_plain or not draft.constants.keys().isdisjoint(factors):
        return None
    turned = [draft.emit("transpose", [it], node.name, axes=axes)[0] for it in reversed(factors)]
    return draft.emit("matmul", turned, product.name, **product.attributes)


def turn_products(graph: Graph) -> Graph:
    """Makes transposes of products, where nothing else reads these, products of transposes."""

    def rule(draft: Draft, node: Node) -> Sequence[Value] | None:
        return _turned_product(draft, node) if node.operator == "transpose" else None

    return Draft(graph).apply(rule)


def _turned_inside(draft: Draft, node: Node) -> Sequence[Value] | None:
    """A transpose of the last axes between reshapes of the first ones, as a transpose alone."""
    turn = draft.maker(node.operands[0], "transpose")
    before = draft.maker(turn.operands[0], "reshape") if turn is not None else None
    if turn is None or before is None:
        return None
    x, shape, axes = before.operands[0], node.output.shape, turn.attributes["axes"]
    inner = len(axes) - 1
    lead = len(x.shape) - inner
    fits = (
        axes[0] == 0
        and lead > 0
        and len(shape) == len(x.shape)
        and shape[:lead] == x.shape[:lead]
        and x.shape[lead:] == turn.operands[0].shape[1:]
        and shape[lead:] == turn.output.shape[1:]
    )
    if not fits:
        return None
    turned = (*range(lead), *(lead - 1 + axis for axis in axes[1:]))
    return draft.emit("transpose", [x], node.name, axes=turned)


def _moved(draft: Draft, node: Node) -> Sequence[Value] | None:
    (x,) = node.operands
    if node.operator == "reshape":
        if x.shape == node.output.shape:
            return [x]
        before = draft.maker(x, "reshape")
        if before is None:
            return _turned_inside(draft, node)
        return draft.emit("reshape", before.inputs, node.name, shape=node.output.shape)
    axes = node.attributes["axes"]
    before = draft.maker(x, "transpose")
    if before is not None:
        x = before.operands[0]
        axes = tuple(before.attributes["axes"][axis] for axis in axes)
    if axes == tuple(range(len(axes))):
        return [x]
    moving = [axis for axis in axes if x.shape[axis] != 1]
    if moving == sorted(moving):  # only axes of one element change places
        return draft.emit("reshape", [x], node.name, shape=node.output.shape)
    return None if before is None else draft.emit("transpose", [x], node.name, axes=axes)


def _mapped_inside(draft: Draft, node: Node) -> Sequence[Value] | None:
    """A reshape in front of a map behind it, so that the map meets what made its operand."""
    varying = [value for value in node.operands if value not in draft.constants]
    before = draft.only_maker(varying[0], "reshape") if len(varying) == 1 else None
    if before is None or varying[0].shape != node.output.shape:
        return None
    (x,) = before.operands
    for value in node.operands:
        is_row = value.shape[-1:] == x.shape[-1:] == node.output.shape[-1:]
        if value in draft.constants and value.size != 1 and not (len(value.shape) == 1 and is_row):
            return None
    if any(value in draft.constants and len(value.shape) > len(x.shape) for value in node.operands):
        return None
    inputs = [x if value is varying[0] else value for value in node.operands]
    (mapped,) = draft.emit("map", inputs, node.name, **node.attributes)
    return draft.emit("reshape", [mapped], node.name, shape=node.output.shape)


def join_moves(graph: Graph) -> Graph:
    """Makes one move of reshapes or transposes in a row, and none of what changes nothing."""

    def rule(draft: Draft, node: Node) -> Sequence[Value] | None:
        if node.operator in ("reshape", "transpose"):
            return _moved(draft, node)
        inside = _mapped_inside(draft, node) if node.operator == "map" else None
        if inside is not None:
            return inside
        is_same = node.operator == "map" and node.attributes["expression"] == ("input", 0)
        x = node.operands[0] if node.operands else None
        if is_same and x is not None and x.shape == node.output.shape:
            return [x] if x.dtype == node.output.dtype else None
        return None

    return Draft(graph).apply(rule)


_CONVOLUTIONS = ("convolution", "convolution_weights_gradient", "transposed_convolution")
# Of attributes, what an axis of one element has.
_OF_ONE = {
    "strides": 1,
    "dilations": 1,
    "padding": (0, 0),
    "output_padding": 0,
    "kernel": 1,
}


def widen_convolutions(graph: Graph) -> Graph:
    """Makes convolutions along one axis those of images one pixel high, which there is more for."""

    def rule(draft: Draft, node: Node) -> Sequence[Value] | None:
        if node.operator not in _CONVOLUTIONS or len(node.output.shape) != 3:
            return None
        attributes = {
            name: (_OF_ONE[name], *it) if name in _OF_ONE else it
            for name, it in node.attributes.items()
        }
        inputs = [
            it
            if it is None or len(it.shape) != 3
            else draft.emit("reshape", [it], it.name, shape=(*it.shape[:2], 1, it.shape[2]))[0]
            for it in node.inputs
        ]
        (wide,) = draft.emit(node.operator, inputs, node.name, **attributes)
        return draft.emit("reshape", [wide], node.name, shape=node.output.shape)

    return Draft(graph).apply(rule)
