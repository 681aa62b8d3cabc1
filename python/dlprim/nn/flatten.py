"""From activations to features: what stands between convolutions and a linear layer."""

from __future__ import annotations

import math
from typing import Any

from dlprim.nn.calls import label
from dlprim.nn.module import Module


class Flatten(Module):
    """(N, ...) as features (N, C * H * W), in PyTorch's order."""

    def arguments(self) -> dict[str, Any]:
        return {}

    def forward(self, x: Any) -> Any:
        if not x.shape:
            raise ValueError(f"x of {label(self)} has no axis, expected (N, ...)")
        return x.reshape(x.shape[0], math.prod(x.shape[1:]))
