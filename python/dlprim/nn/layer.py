"""Layers that are told by what their constructors took, which are attributes of the same names."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from dlprim.arguments.scalars import flag, integer
from dlprim.nn.initial import generator_or_own, normal, uniform, zeros
from dlprim.nn.module import Module
from dlprim.nn.parameter import Parameter, of_layer

Extent: TypeAlias = int | tuple[int, int]
Pair: TypeAlias = tuple[int, int]


class Layer(Module):
    """A layer that has what its constructor took as attributes of the same names."""

    def _keep(self, **arguments: Any) -> None:
        """As attributes, whatever a subclass has of the same names."""
        vars(self).update(arguments)

    def arguments(self) -> dict[str, Any]:
        # Subclasses elsewhere may take something else, and say so themselves.
        own = own_class(self)
        names = [it for it in inspect.signature(own).parameters if it != "generator"]
        told = {name: it for name in names if isinstance(it := getattr(own, name, None), Told)}
        found = {
            name: shortest(told[name].read(self) if name in told else getattr(self, name))
            for name in names
        }
        if "bias" in found and not isinstance(found["bias"], bool):
            found["bias"] = found["bias"] is not None
        return found


class Weighted(Layer):
    """A layer with a product by a weight, and perhaps a bias."""

    weight: Parameter = of_layer(Parameter)
    bias: Parameter | None = of_layer(Parameter, or_none=True)

    def _draw(
        self,
        shape: tuple[int, ...],
        K: int,
        bias: bool,
        generator: np.random.Generator | None,
        deviation: float | None = None,
    ) -> None:
        """Normal weights of a deviation and zeros, or both uniform, as PyTorch draws them."""
        drawer, has_bias = generator_or_own(generator), flag("bias", bias)
        if deviation is None:
            bound = 1 / math.sqrt(math.prod(shape[1:]))
            weight, offset = uniform(shape, drawer, bound), uniform((K,), drawer, bound)
        else:
            weight, offset = normal(shape, drawer, deviation), zeros(K)
        self.weight, self.bias = Parameter(weight), Parameter(offset) if has_bias else None


class Told:
    """An argument that follows from the parameters, which others may take the place of.

    Subclasses may assign an attribute of the name, which is then theirs.
    """

    def __init__(self, read: Callable[[Any], Any]) -> None:
        self.read = read

    def __get__(self, layer: Any, kind: Any = None) -> Any:
        return self if layer is None else self.read(layer)


class _Fixed:
    """It has no ``__get__``, so that reading is as quick as without it."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name
        self.__doc__ = f"As the layer was made with: {name}."

    def __set__(self, layer: Any, value: Any) -> None:
        name, kind = self._name, type(layer).__name__
        raise AttributeError(
            f"{name} of {kind} {layer.name!r} is assigned {value!r}, expected it to stay as it "
            f"was when the layer was made; a new {kind} with {name}={value!r} has it"
        )

    def __delete__(self, layer: Any) -> None:
        raise AttributeError(
            f"{self._name} of {type(layer).__name__} {layer.name!r} is deleted, expected it to "
            "stay as it was when the layer was made"
        )


def fixed() -> Any:
    """An attribute that stays as a layer's constructor keeps it."""
    return _Fixed()


def own_class(module: Module) -> type:
    """The class of dlprim that a module is of, or that its own is made from."""
    return next(it for it in type(module).__mro__ if it.__module__.startswith("dlprim."))


def pair(name: str, value: Any, least: int = 1, entries: str = "(height, width)") -> Pair:
    """An integer, which then holds twice, or two of them; else TypeError or ValueError."""
    if not isinstance(value, tuple | list):
        number = integer(name, value, least)
        return number, number
    if len(value) != 2:
        raise ValueError(f"{name} is {value!r}, expected an integer or a pair {entries}")
    one, two = (integer(f"{name}[{place}]", it, least) for place, it in enumerate(value))
    return one, two


def shortest(value: Any) -> Any:
    """What holds along each axis as people write it: one entry where all are alike."""
    if not isinstance(value, tuple):
        return value
    entries = tuple(map(shortest, value))
    are_numbers = all(isinstance(it, int | float | None) for it in entries)
    return entries[0] if are_numbers and len(set(entries)) == 1 else entries
