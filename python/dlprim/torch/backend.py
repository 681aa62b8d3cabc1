"""The backend of `torch.compile`: traced graphs become networks, and Python that calls them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch._functorch.config
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch._functorch.aot_autograd import aot_module_simplified
from torch._guards import TracingContext
from torch.fx import Graph, GraphModule, Node

from dlprim.torch.again import with_wide_gradients, with_wide_statistics, without_saved
from dlprim.torch.apart import with_checks, with_constants, with_masks
from dlprim.torch.border import saved_in_blocks
from dlprim.torch.decompositions import DECOMPOSITIONS
from dlprim.torch.explanation import Report, reports
from dlprim.torch.partition import Partition, Turn, partitioned, writes
from dlprim.torch.piece import Part, Piece
from dlprim.torch.recurrent import with_recurrences
from dlprim.torch.strided import as_views

_VIEW = torch.ops.aten.view.default
_RESHAPE = torch.ops.aten.reshape.default


def _untraced(function: Callable[..., Any]) -> Callable[..., Any]:
    """What TorchDynamo leaves as it is."""
    disable: Any = torch._dynamo.disable
    found: Callable[..., Any] = disable(function)
    return found


def _part(turn: Turn, filled: frozenset[Node], constant: frozenset[Node]) -> Part:
    """A turn of ours with what it reads from others and what others read from it."""
    read = dict.fromkeys(it for node in turn.nodes for it in node.all_input_nodes)
    nodes = (*(it for it in read if it in filled), *turn.nodes)
    own = set(nodes)
    inputs = dict.fromkeys(it for node in nodes for it in node.all_input_nodes if it not in own)
    outputs = [it for it in turn.nodes if any(user not in own for user in it.users)]
    places = frozenset(at for at, it in enumerate(inputs) if it in constant)
    return Part(nodes, tuple(inputs), tuple(outputs), places)


def _joined(traced: GraphModule, found: Partition, constant: frozenset[Node]) -> Graph:
    """The graph with one call for each turn of ours."""
    graph = Graph()
    known: dict[Node, Node] = {}
    for node in traced.graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            known[node] = graph.node_copy(node)
    for turn in found.turns:
        if turn.is_ours:
            part = _part(turn, found.filled, constant)
            call = graph.call_function(Piece(part), tuple(known[it] for it in part.inputs))
            for at, it in enumerate(part.outputs):
                known[it] = graph.call_function(operator.getitem, (call, at))
            continue
        for node in turn.nodes:
            known[node] = graph.node_copy(node, known.__getitem__)
            if known[node].target is _VIEW:  # of strides that need not be those that were traced
                known[node].target = _RESHAPE
    graph.node_copy(next(it for it in traced.graph.nodes if it.op == "output"), known.__getitem__)
    graph.eliminate_dead_code()
    return graph


def _compiled(
    kind: str, freeze: bool, traced: GraphModule, fakes: Sequence[Any]
) -> Callable[..., Any]:
    as_views(traced)
    with_masks(traced)
    with_checks(traced)
    with_constants(traced)
    traced.graph.eliminate_dead_code()
    found = partitioned(traced.graph.nodes)
    constant = _parameters(traced) if freeze and kind == "inference" else frozenset()
    graph = _joined(traced, found, constant)
    module = GraphModule(traced, graph)
    pieces = tuple(it.target for it in graph.nodes if isinstance(it.target, Piece))
    for report in reports():
        report.append(Report(kind, found, pieces))
    made: Callable[..., Any] = make_boxed_func(module.forward)
    # Whoever compiles the call of a whole step meets it.
    return made if kind != "backward" else _untraced(made)


def _parameters(traced: GraphModule) -> frozenset[Node]:
    """Operands that are the same tensors in every call, and that the graph does not write."""
    context = TracingContext.try_get()
    known = None if context is None else context.fw_metadata
    if known is None:
        return frozenset()
    operands = [it for it in traced.graph.nodes if it.op == "placeholder"]
    written = {it.args[0] for it in traced.graph.nodes if it.op == "call_function" and writes(it)}
    chosen = (operands[at] for at in known.static_input_indices if at < len(operands))
    return frozenset(it for it in chosen if it not in written)


def _cut(joint: GraphModule, inputs: Any, **how: Any) -> tuple[GraphModule, GraphModule]:
    as_views(joint)
    without_saved(joint)
    with_wide_statistics(joint)
    with_wide_gradients(joint)
    # What is computed twice a network computes once, and PyTorch's look for it imports inductor.
    with torch._functorch.config.patch(cse=False):
        forward, backward = min_cut_rematerialization_partition(joint, inputs, **how)
    saved_in_blocks(forward, backward, how["num_fwd_outputs"])
    return forward, backward


def backend(
    traced: GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compiles a traced graph; `torch.compile` calls it.

    Parameters
    ----------
    traced : torch.fx.GraphModule
        As TorchDynamo gives it.
    example_inputs : sequence
        Its first operands.
    options : mapping, optional
        With ``{"freeze": True}`` inference keeps parameters packed for as long as no change of them
        is seen; a write of single elements through ``.data`` or NumPy may be missed. Else they are
        read in every call.
    mode : str, optional
        Of PyTorch's; it changes nothing.

    Returns
    -------
    callable

    Raises
    ------
    TypeError
        An option has no such name.
    """
    named = dict(options or {})
    freeze = named.pop("freeze", False)
    if named:
        raise TypeError(f"options has {sorted(named)}, expected 'freeze'")
    with_recurrences(traced)

    def compiler(kind: str) -> Callable[..., Any]:
        return _untraced(partial(_compiled, kind, bool(freeze)))

    # Without `torch._dynamo.backends.common.aot_autograd`, which imports all of inductor.
    made: Any = aot_module_simplified(
        traced,
        example_inputs,
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        decompositions=DECOMPOSITIONS,
        keep_inference_input_mutations=True,
        partition_fn=_cut,
    )
    return _untraced(made)
