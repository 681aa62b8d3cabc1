"""The passes of the compiler, in the order in which they run.

Each is a function from graph to graph; the name in the list is what `explain` calls it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dlprim.graph.graph import Graph
from dlprim.graph.passes.algebra import (
    fold_constants,
    inline_numbers,
    join_moves,
    join_training,
    merge_equal_nodes,
    turn_products,
    widen_convolutions,
)
from dlprim.graph.passes.attention import recognise_attention
from dlprim.graph.passes.bfloat16 import use_bfloat16
from dlprim.graph.passes.broadcasts import spread_last
from dlprim.graph.passes.draft import CompileError
from dlprim.graph.passes.epilogues import fold_epilogues
from dlprim.graph.passes.images import run_images_in_pieces
from dlprim.graph.passes.layers import join_gates, join_gradient_terms, join_layers
from dlprim.graph.passes.lifetimes import release_early
from dlprim.graph.passes.maps import join_maps, join_maps_of_one, recognise_activations
from dlprim.graph.passes.norms import (
    fold_norm_weights,
    join_gradients,
    join_residuals,
    recognise_rms_norm,
)
from dlprim.graph.passes.parts import join_parts
from dlprim.graph.passes.pieces import run_in_pieces
from dlprim.graph.passes.precision import (
    compute_in_8_bits,
    join_conversions,
    recognise_byte_attention,
)
from dlprim.graph.passes.written_out import round_halves, write_out

Pass = Callable[[Graph], Graph]

PASSES: tuple[Pass, ...] = (
    join_training,
    round_halves,
    write_out,
    # In front of what folds constants, and with them weights in 8 bits and their scales.
    compute_in_8_bits,
    fold_constants,
    spread_last,
    inline_numbers,
    join_moves,
    merge_equal_nodes,
    turn_products,
    join_parts,
    # Norms behind convolutions are maps by constants: they go into weights before maps are joined.
    fold_epilogues,
    join_maps_of_one,
    recognise_activations,
    join_moves,
    fold_epilogues,
    recognise_rms_norm,
    fold_norm_weights,
    # In front of maps, which would take the sums.
    join_residuals,
    join_layers,
    join_gates,
    join_gradient_terms,
    join_gradients,
    join_maps,
    fold_epilogues,
    recognise_byte_attention,
    recognise_attention,
    widen_convolutions,
    fold_constants,
    join_moves,
    join_moves,
    merge_equal_nodes,
    # When nothing asks any more what was dequantised.
    join_conversions,
    # Of what is left: these change when nodes run, and nothing else.
    run_in_pieces,
    run_images_in_pieces,
    release_early,
)


def passes_for(dtype: str) -> tuple[Pass, ...]:
    """The passes of a network that computes in float32 or bfloat16."""
    if dtype == "float32":
        return PASSES
    # When all is folded that is folded, so that weights are rounded once.
    place = PASSES.index(widen_convolutions)
    return (*PASSES[:place], use_bfloat16, *PASSES[place:])


@np.errstate(all="ignore")  # constants may be no numbers
def optimized(graph: Graph, passes: int | None = None, dtype: str = "float32") -> Graph:
    """The graph after all passes, or after the first few of them.

    Raises
    ------
    CompileError
        Where one fails: its words say which, and at which node.
    """
    for step in passes_for(dtype)[:passes]:
        try:
            graph = step(graph)
        except MemoryError:
            raise
        except Exception as error:
            raise CompileError.at(f"the pass {step.__name__} fails", error) from error
    return graph
