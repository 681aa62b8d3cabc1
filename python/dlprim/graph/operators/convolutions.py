"""Convolutions, also transposed ones, and their gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dlprim.graph.graph import Array, Node, Value
from dlprim.graph.operators.elements import converted
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
from dlprim.graph.operators.products import before_activation, finished, in_whole

if TYPE_CHECKING:
    from dlprim.graph.builder import Builder


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
    missing = [max(0, d - n) for d, n in zip(covered, x.shape[2:], strict=True)]
    x = padded(x, tuple((0, more) for more in missing), 0) if any(missing) else x
    view = np.lib.stride_tricks.sliding_window_view(x, covered, axis=axes)
    ends = (0 if more else None for more in missing)  # of what is too small no window
    steps = tuple(slice(None, end, step) for end, step in zip(ends, strides, strict=True))
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
    sums = in_whole(np.concatenate(parts, axis=1), arrays[0])
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


# ---------------------------------------------------------------- gradients


def _infer_weights_gradient(values: Values, attributes: Attributes) -> list[Result]:
    """The gradient by the weights of a convolution, of x (N, C, ...) and that of its result."""
    x, diff = there(values[0]), there(values[1])
    groups, kernel = attributes["groups"], attributes["kernel"]
    rows = (attributes["strides"], attributes["dilations"], attributes["padding"])
    zipped = zip(x.shape[2:], kernel, *rows, strict=True)
    expected = tuple(window_count(n, k, s, d, p) for n, k, s, d, p in zipped)
    if (diff.shape[0], *diff.shape[2:]) != (x.shape[0], *expected) or groups < 1:
        raise ValueError(f"x of {list(x.shape)} has no gradients of {list(diff.shape)}")
    shape = (diff.shape[1], x.shape[1] // groups, *kernel)
    return [(shape, np.dtype(attributes.get("dtype", x.dtype)))]


def _compute_weights_gradient(arrays: Arrays, attributes: Attributes) -> list[Any]:
    x, diff = map(widened, arrays)
    groups, spatial = attributes["groups"], x.ndim - 2
    taps = windows(padded(x, attributes["padding"], 0), attributes["kernel"], attributes)
    summed = (0, *range(2, spatial + 2))
    parts = [
        np.moveaxis(np.tensordot(part, own, (summed, summed)), -1, 0)
        for part, own in zip(np.split(taps, groups, 1), np.split(diff, groups, 1), strict=True)
    ]
    dtype = np.dtype(attributes.get("dtype", arrays[0].dtype))
    return [converted(np.concatenate(parts), dtype)]


def _form_of(node: Node) -> dict[str, Any]:
    names = ("groups", "strides", "dilations", "padding")
    return {name: node.attributes[name] for name in names}


def _by_weights(b: Builder, x: Value, diff: Value, w: Value, form: Attributes) -> Value:
    how = {**form, "kernel": w.shape[2:], "dtype": w.dtype.name}
    return b.emit("convolution_weights_gradient", [x, diff], **how)[0]


def _by_images(b: Builder, diff: Value, w: Value, x: Value, form: Attributes) -> Value:
    """A transposed convolution into the shape of x."""
    if 0 in diff.shape[2:]:
        return b.zeros(x.shape, x.dtype)
    rows = (form["strides"], form["dilations"], form["padding"])
    zipped = zip(x.shape[2:], diff.shape[2:], w.shape[2:], *rows, strict=True)
    more = tuple(n - ((m - 1) * s + d * (k - 1) + 1 - sum(p)) for n, m, k, s, d, p in zipped)
    made = b.emit("transposed_convolution", [diff, w], output_padding=more, **form)[0]
    return b.cast(made, x.dtype)


def _by_channels(b: Builder, diff: Value, bias: Value | None) -> Value | None:
    axes = (0, *range(2, len(diff.shape)))
    return None if bias is None else b.cast(b.reduce("sum", diff, axes), bias.dtype)


def _convolution_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    x, w = node.operands[:2]
    bias, residual = (*node.inputs[2:], None, None)[:2]
    diff = before_activation(b, node, there(diffs[0]))
    by_residual = None if residual is None else b.cast(diff, residual.dtype)
    diff, form = b.cast(diff, x.dtype), _form_of(node)
    found = [
        _by_images(b, diff, w, x, form),
        _by_weights(b, x, diff, w, form),
        _by_channels(b, diff, bias),
        by_residual,
    ]
    return found[: len(node.inputs)]


def _transposed_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    """Convolutions of the gradient, without what the output padding has added behind it."""
    x, w = node.operands[:2]
    whole, form = there(diffs[0]), _form_of(node)
    zipped = zip(form["padding"], node.attributes["output_padding"], strict=True)
    padding = [(front, back - more) for (front, back), more in zipped]
    widths = ((0, 0), (0, 0), *((min(0, front), min(0, back)) for front, back in padding))
    diff = whole
    if any(map(any, widths)):
        (diff,) = b.emit("pad", [whole], mode="constant", widths=widths)
    form["padding"] = tuple((max(0, front), max(0, back)) for front, back in padding)
    found = [
        b.cast(b.emit("convolution", [diff, w], **form)[0], x.dtype),
        _by_weights(b, diff, x, w, form),
        _by_channels(b, whole, (*node.inputs, None)[2]),
    ]
    return found[: len(node.inputs)]


def _second_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    x, diff = node.operands
    weights, form = there(diffs[0]), _form_of(node)
    by_diff = b.cast(b.emit("convolution", [x, weights], **form)[0], diff.dtype)
    return [_by_images(b, diff, weights, x, form), by_diff]


CONVOLUTIONS = {
    "convolution": Operator(
        "contract", _infer_convolution, _compute_convolution, _convolution_gradient
    ),
    "transposed_convolution": Operator(
        "contract", _infer_transposed, _compute_transposed, _transposed_gradient
    ),
    "convolution_weights_gradient": Operator(
        "contract", _infer_weights_gradient, _compute_weights_gradient, _second_gradient
    ),
}
