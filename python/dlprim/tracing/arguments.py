"""What a traced function is called with: which leaves are arrays, and how they are taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dlprim.arguments.arrays import viewed
from dlprim.arguments.floats import bfloat16_dtype
from dlprim.arguments.names import float_type_name
from dlprim.tracing.trees import Tree, flattened, paths

_FLOAT = np.dtype(np.float32)
# Of these a network is made for each value.
_KEPT = (bool, int, str, bytes, type(None))
_WIDE = ("float64", "float16")


class Leaf(NamedTuple):
    """What a leaf of the arguments is; two calls with equal leaves differ in extents alone.

    Attributes
    ----------
    kind : str
        "array"; "number", a float of Python's; or "value", which the function meets as it is.
    ndim : int
    dtype : str
        As it is given.
    value : object
        With its type, because True is 1.
    """

    kind: str
    ndim: int = 0
    dtype: str = ""
    value: Any = None


class Call(NamedTuple):
    """The arguments of a call.

    Attributes
    ----------
    tree : Tree
        Of (args, named).
    leaves : tuple of Leaf
    names : list of str
        What messages call the leaves.
    arrays : list of ndarray
        Of the leaves that vary.
    """

    tree: Tree
    leaves: tuple[Leaf, ...]
    names: list[str]
    arrays: list[Any]


def taken(
    parameters: Sequence[str],
    args: tuple[Any, ...],
    named: dict[str, Any],
    dtype: str | None,
    whose: str = "",
) -> Call:
    """The arguments of a call, checked; behind their names messages say ``whose`` they are.

    Raises
    ------
    TypeError
        A leaf is nothing that is traced, or an array of float64 where no dtype is said.
    """
    found: list[Any] = []
    tree = flattened((args, named), found)
    names = names_of(parameters, tree)
    leaves, arrays = [], []
    for name, it in zip(names, found, strict=True):
        if isinstance(it, float):
            leaves.append(Leaf("number"))
            arrays.append(np.asarray(it, _FLOAT))
        elif type(it) in _KEPT:
            leaves.append(Leaf("value", value=(type(it), it)))
        else:
            array = _array(name, it, whose)
            leaves.append(Leaf("array", array.ndim, array.dtype.name))
            arrays.append(converted(name + whose, array, dtype))
    return Call(tree, tuple(leaves), names, arrays)


def names_of(parameters: Sequence[str], tree: Tree) -> list[str]:
    """What messages call the leaves: by the names of the function's parameters."""
    args, named = tree.parts
    more = [f"args[{place}]" for place in range(len(parameters), len(args.parts))]
    of_args = [*parameters[: len(args.parts)], *more]
    pairs = [*zip(of_args, args.parts, strict=True), *zip(named.keys, named.parts, strict=True)]
    return [path for name, part in pairs for path in paths(part, name)]


def _array(name: str, it: Any, whose: str) -> Any:
    if isinstance(it, np.generic):
        return np.asarray(it)
    if not (hasattr(it, "dtype") or hasattr(it, "__array__")):
        raise TypeError(
            f"{name}{whose} is of type {type(it).__name__}, expected arrays, numbers, str or None, "
            "in dicts, lists and tuples; what else a function needs it reads from outside"
        )
    return viewed(name, it, "numbers or bool")


def converted(name: str, array: Any, dtype: str | None) -> Any:
    """The array as a network takes it."""
    kind = array.dtype.name
    if not array.dtype.isnative:
        raise TypeError(
            f"{name} has dtype {array.dtype}, expected float32 or bfloat16 in native byte order"
        )
    if kind in ("float32", "bfloat16") or array.dtype.kind in "biu":
        is_half = kind == "bfloat16" and dtype == "float32"
        return array.astype(_FLOAT) if is_half else np.asarray(array)
    if kind not in _WIDE:
        raise TypeError(f"{name} has dtype {array.dtype}, expected floats, integers or bool")
    if dtype is None:
        raise TypeError(
            f"{name} has dtype {kind}, expected float32 or bfloat16: convert it with "
            f"{name}.astype(np.float32), or give dtype=np.float32, with which such arguments are "
            "converted"
        )
    return array.astype(_FLOAT)


def float_type(dtype: Any) -> str | None:
    """The argument dtype of the functions that trace."""
    return None if dtype is None else float_type_name(dtype)


# ---------------------------------------------------------------- calls like one before


def taker(call: Call, dtype: str | None) -> Callable[..., tuple[Any, ...] | None]:
    """A function of (args, named) that gives the arrays of calls with the same leaves, or None.

    It is written for the nesting at hand, which takes a tenth of the time of walking along it. It
    does not look at dtypes and shapes of arrays, which whoever runs them checks.
    """
    writer = _Writer(call, dtype)
    writer.container("args", call.tree.parts[0])
    writer.container("named", call.tree.parts[1])
    lines = ["def take(args, named):", "    try:", *(f"        {it}" for it in writer.lines)]
    lines.append(f"        return ({''.join(f'{it}, ' for it in writer.arrays)})")
    lines += ["    except (KeyError, ValueError):", "        return None"]
    names = {"asarray": np.asarray, "ndarray": np.ndarray, "float32": _FLOAT, **writer.known}
    exec(compile("\n".join(lines), "<dlprim.tracing>", "exec"), names)
    found: Callable[..., tuple[Any, ...] | None] = names["take"]
    return found


class _Writer:
    """Lines that take arguments apart as a call was."""

    def __init__(self, call: Call, dtype: str | None) -> None:
        self.lines: list[str] = []
        self.arrays: list[str] = []
        self.known: dict[str, Any] = {}
        self._leaves = iter(call.leaves)
        self._dtype, self._count = dtype, 0

    def container(self, name: str, tree: Tree) -> None:
        """Lines for what a name stands for."""
        if tree.kind is None:
            return self._leaf(name, next(self._leaves))
        self.known[f"k{self._count}"] = tree.kind
        self.lines.append(f"if type({name}) is not k{self._count}: return None")
        self._count += 1
        parts = [f"t{self._count + place}" for place in range(len(tree.parts))]
        self._count += len(parts)
        if tree.kind is dict:
            self._keys(name, parts, tree.keys)
        elif parts:
            self.lines.append(f"{''.join(f'{it}, ' for it in parts)} = {name}")
        else:
            self.lines.append(f"if {name}: return None")
        for part, inner in zip(parts, tree.parts, strict=True):
            self.container(part, inner)
        return None

    def _keys(self, name: str, parts: Sequence[str], keys: Sequence[Any]) -> None:
        """Lines for a dict, whose order a function may see."""
        if len(keys) < 2:
            self.lines.append(f"if len({name}) != {len(keys)}: return None")
        else:  # to unpack and compare takes less time than to make a tuple
            self.lines.append(f"{', '.join(f'n_{it}' for it in parts)} = {name}")
            others = " or ".join(f"n_{it} != key_{it}" for it in parts)
            self.lines.append(f"if {others}: return None")
        for key, part in zip(keys, parts, strict=True):
            self.known[f"key_{part}"] = key
            self.lines.append(f"{part} = {name}[key_{part}]")

    def _leaf(self, name: str, leaf: Leaf) -> None:
        if leaf.kind == "value":
            kind, value = leaf.value
            self.known[f"k_{name}"], self.known[f"v_{name}"] = kind, value
            self.lines.append(f"if type({name}) is not k_{name} or {name} != v_{name}: return None")
        elif leaf.kind == "number":
            self.lines.append(f"if type({name}) is not float: return None")
            self.arrays.append(f"asarray({name}, float32)")
        elif leaf.dtype in _WIDE or (leaf.dtype == "bfloat16" and self._dtype == "float32"):
            self.known[f"d_{name}"] = _dtype_named(leaf.dtype)
            self.lines.append(
                f"if type({name}) is not ndarray or {name}.dtype != d_{name}: return None"
            )
            self.arrays.append(f"{name}.astype(float32)")
        else:
            self.arrays.append(name)


def _dtype_named(name: str) -> np.dtype[Any]:
    return bfloat16_dtype() if name == "bfloat16" else np.dtype(name)
