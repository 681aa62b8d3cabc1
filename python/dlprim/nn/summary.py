"""Models as people read them: a tree of layers, and a table of what each makes of an input."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dlprim import markup
from dlprim.arguments.arrays import Array
from dlprim.arguments.scalars import integer, shown

if TYPE_CHECKING:
    from dlprim.nn.module import Module

Shape = tuple[int, ...]

_HEAD = ("layer", "result", "parameters", "multiply-adds")

_SHOWN = 4  # parameters of a layer in a line
_OPEN = 2  # levels that a notebook shows unfolded


class Row(NamedTuple):
    """A layer of a `Summary`."""

    name: str
    kind: str
    depth: int
    shape: Shape | None  # of the latest result; None of a layer that is not called
    parameters: int  # without those of the layers inside
    multiply_adds: int


class Summary(NamedTuple):
    """What a model is and does for an input; printed as a table.

    Attributes
    ----------
    x_shape : tuple of int
    rows : tuple of Row
        In forward order, a container in front of its layers.
    """

    x_shape: Shape
    rows: tuple[Row, ...]

    @property
    def parameters(self) -> int:
        return sum(row.parameters for row in self.rows)

    @property
    def multiply_adds(self) -> int:
        """Of products in one forward pass: linear, recurrent and attention layers, convolutions."""
        return sum(row.multiply_adds for row in self.rows)

    def __repr__(self) -> str:
        lines = [_HEAD, *self._lines("  ")]
        widths = [max(len(line[place]) for line in lines) for place in range(4)]
        rule = "-" * (sum(widths) + 6)
        text = [
            f"{a:{widths[0]}}  {b:{widths[1]}}  {c:>{widths[2]}}  {d:>{widths[3]}}".rstrip()
            for a, b, c, d in lines
        ]
        return "\n".join([text[0], rule, *text[1:-1], rule, text[-1]])

    def _repr_html_(self) -> str:
        return markup.table(_HEAD, self._lines("\u2003"))

    def _lines(self, indent: str) -> list[tuple[str, str, str, str]]:
        """Cells, the total in the last line."""
        lines = []
        for row in self.rows:
            label = f"{row.name}: {row.kind}" if row.name else row.kind
            shape = "-" if row.shape is None else str(row.shape)
            counts = _count(row.parameters), _count(row.multiply_adds)
            lines.append((indent * row.depth + label, shape, *counts))
        total = f"total for x of {self.x_shape}"
        return [*lines, (total, "", f"{self.parameters:,}", f"{self.multiply_adds:,}")]


def summary(model: Module, x: Any) -> Summary:
    """As `Module.summary`."""
    from dlprim.nn.watching import trace  # which imports this module's

    given = x if hasattr(x, "dtype") else _zeros(model, x)
    made: dict[int, list[Any]] = {}
    for it in trace(model, given):
        made.setdefault(id(it.module), []).append(it)
    rows = []
    for name, module, depth in _walk("", model, 0):
        kind, size, calls = type(module).__name__, _own_size(module), made.get(id(module), [])
        y: Any = calls[-1].y if calls else None
        shape = tuple(y.shape) if hasattr(y, "shape") else None
        count = sum(it.multiply_adds for it in calls)
        rows.append(Row(name, kind, depth, shape, size, count))
    return Summary(tuple(given.shape), tuple(rows))


def tree(module: Module) -> str:
    """As PyTorch shows a model: a line for each layer, those inside of another indented."""
    head, says, children = _line(module), _says(module), module.children()
    if not children:
        return f"{head})  # {says}" if says else f"{head})"
    inside = "\n".join(f"({name}): {tree(child)}" for name, child in children.items())
    head = f"{head}  # {says}" if says else head
    return f"{head}\n" + "\n".join(f"  {line}" for line in inside.split("\n")) + "\n)"


def tree_in_html(module: Module, name: str = "", depth: int = 0) -> str:
    """The same for notebooks: a layer folds those inside of it, at first from the second level."""
    says = _says(module)
    named = f"{markup.code(name)}: " if name else ""
    head = f"{named}{markup.code(_line(module) + ')')}{' ' * bool(says)}{markup.escape(says)}"
    children = module.children().items()
    inside = [tree_in_html(child, key, depth + 1) for key, child in children]
    return markup.folded(head, inside, is_open=depth < _OPEN)


def _line(module: Module) -> str:
    """Kind and settings, up to the parenthesis behind them."""
    return f"{type(module).__name__}({settings(module, module.arguments() or {})}"


def _says(module: Module) -> str:
    """Its parameters, and how many numbers they are with those of the layers inside."""
    own = [f"{name} {it.shape}" for name, it in module.own_parameters().items()]
    own = own if len(own) <= _SHOWN else []
    size = sum(math.prod(it.shape) for it in module.parameters())
    return f"{', '.join(own)}{': ' if own else ''}{size:,} parameters" if size else ""


def settings(of: Any, arguments: Mapping[str, Any]) -> str:
    """What a constructor took, without layers and what is so by default."""
    found = []
    known = inspect.signature(type(of)).parameters
    for name, value in arguments.items():
        usual = known[name].default if name in known else inspect.Parameter.empty
        if not _holds_layers(value) and (type(value) is not type(usual) or value != usual):
            found.append(f"{name}={shown(value)}")
    return ", ".join(found)


def _holds_layers(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds_layers, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_layers, value))
    return hasattr(value, "own_parameters")


def _zeros(model: Module, shape: Any) -> Array:
    """Of a dtype that the first layer takes."""
    try:
        extents = tuple(integer(f"x[{place}]", it, 0) for place, it in enumerate(shape))
    except TypeError:
        raise TypeError(f"x is {shape!r}, expected an array or a shape") from None
    from dlprim.nn.linear import Embedding  # a module, as those that import this one

    layers = [it for it in model.modules() if not it.children()]
    is_text = bool(layers) and isinstance(layers[0], Embedding)
    return np.zeros(extents, np.int64 if is_text else np.float32)


def _walk(name: str, module: Module, depth: int) -> Iterator[tuple[str, Module, int]]:
    yield name, module, depth
    for key, child in module.children().items():
        yield from _walk(key, child, depth + 1)


def _own_size(module: Module) -> int:
    return sum(math.prod(it.shape) for it in module.own_parameters().values())


def _count(number: int) -> str:
    return f"{number:,}" if number else ""
