"""Images of another size as layers: means of as many windows as asked for, and interpolation."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from dlprim.functions.extents.adaptive_pooling import windows_of
from dlprim.functions.extents.image_arrays import ImageShape, image_size
from dlprim.functions.extents.interpolation import rule_of
from dlprim.functions.extents.windows import Plane, resampling
from dlprim.nn.arguments import shortest
from dlprim.nn.context import Images
from dlprim.nn.module import Module, Ready
from dlprim.nn.passes import backward_pass, forward_pass


class Resampled(Module):
    """What `AdaptiveAvgPool2d` and `Upsample` share."""

    keeps_input = False
    takes_images = True
    of_passes = ("_kept",)

    def __init__(self) -> None:
        super().__init__()
        self._kept: tuple[Any, ...] = ()  # shape and groups of the latest input, and its plane

    @abstractmethod
    def _plane(self, shape: ImageShape) -> Plane:
        """What becomes of images of this shape."""

    @forward_pass
    def forward(self, x: Images, training: bool | None = None) -> Images:
        context = self.context
        shape = ImageShape(*x.shape)
        plane = self._plane(shape)
        due = shape.resized((plane.rows.dst, plane.columns.dst))
        core = resampling((shape, context.layout, context.dtype_name, x.groups), plane)
        dst = context.buffers.take(core.dst_shape, context.dtype)
        with context.timed(self.name, "forward" if training else "inference"):
            core.forward(x.array, dst)
        if training:
            self._kept = x.shape, x.groups, plane
        return Images(dst, due, x.groups)

    @backward_pass
    def backward(self, dy: Images, ready: Ready | None = None) -> Images:
        context, (shape, groups, plane), self._kept = self.context, self._kept, ()
        how = (ImageShape(*dy.shape), context.layout, context.dtype_name, groups)
        core = resampling(how, plane, backward=True)
        out = context.buffers.take(core.dst_shape, context.dtype)
        with context.timed(self.name, "backward"):
            core.forward(dy.array, out)
        context.buffers.give(dy.array)
        return Images(out, shape, groups)


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

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        image_size("output_size", output_size, (1, 1))
        is_pair = isinstance(output_size, tuple | list)
        self.output_size = tuple(output_size) if is_pair else output_size

    def arguments(self) -> dict[str, Any]:
        return {"output_size": shortest(self.output_size)}

    def _plane(self, shape: ImageShape) -> Plane:
        size = image_size("output_size", self.output_size, (shape.h, shape.w))
        return windows_of(shape, shape.resized(size))


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

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool = False,
    ) -> None:
        super().__init__()
        rule_of(size, scale_factor, mode, align_corners)  # which refuses what it does not take
        self.size = tuple(size) if isinstance(size, list) else size
        is_pair = isinstance(scale_factor, list)
        self.scale_factor = tuple(scale_factor) if is_pair else scale_factor
        self.mode, self.align_corners = mode, align_corners

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
