"""Images of another size as layers: means of as many windows as asked for, and interpolation."""

from __future__ import annotations

from typing import Any

import dlprim
from dlprim.functions.extents.image_arrays import image_size
from dlprim.functions.extents.interpolation import rule_of
from dlprim.nn.arguments import fixed, shortest
from dlprim.nn.module import Module


class AdaptiveAvgPool2d(Module):
    """The means of P x Q windows that cover the image; see `dlprim.adaptive_avg_pool2d`.

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

    def forward(self, x: Any) -> Any:
        return dlprim.adaptive_avg_pool2d(x, self.output_size)


class Upsample(Module):
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

    def forward(self, x: Any) -> Any:
        how = (self.size, self.scale_factor, self.mode, self.align_corners)
        return dlprim.interpolate(x, *how)
