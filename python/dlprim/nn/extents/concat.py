"""Branches that see the same input, and their results behind each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

import dlprim
from dlprim.arguments.floats import bits_of
from dlprim.arguments.scalars import integer
from dlprim.nn.containers import Sequential
from dlprim.nn.context import Context, Images, array_of
from dlprim.nn.module import Array, Module, Ready
from dlprim.nn.passes import backward_pass, forward_pass, label, or_network

_MOST_AXES = 64  # of a NumPy array


class Concat(Sequential):
    """What several branches make of one input, joined along an axis; see `dlprim.concat`.

    Branches are reached as the layers of a `Sequential` are. Images are joined in packed form
    where blocks of channels are whole in all results, and are else packed anew.

    Parameters
    ----------
    layers : dict of str to Module, or Module
        The branches, as of a `Sequential`; all give plain arrays, or all `Images`.
    dim : int
        The axis of plain arrays. Images are joined along their channels, which dim=1 says.

    Raises
    ------
    TypeError, ValueError
        As from `Sequential`, or dim is no integer, or no axis of any array.
    """

    needs_gradient = True
    reads_result = False
    of_passes = ("_forms",)

    def __init__(
        self, layers: Mapping[str, Module] | Module, *others: Module, dim: int = 1
    ) -> None:
        super().__init__(layers, *others)
        if not self._layers:
            raise ValueError("layers is empty, expected at least one branch")
        self.dim = integer("dim", dim, -_MOST_AXES, _MOST_AXES)
        self._forms: list[_Form] = []  # of the latest results

    def _derive(self) -> None:
        """Branches take x, and give gradients, one by one."""
        self.by_hand = all(it.by_hand for it in self._layers.values())

    def _runs_layers(self) -> bool:
        return type(self).forward is Concat.forward

    def arguments(self) -> dict[str, Any]:
        return super().arguments() | {"dim": self.dim}

    @property
    def reads_input(self) -> bool:
        return any(it.reads_input for it in self._layers.values())

    infer_into = Module.infer_into
    backward_terms = Module.backward_terms

    def traced(self, x: Any) -> Any:
        return np.concatenate([it(x) for it in self._layers.values()], self.dim)

    @or_network
    @forward_pass
    def forward(self, x: Any, training: bool | None = None) -> Any:
        results = [it.forward(x, training) for it in self._layers.values()]
        for layer, it in zip(self._layers.values(), results, strict=True):
            self.context.observe(layer.result_name, it)
        forms = [_Form.of(it) for it in results]
        self._require_alike(forms)
        with self.context.timed(self.name, "forward" if training else "inference"):
            y: Any
            if forms[0].packed is None:
                y = dlprim.concat(results, self.dim, dtype=self.context.bits)
            else:
                y = _joined(results, forms, self.context)
        if training:
            self._forms = forms
        for it in results:
            self._give(it, x)
        return y

    @or_network
    @backward_pass
    def backward(self, dy: Any, ready: Ready | None = None) -> Any:
        forms, self._forms, context = self._forms, [], self.context
        with context.timed(self.name, "backward"):
            parts: list[Any]
            if isinstance(dy, Images):
                parts = _parted(dy, forms, context)
            else:
                sizes = [it.shape[self.dim] for it in forms]
                views = dlprim.split(dy, sizes, self.dim, dtype=context.bits)
                parts = [it.copy() for it in views]
        context.buffers.give(array_of(dy))
        total: Any = None
        pairs = list(zip(self._layers.values(), parts, strict=True))
        for place, (layer, part) in reversed(list(enumerate(pairs))):
            dx = layer.backward(part, ready)
            is_last = place == len(pairs) - 1
            total = dx if is_last else self._sum(total, dx)
        return total

    def _sum(self, total: Any, dx: Any) -> Any:
        """None where a branch computes no gradient."""
        if total is None or dx is None:
            return None
        array, bits = array_of(total), self.context.bits
        y = dlprim.add(array, array_of(dx), out=array if array.flags.carray else None, dtype=bits)
        self.context.buffers.give(array_of(dx))
        return total._replace(array=y) if isinstance(total, Images) else y

    def _require_alike(self, forms: list[_Form]) -> None:
        """Refuses results that are not of one kind, and Images that cannot be joined."""
        if len({it.packed is None for it in forms}) > 1:
            raise TypeError(
                f"branches of {label(self)} give plain arrays and Images, expected one of them"
            )
        if forms[0].packed is None:
            return
        if self.dim not in (1, -3):
            raise ValueError(f"dim of {label(self)} is {self.dim}, expected 1 for Images")
        others = {(it.shape[0], *it.shape[2:]) for it in forms}
        if len(others) > 1:
            shapes = ", ".join(str(it.shape) for it in forms)
            raise ValueError(
                f"branches of {label(self)} give Images of {shapes}, expected one N, H and W"
            )


class _Form(NamedTuple):
    """What a result is, without its elements."""

    shape: tuple[int, ...]
    groups: int = 1
    packed: tuple[int, ...] | None = None

    @classmethod
    def of(cls, result: Any) -> _Form:
        if isinstance(result, Images):
            return cls(tuple(result.shape), result.groups, result.array.shape)
        return cls(result.shape)

    def activations(self, context: Context) -> dlprim.Activations:
        how: dict[str, Any] = {"layout": context.layout, "dtype": context.dtype_name}
        return dlprim.Activations(self.shape, **how, groups=self.groups)


def _axis(forms: list[_Form], block: int) -> int | None:
    """Of packed arrays that can be joined as they are; None where blocks are not whole."""
    packed = [it.packed or () for it in forms]
    if len(packed[0]) == 4:  # channels-last
        return 3
    whole = zip(forms, packed, strict=True)
    fits = all(it[4] == block and it[1] * block == form.shape[1] for form, it in whole)
    return 1 if fits else None


def _joined(results: list[Images], forms: list[_Form], context: Context) -> Images:
    n, _, h, w = results[0].shape
    form = _Form((n, sum(it.shape[1] for it in forms), h, w))
    activations = form.activations(context)
    out = context.buffers.take(activations.packed_shape, context.dtype)
    axis = _axis(forms, activations.packed_shape[-1])
    if axis is None:
        plain = dlprim.concat([it.unpack() for it in results], 1, dtype=context.bits)
        activations.pack(plain, out)
    else:
        np.concatenate([bits_of(it.array) for it in results], axis, bits_of(out))
    return Images(out, (n, form.shape[1], h, w))


def _parted(dy: Images, forms: list[_Form], context: Context) -> list[Images]:
    found = []
    axis = _axis(forms, dy.array.shape[-1])
    whole: Array = dy.unpack() if axis is None else dy.array
    lengths = [it.shape[1] if axis is None else (it.packed or ())[axis] for it in forms]
    views = dlprim.split(
        np.asarray(whole), lengths, 1 if axis is None else axis, dtype=context.bits
    )
    for form, view in zip(forms, views, strict=True):
        out = context.buffers.take(form.packed or (), context.dtype)
        if axis is None:
            form.activations(context).pack(view, out)
        else:
            bits_of(out)[...] = bits_of(view)
        n, c, h, w = form.shape
        found.append(Images(out, (n, c, h, w), form.groups))
    return found
