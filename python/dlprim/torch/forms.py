"""Tensors as arrays and back, without copies.

A network takes arrays in C order. A tensor whose axes lie in memory in another order, channels-last
or transposed, is given as the array that lies there, and the network turns it; one that repeats
elements along an axis is given without that axis. Only tensors with gaps are copied.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import torch

from dlprim.graph.builder import Builder
from dlprim.graph.graph import Value

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


class Form(NamedTuple):
    """How a tensor lies in memory.

    Attributes
    ----------
    order : tuple of int or None
        Its axes from the outermost to the innermost in memory; None in C order.
    spread : tuple of int
        Axes along which one element is repeated.
    has_gaps : bool
        It is copied.
    """

    order: tuple[int, ...] | None = None
    spread: tuple[int, ...] = ()
    has_gaps: bool = False

    def array(self, tensor: torch.Tensor) -> Any:
        """The array that lies there."""
        for axis in self.spread:
            tensor = tensor.narrow(axis, 0, 1)
        if self.order is not None:
            tensor = tensor.permute(self.order)
        return array_of(tensor.contiguous() if self.has_gaps else tensor)

    def times(self, tensor: torch.Tensor) -> tuple[int, ...]:
        """How often elements are repeated, which the array does not show."""
        return tuple([tensor.size(axis) for axis in self.spread])

    def input(self, b: Builder, value: Value, shape: tuple[int, ...]) -> Value:
        """The tensor, of an input of the network that is its array."""
        if self.order is not None:
            value = b.transpose(value, [self.order.index(axis) for axis in range(len(shape))])
        return b.expand(value, shape) if self.spread else value

    def shape(self, shape: tuple[Any, ...]) -> tuple[Any, ...]:
        """Of the array."""
        once = tuple(1 if axis in self.spread else n for axis, n in enumerate(shape))
        return once if self.order is None else tuple(once[axis] for axis in self.order)

    def output(self, b: Builder, value: Value) -> Value:
        """What the network returns for a tensor of this form, in which each element is once."""
        return value if self.order is None else b.transpose(value, self.order)

    def tensor(self, array: Any) -> torch.Tensor:
        """The tensor of what the network returned."""
        made = tensor_of(array)
        if self.order is not None:
            made = made.permute([self.order.index(axis) for axis in range(made.dim())])
        return made


IN_ORDER = Form()


def form_of(shape: tuple[int, ...], strides: tuple[int, ...]) -> Form:
    """The form of a tensor of this shape with these strides."""
    if 0 in shape:
        return Form(has_gaps=True)
    spread = tuple(
        a for a, (n, s) in enumerate(zip(shape, strides, strict=True)) if n > 1 and not s
    )
    axes = [axis for axis, n in enumerate(shape) if n > 1 and axis not in spread]
    axes.sort(key=lambda axis: (-strides[axis], axis))
    order = _with_single(axes, len(shape))
    expected, has_gaps = 1, False
    for axis in reversed(axes):
        has_gaps = has_gaps or strides[axis] != expected
        expected *= shape[axis]
    is_sorted = order == tuple(range(len(shape)))
    return Form(None if is_sorted else order, spread, has_gaps)


def _with_single(axes: list[int], rank: int) -> tuple[int, ...]:
    """Axes that say nothing about memory come in front of the next one that does."""
    order: list[int] = []
    known = set(axes)
    for axis in axes:
        before = axis
        while before > 0 and before - 1 not in known and before - 1 not in order:
            before -= 1
        order += [*range(before, axis), axis]
    return (*order, *(axis for axis in range(rank) if axis not in order))


def array_of(tensor: torch.Tensor) -> Any:
    """The memory of a tensor as an array."""
    if tensor.dtype is torch.bfloat16:
        return tensor.detach().view(torch.int16).numpy().view(_BFLOAT16)
    return tensor.detach().numpy()


def tensor_of(array: Any) -> torch.Tensor:
    """The memory of an array as a tensor."""
    if array.dtype == _BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
