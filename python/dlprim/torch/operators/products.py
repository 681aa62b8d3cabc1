"""Products of matrices, and attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlprim.graph.derivatives import times
from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Value
from dlprim.graph.operators.attention import attention_scale
from dlprim.torch.operators.table import Call, asked, require, rule

_X, _Y = operand(0), operand(1)


@rule("aten.mm.default", "aten.bmm.default", "aten.mv.default")
def mm(c: Call, a: Value, b: Value) -> Value:
    return c.b.matmul(a, b)


@rule("dlprim.wide_product")
def wide_product(c: Call, a: Value, b: Value) -> Value:
    return c.b.emit("matmul", [a, b], dtype=c.dtype.name)[0]


@rule("aten.addmm.default", "aten.baddbmm.default")
def addmm(c: Call, bias: Value, a: Value, b: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    product: Expression = times(number(float(alpha)), _X)
    if beta == 0:
        return c.map(product, c.b.matmul(a, b))
    return c.map(("add", product, times(number(float(beta)), _Y)), c.b.matmul(a, b), bias)


# ---------------------------------------------------------------- attention


def _four_axes(c: Call, it: Value) -> Value:
    missing = 4 - len(it.shape)
    require(missing >= 0, "there are more than four axes")
    return c.b.reshape(it, (*[1] * missing, *it.shape)) if missing else it


def _heads(
    c: Call, operands: Sequence[Value | None], causal: bool, scale: float | None
) -> tuple[list[Value], dict[str, Any]]:
    """Operands, the last of which is a mask, and attributes of the node."""
    given = [_four_axes(c, it) for it in operands if it is not None]
    q, k = given[:2]
    require(q.shape[1] == k.shape[1], "queries share keys")
    if len(given) > 3 and given[3].dtype.kind != "b":
        given[3] = c.b.cast(given[3], q.dtype)
    scale = attention_scale(q.shape[3]) if scale is None else scale
    return given, {"scale": float(scale), "causal": bool(causal), "softcap": 0.0}


@rule("dlprim.attention.default")
def attention(c: Call, q: Value, k: Value, v: Value, mask: Value | None, *how: Any) -> Value:
    given, form = _heads(c, (q, k, v, mask), *how)
    (y,) = c.b.emit("attention", given, **form)
    return c.b.reshape(y, (*q.shape[:-1], v.shape[-1]))


@rule("aten._scaled_dot_product_flash_attention_for_cpu.default")
def flash_attention(
    c: Call, q: Value, k: Value, v: Value, dropout: float = 0.0, causal: bool = False, **how: Any
) -> tuple[Value | None, ...]:
    require(dropout == 0, "attention drops out")
    return attention(c, q, k, v, how.get("attn_mask"), causal, how.get("scale")), None


def _gradients(
    c: Call, diff: Value, operands: Sequence[Value | None], *how: Any
) -> list[Value | None]:
    """By queries, keys and values, of weights that are computed again from the operands alone."""
    given, form = _heads(c, operands, *how)
    found = c.gradients("attention", given, _four_axes(c, diff), form)
    return [
        it and c.b.reshape(it, like.shape)
        for it, like in zip(found, operands[:3], strict=False)
        if like
    ]


@rule("again.aten._scaled_dot_product_flash_attention_for_cpu_backward.default")
def flash_attention_backward(
    c: Call, diff: Value, q: Value, k: Value, v: Value, *rest: Any, **how: Any
) -> tuple[Value | None, ...]:
    _, _, dropout, causal = rest
    require(dropout == 0, "attention drops out")
    operands = (q, k, v, how.get("attn_mask"))
    return tuple(_gradients(c, diff, operands, causal, how.get("scale")))


@rule("dlprim.attention_backward.default")
def attention_backward(
    c: Call, diff: Value, q: Value, k: Value, v: Value, *how: Any
) -> tuple[Value, ...]:
    hidden, causal, scale, mask = how
    return asked(c, _gradients(c, diff, (q, k, v, hidden), causal, scale), mask)
