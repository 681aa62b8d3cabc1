"""From activations to features: what stands between convolutions and a linear layer."""

from __future__ import annotations

import math
from typing import Any

import dlprim
from dlprim.nn.context import Images
from dlprim.nn.module import Array, Module, Ready
from dlprim.nn.passes import backward_pass, forward_pass, label


class Flatten(Module):
    """`Images`, or a plain array (N, ...), as plain features (N, C * H * W) in PyTorch's order."""

    keeps_input = False
    passes_on = True
    of_passes = ("_kept",)

    def __init__(self) -> None:
        super().__init__()
        self._kept: Images | tuple[int, ...] = ()  # the latest input, or its shape where plain

    def arguments(self) -> dict[str, Any]:
        return {}

    def traced(self, x: Any) -> Any:
        return x.reshape(x.shape[0], math.prod(x.shape[1:]))

    @forward_pass
    def forward(self, x: Any, training: bool | None = None) -> Array:
        if not x.shape:
            raise ValueError(f"x of {label(self)} has no axis, expected (N, ...)")
        n, *others = x.shape
        shape = (n, math.prod(others))
        if training:
            self._kept = x if isinstance(x, Images) else x.shape
        if not isinstance(x, Images):
            plain: Array = x.reshape(shape)
            return plain
        features = self.context.buffers.take(shape, x.array.dtype)
        with self.context.timed(self.name, "forward" if training else "inference"):
            self._activations(x).unpack(x.array, features.reshape(x.shape))
        return features

    @backward_pass
    def backward(self, dy: Array, ready: Ready | None = None) -> Any:
        kept, buffers = self._kept, self.context.buffers
        if not isinstance(kept, Images):
            return dy.reshape(kept)
        activations = self._activations(kept)
        out = buffers.take(activations.packed_shape, kept.array.dtype)
        with self.context.timed(self.name, "backward"):
            activations.pack(dy.reshape(kept.shape), out)
        buffers.give(dy)
        return kept._replace(array=out)

    def _activations(self, x: Images) -> dlprim.Activations:
        layout, dtype = self.context.layout, self.context.dtype_name
        return dlprim.Activations(x.shape, layout=layout, dtype=dtype, groups=x.groups)
