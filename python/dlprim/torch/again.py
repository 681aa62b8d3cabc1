"""What is computed again in the backward pass, so that the forward one need not keep it.

PyTorch's gradients of norms, pools and attention take statistics, places and sums that its forward
functions return beside their results. dlprim's take them from the operands; asked for nevertheless,
they would cost the forward pass one more time over memory. So a pass over the joint graph replaces
these gradients by `again`, before it is cut in two. PyTorch runs it as it is here.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import GraphModule, Node

_aten = torch.ops.aten


def again(*args: Any, gradient: Any, forward: Any, operands: Any, how: Any, **named: Any) -> Any:
    """A gradient by an operator, in whose operands is None for each result of the forward one."""
    made = forward(*operands, **how)
    whole = list(args)
    for at, result in _SAVED[gradient][1].items():
        whole[at] = made[result]
    return gradient(*whole, **named)


# Of gradients that rules take without them: which operands are which results of which operator.
_SAVED: dict[Any, tuple[Any, dict[int, int]]] = {
    getattr(_aten, f"{name}_backward").default: (getattr(_aten, name).default, saved)
    for name, saved in {
        "native_layer_norm": {3: 1, 4: 2},
        "native_group_norm": {2: 1, 3: 2},
        "max_pool2d_with_indices": {7: 1},
        "max_pool3d_with_indices": {7: 1},
        "_scaled_dot_product_flash_attention_for_cpu": {4: 0, 5: 1},
    }.items()
}


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


def _source(it: Any) -> Any:
    """An operand, or what it is another name of."""
    while isinstance(it, Node) and it.target in (_aten.detach.default, _aten.alias.default):
        it = it.args[0]
    return it


def _maker(node: Any) -> Node | None:
    """What a saved result came from."""
    part = _source(node)
    is_part = isinstance(part, Node) and part.target is operator.getitem
    return part.args[0] if is_part else None


def _named(node: Node) -> dict[str, Any]:
    """The operands by their names, with those that were left out."""
    target: Any = node.target
    arguments = target._schema.arguments
    given = {**dict(zip((it.name for it in arguments), node.args, strict=False)), **node.kwargs}
    return {it.name: _source(given.get(it.name, it.default_value)) for it in arguments}


def _forward(node: Node) -> Node | None:
    """The operator whose results a gradient is given, where their operands are the same."""
    target, saved = _SAVED[node.target]
    found = _maker(node.args[max(saved)])
    if found is None or found.target is not target:
        return None
    parts = (_source(node.args[at]) for at in saved)
    made = [it.args if isinstance(it, Node) else () for it in parts]
    if made != [(found, result) for result in saved.values()]:
        return None
    ours, theirs = _named(node), _named(found)
    return found if all(theirs.get(name, it) == it for name, it in ours.items()) else None


def without_saved(joint: GraphModule) -> None:
    """Replaces gradients in a joint graph by those that take operands alone."""
    for node in joint.graph.nodes:
        forward = _forward(node) if node.target in _SAVED else None
        if forward is None:
            continue
        _, saved = _SAVED[node.target]
        made = {"forward": forward.target, "operands": forward.args, "how": dict(forward.kwargs)}
        node.kwargs = {**node.kwargs, "gradient": node.target, **made}
        node.args = tuple(None if at in saved else it for at, it in enumerate(node.args))
        node.target = again
    joint.graph.lint()
