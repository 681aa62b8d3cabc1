"""What PyTorch does in front of a network, so that the network can do the rest of an operator.

Masks of dropout are drawn by PyTorch's generator, in the order in which the model asks for them,
and applied in the network. Classes and rows of tables are looked at before the network reads by
them, and refused as PyTorch's own operators refuse them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

_aten = torch.ops.aten
_MOST_KEPT = 1 << 20  # elements of a tensor that is computed once


def dropout_mask(shape: Sequence[int], strides: Sequence[int], share: float) -> torch.Tensor:
    """Which elements stay, drawn as `native_dropout` draws them."""
    return torch.empty_strided(shape, strides, dtype=torch.bool).bernoulli_(share)


def dropped_out(x: Any, mask: Any, scale: float) -> Any:
    return x.mul(mask).mul_(scale)


def within(places: torch.Tensor, extent: int, ignored: int | None = None) -> torch.Tensor:
    """Places, none of which is outside an axis or negative, but for one that is ignored."""
    if places.numel():
        low, high = map(int, torch.aminmax(places))
        if low < 0 or high >= extent:
            outside = (places < 0) | (places >= extent)
            if ignored is not None:
                outside &= places != ignored
            if outside.any():
                raise IndexError(f"{places[outside][0].item()} is out of range for {extent}")
    return places


def is_random(node: Node) -> bool:
    """Whether it draws from PyTorch's generator."""
    tags = getattr(node.target, "tags", ())
    return node.target is dropout_mask or torch.Tag.nondeterministic_seeded in tags


def _are_numbers(tensor: Any) -> bool:
    return all(isinstance(it, int) for it in (*tensor.shape, *tensor.stride()))


def with_masks(traced: GraphModule) -> None:
    """Draws masks of dropout apart from what they are applied to, where sizes are numbers."""
    for node in list(traced.graph.nodes):
        if node.op != "call_function" or node.target is not _aten.native_dropout.default:
            continue
        x, share, training = node.args
        made = node.meta["val"][1]
        if training is not True or not _are_numbers(made) or not made.numel():
            continue
        kept = 1.0 - share
        with traced.graph.inserting_before(node):
            arguments = (tuple(made.shape), tuple(made.stride()), kept)
            mask = traced.graph.call_function(dropout_mask, arguments)
            y = traced.graph.call_function(dropped_out, (x, mask, 1 / kept if kept else 0.0))
        mask.meta["val"], y.meta["val"] = made, node.meta["val"][0]
        for part in list(node.users):
            part.replace_all_uses_with((y, mask)[part.args[1]])
            traced.graph.erase_node(part)
        traced.graph.erase_node(node)


_ALONG = (
    *(_aten.index_select.default, _aten.gather.default, _aten.scatter_add.default),
    *(_aten.scatter.src, _aten.scatter.value),
)


def _read_by(node: Node) -> tuple[int, tuple[Any, ...]] | None:
    """Which operand has places, and what they are expected to be within."""
    args: Any = node.args
    if node.target in (_aten.nll_loss_forward.default, _aten.nll_loss2d_forward.default):
        return 1, (args[0].meta["val"].shape[1 if args[0].meta["val"].dim() > 1 else 0], args[4])
    if node.target is _aten.embedding.default:
        return 1, (args[0].meta["val"].shape[0],)
    if node.target in _ALONG and args[0].meta["val"].dim():
        return 2, (args[0].meta["val"].shape[args[1]],)
    return None


def with_checks(traced: GraphModule) -> None:
    """Looks at places before they are read by, where the extent is a number."""
    for node in list(traced.graph.nodes):
        found = _read_by(node) if node.op == "call_function" else None
        if found is None or not isinstance(found[1][0], int):
            continue
        number, expected = found
        with traced.graph.inserting_before(node):
            made = traced.graph.call_function(within, (node.args[number], *expected))
        made.meta = dict(node.args[number].meta)
        node.update_arg(number, made)


def _may_alias(node: Node) -> bool:
    """Whether what it makes may be memory of its operands, or be handed to the caller."""
    schema = getattr(node.target, "_schema", None)
    return node.op == "output" or schema is None or any(it.alias_info for it in schema.arguments)


def _is_fixed(node: Node, known: dict[Node, Any]) -> bool:
    """Whether it follows from numbers alone, as the places do that masks and positions are of."""
    made = node.meta.get("val")
    if node.op != "call_function" or is_random(node) or not isinstance(made, torch.Tensor):
        return False
    is_small = _are_numbers(made) and made.numel() <= _MOST_KEPT and made.device.type == "cpu"
    return is_small and all(it in known for it in node.all_input_nodes)


def with_constants(traced: GraphModule) -> None:
    """Computes once what follows from numbers alone and is no array of one number."""
    known: dict[Node, Any] = {}
    with unset_fake_temporarily(), torch.no_grad():
        for node in traced.graph.nodes:
            if _is_fixed(node, known):
                args, named = map_arg((node.args, node.kwargs), known.__getitem__)
                known[node] = node.target(*args, **named)
        varied = [it for it, tensor in known.items() if len(tensor.unique()) > 1]
    for node in varied:
        readers = [it for it in node.users if it not in known]
        if not readers or any(map(_may_alias, readers)):
            continue
        name = f"constant_{node.name}"
        traced.register_buffer(name, known[node], persistent=False)
        with traced.graph.inserting_before(node):
            made = traced.graph.get_attr(name)
        made.meta = dict(node.meta)
        node.replace_all_uses_with(made)
