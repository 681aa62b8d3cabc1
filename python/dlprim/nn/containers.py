"""Layers one behind another, and blocks with a shortcut around them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import dlprim
from dlprim.nn.access import Accessible
from dlprim.nn.context import Images, array_of
from dlprim.nn.module import Array, Module, Ready
from dlprim.nn.passes import backward_pass, forward_pass, label, or_network
from dlprim.nn.recent import Recent


class Pack(Module):
    """Plain images, float32 (N, C, H, W), as packed activations: the entry of a model."""

    keeps_input = False
    takes_images = False
    needs_gradient = False  # behind it a layer with first=True may stand
    rounds = True
    of_passes = ("_primitives",)

    def __init__(self) -> None:
        super().__init__()
        self._primitives: Recent[tuple[object, ...], dlprim.Activations] = Recent()

    def arguments(self) -> dict[str, Any]:
        return {}

    def traced(self, x: Any) -> Any:
        return x

    @forward_pass
    def forward(self, x: Any, training: bool | None = None) -> Images:
        context = self.context
        key = (x.shape, context.dtype_name, context.layout)
        if key not in self._primitives:
            if x.ndim != 4:
                raise ValueError(f"x of {label(self)} has shape {x.shape}, expected (N, C, H, W)")
            self._primitives[key] = dlprim.Activations(
                x.shape, layout=context.layout, dtype=context.dtype_name
            )
        activations = self._primitives[key]
        buffers, rounded = context.buffers, None
        out = buffers.take(activations.packed_shape, context.dtype)
        with context.timed(self.name, "forward" if training else "inference"):
            if context.dtype != x.dtype:
                rounded = dlprim.to_bfloat16(x, out=buffers.take(x.shape, context.dtype))
            activations.pack(x if rounded is None else rounded, out)
        buffers.give(rounded)
        return Images(out, activations.shape)

    @backward_pass
    def backward(self, dy: Any, ready: Ready | None = None) -> Any:
        if dy is None:
            return None
        layout, dtype = self.context.layout, self.context.dtype_name
        plain = dlprim.Activations(dy.shape, layout=layout, dtype=dtype, groups=dy.groups).unpack(
            dy.array
        )
        self.context.buffers.give(dy.array)
        return plain if plain.dtype == np.float32 else dlprim.to_float32(plain, dtype="bfloat16")


class Sequential(Accessible):
    """Layers one behind another, by name, in a context of their own until `use`.

    ``m[0]``, ``m["fc"]`` and ``m.fc`` are layers, and an assignment to one of them, as
    ``m.fc = nn.Linear(64, 3)``, puts another in its place; ``len(m)`` counts them.

    Parameters
    ----------
    layers : dict of str to Module, or Module
        By name; or the layers themselves, one argument each, whose names are "0", "1", ... as in
        `torch.nn.Sequential`.

    Raises
    ------
    TypeError, ValueError
        A layer is no Module, is there twice, or is in another container, a name is no string; or
        `children` finds modules that a subclass has as attributes beside ``layers`` without a
        `forward` of its own, which alone could run them.
    """

    needs_gradient = False  # what its last layer does with None
    of_passes = ("_between",)
    of_class = ("_layers",)

    def __init__(self, layers: Mapping[str, Module] | Module, *others: Module) -> None:
        super().__init__()
        if isinstance(layers, Module):
            layers = {str(place): it for place, it in enumerate((layers, *others))}
        elif others:
            raise TypeError("layers is a dict and not the only argument, expected it alone")
        if not isinstance(layers, Mapping) or not all(
            isinstance(it, Module) for it in layers.values()
        ):
            raise TypeError(
                "layers is no dict, or holds something else than modules by name, expected "
                "Sequential({'name': layer, ...}) or Sequential(layer, ...)"
            )
        for name in layers:
            if not isinstance(name, str):
                raise TypeError(f"layers has the name {name!r}, expected a string")
        layers = dict(layers)
        self._layers = layers
        self._between: list[Any] = []
        self._derive()
        self._contain()
        self.use(self.context)

    def _derive(self) -> None:
        layers = self._layers
        self.by_hand = all(it.by_hand for it in layers.values())
        self.rounds = bool(layers) and next(iter(layers.values())).rounds
        self.takes_terms = bool(layers) and list(layers.values())[-1].takes_terms

    def _runs_layers(self) -> bool:
        return type(self).forward in (Sequential.forward, Sliced.forward)

    def arguments(self) -> dict[str, Any]:
        return {"layers": dict(self._layers)}

    def _contained(self) -> dict[str, Module]:
        return {f"layers[{name!r}]": layer for name, layer in self._layers.items()}

    @property
    def reads_input(self) -> bool:
        return next((it.reads_input for it in self._layers.values() if not it.passes_on), False)

    @property
    def reads_result(self) -> bool:  # type: ignore[override]
        layers = reversed(self._layers.values())
        return next((it.reads_result for it in layers if not it.passes_on), False)

    def children(self) -> dict[str, Module]:
        found = self._and_others(self._layers)
        if len(found) > len(self._layers) and type(self).forward is Sequential.forward:
            raise TypeError(
                f"{type(self).__name__} has {list(found)[len(self._layers)]} beside the layers "
                "that it was made with, which its forward does not run, expected it among these, "
                "or a forward of its own"
            )
        return found

    def traced(self, x: Any) -> Any:
        for layer in self._layers.values():
            x = layer(x)
        return x

    @or_network
    @forward_pass
    def forward(self, x: Any, training: bool | None = None) -> Any:
        if training:
            self._between.clear()
        return self._through(list(self._layers.values()), x, training)

    def infer_into(self, x: Any, out: Array) -> None:
        *others, last = self._layers.values()
        y = self._through(others, x, False)
        last.infer_into(y, out)
        self.context.observe(last.result_name, out)
        if y is not x:
            self._give(y, out)

    def _through(self, layers: list[Module], x: Any, training: bool | None) -> Any:
        entry, context, between = x, self.context, self._between  # once, not by layer
        for layer in layers:
            if layer.replaces_input and not training and x is not entry:
                layer.infer_into(x, array_of(x))
                y = x
            else:
                y = layer.forward(x, training)
            if context.observer is not None:
                context.observe(layer.result_name, y)
            if x is not entry and not (training and layer.keeps_input):
                self._give(x, y)
                x = None
            if training:
                between.append(x)
            x = y
        return x

    @or_network
    @backward_pass
    def backward(self, dy: Any, ready: Ready | None = None) -> Any:
        return self._back(dy, ready, False)

    @backward_pass
    def backward_terms(self, dy: Any, ready: Ready | None = None) -> Any:
        return self._back(dy, ready, True)

    def _back(self, dy: Any, ready: Ready | None, terms: bool) -> Any:
        """With ``terms`` the gradient may be two."""
        layers, between = list(self._layers.values()), self._between
        for place, layer in reversed(list(enumerate(layers))):
            taken = layers[place - 1].takes_terms if place > 0 else terms
            dy = (layer.backward_terms if taken else layer.backward)(dy, ready)
            x = between.pop()
            if place > 0 and x is not None:
                self._give(x, dy)
        return dy

    def _give(self, x: Any, kept: Any) -> None:
        """Takes x back unless a layer passed its memory on."""
        if kept is None or not np.may_share_memory(array_of(x), array_of(kept)):
            self.context.buffers.give(array_of(x))


class Sliced(Sequential):
    """Layers that take a few images at a time for inference, so that what flows stays in cache.

    Parameters
    ----------
    layers : dict
        From packed to packed activations.
    images : int
    """

    of_passes = ("_results",)

    def __init__(self, layers: dict[str, Module], images: int) -> None:
        super().__init__(layers)
        self._images = images
        # Shapes of a result, packed and plain, without the number of images: known after one slice.
        self._results: Recent[
            tuple[Any, ...], tuple[tuple[int, ...], tuple[int, int, int], int]
        ] = Recent()

    def arguments(self) -> dict[str, Any]:
        return {"layers": self._layers, "images": self._images}

    traced = Sequential.traced

    @or_network
    @forward_pass
    def forward(self, x: Images, training: bool | None = None) -> Any:
        n, step, buffers = x.shape[0], self._images, self.context.buffers
        if training or n <= step:
            return super().forward(x, training)
        key = (x.shape, x.groups, self.context.layout, self.context.dtype_name)
        if key not in self._results:
            y = super().forward(self._images_of(x, 0), False)
            self._results[key] = y.array.shape[1:], y.shape[1:], y.groups
            buffers.give(y.array)
        packed, plain, groups = self._results[key]
        out = buffers.take((n, *packed), self.context.dtype)
        for begin in range(0, n, step):
            self.infer_into(self._images_of(x, begin), out[begin : begin + step])
        return Images(out, (n, *plain), groups)

    def _images_of(self, x: Images, begin: int) -> Images:
        part = x.array[begin : begin + self._images]
        return Images(part, (part.shape[0], *x.shape[1:]), x.groups)
