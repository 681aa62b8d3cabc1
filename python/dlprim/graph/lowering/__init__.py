"""How nodes become steps of a compiled network."""

from dlprim.graph.graph import Graph
from dlprim.graph.lowering.attention import (
    lower_attention,
    lower_attention_gradient,
    lower_filled_attention,
    lower_quantized_attention,
)
from dlprim.graph.lowering.batch_norms import lower_batch_norm, lower_batch_norm_gradient
from dlprim.graph.lowering.caches import lower_placed_rows
from dlprim.graph.lowering.calls import lower_call
from dlprim.graph.lowering.contractions import lower_einsum, lower_formula
from dlprim.graph.lowering.convolutions import (
    lower_convolution,
    lower_transposed,
    lower_weights_gradient,
)
from dlprim.graph.lowering.elements import lower_map, lower_reduce
from dlprim.graph.lowering.experts import lower_experts
from dlprim.graph.lowering.gradients import lower_pool_gradient, lower_scatter_add
from dlprim.graph.lowering.images import lower_images
from dlprim.graph.lowering.lowering import Lower, Lowering
from dlprim.graph.lowering.moves import (
    lower_concat,
    lower_expand,
    lower_gather,
    lower_resample,
    lower_reshape,
    lower_slice,
    lower_transpose,
)
from dlprim.graph.lowering.norms import (
    lower_group_norm,
    lower_normalize,
    lower_normalize_gradient,
    lower_softmax,
    lower_softmax_gradient,
)
from dlprim.graph.lowering.padding import lower_pad
from dlprim.graph.lowering.pieces import lower_pieces
from dlprim.graph.lowering.products import lower_matmul
from dlprim.graph.lowering.quantized import (
    lower_byte_pool,
    lower_dequantize,
    lower_quantize,
    lower_quantized_convolution,
    lower_quantized_matmul,
)
from dlprim.graph.lowering.quantized_recurrent import lower_quantized_lstm
from dlprim.graph.lowering.recurrent import lower_recurrent, lower_recurrent_gradient
from dlprim.graph.lowering.sharing import leave_files
from dlprim.graph.lowering.states import refusing
from dlprim.graph.lowering.training import lower_cross_entropy, lower_dropout
from dlprim.graph.lowering.updates import lower_clip, lower_update
from dlprim.graph.recording import Recording

LOWERS: dict[str, Lower] = {
    "add_normalize": lower_normalize,
    "attention": lower_attention,
    "attention_gradient": lower_attention_gradient,
    "batch_norm": lower_batch_norm,
    "batch_norm_gradient": lower_batch_norm_gradient,
    "call": lower_call,
    "clip": lower_clip,
    "concat": lower_concat,
    "convolution": lower_convolution,
    "convolution_weights_gradient": lower_weights_gradient,
    "cross_entropy": lower_cross_entropy,
    "dequantize": lower_dequantize,
    "dropout": lower_dropout,
    "einsum": lower_einsum,
    "expand": lower_expand,
    "experts": lower_experts,
    "filled_attention": lower_filled_attention,
    "formula": lower_formula,
    "gather": lower_gather,
    "group_norm": lower_group_norm,
    "map": lower_map,
    "matmul": lower_matmul,
    "normalize": lower_normalize,
    "normalize_gradient": lower_normalize_gradient,
    "images": lower_images,  # of all nodes that have an attribute of this name
    "pad": lower_pad,
    "pieces": lower_pieces,  # the same
    "placed_rows": lower_placed_rows,
    "pool": lower_byte_pool,
    "pool_gradient": lower_pool_gradient,
    "quantize": lower_quantize,
    "quantized_attention": lower_quantized_attention,
    "quantized_convolution": lower_quantized_convolution,
    "quantized_lstm": lower_quantized_lstm,
    "quantized_matmul": lower_quantized_matmul,
    "recurrent": lower_recurrent,
    "recurrent_gradient": lower_recurrent_gradient,
    "reduce": lower_reduce,
    "resample": lower_resample,
    "reshape": lower_reshape,
    "scatter_add": lower_scatter_add,
    "slice": lower_slice,
    "softmax": lower_softmax,
    "softmax_gradient": lower_softmax_gradient,
    "transpose": lower_transpose,
    "transposed_convolution": lower_transposed,
    "update": lower_update,
}


def lowered(
    graph: Graph, recording: Recording | None = None, pause: tuple[int, int] | None = None
) -> Lowering:
    """The network of the core for a graph; ``pause`` is as of `Lowering`."""
    first = refusing(graph) if graph.states else set()
    lowering = Lowering(graph, LOWERS, recording, first=first, pause=pause)
    lowering.run()
    if not first.issuperset(lowering.called):  # of Python, behind which states may change
        called = first | lowering.called
        lowering = Lowering(graph, LOWERS, recording, first=called, pause=pause)
        lowering.run()
    leave_files(graph.constants.values())
    return lowering
