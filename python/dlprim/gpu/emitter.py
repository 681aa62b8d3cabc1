"""Expressions, loads and stores of a kernel as Triton's text.

Every index is a variable that has its axes already: what runs along the rows of a tile is
``[:, None]``, what runs along its columns ``[None, :]``, and what is the same for the whole tile is
a number. So whatever an expression mixes is broadcast as it should, and a mask asks of an axis only
where a place moves along it, and of an array only where a place may leave it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dlprim.gpu.functions import rule_of
from dlprim.gpu.tree import BYTES, PLACES, Array, Index, Node, affine, count

_KINDS = {"real": "tl.float32", "integer": "tl.int32"}


class Value(NamedTuple):
    text: str
    kind: str  # "integer", "real" or "truth"
    axes: frozenset[str] = frozenset()


class Emitter:
    """Lines of one kernel. ``env`` has what indices are, ``held`` elements in registers."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self.arrays = arrays
        self.lines: list[str] = []
        self.depth = 1
        self.env: dict[str, Value] = {}
        self.held: dict[str, Value] = {}
        self.tails: dict[str, str] = {}  # of axes that a tile may reach beyond
        self._extents: dict[str, int] = {}
        self._names = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def let(self, text: str, kind: str, axes: frozenset[str] = frozenset()) -> Value:
        self._names += 1
        self.line(f"v{self._names} = {text}")
        return Value(f"v{self._names}", kind, axes)

    def split(self, flat: str, indices: Sequence[Index], axis: str = "") -> None:
        """Indices from one number that counts all their values, the last one fastest."""
        for number, index in enumerate(indices):
            inner = count(indices[number + 1 :])
            text = flat if inner == 1 else f"{flat} // {inner}"
            text = f"{text} % {index.extent}" if number else text
            self.env[index.name] = self.let(text, "integer", frozenset(axis.split()))
            self._extents[index.name] = index.extent

    def axis(self, name: str, tile: str, size: int, indices: Sequence[Index]) -> None:
        """Where lanes are along the rows m, the columns n, or the k of either factor."""
        where = "[:, None]" if name in ("m", "k_b") else "[None, :]"
        self.line(f"{name} = ({tile} * {size} + tl.arange(0, {size})){where}")
        extent = count(indices)
        if extent % size or not extent:
            self.tails[name] = f"({name} < {extent})"
        self.split(name, indices, name)

    def value(self, node: Node) -> Value:
        if node.kind == "number":
            is_whole = isinstance(node.value, int)
            return Value(repr(node.value), "integer" if is_whole else "real")
        if node.kind == "name":
            return self.env[node.value]
        if node.kind == "read":
            return self.held[node.value] if node.value in self.held else self.load(node)
        return self.call(str(node.value), [self.value(it) for it in node.operands])

    def cast(self, it: Value, kind: str) -> Value:
        """A tensor of that kind, which a literal is not; arrays hold 0 or 1 for a truth."""
        if it.kind == kind and it.text.startswith("v"):
            return it
        text = f"{it.text}.to({_KINDS.get(kind)})" if kind in _KINDS else f"{it.text} != 0"
        if kind in _KINDS and not it.text.startswith("v"):
            text = f"tl.full((), {it.text}, {_KINDS[kind]})"
        return self.let(text, kind, it.axes)

    def call(self, name: str, values: Sequence[Value]) -> Value:
        axes = frozenset[str]().union(*(it.axes for it in values))
        name = "negative" if name == "-" and len(values) == 1 else name
        tests = [self.cast(it, "truth") for it in values[:1]] if name == "?:" else []
        kind, text, made = rule_of(name, {it.kind for it in values[len(tests) :]})
        values = [self.cast(it, kind) for it in values[len(tests) :]]
        return self.let(text.format(*(it.text for it in (*values, *tests))), made, axes)

    def _address(self, node: Node) -> tuple[str, list[str], frozenset[str]]:
        """The pointer of a read or a target, what must hold inside the array, and the axes."""
        array = self.arrays[node.value]
        pointer, axes = f"{node.value}_", frozenset[str]()
        texts, inside = list[str](), list[str]()
        for place, extent, step in zip(node.operands, array.shape, array.strides, strict=True):
            it = self.value(place)
            it = self.cast(it, "integer") if it.kind == "real" else it
            if array.entry and place is node.operands[0]:
                pointer += f" + {array.entry.format(it.text)}"
                continue
            leaves = self._may_leave(place, extent)
            if leaves:
                inside.append(f"({it.text} >= 0) & ({it.text} < {extent})")
            if leaves or step != 0:
                axes |= it.axes
                texts.append(it.text if step == 1 else f"{it.text} * {step}")
        return f"{pointer} + ({' + '.join(texts) or 0})", inside, axes

    def _may_leave(self, place: Node, extent: int) -> bool:
        """By "?", or in a branch that is not taken; nobody but a kernel sees places of a table."""
        it = affine(place)
        if it is None:
            return True
        steps = [factor * (self._extents[name] - 1) for name, factor in it[0].items()]
        return it[1] + sum(min(step, 0) for step in steps) < 0 or (
            it[1] + sum(max(step, 0) for step in steps) >= extent
        )

    def _masked(self, inside: list[str], axes: frozenset[str]) -> str:
        tails = [self.tails[axis] for axis in sorted(axes) if axis in self.tails]
        return " & ".join([f"({it})" for it in inside] + tails)

    def raw(self, node: Node) -> Value:
        """An element as it is, 0 where there is none."""
        pointer, inside, axes = self._address(node)
        mask = self._masked(inside, axes)
        is_place = self.arrays[node.value].dtype in PLACES
        text = f"tl.load({pointer}{f', mask={mask}, other=0' if mask else ''})"
        if is_place and not axes and self.tails:
            # Triton's interpreter does not join the truth of a number with those of a tile.
            axis = min(self.tails)
            text, axes = f"{text} + {axis} * 0", frozenset({axis})
        return self.let(text, "integer" if is_place else "real", axes)

    def load(self, node: Node) -> Value:
        """A number to compute with; NaN of a table where a place that is read lies outside."""
        it = self.raw(node)
        if it.kind == "integer":
            return it
        made = self.let(f"{it.text}.to(tl.float32)", "real", it.axes)
        if node.may_lie_outside or all(map(affine, node.operands)):
            return made
        inside = " & ".join(self._address(node)[1])
        return self.let(f"tl.where({inside}, {made.text}, float('nan'))", "real", it.axes)

    def store(self, target: Node, it: Value) -> None:
        pointer, inside, axes = self._address(target)
        for axis in sorted(it.axes - axes):  # one element, of which the tile has a lane
            pointer += f" + {axis} * 0"
        mask = self._masked(inside, axes | it.axes)
        dtype = self.arrays[target.value].dtype
        it = self.cast(it, "integer" if dtype in PLACES else "real")
        if dtype in BYTES:  # to nearest even and saturated; the lowest where it is no number
            low, high = map(float, BYTES[dtype])
            text = self.call("rint", [it]).text
            text = f"tl.where({text} >= {low}, tl.minimum({text}, {high}), {low})"
            it = self.let(text, "real", it.axes)
        self.line(
            f"tl.store({pointer}, {it.text}.to(tl.{dtype}){f', mask={mask}' if mask else ''})"
        )
