"""PReLU as a layer."""

from __future__ import annotations

from typing import Any

import dlprim
from dlprim.arguments.scalars import integer, real
from dlprim.nn.calls import label
from dlprim.nn.initial import filled
from dlprim.nn.module import Module
from dlprim.nn.parameter import Parameter


class PReLU(Module):
    """x or ``weight * x``; see `dlprim.prelu`.

    Arguments are those of `torch.nn.PReLU`.

    Parameters
    ----------
    num_parameters : int
        1, or one slope for each channel, the second axis of x.
    init : float
        What all slopes are at first.

    Attributes
    ----------
    weight : Parameter
        float32, (num_parameters,), whatever the dtype of activations.

    Raises
    ------
    TypeError, ValueError
        num_parameters is no integer of at least 1, or init no finite number.
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25) -> None:
        super().__init__()
        count = integer("num_parameters", num_parameters, 1)
        self._init = real("init", init)
        self.weight = Parameter(filled(count, self._init))

    @property
    def num_parameters(self) -> int:
        (count,) = self.weight.shape
        return int(count)

    @property
    def init(self) -> float:
        return self._init

    def arguments(self) -> dict[str, Any]:
        return {"num_parameters": self.num_parameters, "init": self.init}

    def forward(self, x: Any) -> Any:
        self._require_channels(x.shape)
        return dlprim.prelu(x, self.weight)

    def _require_channels(self, shape: tuple[int, ...]) -> None:
        count = self.num_parameters
        if count != 1 and (len(shape) < 2 or shape[1] != count):
            raise ValueError(f"x of {label(self)} has shape {shape}, expected (N, {count}, ...)")
