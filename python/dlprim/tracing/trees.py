"""Nested dicts, lists and tuples taken apart into leaves, and put together again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class Tree(NamedTuple):
    """How leaves are nested; equal for what is nested alike.

    Attributes
    ----------
    kind : type or None
        dict, list or tuple, or a named tuple's own; None for a leaf, of which there is one.
    keys : tuple
        Of a dict, in its order.
    parts : tuple of Tree
    """

    kind: type | None
    keys: tuple[Any, ...] = ()
    parts: tuple[Tree, ...] = ()

    def leaves(self) -> int:
        """How many it has."""
        return 1 if self.kind is None else sum(it.leaves() for it in self.parts)


LEAF = Tree(None)


def flattened(tree: Any, leaves: list[Any]) -> Tree:
    """The structure of a tree, whose leaves are added to the list from left to right."""
    kind = type(tree)
    if kind is dict:
        parts = tuple([flattened(it, leaves) for it in tree.values()])
        return Tree(dict, tuple(tree), parts)
    if kind is list or kind is tuple or (isinstance(tree, tuple) and hasattr(kind, "_fields")):
        return Tree(kind, (), tuple([flattened(it, leaves) for it in tree]))
    leaves.append(tree)
    return LEAF


def nested(tree: Tree, leaves: Sequence[Any]) -> Any:
    """Leaves put together as a tree was, in new containers."""
    return _nested(tree, iter(leaves).__next__)


def _nested(tree: Tree, following: Callable[[], Any]) -> Any:
    if tree.kind is None:
        return following()
    parts = [_nested(it, following) for it in tree.parts]
    if tree.kind is dict:
        return dict(zip(tree.keys, parts, strict=True))
    if tree.kind in (list, tuple):
        return tree.kind(parts)
    return tree.kind(*parts)


def paths(tree: Tree, name: str) -> list[str]:
    """What each leaf is called in a message: ``params['w'][0]``."""
    if tree.kind is None:
        return [name]
    keys = tree.keys if tree.kind is dict else range(len(tree.parts))
    pairs = zip(keys, tree.parts, strict=True)
    return [path for key, part in pairs for path in paths(part, f"{name}[{key!r}]")]
