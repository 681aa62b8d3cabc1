"""Steps for norms of batches and their gradients: one pass of `dlprim.BatchNorm` each.

Images go in and come out in blocks of channels, rows of channels as they lie, arrays of other ranks
as images that are reordered. Where relu let the result through is kept as bits.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from dlprim import _core
from dlprim.graph.graph import Node, Value
from dlprim.graph.lowering.formulas import is_computed
from dlprim.graph.lowering.layouts import activations
from dlprim.graph.lowering.lowering import Lowering
from dlprim.graph.lowering.parameters import row_of
from dlprim.graph.lowering.pixels import keeps_mask

Shape = tuple[int, ...]
_SINGLE = np.dtype(np.float32)


@lru_cache(maxsize=256)
def _norm(shape: Shape, of: tuple[int, str, str], relu: bool, epsilon: float) -> _core.BatchNorm:
    return _core.BatchNorm(activations(shape, *of), relu, epsilon)


def _mask_shape(shape: Shape, of: tuple[int, str, str]) -> Shape:
    found: Shape = activations(shape, *of).shapes["relu_mask"]
    return found


class _Images:
    """Arrays of (N, C, ...) as a norm takes and gives them."""

    def __init__(self, to: Lowering, x: Value) -> None:
        n, c, *rest = x.shape
        self._to, self._groups, self._is_row = to, to.blocked.get(x, 1), not rest
        self._shape = x.shape if len(rest) == 2 else (n, c, 1, math.prod(rest))
        self._of = (self._groups, x.dtype.name, "NHWC" if self._is_row else "blocked")
        self._made: list[tuple[Value, Value]] = []

    def norm(self, node: Node, has_relu: bool) -> _core.BatchNorm:
        """The primitive."""
        epsilon = float(node.attributes["epsilon"])
        made: _core.BatchNorm = self._to.call(_norm, self._shape, self._of, has_relu, epsilon)
        return made

    def mask(self) -> int:
        """Memory for a bit of each element."""
        shape = self._to.call(_mask_shape, self._shape, self._of)
        number: int = self._to.network.temporary(shape, np.uint8)
        return number

    def taken(self, value: Value) -> int:
        """An array that is read."""
        to = self._to
        if len(value.shape) == 4:
            return to.blocks(value, self._groups)
        if self._is_row:
            return self._row(value, False)
        alike = Value(value.name, self._shape, value.dtype)
        place = to.dense(value).reshaped(self._shape)
        assert place is not None
        to.put(alike, place)
        return to.blocks(alike, self._groups)

    def made(self, value: Value) -> int:
        """Memory for an array that is written."""
        if len(value.shape) == 4:
            return self._to.new_blocks(value, self._groups)
        if self._is_row:
            return self._row(value, True)
        alike = Value(value.name, self._shape, value.dtype)
        self._made.append((value, alike))
        return self._to.new_blocks(alike, self._groups)

    def finish(self) -> None:
        """Says where what was made is, behind the step that makes it."""
        for value, alike in self._made:
            place = self._to.place(alike).reshaped(value.shape)
            assert place is not None
            self._to.put(value, place)

    def _row(self, value: Value, is_made: bool) -> int:
        """As images of one pixel, channels last."""
        place = self._to.result(value) if is_made else self._to.dense(value)
        pixel = place.reshaped((value.shape[0], 1, 1, value.shape[1]))
        assert pixel is not None
        return self._to.number(pixel)


def _parameter(to: Lowering, value: Value | None) -> int:
    """A number for each channel, if there are any."""
    row = -1 if value is None else row_of(to, value, value.size)
    assert row is not None
    return row


def _takes(node: Node, x: Value) -> bool:
    floats = [it.dtype for it in node.operands]
    return is_computed(*floats) and 0 not in x.shape


def lower_batch_norm(to: Lowering, node: Node) -> bool:
    """With the sum and the relu behind it."""
    x, weight, bias, residual = (*node.inputs, None)[:4]
    assert x is not None
    if not _takes(node, x):
        return False
    (y, mean, variance), label = node.outputs, f"batch_norm {node.name}"
    has_relu = node.attributes.get("activation") is not None
    images = _Images(to, x)
    values = {
        "src": images.taken(x),
        "weights": _parameter(to, weight),
        "bias": _parameter(to, bias),
        "residual": -1 if residual is None else images.taken(residual),
    }
    if has_relu and keeps_mask(to, y):
        values["relu_mask"] = to.shared["relu mask", y] = images.mask()
    values |= {
        "dst": images.made(y),
        "mean": to.number(to.result(mean)),
        "variance": to.number(to.result(variance)),
        "inverse_std": to.network.temporary(mean.shape, _SINGLE),
    }
    to.network.batch_norm(images.norm(node, has_relu), label, **values)
    images.finish()
    return True


def lower_batch_norm_gradient(to: Lowering, node: Node) -> bool:
    """Through relu and norm, and to the parameters."""
    diff, x, mean, variance, weight, y, addend = node.inputs
    assert diff is not None
    assert x is not None
    if not _takes(node, x):
        return False
    label, images = f"gradient of {node.name}", _Images(to, x)
    values = {
        "diff_dst": images.taken(diff),
        "diff_addend": -1 if addend is None else images.taken(addend),
        "src": images.taken(x),
        "mean": _parameter(to, mean),
        "variance": _parameter(to, variance),
        "weights": _parameter(to, weight),
    }
    if y is not None:
        mask = to.shared.get(("relu mask", y))
        name, number = ("dst", images.taken(y)) if mask is None else ("relu_mask", mask)
        values[name] = number
    by_x, by_weight, by_bias, *passed = node.outputs
    values |= {
        "inverse_std": to.network.temporary(by_bias.shape, _SINGLE),
        "diff_src": images.made(by_x),
        "diff_weights": to.number(to.result(by_weight)),
        "diff_bias": to.number(to.result(by_bias)),
    }
    if passed:
        values["diff_residual"] = images.made(passed[0])
    to.network.batch_norm_backward(images.norm(node, y is not None), label, **values)
    images.finish()
    return True
