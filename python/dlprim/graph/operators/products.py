"""Products: matrices, sums of Einstein's kind, convolutions, attention."""

from __future__ import annotations

import math
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


def _in_whole(sums: Array, factor: Array) -> Array:
    """Sums of products of integers as integers, from which they are cut to fewer bits."""
    return sums.astype(np.int64) if np.asarray(factor).dtype.kind in "iu" else sums


def _compute_matmul(arrays: Arrays, attributes: Attributes) -> list[Any]:
    a, b, bias = (*arrays, None)[:3]
    dtype = np.dtype(attributes.get("dtype", a.dtype))
    with np.errstate(all="ignore"):
        sums = _in_whole(np.asarray(np.matmul(*summands(a, b))), a)
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
    by_left = b.sum_to(b.matmul(diff, _turned(b, columns)), rows.shape)
    if len(columns.shape) == 2:  # one product of all rows, and no sum of products
        rows, diff = (
            b.reshape(it, (it.size // max(1, it.shape[-1]), it.shape[-1])) for it in (rows, diff)
        )
    by_right = b.sum_to(b.matmul(_turned(b, rows), diff), columns.shape)
    by = [b.reshape(by_left, left.shape), b.cast(b.reshape(by_right, right.shape), right.dtype)]
    return [*by, bias][: len(node.inputs)]


def _turned(b: Builder, x: Value) -> Value:
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


def _compute_einsum(arrays: Arrays, attributes: Attributes) -> list[Any]:
    result = np.einsum(attributes["equation"], *(widened(it) for it in arrays), optimize=True)
    return [converted(np.asarray(result), arrays[0].dtype)]


# ---------------------------------------------------------------- convolution


def window_count(
    extent: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int]
) -> int:
    """How many windows a padded axis has."""
    covered = dilation * (kernel - 1) + 1
    return max(0, (extent + sum(pads) - covered) // stride + 1)


def windows(x: Array, kernel: tuple[int, ...], attributes: Attributes) -> Array:
    """The windows of padded (N, C, ...): (N, C, windows..., kernel...)."""
    strides, dilations = attributes["strides"], attributes["dilations"]
    covered = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True))
    axes = tuple(range(2, x.ndim))
    view = np.lib.stride_tricks.sliding_window_view(x, covered, axis=axes)
    steps = tuple(slice(None, None, step) for step in strides)
    taps = tuple(slice(None, None, step) for step in dilations)
    return view[(slice(None), slice(None), *steps, *taps)]


def padded(x: Array, padding: tuple[tuple[int, int], ...], value: Any) -> Array:
    """(N, C, ...) with this value around the last axes."""
    return np.pad(x, [(0, 0), (0, 0), *padding], constant_values=value)


def _infer_convolution(values: Values, attributes: Attributes) -> list[Result]:
    """x (N, C, ...), weights (K, C / groups, ...), bias (K,) -> (N, K, ...).

    A fourth operand like the result is added, and an activation follows where it is there.
    """
    x, w = there(values[0]), there(values[1])
    groups = attributes["groups"]
    if len(x.shape) != len(w.shape) or len(x.shape) < 3:
        raise ValueError(f"x of {list(x.shape)} does not fit weights of {list(w.shape)}")
    if groups < 1 or x.shape[1] != w.shape[1] * groups or w.shape[0] % groups:
        raise ValueError(
            f"x of {list(x.shape)} does not fit weights of {list(w.shape)} in {groups} groups"
        )
    rows = (attributes["strides"], attributes["dilations"], attributes["padding"])
    if min(*attributes["strides"], *attributes["dilations"]) < 1:
        raise ValueError("strides and dilations of a convolution are expected to be at least 1")
    zipped = zip(x.shape[2:], w.shape[2:], *rows, strict=True)
    extents = tuple(window_count(n, k, s, d, p) for n, k, s, d, p in zipped)
    return [((x.shape[0], w.shape[0], *extents), np.dtype(attributes.get("dtype", x.dtype)))]


def _compute_convolution(arrays: Arrays, attributes: Attributes) -> list[Any]:
    (x, w), (bias, residual) = summands(*arrays[:2]), (*arrays[2:], None, None)[:2]
    dtype = np.dtype(attributes.get("dtype", arrays[0].dtype))
    groups, spatial = attributes["groups"], x.ndim - 2
    taps = windows(padded(x, attributes["padding"], 0), w.shape[2:], attributes)
    inner = tuple(range(spatial + 2, 2 * spatial + 2))
    parts = []
    for part, filters in zip(np.split(taps, groups, 1), np.split(w, groups, 0), strict=True):
        sums = np.tensordot(part, filters, ((1, *inner), (1, *range(2, spatial + 2))))
        parts.append(np.moveaxis(sums, -1, 1))
    channels = None if bias is None else bias.reshape(1, -1, *[1] * spatial)
    sums = _in_whole(np.concatenate(parts, axis=1), arrays[0])
    y = finished(sums, channels, residual, attributes)
    return [converted(y, dtype)]


def _infer_transposed(values: Values, attributes: Attributes) -> list[Result]:
    """x (N, C, ...), weights (C, K / groups, ...), bias (K,) -> (N, K, ...)."""
    x, w = there(values[0]), there(values[1])
    groups = attributes["groups"]
    if (
        groups < 1
        or len(x.shape) != len(w.shape)
        or x.shape[1] != w.shape[0]
        or w.shape[0] % groups
    ):
        raise ValueError(
            f"x of {list(x.shape)} does not fit weights of {list(w.shape)} in {groups} groups"
        )
    rows = (attributes["strides"], attributes["dilations"], attributes["padding"])
    zipped = zip(x.shape[2:], w.shape[2:], *rows, attributes["output_padding"], strict=True)
    extents = tuple((n - 1) * s + d * (k - 1) + 1 - sum(p) + more for n, k, s, d, p, more in zipped)
    if any(extent < 0 for extent in extents):
        raise ValueError("the padding of a transposed convolution takes more than there is")
    return [((x.shape[0], w.shape[1] * groups, *extents), x.dtype)]


def _compute_transposed(arrays: Arrays, attributes: Attributes) -> list[Any]:
    x, w, bias = (None if array is None else widened(array) for array in (*arrays, None)[:3])
    assert x is not None
    assert w is not None
    spatial, groups = x.ndim - 2, attributes["groups"]
    strides, dilations = attributes["strides"], attributes["dilations"]
    zipped = zip(x.shape[2:], w.shape[2:], strides, dilations, strict=True)
    whole = [(n - 1) * s + d * (k - 1) + 1 for n, k, s, d in zipped]
    more = attributes["output_padding"]
    room = [n + max(0, extra) for n, extra in zip(whole, more, strict=True)]
    y = np.zeros((x.shape[0], w.shape[1] * groups, *room))
    channels, results = x.shape[1] // groups, w.shape[1]
    for group in range(groups):
        images = x[:, group * channels : (group + 1) * channels]
        filters = w[group * channels : (group + 1) * channels]
        into = y[:, group * results : (group + 1) * results]
        for tap in np.ndindex(*w.shape[2:]):
            places = tuple(
                slice(t * d, t * d + (n - 1) * s + 1, s) if n else slice(0, 0)
                for t, d, n, s in zip(tap, dilations, x.shape[2:], strides, strict=True)
            )
            product = np.tensordot(images, filters[(slice(None), slice(None), *tap)], (1, 0))
            into[(slice(None), slice(None), *places)] += np.moveaxis(product, -1, 1)
    cut = tuple(
        slice(a, n + extra - b)
        for n, extra, (a, b) in zip(whole, more, attributes["padding"], strict=True)
    )
    y = y[(slice(None), slice(None), *cut)]
    if bias is not None:
        y = y + bias.reshape(1, -1, *[1] * spatial)
    return [converted(y, arrays[0].dtype)]


# ---------------------------------------------------------------- attention


def _infer_attention(values: Values, attributes: Attributes) -> list[Result]:
    """q (N, H, Q, D), k (N, Hk, K, D), v (N, Hk, K, E) -> (N, H, Q, E); H is a multiple of Hk."""
    q, k, v = (there(value) for value in values[:3])
    if len(q.shape) != 4 or q.shape[1] % max(1, k.shape[1]) or k.shape[:3] != v.shape[:3]:
        raise ValueError(
            f"q of {list(q.shape)}, k of {list(k.shape)} and v of {list(v.shape)} do not fit"
        )
    return [((*q.shape[:3], v.shape[3]), q.dtype)]


def softmax_of_scores(products: Array, mask: Any, attributes: Attributes) -> Array:
    """The weights of attention. Rows without any key are zeros."""
    scores = attributes["scale"] * products
    if attributes.get("softcap"):
        scores = attributes["softcap"] * np.tanh(scores / attributes["softcap"])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if attributes["causal"]:
        rows, columns = scores.shape[-2:]
        scores = np.where(np.tri(rows, columns, dtype=bool), scores, -np.inf)
    highest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    power = np.exp(scores - np.where(np.isneginf(highest), 0, highest))
    total = power.sum(axis=-1, keepdims=True)
    return np.asarray(np.where(total == 0, 0, power / total))


def _compute_attention(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """Rows without any key are zeros. The mask is added, or says where keys are looked at."""
    q, k, v = (widened(array) for array in arrays[:3])
    mask = arrays[3] if len(arrays) > 3 else None
    k, v = (np.repeat(it, q.shape[1] // max(1, k.shape[1]), axis=1) for it in (k, v))
    with np.errstate(all="ignore"):
        weights = softmax_of_scores(q @ k.swapaxes(-1, -2), mask, attributes)
        return [converted(weights @ v, arrays[0].dtype)]


def attention_scale(size: int) -> float:
    """What scores are multiplied by where a model does not say it."""
    return 1 / math.sqrt(max(1, size))


PRODUCTS = {
    "matmul": Operator("contract", _infer_matmul, _compute_matmul, _matmul_gradient),
    "einsum": Operator("contract", _infer_einsum, _compute_einsum, "later"),
    "convolution": Operator("contract", _infer_convolution, _compute_convolution, "later"),
    "transposed_convolution": Operator("contract", _infer_transposed, _compute_transposed, "later"),
    "attention": Operator("contract", _infer_attention, _compute_attention, "later"),
}
