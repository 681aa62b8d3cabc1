"""Layers and parameters among the attributes of a module, and in what these hold.

What a trace has read is in its network, so that attributes are compared, too, with those of before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias, TypeVar

Kind = TypeVar("Kind")
State: TypeAlias = list[tuple[Any, dict[Any, Any]]]

# What says nothing about a result.
_ASIDE = frozenset({"name"})
_NUMBERS = (bool, float, int)
_PLAIN = (*_NUMBERS, bytes, str)


class _Kinds(dict[type, type]):
    """Of types met so far one of ``kinds``, list for what holds others, or object.

    A step asks for all layers, and isinstance of an abstract class is slow.
    """

    kinds: tuple[type, ...] = ()  # modules and parameters, which say so

    def __missing__(self, given: type) -> type:
        holds = issubclass(given, list | dict | tuple | set | frozenset)
        found = (it for it in self.kinds if issubclass(given, it))
        self[given] = next(found, list if holds else object)
        return self[given]


KINDS = _Kinds()


def entries(module: Any, kind: type[Kind]) -> dict[str, Kind]:
    """Attributes of a type, and what of it those hold that are lists, tuples or dicts."""
    found: dict[str, Kind] = {}
    for name, it in vars(module).items():
        known = KINDS[type(it)]
        if known is kind:
            found[name] = it
        elif known is list and it:
            _add(found, name, it, kind)
    return found


def _add(found: dict[str, Kind], name: str, holder: Any, kind: type[Kind]) -> None:
    for key, it in holder.items() if isinstance(holder, dict) else enumerate(holder):
        known, path = KINDS[type(it)], f"{name}.{key}"
        if known is kind:
            if isinstance(holder, set | frozenset):
                raise TypeError(
                    f"{name} is a set that holds a {type(it).__name__}, expected a list, which has "
                    "an order"
                )
            if path in found:
                raise ValueError(f"two entries of {name} are called {path!r}, expected one")
            found[path] = it
        elif known is list and it:
            _add(found, path, it, kind)


def held_in(holder: Any) -> Iterator[tuple[Any, frozenset[str]]]:
    """The attributes of all modules of one, or of another object, and what holds others among
    them; and names aside."""
    for it in holder.modules() if hasattr(holder, "modules") else (holder,):
        attributes = getattr(it, "__dict__", {})
        yield attributes, _ASIDE
        for value in attributes.values():
            if KINDS[type(value)] is list:
                yield from _containers(value)


def _containers(holder: Any) -> Iterator[tuple[Any, frozenset[str]]]:
    yield holder, frozenset()
    for it in holder.values() if isinstance(holder, dict) else holder:
        if KINDS[type(it)] is list:
            yield from _containers(it)


def numbers_in(holder: Any) -> Iterator[tuple[Any, Any]]:
    """Keys and values of the numbers in what `held_in` finds, besides the mode."""
    if isinstance(holder, dict | list | tuple):
        for key, it in holder.items() if isinstance(holder, dict) else enumerate(holder):
            if type(it) in _NUMBERS and key != "training":
                yield key, it


def state_of(holder: Any) -> State:
    """What `held_in` finds, as it is now."""
    found: State = []
    for it, aside in held_in(holder):
        pairs = it.items() if isinstance(it, dict) else enumerate(it)
        found.append((it, {name: value for name, value in pairs if name not in aside}))
    return found


def are_alike(one: State, other: State) -> bool:
    """Whether a trace would read the same."""
    return len(one) == len(other) and all(
        first is second and list(of) == list(to) and all(map(_is_same, of.values(), to.values()))
        for (first, of), (second, to) in zip(one, other, strict=True)
    )


def _is_same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and type(one) in _PLAIN and one == other)
