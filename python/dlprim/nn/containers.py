"""Layers one behind another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlprim.nn.access import Accessible
from dlprim.nn.module import Module


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
        self._contain()
        self.use(self.context)

    def _runs_layers(self) -> bool:
        return type(self).forward is Sequential.forward

    def arguments(self) -> dict[str, Any]:
        return {"layers": dict(self._layers)}

    def _contained(self) -> dict[str, Module]:
        return {f"layers[{name!r}]": layer for name, layer in self._layers.items()}

    def children(self) -> dict[str, Module]:
        found = self._and_others(self._layers)
        if len(found) > len(self._layers) and type(self).forward is Sequential.forward:
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


class Identity(Module):
    """x itself."""

    def arguments(self) -> dict[str, Any]:
        return {}

    def forward(self, x: Any) -> Any:
        return x


class Add(Sequential):
    """The sum of what several branches make of one input, reached as layers of a `Sequential`.

    Parameters
    ----------
    layers : dict of str to Module, or Module
        The branches, as of a `Sequential`; an `Identity` among them is a shortcut.
    """

    def _runs_layers(self) -> bool:
        return type(self).forward is Add.forward

    def forward(self, x: Any) -> Any:
        first, *others = self._layers.values()
        y = first(x)
        for branch in others:
            y = y + branch(x)
        return y
