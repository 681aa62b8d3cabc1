"""Kernels, strides, dilations and pads as ONNX writes them, checked and completed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from dlprim.onnx.registry import RefusedError

Ints = tuple[int, ...]
# Of a sample's channel with its padding.
MOST_PIXELS = 1 << 32
AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


class Geometry(NamedTuple):
    """How windows lie along the axes behind (N, C): one number, or a pair, for each of them."""

    kernel: Ints
    strides: Ints
    dilations: Ints
    padding: tuple[tuple[int, int], ...]

    @property
    def covered(self) -> Ints:
        """From the first to behind the last tap of a window."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def attributes(self) -> dict[str, Any]:
        """As nodes have them, but for the kernel, which only pooling says."""
        return {
            "strides": self.strides,
            "dilations": self.dilations,
            "padding": self.padding,
        }


def numbers(name: str, given: Sequence[int] | None, count: int, default: int, least: int) -> Ints:
    """An attribute with as many numbers as it must have."""
    values = (default,) * count if given is None else tuple(given)
    if len(values) != count or any(value < least for value in values):
        raise RefusedError(f"{name} is {list(values)}, expected {count} numbers from {least} on")
    return values


def split_evenly(total: int, auto_pad: str) -> tuple[int, int]:
    """Padding in front and behind; of an odd one more is behind, or in front for SAME_LOWER."""
    less, more = total // 2, total - total // 2
    return (more, less) if auto_pad == "SAME_LOWER" else (less, more)


def geometry(
    extents: Ints,
    kernel: Ints,
    strides: Ints | None,
    dilations: Ints | None,
    pads: Ints | None,
    auto_pad: str,
) -> Geometry:
    """For pixels of these extents."""
    count = len(extents)
    if count < 1:
        raise RefusedError("the input has no axis behind (N, C), expected one at least")
    kernel = numbers("kernel_shape", kernel, count, 1, 1)
    steps = numbers("strides", strides, count, 1, 1)
    spread = numbers("dilations", dilations, count, 1, 1)
    sides = numbers("pads", pads, 2 * count, 0, 0)
    if auto_pad not in AUTO_PADS:
        raise RefusedError(f"auto_pad is {auto_pad!r}, expected one of {', '.join(AUTO_PADS)}")
    if auto_pad == "NOTSET":
        padding = tuple(zip(sides[:count], sides[count:], strict=True))
        if math.prod(n + sum(pair) for n, pair in zip(extents, padding, strict=True)) > MOST_PIXELS:
            raise RefusedError(f"pads is {list(sides)}, expected at most 2^32 pixels with them")
        return Geometry(kernel, steps, spread, padding)
    if any(sides):
        raise RefusedError(f"pads is {list(sides)} with auto_pad {auto_pad}, expected only one")
    none = Geometry(kernel, steps, spread, ((0, 0),) * count)
    if auto_pad == "VALID":
        return none
    zipped = zip(extents, none.covered, steps, strict=True)
    totals = [max(0, (-(-n // s) - 1) * s + covered - n) for n, covered, s in zipped]
    return none._replace(padding=tuple(split_evenly(total, auto_pad) for total in totals))


def kernel_of(weights: Ints, kernel_shape: Ints | None, rank: int) -> Ints:
    """The extents of filters, which kernel_shape may only repeat."""
    if len(weights) != rank:
        raise RefusedError(f"weights of {list(weights)}, expected {rank} axes as the input has")
    if kernel_shape is not None and tuple(kernel_shape) != weights[2:]:
        raise RefusedError(
            f"kernel_shape is {list(kernel_shape)}, expected {list(weights[2:])} as weights have"
        )
    return weights[2:]
