"""Layers and parameters among the attributes of a module, and in what these hold.

What a trace has read is in its network, so that attributes are compared, too, with those of before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any, TypeVar

Kind = TypeVar("Kind")

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


class State:
    """What a trace reads, as it is now.

    That is the attributes of all modules of one, or of another object, besides names, and what
    those hold that are lists, tuples, dicts or sets.
    """

    def __init__(self, holder: Any) -> None:
        self._held: list[tuple[Any, dict[Any, Any]]] = []
        self._seen: list[tuple[Callable[[], Any], tuple[Any, ...]]] = []
        # Equal ones may be of other types, which makes them others.
        self._numbers: list[tuple[Any, Any, Any]] = []
        for it in holder.modules() if hasattr(holder, "modules") else (holder,):
            attributes = getattr(it, "__dict__", {})
            self._add(attributes, attributes.values, "name")
            for value in attributes.values():
                self._look_into(value)

    @property
    def values(self) -> Iterator[Any]:
        """Of all attributes and entries."""
        return (it for _, entries in self._held for it in entries.values())

    def is_as_before(self) -> bool:
        """Whether nobody has assigned anything."""
        try:
            return all([tuple(read()) == values for read, values in self._seen]) and all(
                [holder[key] is number for holder, key, number in self._numbers]
            )
        except (TypeError, ValueError, RuntimeError):  # arrays are compared, or a dict grows
            return False

    def is_like(self, other: State) -> bool:
        """Whether a trace would read the same."""
        return len(self._held) == len(other._held) and all(
            one is two and list(of) == list(to) and all(map(_is_same, of.values(), to.values()))
            for (one, of), (two, to) in zip(self._held, other._held, strict=True)
        )

    def _look_into(self, it: Any) -> None:
        if KINDS[type(it)] is not list:
            return
        inside = it.values() if isinstance(it, dict) else it
        self._add(it, partial(chain, it, inside) if isinstance(it, dict) else it.__iter__)
        for entry in inside:
            self._look_into(entry)

    def _add(self, holder: Any, read: Callable[[], Any], aside: str | None = None) -> None:
        pairs = holder.items() if isinstance(holder, dict) else enumerate(holder)
        entries = {key: it for key, it in pairs if aside is None or key != aside}
        self._held.append((holder, entries))
        self._seen.append((read, tuple(read())))
        if isinstance(holder, dict | list | tuple):
            self._numbers += [
                (holder, key, it)
                for key, it in entries.items()
                if type(it) in _NUMBERS and key != "training"
            ]


def _is_same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and type(one) in _PLAIN and one == other)
