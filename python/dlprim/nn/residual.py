"""Convolutions with batch normalisation, and blocks of them with a shortcut around them.

For inference the normalisation is folded into its convolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlprim.nn.conv import Conv2d
from dlprim.nn.layer import Layer
from dlprim.nn.module import Module
from dlprim.nn.norm import BatchNorm2d


class ConvBatchNorm(Layer):
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

    def _contained(self) -> dict[str, Module]:
        return {"conv": self.conv, "norm": self.norm}

    def children(self) -> dict[str, Module]:
        return self._and_others({self.names[0]: self.conv, self.names[1]: self.norm})

    def forward(self, x: Any, residual: Any = None) -> Any:
        return self.norm(self.conv(x), residual)


class Residual(Layer):
    """Convolutions with batch normalisation whose last adds the input, or a shortcut of it.

    Parameters
    ----------
    main : list of ConvBatchNorm
        Two or more. The last normalisation adds the residual in front of its relu.
    shortcut : ConvBatchNorm, optional
        Where the shape changes.

    Notes
    -----
    Source: arXiv 1512.03385, section 3.
    """

    def __init__(self, main: list[ConvBatchNorm], shortcut: ConvBatchNorm | None = None) -> None:
        super().__init__()
        if not isinstance(main, Sequence):
            kind = type(main).__name__
            raise TypeError(f"main is of type {kind}, expected a list of ConvBatchNorm")
        if len(main) < 2:
            raise ValueError(f"main holds {len(main)} convolutions, expected two or more")
        self.main, self.shortcut = main, shortcut
        self._contain()
        for place, layer in self._contained().items():
            if not isinstance(layer, ConvBatchNorm):
                kind = type(layer).__name__
                raise TypeError(f"{place} is of type {kind}, expected a ConvBatchNorm")
        names = [name for it in self._contained().values() for name in it.children()]
        twice = next((it for it in names if names.count(it) > 1), None)
        if twice is not None:
            raise ValueError(
                f"two layers of the block are called {twice!r}, expected names of their own in "
                "each ConvBatchNorm"
            )
        self.use(self.context)

    def _contained(self) -> dict[str, Module]:
        found: dict[str, Module] = {f"main[{place}]": it for place, it in enumerate(self.main)}
        return found if self.shortcut is None else found | {"shortcut": self.shortcut}

    def children(self) -> dict[str, Module]:
        found: dict[str, Module] = {}
        for layer in (*self.main, *([] if self.shortcut is None else [self.shortcut])):
            found |= layer.children()
        return self._and_others(found, *self._contained().values())

    def use(self, context: Any, name: str = "") -> None:
        super().use(context, name)
        for layer in (*self.main, *([] if self.shortcut is None else [self.shortcut])):
            layer.context = context

    def forward(self, x: Any) -> Any:
        y = x
        for layer in self.main[:-1]:
            y = layer(y)
        return self.main[-1](y, x if self.shortcut is None else self.shortcut(x))
