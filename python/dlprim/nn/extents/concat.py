"""Branches that see the same input, and their results behind each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dlprim.arguments.scalars import integer
from dlprim.nn.containers import Sequential
from dlprim.nn.module import Module

_MOST_AXES = 64  # of a NumPy array


class Concat(Sequential):
    """What several branches make of one input, joined along an axis; see `dlprim.concat`.

    Branches are reached as the layers of a `Sequential` are.

    Parameters
    ----------
    layers : dict of str to Module, or Module
        The branches, as of a `Sequential`.
    dim : int
        The axis.

    Raises
    ------
    TypeError, ValueError
        As from `Sequential`, or dim is no integer, or no axis of any array.
    """

    def __init__(
        self, layers: Mapping[str, Module] | Module, *others: Module, dim: int = 1
    ) -> None:
        super().__init__(layers, *others)
        if not self._layers:
            raise ValueError("layers is empty, expected at least one branch")
        self.dim = integer("dim", dim, -_MOST_AXES, _MOST_AXES)

    def _runs_layers(self) -> bool:
        return type(self).forward is Concat.forward

    def arguments(self) -> dict[str, Any]:
        return super().arguments() | {"dim": self.dim}

    def forward(self, x: Any) -> Any:
        return np.concatenate([it(x) for it in self._layers.values()], self.dim)
