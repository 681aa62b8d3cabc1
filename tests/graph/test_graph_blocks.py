"""Images that come and go channels-last, or in blocks of channels: nothing reorders them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from dlprim.graph import Builder, Graph, interpret
from dlprim.graph.compiled import compile_graph
from dlprim.graph.lowering.layouts import block_shape_of
from drawing import RNG

_FORM = {"strides": (1, 1), "dilations": (1, 1), "padding": ((1, 1), (1, 1)), "groups": 1}


def kinds(graph: Graph) -> list[str]:
    """Of the steps, whose results are those of the interpreter."""
    arrays = [RNG.standard_normal(it.shape).astype(it.dtype) for it in graph.inputs]
    compiled = compile_graph(graph)
    for found, right in zip(compiled.run(arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-3)
    return re.findall(r": (\w+)\(", compiled.explain())


def convolved(channels: int, x_is_last: bool, y_is_last: bool) -> Graph:
    b = Builder()
    shape = (2, 5, 6, channels) if x_is_last else (2, channels, 5, 6)
    x = b.input("x", shape, "float32")
    front = b.transpose(x, (0, 3, 1, 2)) if x_is_last else x
    weights = RNG.standard_normal((channels, channels, 3, 3)).astype(np.float32)
    (y,) = b.emit("convolution", [front, b.constant(weights, "w")], **_FORM)
    return b.graph([b.transpose(y, (0, 2, 3, 1)) if y_is_last else y])


@pytest.mark.parametrize(
    ("channels", "expected"),
    [(64, ["conv2d"]), (128, ["copy", "conv2d", "copy"])],
    ids=["one-block", "two-blocks"],
)
def test_channels_last_images_are_blocks_or_copied_once(channels: int, expected: list[str]) -> None:
    assert kinds(convolved(channels, True, True)) == expected


@pytest.mark.parametrize("channels", [3, 20, 72])
def test_blocks_that_are_not_whole(channels: int) -> None:
    assert kinds(convolved(channels, True, True)).count("conv2d") == 1
    assert kinds(convolved(channels, False, True)).count("conv2d") == 1


@pytest.mark.parametrize("channels", [16, 64, 128, 192])
def test_arrays_of_blocks_are_taken_and_given_as_they_lie(channels: int) -> None:
    b = Builder()
    whole = Builder().input("x", (2, channels, 5, 6), "float32")
    n, blocks, height, width, inner = block_shape_of(whole, 1)
    x = b.input("x", (n, blocks, height, width, inner), "float32")
    images = b.reshape(b.transpose(x, (0, 1, 4, 2, 3)), whole.shape)
    weights = b.constant(RNG.standard_normal((channels, channels, 3, 3)).astype(np.float32), "w")
    (y,) = b.emit("convolution", [images, weights], **_FORM)
    split = b.reshape(y, (n, blocks, inner, height, width))
    given = b.transpose(split, (0, 1, 3, 4, 2))
    assert kinds(b.graph([given])) == ["conv2d"]
    assert kinds(b.graph([given, y])).count("conv2d") == 1  # also plainly


def test_a_shuffle_of_channels_is_no_array_of_blocks() -> None:
    """Groups of as many channels as a block has, taken in turns."""
    b = Builder()
    x = b.input("x", (2, 64, 2, 5, 6), "float32")
    turned = b.reshape(b.transpose(x, (0, 2, 1, 3, 4)), (2, 128, 5, 6))
    weights = b.constant(RNG.standard_normal((64, 128, 3, 3)).astype(np.float32), "w")
    (y,) = b.emit("convolution", [turned, weights], **_FORM)
    back = b.transpose(b.reshape(y, (2, 2, 32, 5, 6)), (0, 2, 1, 3, 4))
    assert kinds(b.graph([back])).count("conv2d") == 1
