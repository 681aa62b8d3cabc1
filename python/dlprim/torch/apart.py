"""What PyTorch does in front of a network, so that the network can do the rest of an operator.

Masks of dropout are drawn by PyTorch's generator, in the order in which the model asks for them,
and applied in the network. Classes and rows of tables are looked at before the network reads by
them, and refused as PyTorch's own operators refuse them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

_aten = torch.ops.aten


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


def _read_by(node: Node) -> tuple[int, tuple[Any, ...]] | None:
    """Which operand has places, and what they are expected to be within."""
    args: Any = node.args
    if node.target in (_aten.nll_loss_forward.default, _aten.nll_loss2d_forward.default):
        return 1, (args[0].meta["val"].shape[1 if args[0].meta["val"].dim() > 1 else 0], args[4])
    if node.target is _aten.embedding.default:
        return 1, (args[0].meta["val"].shape[0],)
    if node.target is _aten.index_select.default:
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
