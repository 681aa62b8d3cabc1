"""Elements that only change their place: views, parts, joins, padding, rows of tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dlprim.graph.graph import Value
from dlprim.torch.operators.table import Call, axis_of, require, rule


@rule("aten.view.default", "aten._unsafe_view.default", "aten.reshape.default")
def view(c: Call, x: Value, shape: Sequence[int]) -> Value:
    shape = list(shape)
    if any(isinstance(it, int) and it == -1 for it in shape):
        place = shape.index(-1)
        rest = math.prod(it for at, it in enumerate(shape) if at != place)
        shape[place] = x.size // rest if rest else 0
    return c.b.reshape(x, shape)


@rule("dlprim.in_blocks")
def in_blocks(c: Call, x: Value, channels: int) -> Value:
    n, k, *pixels = x.shape
    return c.b.transpose(c.b.reshape(x, (n, k // channels, channels, *pixels)), (0, 1, 3, 4, 2))


@rule("dlprim.from_blocks")
def from_blocks(c: Call, x: Value) -> Value:
    n, blocks, height, width, channels = x.shape
    split = c.b.transpose(x, (0, 1, 4, 2, 3))
    return c.b.reshape(split, (n, blocks * channels, height, width))


@rule("aten.permute.default")
def permute(c: Call, x: Value, axes: Sequence[int]) -> Value:
    return c.b.transpose(x, [axis_of(it, len(x.shape)) for it in axes])


@rule("aten.transpose.int")
def transpose(c: Call, x: Value, one: int, other: int) -> Value:
    axes = dict(enumerate(range(len(x.shape))))
    one, other = axis_of(one, len(axes)), axis_of(other, len(axes))
    return c.b.transpose(x, [{one: other, other: one}.get(axis, axis) for axis in axes])


@rule("aten.t.default")
def t(c: Call, x: Value) -> Value:
    return c.b.transpose(x, range(len(x.shape))[::-1])


@rule("aten.expand.default")
def expand(c: Call, x: Value, shape: Sequence[int], **_: Any) -> Value:
    more = len(shape) - len(x.shape)
    known = [
        x.shape[at - more] if at >= more and isinstance(it, int) and it == -1 else it
        for at, it in enumerate(shape)
    ]
    return c.b.expand(x, known)


@rule("aten.unsqueeze.default")
def unsqueeze(c: Call, x: Value, axis: int) -> Value:
    axis = axis % (len(x.shape) + 1)
    return c.b.reshape(x, (*x.shape[:axis], 1, *x.shape[axis:]))


@rule("aten.squeeze.dim", "aten.squeeze.dims")
def squeeze(c: Call, x: Value, axes: Any) -> Value:
    listed = [axes] if isinstance(axes, int) else list(axes)
    gone = {axis_of(it, len(x.shape)) for it in listed}
    kept = [it for at, it in enumerate(x.shape) if at not in gone or it != 1]
    return c.b.reshape(x, kept)


def _part(c: Call, x: Value, axis: int, start: int, count: int, step: int = 1) -> Value:
    starts, counts, steps = [0] * len(x.shape), list(x.shape), [1] * len(x.shape)
    starts[axis], counts[axis], steps[axis] = start, count, step
    return c.b.slice(x, starts, counts, steps)


def _bounds(extent: int, start: Any, end: Any) -> tuple[int, int]:
    """As Python's slices cut them."""
    given = (0 if start is None else start, extent if end is None else end)
    low, high = (max(0, it + extent) if it < 0 else min(it, extent) for it in given)
    return low, max(low, high)


@rule("aten.slice.Tensor")
def slice_(
    c: Call, x: Value, axis: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    axis = axis_of(axis, len(x.shape))
    low, high = _bounds(x.shape[axis], start, end)
    return _part(c, x, axis, low, (high - low + step - 1) // step, step)


@rule("aten.select.int")
def select(c: Call, x: Value, axis: int, place: int) -> Value:
    axis = axis_of(axis, len(x.shape))
    taken = _part(c, x, axis, place + x.shape[axis] if place < 0 else place, 1)
    return c.b.reshape(taken, (*x.shape[:axis], *x.shape[axis + 1 :]))


@rule("aten.split_with_sizes.default")
def split_with_sizes(c: Call, x: Value, sizes: Sequence[int], axis: int = 0) -> tuple[Value, ...]:
    axis = axis_of(axis, len(x.shape))
    return tuple(_part(c, x, axis, sum(sizes[:at]), size) for at, size in enumerate(sizes))


@rule("aten.cat.default")
def cat(c: Call, parts: Sequence[Value], axis: int = 0) -> Value:
    ranks = {len(it.shape) for it in parts}
    require(len(ranks) == 1, "an empty tensor of another rank is joined")
    return c.b.concat([c.cast(it) for it in parts], axis_of(axis, ranks.pop()))


@rule("aten.flip.default")
def flip(c: Call, x: Value, axes: Sequence[int]) -> Value:
    turned = {axis_of(it, len(x.shape)) for it in axes}
    steps = [-1 if at in turned else 1 for at in range(len(x.shape))]
    starts = [n - 1 if step < 0 and n else 0 for n, step in zip(x.shape, steps, strict=True)]
    return c.b.slice(x, starts, x.shape, steps)


@rule("aten.repeat.default")
def repeat(c: Call, x: Value, times: Sequence[int]) -> Value:
    shape = (*[1] * (len(times) - len(x.shape)), *x.shape)
    paired = [it for n in shape for it in (1, n)]
    wide = [it for n, time in zip(shape, times, strict=True) for it in (time, n)]
    spread = c.b.expand(c.b.reshape(x, paired), wide)
    return c.b.reshape(spread, [n * time for n, time in zip(shape, times, strict=True)])


def _padded(c: Call, x: Value, mode: str, widths: Sequence[int]) -> Value:
    """Widths in front and behind, of the last axis first."""
    pairs = list(zip(widths[::2], widths[1::2], strict=True))[::-1]
    whole = (*[(0, 0)] * (len(x.shape) - len(pairs)), *pairs)
    return c.b.emit("pad", [x], mode=mode, widths=whole)[0]


@rule("aten.constant_pad_nd.default")
def constant_pad(c: Call, x: Value, widths: Sequence[int], value: float = 0) -> Value:
    require(value == 0, "it pads by a number that is not 0")
    return _padded(c, x, "constant", widths)


@rule("aten.reflection_pad1d.default", "aten.reflection_pad2d.default")
def reflection_pad(c: Call, x: Value, widths: Sequence[int]) -> Value:
    require(min(widths) >= 0, "it takes away")
    return _padded(c, x, "reflect", widths)


# ---------------------------------------------------------------- gradients


@rule("aten.select_backward.default")
def select_backward(c: Call, diff: Value, shape: Sequence[int], *place: int) -> Value:
    return c.through("aten.select.int", diff, Value("x", tuple(shape), diff.dtype), *place)


@rule("aten.slice_backward.default")
def slice_backward(c: Call, diff: Value, shape: Sequence[int], *bounds: int) -> Value:
    return c.through("aten.slice.Tensor", diff, Value("x", tuple(shape), diff.dtype), *bounds)
