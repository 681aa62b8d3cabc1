"""Chains of steps on images that run for a few images at a time.

Between the layers of a large batch lie arrays that no cache holds, while those of one image stay in
one. The nodes of a chain get an attribute, ``images``: the number of the chain and the images of a
piece. What they compute is what it was; lowering makes one step of them. That images of results
follow from the same images of inputs is decided here, and how long a chain pays by the core, from
bytes and caches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from dlprim import _core
from dlprim.graph.extents import derived
from dlprim.graph.graph import Graph, Node, Value
from dlprim.graph.lowering.layouts import is_blocked_convolution

_NUMBERS = ("float32", "bfloat16", "uint8", "int8")


def is_image_wise(graph: Graph, node: Node) -> bool:
    """Whether each image of the result follows from the same images of what is not constant."""
    others = [it for it in node.operands if it not in graph.constants]
    if not others or len(node.outputs) != 1 or node.operator not in _IMAGE_WISE:
        return False
    alike = [*others, node.output]
    if any(len(it.shape) != 4 or not it.size or it.dtype.name not in _NUMBERS for it in alike):
        return False
    if len({it.shape[0] for it in alike}) != 1:
        return False
    return _IMAGE_WISE[node.operator](graph, node)


def _convolution(graph: Graph, node: Node) -> bool:
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    are_known = bias is None or bias in graph.constants
    return is_blocked_convolution(graph, node) and are_known and _images_are_made(graph, node, 3)


def _quantized_convolution(graph: Graph, node: Node) -> bool:
    are_known = all(it is None or it in graph.constants for it in node.inputs[1:4])
    return are_known and _images_are_made(graph, node, 4)


def _images_are_made(graph: Graph, node: Node, residual: int) -> bool:
    """Whether x and the residual are no constants, which have all images."""
    return all(it not in graph.constants for it in (node.inputs[0], *node.inputs[residual:]))


def _pool(graph: Graph, node: Node) -> bool:
    return True


def _map(graph: Graph, node: Node) -> bool:
    known = [it for it in node.operands if it in graph.constants]
    others = [it for it in node.operands if it not in graph.constants]
    are_alike = all(it.shape == node.output.shape for it in others)
    return are_alike and all(len(it.shape) < 4 or it.shape[0] == 1 for it in known)


def _conversion(graph: Graph, node: Node) -> bool:
    return all(it in graph.constants and it.size == 1 for it in node.operands[1:])


_IMAGE_WISE: dict[str, Callable[[Graph, Node], bool]] = {
    "convolution": _convolution,
    "dequantize": _conversion,
    "map": _map,
    "pool": _pool,
    "quantize": _conversion,
    "quantized_convolution": _quantized_convolution,
}


def _chains(graph: Graph, nodes: Sequence[Node]) -> Iterator[list[Node]]:
    """As long ones as there are, each on one array that is made in front of it."""
    chain: list[Node] = []
    made: set[Value] = set()
    for node in nodes:
        others = {it for it in node.operands if it not in graph.constants}
        is_free = is_image_wise(graph, node) and "pieces" not in node.attributes
        goes_on = is_free and bool(chain) and others <= made
        if not goes_on:
            if len(chain) > 1:
                yield chain
            chain, made = [], others if is_free and len(others) == 1 else set()
            if not made:
                continue
        chain.append(node)
        made.add(node.output)
    if len(chain) > 1:
        yield chain


def _ends(graph: Graph, chain: list[Node]) -> list[bool]:
    """Of each node whether what nodes up to it make, but its own result, only these read."""
    readers, kept = graph.readers(), set(graph.results)
    places = {node: place for place, node in enumerate(chain)}
    far, ends = -1, []
    for place, node in enumerate(chain):
        ends.append(far <= place)
        last = max((places.get(it, len(chain)) for it in readers.get(node.output, ())), default=-1)
        far = max(far, len(chain) if node.output in kept else last)
    return ends


def _bytes_of(graph: Graph, node: Node) -> tuple[int, int, int]:
    """Of weights, and of all images what is read and written."""
    weights = sum(it.nbytes for it in node.operands if it in graph.constants)
    read = sum(it.nbytes for it in node.operands if it not in graph.constants)
    return weights, read, node.output.nbytes


def _image_pieces(images: int, steps: Sequence[tuple[int, int, int, bool]], which: int) -> int:
    """How many steps run in pieces (0), or images of these (1)."""
    of_image = [(float(it[0]), it[1] / images, it[2] / images, it[3]) for it in steps]
    return _core.image_pieces(images, of_image)[which]


def images_of_pieces(graph: Graph, chain: list[Node], ends: list[bool]) -> tuple[int, int]:
    """How many nodes of the chain run in pieces, and images of these; 0 where pieces do not pay."""
    steps = [(*_bytes_of(graph, node), is_end) for node, is_end in zip(chain, ends, strict=True)]
    count, images = (
        derived(_image_pieces, chain[0].output.shape[0], steps, which) for which in (0, 1)
    )
    return count, images


def run_images_in_pieces(graph: Graph) -> Graph:
    """Marks chains that run for a few images at a time."""
    marked: dict[Node, Node] = {}
    waiting = list(_chains(graph, graph.nodes))
    number = 0
    while waiting:
        chain = waiting.pop()
        ends = _ends(graph, chain)
        count, images = images_of_pieces(graph, chain, ends)
        for node in chain[:count]:
            attributes = {**node.attributes, "images": (number, images)}
            marked[node] = Node(node.operator, node.inputs, node.outputs, attributes, node.name)
        number += 1
        # On behind that, or behind what others read far away.
        behind = count or next((at for at, is_end in enumerate(ends) if not is_end), len(chain))
        waiting.extend(_chains(graph, chain[behind:]))
    nodes = tuple(marked.get(node, node) for node in graph.nodes)
    return replace(graph, nodes=nodes)
