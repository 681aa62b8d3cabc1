"""The passes of convolutions along one, two and three axes, each run by the one of images."""

from __future__ import annotations

from typing import Protocol

from dlprim.arguments.arrays import Array, FloatArray
from dlprim.functions.conv.images import Images
from dlprim.functions.conv.volumes import SeparateVolumes, Volumes
from dlprim.functions.conv.windows import Window


class Passes(Protocol):
    """Of one window, on C-contiguous arrays of its shapes that were checked."""

    def forward(self, x: Array, w: Array, bias: FloatArray | None, y: Array) -> None:
        """Write the result to y."""

    def backward_data(self, dy: Array, w: Array, dx: Array) -> None:
        """Write the gradient of x to dx."""

    def backward_weights(self, dy: Array, x: Array) -> tuple[Array, FloatArray]:
        """The gradients of w, and of the bias."""

    def backward(self, dy: Array, x: Array, w: Array) -> tuple[Array, Array, FloatArray]:
        """The gradients of x, w and the bias."""


def passes_of(window: Window, dtype: str) -> Passes:
    """Of operands of ``dtype``."""
    flat = window.flat()
    if len(flat.stride) < 3:
        return Images(window, flat, dtype)
    if window.groups == window.x_shape[1] == window.w_shape[0]:
        return SeparateVolumes(window)
    return Volumes(window, dtype)
