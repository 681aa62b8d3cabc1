"""A convolution and the batch normalisation behind it, which is folded into it for inference."""

from __future__ import annotations

from typing import Any

from dlprim.nn.conv import Conv2d
from dlprim.nn.module import Module
from dlprim.nn.norm import BatchNorm2d


class ConvBatchNorm(Module):
    """A convolution, batch normalisation, and the residual and relu that may follow.

    Parameters
    ----------
    conv : Conv2d
    norm : BatchNorm2d
    names : (str, str)
        Of the two in the state dict.

    Raises
    ------
    TypeError, ValueError
        conv or norm is no such layer or in another container, conv has an activation, which would
        stand between the two, or names are not two that differ.
    """

    of_class = ("conv", "norm")

    def __init__(self, conv: Conv2d, norm: BatchNorm2d, names: tuple[str, str]) -> None:
        super().__init__()
        for name, layer, kind in (("conv", conv, Conv2d), ("norm", norm, BatchNorm2d)):
            if not isinstance(layer, kind):
                raise TypeError(
                    f"{name} is of type {type(layer).__name__}, expected a "
                    f"dlprim.nn.{kind.__name__}"
                )
        if conv.activation is not None:
            raise ValueError(
                f"conv has activation={conv.activation!r}, expected None: the normalisation comes "
                "first, and BatchNorm2d takes the activation"
            )
        if (
            not isinstance(names, tuple | list)
            or not all(isinstance(it, str) for it in names)
            or len(names) != 2
            or names[0] == names[1]
        ):
            raise ValueError(f"names is {names!r}, expected two names that differ")
        self.conv, self.norm, self.names = conv, norm, tuple(names)
        self._contain()
        self.use(self.context)

    def arguments(self) -> dict[str, Any]:
        return {"conv": self.conv, "norm": self.norm, "names": self.names}

    def _contained(self) -> dict[str, Module]:
        return {"conv": self.conv, "norm": self.norm}

    def children(self) -> dict[str, Module]:
        return self._and_others({self.names[0]: self.conv, self.names[1]: self.norm})

    def forward(self, x: Any, residual: Any = None) -> Any:
        return self.norm(self.conv(x), residual)
