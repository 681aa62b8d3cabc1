"""What is computed again in the backward pass, so that the forward one need not keep it.

PyTorch's gradients of norms, pools and attention take statistics, places and sums that its forward
functions return beside their results. dlprim's take them from the operands; asked for nevertheless,
they would cost the forward pass one more time over memory. So a pass over the joint graph replaces
the gradients by the functions here, before it is cut in two. PyTorch runs them as they are here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

_aten = torch.ops.aten


def layer_norm_backward(
    diff: Any, x: Any, shape: Sequence[int], parameters: Sequence[Any], *how: Any
) -> Any:
    epsilon, mask = how
    _, mean, factor = _aten.native_layer_norm(x, shape, *parameters, epsilon)
    return _aten.native_layer_norm_backward(diff, x, shape, mean, factor, *parameters, mask)


def group_norm_backward(diff: Any, x: Any, parameters: Sequence[Any], *how: Any) -> Any:
    groups, epsilon, mask = how
    count, channels = x.shape[:2]
    inner = x.numel() // max(1, count * channels)
    weight, bias = parameters
    sizes = (count, channels, inner, groups)
    _, mean, factor = _aten.native_group_norm(x, weight, bias, *sizes, epsilon)
    return _aten.native_group_norm_backward(diff, x, mean, factor, weight, *sizes, mask)


def max_pool_backward(diff: Any, x: Any, kernel: Sequence[int], *how: Any) -> Any:
    name = f"max_pool{len(kernel)}d_with_indices"
    _, places = getattr(_aten, name)(x, kernel, *how)
    whole = (*how, *((), 0, 1, False)[len(how) :])
    return getattr(_aten, f"{name}_backward")(diff, x, kernel, *whole, places)


def attention_backward(diff: Any, q: Any, k: Any, v: Any, causal: bool, **how: Any) -> Any:
    forward = _aten._scaled_dot_product_flash_attention_for_cpu
    backward = _aten._scaled_dot_product_flash_attention_for_cpu_backward
    y, sums = forward(q, k, v, 0.0, causal, **how)
    return backward(diff, q, k, v, y, sums, 0.0, causal, **how)


# ---------------------------------------------------------------- gradients of parameters


def wide_product(a: Any, b: Any) -> Any:
    return _aten.mm(a, b).float()


def wide_convolution_backward(*operands: Any) -> Any:
    by_x, by_w, by_bias = _aten.convolution_backward(*operands)
    return by_x, by_w.float(), by_bias


def _behind_tangents(joint: GraphModule) -> set[Node]:
    """The nodes of the backward pass."""
    found: set[Node] = set()
    for node in joint.graph.nodes:
        is_given = node.op == "placeholder" and node.name.startswith("tangents")
        if is_given or not found.isdisjoint(node.all_input_nodes):
            found.add(node)
    return found


def _widened_by(node: Node) -> list[Node] | None:
    """What a conversion to float32 alone reads, through transpositions, from the first on."""
    more = {name: it for name, it in node.kwargs.items() if it is not None}
    plain = {"dtype": torch.float32, "layout": torch.strided, "device": torch.device("cpu")}
    if node.target is not _aten._to_copy.default or not more.items() <= plain.items():
        return None
    (first,) = node.all_input_nodes
    chain = [first]
    while chain[0].target is _aten.t.default:
        chain.insert(0, chain[0].all_input_nodes[0])
    is_half = chain[0].meta["val"].dtype is torch.bfloat16
    is_alone = all(len(it.users) == 1 for it in chain)
    return chain if is_half and is_alone and "dtype" in more else None


def with_wide_gradients(joint: GraphModule) -> None:
    """Leaves sums in float32 that were rounded to bfloat16 and then widened for a parameter."""
    backward = _behind_tangents(joint)
    for node in list(joint.graph.nodes):
        chain = _widened_by(node) if node in backward else None
        if chain is None:
            continue
        maker = _maker(chain[0])
        if chain[0].target is _aten.mm.default:
            chain[0].target = wide_product
        elif maker is not None and maker.target is _aten.convolution_backward.default:
            if chain[0].args[1] != 1:
                continue
            maker.target = wide_convolution_backward
            made = maker.meta["val"]
            maker.meta["val"] = (made[0], _wide(made[1]), made[2])
        else:
            continue
        for it in chain:
            it.meta["val"] = _wide(it.meta["val"])
        node.replace_all_uses_with(chain[-1])
        joint.graph.erase_node(node)


def _wide(tensor: Any) -> Any:
    return tensor.new_empty_strided(tensor.shape, tensor.stride(), dtype=torch.float32)


# ---------------------------------------------------------------- what is saved all the same


def with_wide_statistics(joint: GraphModule) -> None:
    """Has statistics of bfloat16 in float32, as PyTorch makes them where parameters are float32.

    It traces them as bfloat16, which is what the backward pass would be given then.
    """
    for node in joint.graph.nodes:
        if node.target is not _aten._native_batch_norm_legit_functional.default:
            continue
        weight, made = node.args[1], node.meta["val"]
        is_wide = isinstance(weight, Node) and weight.meta["val"].dtype is torch.float32
        if is_wide and made[1].dtype is not torch.float32:
            wide = [it.new_empty(it.shape, dtype=torch.float32) for it in made[1:3]]
            node.meta["val"] = (made[0], *wide, *made[3:])
            for part in node.users:
                part.meta["val"] = node.meta["val"][part.args[1]]


# ---------------------------------------------------------------- the pass


def _maker(node: Any) -> Node | None:
    """What a saved result came from."""
    views = (_aten.detach.default, _aten.alias.default)
    while isinstance(node, Node) and node.target in views:
        node = node.args[0]
    is_part = isinstance(node, Node) and getattr(node.target, "__name__", "") == "getitem"
    return node.args[0] if is_part else None


def _layer_norm(node: Node) -> tuple[Any, ...] | None:
    diff, x, shape, mean, _, weight, bias, mask = node.args
    forward = _maker(mean)
    if forward is None or forward.target is not _aten.native_layer_norm.default:
        return None
    return diff, x, shape, [weight, bias], forward.args[4], mask


def _group_norm(node: Node) -> tuple[Any, ...] | None:
    diff, x, mean, _, weight, *_, groups, mask = node.args
    forward = _maker(mean)
    if forward is None or forward.target is not _aten.native_group_norm.default:
        return None
    return diff, x, [weight, forward.args[2]], groups, forward.args[7], mask


def _max_pool(node: Node) -> tuple[Any, ...] | None:
    made: tuple[Any, ...] = node.args[:-1]
    return made


def _attention(node: Node) -> tuple[Any, ...] | None:
    diff, q, k, v, _, _, dropout, causal = node.args
    return (diff, q, k, v, causal) if dropout == 0 else None


Replacement = tuple[Callable[..., Any], Callable[[Node], tuple[Any, ...] | None]]
_BACKWARD: dict[Any, Replacement] = {
    _aten.native_layer_norm_backward.default: (layer_norm_backward, _layer_norm),
    _aten.native_group_norm_backward.default: (group_norm_backward, _group_norm),
    _aten.max_pool2d_with_indices_backward.default: (max_pool_backward, _max_pool),
    _aten.max_pool3d_with_indices_backward.default: (max_pool_backward, _max_pool),
    _aten._scaled_dot_product_flash_attention_for_cpu_backward.default: (
        attention_backward,
        _attention,
    ),
}


def without_saved(joint: GraphModule) -> None:
    """Replaces gradients in a joint graph by those that take operands alone."""
    for node in list(joint.graph.nodes):
        replacement = _BACKWARD.get(node.target) if node.op == "call_function" else None
        args = None if replacement is None else replacement[1](node)
        if replacement is None or args is None:
            continue
        with joint.graph.inserting_before(node):
            made = joint.graph.call_function(replacement[0], args, dict(node.kwargs))
        made.meta = dict(node.meta)
        node.replace_all_uses_with(made)
        joint.graph.erase_node(node)
    joint.graph.lint()
