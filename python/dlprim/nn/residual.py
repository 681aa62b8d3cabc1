"""Blocks of convolutions with a shortcut around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlprim.nn.conv_batch_norm import ConvBatchNorm
from dlprim.nn.module import Module


class Residual(Module):
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

    of_class = ("main", "shortcut")

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

    def arguments(self) -> dict[str, Any]:
        return {"main": self.main, "shortcut": self.shortcut}

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
