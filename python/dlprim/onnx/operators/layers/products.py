"""Products of matrices, and sums of Einstein's kind."""

from __future__ import annotations

import string

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Value
from dlprim.onnx.registry import RefusedError, operator


@operator("MatMul")
def matmul(build: Builder, a: Value, b: Value) -> Value:
    return build.matmul(a, b)


def _transposed(build: Builder, x: Value) -> Value:
    last = len(x.shape) - 1
    return build.transpose(x, (*range(last - 1), last, last - 1))


def _times(factor: float, expression: Expression) -> Expression:
    return expression if factor == 1 else ("multiply", number(factor), expression)


@operator("Gemm", since=7)
def gemm(
    build: Builder,
    a: Value,
    b: Value,
    c: Value | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Value:
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise RefusedError(f"A of {list(a.shape)} and B of {list(b.shape)}, expected matrices")
    y = build.matmul(_transposed(build, a) if transA else a, _transposed(build, b) if transB else b)
    if c is not None and not _fits(c, y):
        raise RefusedError(
            f"C of {list(c.shape)}, expected one that can be broadcast to {list(y.shape)}"
        )
    if c is None or beta == 0:  # which does not read C, even where that is no number
        return y if alpha == 1 else build.map(_times(alpha, operand(0)), y)
    return build.map(("add", _times(alpha, operand(0)), _times(beta, operand(1))), y, c)


def _fits(c: Value, y: Value) -> bool:
    """Whether c can be broadcast to y, of two axes."""
    behind = y.shape[2 - len(c.shape) :]
    return len(c.shape) <= 2 and all(a in (1, b) for a, b in zip(c.shape, behind, strict=True))


# ---------------------------------------------------------------- Einsum


@operator("Einsum", since=12)
def einsum(build: Builder, *inputs: Value, equation: str) -> Value:
    """Written out for the graph: a letter for every axis, and what the result has."""
    written, arrow, result = equation.replace(" ", "").partition("->")
    terms = written.split(",")
    if len(terms) != len(inputs):
        raise RefusedError(f"equation {equation!r} is of {len(terms)} inputs, not {len(inputs)}")
    free = [letter for letter in string.ascii_letters if letter not in equation]
    most = 0
    for place, (term, x) in enumerate(zip(terms, inputs, strict=True)):
        hidden = len(x.shape) - len(term.replace("...", ""))
        if hidden < 0 or (hidden and "..." not in term) or hidden > len(free):
            raise RefusedError(f"equation {equation!r} does not fit an input of {list(x.shape)}")
        terms[place] = term.replace("...", "".join(free[len(free) - hidden :]))
        most = max(most, hidden)
    around = "".join(free[len(free) - most :])
    if not arrow:
        once = (it for it in sorted(set(written) - {",", "."}) if written.count(it) == 1)
        result = around + "".join(once)
    elif most and "..." not in result:
        raise RefusedError(f"equation {equation!r} is expected to keep the axes of '...'")
    result = result.replace("...", around)
    letters = set("".join(terms))
    if not (set(result) <= letters <= set(string.ascii_letters)) or len(set(result)) < len(result):
        raise RefusedError(f"equation {equation!r} is expected to be letters of the inputs")
    return build.emit("einsum", inputs, equation=f"{','.join(terms)}->{result}")[0]


# ---------------------------------------------------------------- integers

# What zero points add to sums of products is taken away.
LESS_PRODUCT: Expression = ("subtract", operand(0), ("multiply", operand(1), operand(2)))


def is_zero(build: Builder, zero: Value | None) -> bool:
    """Whether a zero point is left out, or known to be 0."""
    return zero is None or (build.is_constant(zero) and not build.array(zero).any())


def less_zero_point(
    build: Builder, w: Value, zero: Value | None, axis: int
) -> tuple[Value, Value | None]:
    """Weights less zero points along an axis as int8, and what zero points are left.

    Those that do not fit are centred, as products of integers take int8 alone.
    """
    is_known = build.is_constant(w) and (zero is None or build.is_constant(zero))
    if not is_known or w.dtype.name not in ("int8", "uint8"):
        return w, None if is_zero(build, zero) else zero
    whole = build.array(w).astype(np.int32)
    shifts = np.zeros(1, np.int32)
    if zero is not None:
        shifts = build.array(zero).astype(np.int32).reshape(-1)
    along = [-1 if it == axis % len(w.shape) else 1 for it in range(len(w.shape))]
    centred = whole - shifts.reshape(along)
    if not centred.size or -128 <= centred.min() <= centred.max() <= 127:
        return build.constant(centred.astype(np.int8)), None
    center = 128 if w.dtype == np.uint8 else 0
    return build.constant((whole - center).astype(np.int8)), build.constant(shifts - center)


@operator("MatMulInteger", since=10)
def matmul_integer(
    build: Builder,
    a: Value,
    b: Value,
    a_zero: Value | None = None,
    b_zero: Value | None = None,
) -> Value:
    """The product of what is stored, less what zero points add to it: sums of rows and columns.

    Sums wrap around, so what is taken away is exact even where a part of it left 32 bits.
    """
    if b_zero is None or b_zero.shape in ((), (1,), b.shape[-1:]):
        b, b_zero = less_zero_point(build, b, b_zero, -1)
    lefts = None if is_zero(build, a_zero) else _lined_up(build, "a_zero_point", a_zero, a, -2)
    y = _less_rows(build, a, b, lefts)
    if is_zero(build, b_zero):
        return y
    rights = _lined_up(build, "b_zero_point", b_zero, b, -1)
    if len(b.shape) == 2 and build.is_constant(b):
        rows = _less_rows(build, a, build.constant(np.ones((b.shape[0], 1), np.int8)), lefts)
    else:
        rows = build.reduce("sum", build.cast(a, np.int32), [len(a.shape) - 1], keepdims=True)
        if lefts is not None:
            taken = ("multiply", operand(1), number(a.shape[-1]))
            rows = build.map(("subtract", operand(0), taken), rows, lefts)
    return build.map(LESS_PRODUCT, y, rows, rights)


def _less_rows(build: Builder, a: Value, b: Value, lefts: Value | None) -> Value:
    """The product of a less its zero points, one for all or one for each row, with b."""
    y = build.emit("matmul", [a, b], dtype="int32")[0]
    if lefts is None:
        return y
    columns = build.reduce("sum", build.cast(b, np.int32), [-2 % len(b.shape)], keepdims=True)
    return build.map(LESS_PRODUCT, y, columns, lefts)


def _lined_up(build: Builder, name: str, zero: Value | None, x: Value, axis: int) -> Value:
    """Zero points in 32 bits, shaped to be broadcast to the product."""
    assert zero is not None
    wide = build.cast(zero, np.int32)
    if zero.size == 1:
        return build.reshape(wide, ())
    if len(zero.shape) == 1 and len(x.shape) >= -axis and zero.size == x.shape[axis]:
        return build.reshape(wide, (zero.size, 1) if axis == -2 else zero.shape)
    whole = [*x.shape]
    if len(whole) > 1:
        whole[-1 if axis == -2 else -2] = 1
    if zero.shape != tuple(whole):
        raise RefusedError(f"{name} of {list(zero.shape)}, expected one number or {whole}")
    return wide
