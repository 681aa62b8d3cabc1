"""From floats that are quantised and dequantised again to integers that stay in 8 bits.

Quantised models say with pairs of `quantize` and `dequantize` what may be rounded; between them
they compute in floats. A rule looks back from a node at what its operands were in 8 bits:
products then multiply integers, and what the pairs meant becomes their epilogue; moves between
pairs move bytes; other elements are computed from bytes to bytes in one map.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlprim.graph.graph import Graph, Node, Value
from dlprim.graph.passes.draft import Draft
from dlprim.graph.passes.precision.attention import recognise_byte_attention
from dlprim.graph.passes.precision.elements import join_conversions
from dlprim.graph.passes.precision.ends import add_bias, quantize, relu
from dlprim.graph.passes.precision.moves import moved_bytes
from dlprim.graph.passes.precision.parameters import folded
from dlprim.graph.passes.precision.products import multiply
from dlprim.graph.passes.precision.sums import float_sums

__all__ = ["compute_in_8_bits", "join_conversions", "recognise_byte_attention"]

Rule = Callable[[Draft, Node], "Sequence[Value] | None"]


def compute_in_8_bits(graph: Graph) -> Graph:
    """The graph with integer products where operands are quantised."""
    rules: dict[str, tuple[Rule, ...]] = {
        "convolution": (multiply,),
        "matmul": (multiply,),
        "map": (float_sums, add_bias, relu),
        "gather": (_gather,),
        "quantize": (quantize,),
    }

    def rule(draft: Draft, node: Node) -> Sequence[Value] | None:
        for it in rules.get(node.operator, ()):
            outputs = it(draft, node)
            if outputs is not None:
                return outputs
        return None

    return _fold_dequantized(Draft(graph).apply(rule))


def _gather(draft: Draft, node: Node) -> Sequence[Value] | None:
    """Tables stay in 8 bits, and only what is looked up is a float."""
    found = moved_bytes(draft, node)
    return None if found is None else [found.dequantized(draft, node.name)]


def _fold_dequantized(graph: Graph) -> Graph:
    """Constants in 8 bits become floats where no rule could use them as they are."""

    def rule(draft: Draft, node: Node) -> Sequence[Value] | None:
        if node.operator != "dequantize":
            return None
        array = folded(draft, node)
        return None if array is None else [draft.constant(array, node.output.name)]

    return Draft(graph).apply(rule)
