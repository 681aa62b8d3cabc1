"""Arguments of layers, checked when the layer is made and not when it first sees images."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, TypeAlias

from dlprim.arguments.scalars import integer

Extent: TypeAlias = int | tuple[int, int]
Pair: TypeAlias = tuple[int, int]


def pair(name: str, value: Any, least: int = 1, entries: str = "(height, width)") -> Pair:
    """An integer, which then holds twice, or two of them; else TypeError or ValueError."""
    if not isinstance(value, tuple | list):
        number = integer(name, value, least)
        return number, number
    if len(value) != 2:
        raise ValueError(f"{name} is {value!r}, expected an integer or a pair {entries}")
    one, two = (integer(f"{name}[{place}]", it, least) for place, it in enumerate(value))
    return one, two


def padding_of(padding: Any, stride: Pair) -> tuple[Pair, Pair] | str:
    """((top, bottom), (left, right)), or "same"."""
    if isinstance(padding, str):
        if padding == "valid":
            return (0, 0), (0, 0)
        if padding != "same":
            raise ValueError(f"padding is {padding!r}, expected 'same', 'valid' or numbers")
        if stride != (1, 1):
            raise ValueError(f"padding is 'same' and stride is {stride}, expected a stride of 1")
        return padding
    if not isinstance(padding, tuple | list) or len(padding) != 2:
        height, width = pair("padding", padding, 0)
        return (height, height), (width, width)
    height, width = padding
    return (
        pair("padding[0]", height, 0, "(top, bottom)"),
        pair("padding[1]", width, 0, "(left, right)"),
    )


def shortest(value: Any) -> Any:
    """A pair as people write it: one entry where both are alike."""
    if not isinstance(value, tuple):
        return value
    one, two = map(shortest, value)
    return one if one == two else (one, two)


def fixed(name: str) -> Any:
    """An attribute of a layer, kept as ``_name``, that what it has made so far depends on."""

    def refuse(layer: Any, value: Any) -> None:
        kind = type(layer).__name__
        raise AttributeError(
            f"{name} of {kind} {layer.name!r} is assigned {value!r}, expected it to stay as it was "
            f"when the layer was made; a new {kind} with {name}={value!r} has it"
        )

    return property(attrgetter(f"_{name}"), refuse, None, f"As the layer was made with: {name}.")
