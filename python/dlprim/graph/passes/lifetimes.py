"""Sums and other reductions run as soon as they can, so that what they read is not kept.

A gradient of a bias that is updated with others at the end of a step would else keep the gradient
of a whole layer until then, and read it from memory again.
"""

from __future__ import annotations

from dataclasses import replace

from dlprim.graph.graph import Graph, Node, Value

_VIEWS = ("expand", "reshape", "slice", "transpose")  # which mostly lie in what they are of
_IN_PIECES = {"images", "pieces"}  # which run where their chain does


def release_early(graph: Graph) -> Graph:
    """The graph with reductions of what nothing else keeps in other places."""
    makers = graph.makers()
    roots: dict[Value, Value] = {}
    for node in graph.nodes:
        if node.operator in _VIEWS:
            roots[node.output] = roots.get(node.operands[0], node.operands[0])
    kept = {roots.get(it, it) for it in graph.results}
    early: dict[Node, set[Node]] = {}  # what makes what each of them reads
    for node in reversed(graph.nodes):
        if node.operator in _VIEWS:
            continue
        read = {it for it in (roots.get(it, it) for it in node.operands) if it in makers}
        if _frees_more(node, read - kept):
            early[node] = {makers[it] for it in read}
        else:
            kept |= read
    return replace(graph, nodes=_ordered(graph, makers, early)) if early else graph


def _frees_more(node: Node, read: set[Value]) -> bool:
    """Whether it is a sum, or the like, of what nothing else keeps: smaller for any extents."""
    return node.operator == "reduce" and bool(read) and _IN_PIECES.isdisjoint(node.attributes)


def _ordered(
    graph: Graph, makers: dict[Value, Node], early: dict[Node, set[Node]]
) -> tuple[Node, ...]:
    """Nodes as they come, but for the early ones, which come when all that they read is there."""
    behind: dict[Node, list[Node]] = {}
    for node in reversed(early):
        for it in early[node]:
            behind.setdefault(it, []).append(node)
    left = {node: len(needed) for node, needed in early.items()}
    done: dict[Node, None] = {}
    for place in graph.nodes:
        waiting = [place]
        while waiting:
            node = waiting.pop()
            if node in done:
                continue
            views = [makers[it] for it in node.operands if it in makers]
            ahead = [it for it in views if it not in done]
            if ahead:
                waiting += [node, *reversed(ahead)]
                continue
            done[node] = None
            for it in behind.get(node, ()):
                left[it] -= 1
            waiting += reversed([it for it in behind.get(node, ()) if left[it] == 0])
    return tuple(done)
