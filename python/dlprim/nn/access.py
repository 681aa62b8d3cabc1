"""Layers of a container by place, by name and as attributes, as PyTorch gives them."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

from dlprim.nn.attributes import KINDS
from dlprim.nn.module import Module, joined


class Accessible(Module):
    """A container whose layers `_layers` are reached by ``m[0]``, ``m["fc"]`` and ``m.fc``.

    An assignment to one of these puts another layer in its place. A subclass with a `forward` of
    its own has attributes of its own, so that there only ``m["fc"] = layer`` does.
    """

    _layers: dict[str, Module]

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

    @abstractmethod
    def _runs_layers(self) -> bool:
        """Whether `forward` is that of the container, which runs its layers and nothing else."""

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
