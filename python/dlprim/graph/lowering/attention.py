"""Steps for attention: heads are read and written where they lie inside of positions."""

from __future__ import annotations

from dlprim.graph.graph import Node, Value
from dlprim.graph.lowering.formulas import is_computed
from dlprim.graph.lowering.lowering import Lowering
from dlprim.graph.lowering.place import Place

_HEADS_INSIDE = (0, 2, 1, 3)
_MOST_STORED = 1024  # elements of a head that is read where it lies


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


def _is_mask(mask: Value, shape: tuple[int, ...]) -> bool:
    """Whether there are programs for it."""
    is_kept = mask.dtype.name in ("bool", "float32", "bfloat16")
    return is_kept and (mask.shape[-1:] == shape[-1:] or shape[-1] == 1)


def _is_turned(to: Lowering, value: Value) -> bool:
    """Whether heads go inside of positions next, or behind a conversion, which keeps the order."""
    return any(
        _is_turned(to, it.output)
        if it.operator == "dequantize"
        else it.operator == "transpose" and it.attributes["axes"] == _HEADS_INSIDE
        for it in to.readers.get(value, [])
    )


def _result(to: Lowering, value: Value) -> int:
    """Memory for (N, H, S, D), heads inside of positions where that is wanted next."""
    n, heads, rows, size = value.shape
    is_inside = _is_turned(to, value)
    result = to.new((n, rows, heads, size) if is_inside else value.shape, value.dtype)
    result = result.transposed(_HEADS_INSIDE) if is_inside else result
    to.put(value, result)
    return to.number(result)


def _operands(to: Lowering, node: Node, arrays: dict[str, Value | None]) -> dict[str, int] | None:
    """Arrays, q to mask among them, as values of the network; None where they are none for it."""
    mask = arrays.pop("mask")
    known = {name: it for name, it in arrays.items() if it is not None}
    q = known["q"]
    shape = (*q.shape[:3], known["k"].shape[2])
    are_alike = all(it.dtype == q.dtype for it in (*known.values(), *node.outputs))
    if not are_alike or not is_computed(q.dtype) or any(0 in it.shape for it in known.values()):
        return None
    if mask is not None and not _is_mask(mask, shape):
        return None
    numbers = {name: to.number(_rows(to, it)) for name, it in known.items()}
    if mask is not None:
        numbers["mask"] = to.number(_mask(to, mask, shape))
    return numbers


def _settings(node: Node) -> tuple[float, float, bool, int]:
    it = node.attributes
    window = int(it.get("window", 0))
    return float(it["scale"]), float(it["softcap"]), bool(it["causal"]), window


def lower_attention(to: Lowering, node: Node) -> bool:
    """The primitive, on float32 or bfloat16 alone."""
    arrays = dict(zip(("q", "k", "v", "mask"), (*node.inputs, None), strict=False))
    values = _operands(to, node, arrays)
    if values is None:
        return False
    label = f"attention {node.name}"
    to.network.attention(label, _settings(node), **values, dst=_result(to, node.output))
    return True


def lower_filled_attention(to: Lowering, node: Node) -> bool:
    """The primitive, which reads keys and values where they lie."""
    q, k, v, fill, mask = (*node.inputs, None)[:5]
    arrays = {"q": q, "k": k, "v": v, "mask": mask}
    sizes = (it.shape[3] for it in node.operands[:3])
    values = _operands(to, node, arrays) if max(sizes) <= _MOST_STORED else None
    if values is None or fill is None:
        return False
    values["fill"] = to.number(to.dense(fill))
    label = f"attention {node.name}"
    to.network.attention(label, _settings(node), **values, dst=_result(to, node.output))
    return True


def lower_attention_gradient(to: Lowering, node: Node) -> bool:
    """The primitive's pass backward, on the same types."""
    arrays = dict(zip(("dy", "q", "k", "v", "mask"), (*node.inputs, None), strict=False))
    values = _operands(to, node, arrays)
    if values is None:
        return False
    zipped = zip(("dq", "dk", "dv"), node.outputs, strict=True)
    results = {name: _result(to, it) for name, it in zipped}
    to.network.attention_backward(f"attention {node.name}", _settings(node), **values, **results)
    return True


def _keys(to: Lowering, value: Value) -> Place:
    """As `_rows`, or with the keys next to each other."""
    place = to.place(value)
    across = place.transposed((0, 1, 3, 2))
    is_across = place.shape[3] > 1 and across.strides[3] == 1 and across.strides[2] > 0
    return place if is_across and min(place.strides) >= 0 else _rows(to, value)


def lower_quantized_attention(to: Lowering, node: Node) -> bool:
    """The primitive of 8-bit arrays."""
    q, k, v, mask = (*node.inputs, None)[:4]
    assert q is not None
    assert k is not None
    assert v is not None
    shape = (*q.shape[:3], k.shape[2])
    if 0 in (*shape, q.shape[3], v.shape[3]) or (mask is not None and not _is_mask(mask, shape)):
        return False
    values = {"q": to.number(_rows(to, q)), "k": to.number(_keys(to, k))}
    values["v"] = to.number(_rows(to, v))
    if mask is not None:
        values["mask"] = to.number(_mask(to, mask, shape))
    it = node.attributes
    known = dict(zip(("q", "k", "v", "weights"), it["steps"], strict=True))
    known |= {name: it[key] for name, key in (("scores", "scores"), ("dst", "y")) if it[key]}
    steps = {name: (dtype, scale, zero) for name, (scale, zero, dtype) in known.items()}
    settings = (float(it["scale"]), bool(it["causal"]))
    label = f"quantized_attention {node.name}"
    result = _result(to, node.output)
    to.network.byte_attention(label, steps, settings, **values, dst=result)
    return True
