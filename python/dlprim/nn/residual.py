"""Blocks of convolutions with a shortcut around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dlprim
from dlprim.nn.context import Images
from dlprim.nn.conv_batch_norm import ConvBatchNorm
from dlprim.nn.images import require_alike
from dlprim.nn.module import Array, Module, Ready
from dlprim.nn.passes import backward_pass, forward_pass


class Residual(Module):
    """Convolutions with batch normalisation whose last adds the input, or a shortcut of it.

    In the blocked layout what is added must have blocks of the groups of the last convolution.

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

    takes_images = True
    of_passes = ("_between",)
    of_class = ("main", "shortcut")

    def __init__(self, main: list[ConvBatchNorm], shortcut: ConvBatchNorm | None = None) -> None:
        super().__init__()
        if not isinstance(main, Sequence):
            kind = type(main).__name__
            raise TypeError(f"main is of type {kind}, expected a list of ConvBatchNorm")
        if len(main) < 2:
            raise ValueError(f"main holds {len(main)} convolutions, expected two or more")
        self.main, self.shortcut = main, shortcut
        self.replaces_input = shortcut is None
        self._between: list[Images] = []
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
        self.takes_terms = main[-1].norm.activation is not None
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

    def traced(self, x: Any) -> Any:
        y = x
        for layer in self.main[:-1]:
            y = layer(y)
        return self.main[-1](y, x if self.shortcut is None else self.shortcut(x))

    @forward_pass
    def forward(self, x: Images, training: bool | None = None) -> Images:
        own = self.shortcut is not None
        self._require_sum(x)
        added = self.shortcut.forward(x, training) if self.shortcut else x
        y = self._in_front_of_sum(x, training)
        result = self.main[-1].forward(y, training, added.array, into=own)
        if not training:
            self.context.buffers.give(y.array)
        return result

    def infer_into(self, x: Images, out: Array) -> None:
        self._require_sum(x)
        if self.shortcut is not None:
            self.shortcut.infer_into(x, out)
        y = self._in_front_of_sum(x, False)
        self.main[-1].infer_into(y, out, x.array if self.shortcut is None else out)
        self.context.buffers.give(y.array)

    def _require_sum(self, x: Images) -> None:
        added = x.groups if self.shortcut is None else self.shortcut.conv.blocks
        last = self.main[-1].conv
        if added != last.blocks:
            require_alike(self.name, last.weight.shape[0], added, last.blocks)

    def _in_front_of_sum(self, x: Images, training: bool | None) -> Images:
        """What the last convolution reads."""
        y = x
        if training:
            self._between = []
        for layer in self.main[:-1]:
            before, y = y, layer.forward(y, training)
            self.context.observe(layer.result_name, y)
            if training:
                self._between.append(y)
            elif before is not x:
                self.context.buffers.give(before.array)
        return y

    @backward_pass
    def backward(self, dy: Images, ready: Ready | None = None) -> Images:
        gradient = self._back(dy, ready)
        with self.context.timed(self.name, "backward"):
            out, bits = gradient.array, self.context.bits
            dlprim.add(out, gradient.addend, out=out, dtype=bits)
        self.context.buffers.give(gradient.addend)
        return gradient._replace(addend=None)

    @backward_pass
    def backward_terms(self, dy: Images, ready: Ready | None = None) -> Images:
        return self._back(dy, ready)

    def _back(self, dy: Images, ready: Ready | None) -> Images:
        buffers = self.context.buffers
        gradient, diff_added = self.main[-1].backward_branches(dy, ready)
        for layer in reversed(self.main[:-1]):
            x = self._between.pop()
            assert gradient is not None
            gradient = layer.backward(gradient, ready)
            buffers.give(x.array)
        assert gradient is not None
        assert diff_added is not None
        if self.shortcut is not None:
            branch = self.shortcut.backward(
                Images(diff_added, dy.shape, self.shortcut.conv.blocks), ready
            )
            assert branch is not None
            diff_added = branch.array
        return gradient._replace(addend=diff_added)
