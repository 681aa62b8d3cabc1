"""Products of matrices, and attention."""

from __future__ import annotations

from typing import Any

from dlprim.graph.expressions import number, operand
from dlprim.graph.graph import Value
from dlprim.graph.operators.attention import attention_scale
from dlprim.torch.operators.table import Call, require, rule

_X, _Y = operand(0), operand(1)


@rule("aten.mm.default", "aten.bmm.default", "aten.mv.default")
def mm(c: Call, a: Value, b: Value) -> Value:
    return c.b.matmul(a, b)


@rule("dlprim.wide_product")
def wide_product(c: Call, a: Value, b: Value) -> Value:
    return c.b.emit("matmul", [a, b], dtype=c.dtype.name)[0]


@rule("aten.addmm.default", "aten.baddbmm.default")
def addmm(c: Call, bias: Value, a: Value, b: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    product = c.b.matmul(a, b)
    if beta == 1 and alpha == 1:
        return c.map(("add", _X, _Y), product, bias)
    scaled = ("multiply", number(float(alpha)), _X)
    if beta == 0:
        return c.map(scaled, product)
    return c.map(("add", scaled, ("multiply", number(float(beta)), _Y)), product, bias)


# ---------------------------------------------------------------- attention


def _form(q: Value, scale: float | None, causal: bool) -> dict[str, Any]:
    return {
        "scale": attention_scale(q.shape[3]) if scale is None else float(scale),
        "causal": bool(causal),
        "softcap": 0.0,
    }


def _operands(c: Call, q: Value, k: Value, v: Value, mask: Value | None) -> list[Value]:
    require(q.shape[1] == k.shape[1], "queries share keys")
    if mask is None:
        return [q, k, v]
    require(len(mask.shape) == 4, "the mask has not four axes")
    return [q, k, v, c.b.cast(mask, q.dtype)]


@rule("aten._scaled_dot_product_flash_attention_for_cpu.default")
def attention(
    c: Call, q: Value, k: Value, v: Value, dropout: float = 0.0, causal: bool = False, **how: Any
) -> tuple[Value | None, ...]:
    require(dropout == 0, "attention drops out")
    operands = _operands(c, q, k, v, how.get("attn_mask"))
    return c.b.emit("attention", operands, **_form(q, how.get("scale"), causal))[0], None


@rule("dlprim.attention_backward")
def attention_backward(
    c: Call, diff: Value, q: Value, k: Value, v: Value, causal: bool, **how: Any
) -> tuple[Value, ...]:
    """By weights that are computed again, from the operands alone."""
    operands = _operands(c, q, k, v, how.get("attn_mask"))
    form = _form(q, how.get("scale"), causal)
    found = c.gradients("attention", operands, diff, form)[:3]
    return tuple(it for it in found if it is not None)
