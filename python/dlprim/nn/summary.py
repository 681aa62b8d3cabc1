"""Models as people read them: a tree of layers, and a table of what each makes of an input."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dlprim.arguments.scalars import integer
from dlprim.arguments.traced import RUNNING

if TYPE_CHECKING:
    from dlprim.graph.graph import Node
    from dlprim.nn.module import Module

Shape = tuple[int, ...]

_SHOWN = 4  # parameters of a layer in a line


class Row(NamedTuple):
    """A layer of a `Summary`."""

    name: str
    kind: str
    depth: int
    shape: Shape | None  # of the result, plain; None where the pass did not come through
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
        lines = [("layer", "result", "parameters", "multiply-adds")]
        for row in self.rows:
            label = f"{row.name}: {row.kind}" if row.name else row.kind
            shape = "-" if row.shape is None else str(row.shape)
            lines.append(
                ("  " * row.depth + label, shape, _count(row.parameters), _count(row.multiply_adds))
            )
        total = f"total for x of {self.x_shape}"
        lines.append((total, "", f"{self.parameters:,}", f"{self.multiply_adds:,}"))
        widths = [max(len(line[place]) for line in lines) for place in range(4)]
        rule = "-" * (sum(widths) + 6)
        text = [
            f"{a:{widths[0]}}  {b:{widths[1]}}  {c:>{widths[2]}}  {d:>{widths[3]}}".rstrip()
            for a, b, c, d in lines
        ]
        return "\n".join([text[0], rule, *text[1:-1], rule, text[-1]])


class _Watch:
    """What layers make in a pass: shapes, and multiply-adds by the layer that does them."""

    def __init__(self) -> None:
        self.shapes: dict[int, Shape] = {}
        self.counts: dict[int, int] = {}
        self._running: list[int] = []

    def timer(self, name: str, which: str, flops: float) -> AbstractContextManager[None]:
        """Of passes by hand."""
        if which == "forward" and self._running:
            self._add(int(flops) // 2)
        return nullcontext()

    def watch(self, module: Module, passed: str) -> None:
        """Looks at a method of the module from now on."""
        forward = getattr(module, passed)

        def run(*given: Any, **named: Any) -> Any:
            if not self._running:
                self.counts.clear()  # of a trace before this one
            begin = len(_nodes())
            self._running.append(id(module))
            y = forward(*given, **named)
            count = _products(_nodes()[begin:])
            self._add(count)
            self._running.pop()
            if self._running:  # which counts those of layers inside, too
                self._add(-count)
            if hasattr(y, "shape"):
                self.shapes[id(module)] = tuple(y.shape)
            return y

        vars(module)[passed] = run

    def _add(self, count: int) -> None:
        latest = self._running[-1]
        self.counts[latest] = self.counts.get(latest, 0) + count


def summary(model: Module, x: Any) -> Summary:
    """As `Module.summary`."""
    twin = copy.deepcopy(model)
    given = x if hasattr(x, "dtype") or hasattr(x, "array") else _zeros(twin, x)
    watch = _Watch()
    for module in twin.modules():
        vars(module)["takes_single"] = True
        module.context.timer = watch.timer
        module.context.observer = None
        watch.watch(module, "forward" if twin.by_hand else "in_trace")
    if twin.by_hand:
        twin.forward(given, training=True)
    else:
        twin.train()(given)
    rows = tuple(
        Row(
            name,
            type(module).__name__,
            depth,
            watch.shapes.get(id(module)),
            _own_size(module),
            watch.counts.get(id(module), 0),
        )
        for name, module, depth in _walk("", twin, 0)
    )
    return Summary(tuple(given.shape), rows)


def _nodes() -> Sequence[Node]:
    """Of the trace that is running."""
    return () if RUNNING.tracer is None else RUNNING.tracer.build.nodes


def _products(nodes: Sequence[Node]) -> int:
    """The multiply-adds of all."""
    from dlprim.graph.work import multiply_adds  # whose package takes long to import

    return sum(map(multiply_adds, nodes))


def tree(module: Module) -> str:
    """As PyTorch shows a model: a line for each layer, those inside of another indented."""
    kind = f"{type(module).__name__}({_settings(module)}"
    children = module.children()
    own = [f"{name} {it.shape}" for name, it in module.own_parameters().items()]
    own = own if len(own) <= _SHOWN else []
    size = sum(math.prod(it.shape) for it in module.parameters())
    says = f"{', '.join(own)}{': ' if own else ''}{size:,} parameters" if size else ""
    if not children:
        return f"{kind})  # {says}" if says else f"{kind})"
    inside = "\n".join(f"({name}): {tree(child)}" for name, child in children.items())
    head = f"{kind}  # {says}" if says else kind
    return f"{head}\n" + "\n".join(f"  {line}" for line in inside.split("\n")) + "\n)"


def _settings(module: Module) -> str:
    """What its constructor took, without layers and what is so by default."""
    found = []
    known = inspect.signature(type(module)).parameters
    for name, value in (module.arguments() or {}).items():
        usual = known[name].default if name in known else inspect.Parameter.empty
        if not _holds_layers(value) and (type(value) is not type(usual) or value != usual):
            found.append(f"{name}={value!r}")
    return ", ".join(found)


def _holds_layers(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds_layers, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_layers, value))
    return hasattr(value, "own_parameters")


def _zeros(model: Module, shape: Any) -> np.ndarray[Any, Any]:
    """Of a dtype that the first layer takes."""
    try:
        extents = tuple(integer(f"x[{place}]", it, 0) for place, it in enumerate(shape))
    except TypeError:
        raise TypeError(f"x is {shape!r}, expected an array or a shape") from None
    layers = [it for it in model.modules() if not it.children()]
    is_text = bool(layers) and layers[0].takes_integers
    return np.zeros(extents, np.int64 if is_text else np.float32)


def _walk(name: str, module: Module, depth: int) -> Iterator[tuple[str, Module, int]]:
    yield name, module, depth
    for key, child in module.children().items():
        yield from _walk(key, child, depth + 1)


def _own_size(module: Module) -> int:
    return sum(math.prod(it.shape) for it in module.own_parameters().values())


def _count(number: int) -> str:
    return f"{number:,}" if number else ""
