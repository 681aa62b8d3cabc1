"""Images of overlapping blocks."""

from __future__ import annotations

import math

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.graph import Value
from dlprim.onnx.operators.layers.geometry import numbers
from dlprim.onnx.operators.shapes import numbers as extents_of
from dlprim.onnx.registry import RefusedError, operator

# Of a block, whose square is the size of the filters.
MOST_TAPS = 1 << 12


@operator("Col2Im", since=18)
def col2im(
    build: Builder,
    x: Value,
    image_shape: Value,
    block_shape: Value,
    *,
    dilations: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Value:
    """Sums of blocks, as a transposed convolution whose filters have a single one each."""
    image, block = extents_of(build, image_shape), extents_of(build, block_shape)
    axes, taps = len(image), math.prod(block)
    if len(x.shape) != 3 or len(block) != axes or axes < 1 or min(*image, *block) < 1:
        raise RefusedError(f"an input of {list(x.shape)} with blocks of {list(block)} for {image}")
    if taps > MOST_TAPS:
        raise RefusedError(f"block_shape is {list(block)}, expected at most {MOST_TAPS} elements")
    steps = numbers("strides", strides, axes, 1, 1)
    spread = numbers("dilations", dilations, axes, 1, 1)
    sides = numbers("pads", pads, 2 * axes, 0, 0)
    padding = tuple(zip(sides[:axes], sides[axes:], strict=True))
    rests = tuple(
        n + sum(side) - d * (k - 1) - 1
        for n, k, d, side in zip(image, block, spread, padding, strict=True)
    )
    counts = tuple(rest // step + 1 for rest, step in zip(rests, steps, strict=True))
    if min(rests) < 0 or x.shape[1] % taps or math.prod(counts) != x.shape[2]:
        raise RefusedError(
            f"an input of {list(x.shape)}, expected (N, C * {taps}, {math.prod(counts)})"
        )
    samples, channels = x.shape[0], x.shape[1] // taps
    filters = np.eye(taps, dtype=x.dtype).reshape(taps, 1, *block)
    y = build.emit(
        "transposed_convolution",
        [build.reshape(x, (samples * channels, taps, *counts)), build.constant(filters), None],
        strides=steps,
        dilations=spread,
        padding=padding,
        output_padding=tuple(rest % step for rest, step in zip(rests, steps, strict=True)),
        groups=1,
    )[0]
    return build.reshape(y, (samples, channels, *image))
