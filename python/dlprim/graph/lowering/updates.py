"""Steps of optimisers: parameters and their moments change where they lie."""

from __future__ import annotations

from dlprim.graph.graph import Node, Value
from dlprim.graph.lowering.lowering import Lowering
from dlprim.graph.operators.updates import parameters_of


def _changed(to: Lowering, value: Value, made: Value) -> tuple[int, int]:
    """A value and what it becomes, in one place: that of a state, or of a copy."""
    landing = to.landing(made, replaced=value)
    if landing is not None:
        to.put(made, landing)
        return to.number(to.place(value)), to.number(landing)
    copy = to.result(made)
    to.network.copy(to.number(to.place(value)), to.number(copy), f"{value.name} to change")
    return to.number(copy), to.number(copy)


def lower_update(to: Lowering, node: Node) -> bool:
    """One step for all parameters of the node."""
    settings, counts, factor = node.inputs[:3]
    outputs = iter(node.outputs)
    updated = []
    places = node.attributes["places"]
    for place, (weights, gradient, *others) in zip(places, parameters_of(node.inputs), strict=True):
        own, following = [], []
        for value in (weights, *others):
            before, behind = (-1, -1) if value is None else _changed(to, value, next(outputs))
            own.append(before)
            following.append(behind)
        updated.append((to.number(to.dense(gradient)), own, following, place))
    numbers = tuple(
        -1 if it is None else to.number(to.dense(it)) for it in (settings, counts, factor)
    )
    to.network.update(node.attributes["rule"], updated, numbers, f"update {node.name}")
    return True


def lower_clip(to: Lowering, node: Node) -> bool:
    """The norm of all gradients, and the factor."""
    limit, *gradients = (to.number(to.dense(it)) for it in node.operands)
    norm, factor = (to.number(to.result(it)) for it in node.outputs)
    to.network.clip(gradients, limit, norm, factor, f"clip {node.name}")
    return True
