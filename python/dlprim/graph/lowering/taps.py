"""Steps that make each result along one axis of a few elements, in rows as an array lies.

Elements that are more than one apart along a row are brought side by side first: every phase of the
stride becomes a row of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dlprim.graph.graph import Array
from dlprim.graph.lowering.formulas import definition_text, number_text
from dlprim.graph.lowering.lowering import Lowering
from dlprim.graph.lowering.place import Place, inverse, order_of

# Of a sum that is one expression.
_MOST_WRITTEN = 8


class Taps(NamedTuple):
    """What results along an axis are made of.

    Attributes
    ----------
    results : int
    stride : int
        From one result to the next, in elements.
    reads, dilation : int
        Elements of each result, and from one of them to the next.
    weights : ndarray (reads or 1, results), optional
        Results are sums with these weights, and else the largest.
    """

    results: int
    stride: int
    reads: int
    dilation: int = 1
    weights: Array | None = None

    @property
    def reach(self) -> int:
        """How many elements lie from the first that is read to the last."""
        return (self.results - 1) * self.stride + (self.reads - 1) * self.dilation + 1

    @property
    def width(self) -> int:
        """How many elements are read along a row, all phases of the stride counted."""
        last = (self.reads - 1) * self.dilation
        return (last // self.stride + self.results) * self.stride

    @property
    def is_written(self) -> bool:
        """Whether there is a statement for it that reads all taps at once."""
        return self.weights is None or self.reads <= _MOST_WRITTEN


def folded(
    to: Lowering, place: Place, axis: int, taps: Taps, label: str, dtype: np.dtype[Any]
) -> Place | None:
    """The array with the results along an axis, in the order in which it lies."""
    order = order_of(place) or tuple(range(len(place.shape)))
    source, at = place.transposed(order), order.index(axis)
    is_row = source.strides[at] == source.dtype.itemsize
    in_phases = taps.stride > 1 and is_row and taps.is_written and source.shape[at] >= taps.width
    if in_phases:
        source = to.in_c_order(_in_phases(source, at, taps), f"{label} in phases")
    operands = [("x", source)]
    if taps.weights is not None:
        by = to.constant(taps.weights)
        operands.append(("by", Place.dense(by, taps.weights.shape, taps.weights.dtype)))
    letters = [f"i{it}" for it in range(len(order))]
    make = _maxima if taps.weights is None else _sum
    ends = f"{letters[at]} in 0:{number_text(taps.results)}"
    statements = [
        f"y({','.join(letters)}) {it} {ends}" for it in make(letters, at, taps, in_phases)
    ]
    shape = list(place.shape)
    shape[axis] = taps.results
    result = to.new(tuple(shape[it] for it in order), dtype)
    text = definition_text([(name, it.shape) for name, it in operands], statements)
    if not to.formula(text, [it for _, it in operands], result, label):
        return None
    return result.transposed(inverse(order))


def _in_phases(source: Place, at: int, taps: Taps) -> Place:
    """The phases of the stride, each a row, in front of the axis."""
    width, step = taps.width, source.strides[at]
    shape = (*source.shape[:at], taps.stride, width // taps.stride, *source.shape[at + 1 :])
    strides = (*source.strides[:at], step, taps.stride * step, *source.strides[at + 1 :])
    return replace(source, shape=shape, strides=strides)


def _read(letters: list[str], at: int, along: str) -> str:
    return f"x({','.join([*letters[:at], along, *letters[at + 1 :]])})"


def _maxima(letters: list[str], at: int, taps: Taps, in_phases: bool) -> Iterator[str]:
    """One statement for each phase that is read."""
    stride, dilation, own = taps.stride, taps.dilation, letters[at]
    if not in_phases:
        along = f"{stride}*{own}+{dilation}*t"
        yield f"max=! {_read(letters, at, along)} where t in 0:{taps.reads},"
        return
    apart = stride // math.gcd(stride, dilation)
    for first in range(min(apart, taps.reads)):
        start, phase = divmod(first * dilation, stride)
        along = f"{phase},{own}+{start}+{apart * dilation // stride}*t"
        count = -(-(taps.reads - first) // apart)
        fresh = "" if first else "!"
        yield f"max={fresh} {_read(letters, at, along)} where t in 0:{count},"


def _sum(letters: list[str], at: int, taps: Taps, in_phases: bool) -> Iterator[str]:
    """One expression of a few taps: a reduction would be a product of matrices."""
    own, summands = letters[at], []
    is_share = taps.weights is not None and taps.weights.shape[0] == 1
    if not taps.is_written:
        read = _read(letters, at, f"{taps.stride}*{own}+{taps.dilation}*t")
        yield f"+=! by(0,{own}) * {read} where t in 0:{taps.reads},"
        return
    for tap in range(taps.reads):
        start, phase = divmod(tap * taps.dilation, taps.stride)
        far = f"{taps.stride}*{own}+{tap * taps.dilation}"
        read = _read(letters, at, f"{phase},{own}+{start}" if in_phases else far)
        summands.append(read if is_share else f"by({tap},{own}) * {read}")
    total = " + ".join(summands)
    yield f"= {f'by(0,{own}) * ({total})' if is_share else total} where"
