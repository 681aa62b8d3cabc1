"""Small layers: sums of branches, what passes x on, norms of vectors and volumes."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlprim.nn.containers import Sequential
from dlprim.nn.module import Module
from dlprim.nn.norm import BatchNorm2d
from dlprim.nn.traced.layer import Layer


class Identity(Layer):
    """x itself."""

    def forward(self, x: Any) -> Any:
        return x


class ReLU6(Layer):
    """x within 0 and 6."""

    def forward(self, x: Any) -> Any:
        return np.clip(x, 0, 6)


class Add(Sequential):
    """The sum of what several branches make of one input, reached as layers of a `Sequential`.

    Parameters
    ----------
    layers : dict of str to Module, or Module
        The branches, as of a `Sequential`; an `Identity` among them is a shortcut.
    """

    backward = Module.backward

    def _derive(self) -> None:
        """Branches take x one by one."""

    def _runs_layers(self) -> bool:
        return True

    def forward(self, x: Any) -> Any:  # type: ignore[override]
        first, *others = self._layers.values()
        y = first(x)
        for branch in others:
            y = y + branch(x)
        return y


class BatchNorm1d(BatchNorm2d):
    """`BatchNorm2d` of plain arrays (N, C) or (N, C, W)."""

    backward = Module.backward

    def forward(self, x: Any) -> Any:  # type: ignore[override]
        return self.traced(x)


class BatchNorm3d(BatchNorm2d):
    """`BatchNorm2d` of plain arrays (N, C, D, H, W)."""

    backward = Module.backward

    def forward(self, x: Any) -> Any:  # type: ignore[override]
        return self.traced(x)
