"""One step for a chain of nodes on images: a network of its own that runs for a few of these."""

from __future__ import annotations

from collections.abc import Sequence

from dlprim.graph.graph import Graph, Node, Value
from dlprim.graph.lowering.lowering import Form, Lowering


def _of_images(value: Value, images: int) -> Value:
    """So many images of the value."""
    return Value(value.name, (images, *value.shape[1:]), value.dtype)


def _label(images: int, name: str) -> str:
    return f"pieces of {images} image{'s' if images > 1 else ''} {name}"


def _part(graph: Graph, chain: Sequence[Node], images: int) -> Graph:
    """The graph of a chain for some of its images."""
    known = graph.constants
    made: dict[Value, Value] = {}
    inputs: list[Value] = []
    nodes: list[Node] = []
    for node in chain:
        for value in node.operands:
            if value not in known and value not in made:
                made[value] = _of_images(value, images)
                inputs.append(made[value])
        made[node.output] = _of_images(node.output, images)
        operands = tuple(it if it is None else made.get(it, it) for it in node.inputs)
        attributes = {name: it for name, it in node.attributes.items() if name != "images"}
        nodes.append(Node(node.operator, operands, (made[node.output],), attributes, node.name))
    constants = {it: known[it] for node in chain for it in node.operands if it in known}
    return Graph(tuple(inputs), (made[chain[-1].output],), tuple(nodes), constants)


def lower_images(to: Lowering, node: Node) -> bool:
    """The step, at the last node of the chain; steps of each node where one calls Python."""
    chain = to.chains["images", *node.attributes["images"]]
    if node is not chain[-1]:
        return True
    _, images = node.attributes["images"]
    x = next(it for it in chain[0].operands if it not in to.graph.constants)
    whole = node.output
    form = to.form(x)
    counts = [it for it in (images, whole.shape[0] % images) if it]
    parts = [to.part(_part(to.graph, chain, it), form) for it in counts]
    forms: set[Form] = {result for _, result in parts}
    if len(forms) > 1 or any(network.runs_alone for network, _ in parts):
        for it in chain:
            to.lower_alone(it)
        return True
    src, dst = to.held(x, form), to.new_held(whole, forms.pop())
    rest = parts[1][0] if len(parts) > 1 else None
    label = to.call(_label, images, node.name)
    to.network.pieces(parts[0][0], rest, [src], [dst], label)
    return True
