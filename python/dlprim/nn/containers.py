"""Layers one behind another, or beside each other, reached as PyTorch gives them."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dlprim.arguments.scalars import integer
from dlprim.nn.attributes import KINDS
from dlprim.nn.layer import Layer, own_class
from dlprim.nn.module import Module, joined

_MOST_AXES = 64  # of a NumPy array


class Sequential(Module):
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
        self._contain()
        self.use(self.context)

    def _runs_layers(self) -> bool:
        """Whether `forward` is that of the container, which runs its layers and nothing else."""
        return type(self).forward is own_class(self).forward  # type: ignore[attr-defined]

    def arguments(self) -> dict[str, Any]:
        return {"layers": dict(self._layers)}

    def _contained(self) -> dict[str, Module]:
        return {f"layers[{name!r}]": layer for name, layer in self._layers.items()}

    def children(self) -> dict[str, Module]:
        found = self._and_others(self._layers)
        if len(found) > len(self._layers) and self._runs_layers():
            raise TypeError(
                f"{type(self).__name__} has {list(found)[len(self._layers)]} beside the layers "
                "that it was made with, which its forward does not run, expected it among these, "
                "or a forward of its own"
            )
        return found

    def forward(self, x: Any) -> Any:
        for layer in self._layers.values():
            x = layer(x)
        return x

    def __len__(self) -> int:
        return len(self._layers)

    def __bool__(self) -> bool:
        return True  # without layers too, as every other module

    def __iter__(self) -> Iterator[Module]:
        return iter(list(self._layers.values()))

    def __getitem__(self, place: int | str) -> Module:
        """The layer of a place, from the end where that is negative, or of a name."""
        return self._layers[self._key(place)]

    def __setitem__(self, place: int | str, layer: Module) -> None:
        self._replace(self._key(place), layer)

    def __getattr__(self, name: str) -> Any:
        """Where no attribute is called so: the layer, or that of a layer without a name."""
        layers = vars(self).get("_layers", {})
        while name and not name.startswith("__"):
            if name in layers:
                return layers[name]
            if "" not in layers:
                break
            layers = layers[""].children()
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if KINDS[type(value)] is not Module or "_layers" not in vars(self):
            return super().__setattr__(name, value)
        if name in self._layers and self._runs_layers():
            return self._replace(name, value)
        before = vars(self).get(name)
        super().__setattr__(name, value)
        try:
            self.children()  # which refuses layers that forward would not run
        except TypeError:
            vars(self).pop(name)
            if before is not None:
                vars(self)[name] = before
            raise

    def _key(self, place: Any) -> str:
        if isinstance(place, str):
            if place not in self._layers:
                raise KeyError(f"{place!r} is no layer, expected one of {list(self._layers)}")
            return place
        try:
            number = operator.index(place)
        except TypeError:
            kind = type(place).__name__
            raise TypeError(
                f"a layer is asked for by a {kind}, expected a number or a name; a layer is in one "
                "container only, so there are no slices"
            ) from None
        count = len(self._layers)
        if not -count <= number < count:  # IndexError ends what iterates by numbers
            raise IndexError(f"layer {number} is asked for, expected one of {count}")
        return list(self._layers)[number]

    def _replace(self, name: str, layer: Any) -> None:
        old = self._layers[name]
        if layer is old:
            return
        if not isinstance(layer, Module):
            kind = type(layer).__name__
            raise TypeError(f"layer {name!r} is replaced by a {kind}, expected a dlprim.nn.Module")
        holder = layer._container and layer._container()
        if holder is not None or any(it is self for it in layer.modules()):
            raise ValueError(
                f"layer {name!r} is replaced by {type(layer).__name__} {layer.name!r} of another "
                f"{type(holder or layer).__name__}, expected a layer that is in no other "
                "container; copy.deepcopy makes one"
            )
        self._layers[name] = layer
        layer._container, old._container = old._container, None
        layer.use(self.context, joined(self.name, name))
        layer.train(self.training)
        self._forget()
        outer: Module | None = self
        while outer is not None:
            outer._forget()
            outer = outer._container() if outer._container is not None else None


class Identity(Layer):
    """x itself."""

    def forward(self, x: Any) -> Any:
        return x


class Add(Sequential):
    """The sum of what several branches make of one input, reached as layers of a `Sequential`.

    Parameters
    ----------
    layers : dict of str to Module, or Module
        The branches, as of a `Sequential`; an `Identity` among them is a shortcut.
    """

    def forward(self, x: Any) -> Any:
        first, *others = self._layers.values()
        y = first(x)
        for branch in others:
            y = y + branch(x)
        return y


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

    def arguments(self) -> dict[str, Any]:
        return super().arguments() | {"dim": self.dim}

    def forward(self, x: Any) -> Any:
        return np.concatenate([it(x) for it in self._layers.values()], self.dim)
