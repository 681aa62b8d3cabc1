"""Steps for attention: heads are read and written where they lie inside of positions."""

from __future__ import annotations

from dlprim.graph.graph import Node, Value
from dlprim.graph.lowering.formulas import is_computed
from dlprim.graph.lowering.lowering import Lowering
from dlprim.graph.lowering.place import Place

_HEADS_INSIDE = (0, 2, 1, 3)


def _rows(to: Lowering, value: Value) -> Place:
    """The value with the elements of its last axis next to each other, and rows apart."""
    place = to.place(value)
    size = place.dtype.itemsize
    is_read = all(stride >= 0 for stride in place.strides) and (
        place.shape[3] == 1 or place.strides[3] == size
    )
    is_apart = place.shape[2] == 1 or place.strides[2] >= place.shape[3] * size
    return place if is_read and is_apart else to.dense(value)


def _mask(to: Lowering, value: Value, shape: tuple[int, ...]) -> Place:
    """The mask repeated to the shape of the scores; along its last axis it is there."""
    place = to.place(value)
    whole = place.shape[-1:] == shape[-1:] and place.strides[-1:] == (place.dtype.itemsize,)
    if not whole and shape[-1] != 1:
        place = to.dense(value)
    return place.expanded(shape)


def lower_attention(to: Lowering, node: Node) -> bool:
    """The primitive, on float32 or bfloat16 alone."""
    q, k, v, mask = (*node.inputs, None)[:4]
    assert q is not None
    assert k is not None
    assert v is not None
    shape = (*q.shape[:3], k.shape[2])
    is_known = is_computed(q.dtype) and q.dtype == k.dtype == v.dtype == node.output.dtype
    if not is_known or 0 in (*shape, q.shape[3], v.shape[3]):
        return False
    values = {name: to.number(_rows(to, it)) for name, it in (("q", q), ("k", k), ("v", v))}
    if mask is not None:
        is_kept = mask.dtype.name in ("bool", "float32", "bfloat16")
        if not is_kept or (mask.shape[-1:] != shape[-1:] and shape[-1] != 1):
            return False
        values["mask"] = to.number(_mask(to, mask, shape))
    readers = to.readers.get(node.output, [])
    is_inside = any(
        it.operator == "transpose" and it.attributes["axes"] == _HEADS_INSIDE for it in readers
    )
    n, heads, queries, size = node.output.shape
    if is_inside:
        result = to.new((n, queries, heads, size), q.dtype).transposed(_HEADS_INSIDE)
    else:
        result = to.new(node.output.shape, q.dtype)
    to.put(node.output, result)
    it = node.attributes
    settings = (float(it["scale"]), float(it["softcap"]), bool(it["causal"]), 0, False)
    label = f"attention {node.name}"
    to.network.attention(label, settings, **values, dst=to.number(result))
    return True
