"""relu as a layer of its own, where no layer in front takes it along."""

from __future__ import annotations

from typing import Any

import dlprim
from dlprim.nn.context import Images, array_of
from dlprim.nn.module import Module, Ready
from dlprim.nn.passes import backward_pass, forward_pass


class ReLU(Module):
    """x where it is not negative, else 0, on plain arrays and `Images`; see `dlprim.relu`."""

    of_passes = ("_src",)

    def __init__(self) -> None:
        super().__init__()
        self._src: Any = None

    def arguments(self) -> dict[str, Any]:
        return {}

    @forward_pass
    def forward(self, x: Any, training: bool | None = None) -> Any:
        src = array_of(x)
        dst = self.context.buffers.take(src.shape, src.dtype) if isinstance(x, Images) else None
        with self.context.timed(self.name, "forward" if training else "inference"):
            dst = dlprim.relu(src, out=dst, dtype=self.context.bits)
        if training:
            self._src = src
        return x._replace(array=dst) if isinstance(x, Images) else dst

    @backward_pass
    def backward(self, dy: Any, ready: Ready | None = None) -> Any:
        src, self._src = self._src, None
        out = dy.array if isinstance(dy, Images) else None
        with self.context.timed(self.name, "backward"):
            # src has the signs of dst.
            diff = dlprim.relu_backward(array_of(dy), src, out=out, dtype=self.context.bits)
        return dy if isinstance(dy, Images) else diff
