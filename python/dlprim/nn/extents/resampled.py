"""Images of another size as layers: means of as many windows as asked for, and interpolation."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import dlprim
from dlprim import _core
from dlprim.functions.extents.adaptive_pooling import windows_of
from dlprim.functions.extents.image_arrays import ImageShape, image_size
from dlprim.functions.extents.interpolation import rule_of
from dlprim.functions.extents.windows import Plane, resampling
from dlprim.nn.arguments import fixed, shortest
from dlprim.nn.context import Images
from dlprim.nn.module import Module, Ready
from dlprim.nn.passes import backward_pass, forward_pass
from dlprim.nn.recent import Recent


class Resampled(Module):
    """What `AdaptiveAvgPool2d` and `Upsample` share."""

    keeps_input = False
    takes_images = True
    of_passes = ("_primitives", "_kept")

    def __init__(self) -> None:
        super().__init__()
        self._primitives: Recent[tuple[object, ...], _Primitive] = Recent()
        self._kept: tuple[_Primitive, Images] | None = None

    @abstractmethod
    def _plane(self, shape: ImageShape) -> Plane:
        """What becomes of images of this shape."""

    @forward_pass
    def forward(self, x: Images, training: bool | None = None) -> Images:
        context = self.context
        key = (x.shape, x.groups, context.dtype_name, context.layout)
        it = self._primitives.get(key)
        if it is None:
            it = self._primitives[key] = self._made(x)
        dst = context.buffers.take(it.value.dst_shape, context.dtype)
        with context.timed(self.name, "forward" if training else "inference"):
            it.value.forward(x.array, dst)
        if training:
            self._kept = it, x
        return Images(dst, it.y_shape, x.groups)

    @backward_pass
    def backward(self, dy: Images, ready: Ready | None = None) -> Images:
        assert self._kept is not None
        (it, x), self._kept = self._kept, None
        out = self.context.buffers.take(it.slope.dst_shape, self.context.dtype)
        with self.context.timed(self.name, "backward"):
            it.slope.forward(dy.array, out)
        self.context.buffers.give(dy.array)
        return Images(out, x.shape, x.groups)

    def _made(self, x: Images) -> _Primitive:
        shape, context = ImageShape(*x.shape), self.context
        plane = self._plane(shape)
        due = shape.resized((plane.rows.dst, plane.columns.dst))
        how = (context.layout, context.dtype_name, x.groups)
        value = resampling((shape, *how), plane)
        return _Primitive(value, resampling((due, *how), plane, backward=True), due)


class _Primitive(NamedTuple):
    """Of images of one shape, both ways."""

    value: _core.Resampling
    slope: _core.Resampling
    y_shape: ImageShape


class AdaptiveAvgPool2d(Resampled):
    """The means of P x Q windows that cover the image; see `dlprim.adaptive_avg_pool2d`.

    The result is `Images`, which `Flatten` makes plain; `GlobalAvgPool2d` gives plain features.

    Parameters
    ----------
    output_size : int or (height, width)
        P and Q; None for that of the image.

    Raises
    ------
    TypeError, ValueError
        output_size is neither.
    """

    output_size = fixed("output_size")

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        image_size("output_size", output_size, (1, 1))
        is_pair = isinstance(output_size, tuple | list)
        self._output_size = tuple(output_size) if is_pair else output_size

    def arguments(self) -> dict[str, Any]:
        return {"output_size": shortest(self.output_size)}

    def _plane(self, shape: ImageShape) -> Plane:
        size = image_size("output_size", self.output_size, (shape.h, shape.w))
        return windows_of(shape, shape.resized(size))

    def traced(self, x: Any) -> Any:
        return dlprim.adaptive_avg_pool2d(x, self.output_size)


class Upsample(Resampled):
    """Images of another height and width, smaller ones too; see `dlprim.interpolate`.

    Parameters
    ----------
    size : int or (height, width), optional
        Given exactly where scale_factor is not.
    scale_factor : float or (height, width), optional
    mode : "nearest" or "bilinear"
    align_corners : bool
        For "bilinear".

    Raises
    ------
    TypeError, ValueError
        A number is out of range, both or neither of size and scale_factor are given, mode is
        unknown, or align_corners is given for "nearest".
    """

    size = fixed("size")
    scale_factor = fixed("scale_factor")
    mode = fixed("mode")
    align_corners = fixed("align_corners")

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool = False,
    ) -> None:
        super().__init__()
        rule_of(size, scale_factor, mode, align_corners)  # which refuses what it does not take
        self._size = tuple(size) if isinstance(size, list) else size
        is_pair = isinstance(scale_factor, list)
        self._scale_factor = tuple(scale_factor) if is_pair else scale_factor
        self._mode, self._align_corners = mode, align_corners

    def arguments(self) -> dict[str, Any]:
        return {
            "size": shortest(self.size),
            "scale_factor": shortest(self.scale_factor),
            "mode": self.mode,
            "align_corners": self.align_corners,
        }

    def _plane(self, shape: ImageShape) -> Plane:
        rule = rule_of(self.size, self.scale_factor, self.mode, self.align_corners)
        return rule((shape.h, shape.w))

    def traced(self, x: Any) -> Any:
        how = (self.size, self.scale_factor, self.mode, self.align_corners)
        return dlprim.interpolate(x, *how)
