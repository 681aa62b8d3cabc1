"""Layers and parameters among the attributes of a module, and in what these hold."""

from __future__ import annotations

from typing import Any, TypeVar

Kind = TypeVar("Kind")


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
        elif known is list and it and name not in module.of_passes:
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
