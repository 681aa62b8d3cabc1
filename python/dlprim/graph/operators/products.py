"""Products: matrices, sums of Einstein's kind."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dlprim.graph.derivatives import differentiated
from dlprim.graph.expressions import FUNCTIONS, operand
from dlprim.graph.graph import Array, Node, Value
from dlprim.graph.operators.elements import broadcast_shape, converted, of_elements
from dlprim.graph.operators.operator import (
    Arrays,
    Attributes,
    Operator,
    Result,
    Values,
    summands,
    there,
    widened,
)

if TYPE_CHECKING:
    from dlprim.graph.builder import Builder


def finished(sums: Array, bias: Any, residual: Any, attributes: Attributes) -> Array:
    """The activation of sums, a bias in their shape and an array like the result."""
    with np.errstate(all="ignore"):
        sums = sums if bias is None else sums + widened(bias)
        sums = sums if residual is None else sums + widened(residual)
        activation = attributes.get("activation")
        return np.asarray(sums if activation is None else FUNCTIONS[activation].compute(sums))


def _infer_matmul(values: Values, attributes: Attributes) -> list[Result]:
    """As numpy.matmul, then a bias of the last axis and an activation where they are there.

    Of integers the sums are of the attribute ``dtype``.
    """
    a, b = there(values[0]), there(values[1])
    left = a.shape if len(a.shape) > 1 else (1, *a.shape)
    right = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    if not a.shape or not b.shape or left[-1] != right[-2]:
        raise ValueError(f"matrices of {list(a.shape)} and {list(b.shape)} cannot be multiplied")
    shape = list(broadcast_shape(left[:-2], right[:-2]))
    shape += [left[-2]] * (len(a.shape) > 1) + [right[-1]] * (len(b.shape) > 1)
    return [(tuple(shape), np.dtype(attributes.get("dtype", a.dtype)))]


def in_whole(sums: Array, factor: Array) -> Array:
    """Sums of products of integers as integers, from which they are cut to fewer bits."""
    return sums.astype(np.int64) if np.asarray(factor).dtype.kind in "iu" else sums


def _compute_matmul(arrays: Arrays, attributes: Attributes) -> list[Any]:
    a, b, bias = (*arrays, None)[:3]
    dtype = np.dtype(attributes.get("dtype", a.dtype))
    with np.errstate(all="ignore"):
        sums = in_whole(np.asarray(np.matmul(*summands(a, b))), a)
    return [converted(finished(sums, bias, None, attributes), dtype)]


def before_activation(b: Builder, node: Node, diff: Value) -> Value:
    """The gradient by what the activation of a product is applied to."""
    activation = node.attributes.get("activation")
    if activation is None:
        return diff
    expression = differentiated((activation, operand(0)), operand(1), operand(2))[0]
    sums = b.emit(node.operator, node.inputs, **{**node.attributes, "activation": None})[0]
    return of_elements(b, expression, [sums, diff, node.output], diff)


def _matmul_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    """Of vectors as of matrices of one row or column."""
    left, right = node.operands[:2]
    diff = before_activation(b, node, there(diffs[0]))
    bias = b.sum_to(diff, node.operands[2].shape) if len(node.operands) > 2 else None
    wide = list(diff.shape)
    if len(right.shape) == 1:
        wide.append(1)
    if len(left.shape) == 1:
        wide.insert(len(wide) - 1, 1)
    diff = b.cast(b.reshape(diff, wide), left.dtype)
    rows = b.reshape(left, (1, *left.shape)) if len(left.shape) == 1 else left
    columns = b.reshape(right, (*right.shape, 1)) if len(right.shape) == 1 else right
    by_left = b.sum_to(b.matmul(diff, turned(b, columns)), rows.shape)
    if len(columns.shape) == 2:  # one product of all rows, and no sum of products
        rows, diff = (
            b.reshape(it, (math.prod(it.shape[:-1]), it.shape[-1])) for it in (rows, diff)
        )
    by_right = b.sum_to(b.matmul(turned(b, rows), diff), columns.shape)
    by = [b.reshape(by_left, left.shape), b.cast(b.reshape(by_right, right.shape), right.dtype)]
    return [*by, bias][: len(node.inputs)]


def turned(b: Builder, x: Value) -> Value:
    """Matrices with their last axes exchanged."""
    axes = list(range(len(x.shape)))
    return b.transpose(x, [*axes[:-2], axes[-1], axes[-2]])


def _infer_einsum(values: Values, attributes: Attributes) -> list[Result]:
    """As numpy.einsum, of an equation with "->" but no "..."; extents of 1 are repeated."""
    written, _, result = attributes["equation"].partition("->")
    extents: dict[str, int] = {}
    for term, value in zip(written.split(","), values, strict=True):
        for letter, extent in zip(term, there(value).shape, strict=True):
            known = extents.setdefault(letter, extent)
            if 1 not in (known, extent) and known != extent:
                raise ValueError(f"{letter} of {written} is both {known} and {extent}")
            extents[letter] = known if extent == 1 else extent
    return [(tuple(extents[letter] for letter in result), there(values[0]).dtype)]


def _einsum_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    """For each operand the sum of the others and of the gradient by its letters."""
    written, _, result = node.attributes["equation"].partition("->")
    terms, values = _without_diagonals(b, written.split(","), node.operands)
    found: list[Value | None] = []
    for place, value in enumerate(node.operands):
        others = [result, *terms[:place], *terms[place + 1 :]]
        inputs = [there(diffs[0]), *values[:place], *values[place + 1 :]]
        found.append(b.cast(_summed(b, others, inputs, terms[place], value.shape), value.dtype))
    return found


def _without_diagonals(
    b: Builder, terms: Sequence[str], values: Sequence[Value]
) -> tuple[list[str], list[Value]]:
    """A letter that a term repeats becomes another one, and the two are equal by a factor."""
    unused = iter(sorted(set(string.ascii_letters).difference(*terms)))
    made, factors, identities = [], [], []
    for term, value in zip(terms, values, strict=True):
        letters: list[str] = []
        for letter, extent in zip(term, value.shape, strict=True):
            if letter in letters:
                other = next(unused)
                factors.append(letter + other)
                identities.append(b.constant(np.eye(extent).astype(value.dtype), "identity"))
                letters.append(other)
            else:
                letters.append(letter)
        made.append("".join(letters))
    return [*made, *factors], [*values, *identities]


def _summed(
    b: Builder, others: Sequence[str], values: Sequence[Value], term: str, shape: tuple[int, ...]
) -> Value:
    """An einsum of others by the letters of a term, of its shape: repeated along what they lack."""
    known = "".join(letter for letter in term if any(letter in it for it in others))
    (made,) = b.emit("einsum", values, equation=f"{','.join(others)}->{known}")
    wide = [made.shape[known.index(it)] if it in known else 1 for it in term]
    least = [min(a, n) for a, n in zip(wide, shape, strict=True)]
    return b.expand(b.sum_to(b.reshape(made, wide), least), shape)


def _compute_einsum(arrays: Arrays, attributes: Attributes) -> list[Any]:
    result = np.einsum(attributes["equation"], *(widened(it) for it in arrays), optimize=True)
    return [converted(np.asarray(result), arrays[0].dtype)]


PRODUCTS = {
    "matmul": Operator("contract", _infer_matmul, _compute_matmul, _matmul_gradient),
    "einsum": Operator("contract", _infer_einsum, _compute_einsum, _einsum_gradient),
}
