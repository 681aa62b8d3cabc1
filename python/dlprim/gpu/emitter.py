"""Expressions, loads and stores of a kernel as Triton's text.

Every index is a variable that has its axes already: what runs along the rows of a tile is
``[:, None]``, what runs along its columns ``[None, :]``, and what is the same for the whole tile is
a number. So whatever an expression mixes is broadcast as it should, and a mask asks of an axis only
where a place moves along it, and of an array only where a place may leave it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dlprim.gpu.functions import INTEGER, PROMOTING, REAL, TRUTHS
from dlprim.gpu.tree import Array, Index, Node, affine, count

PLACES = ("int32", "int64")
BYTES = {"int8": (-128, 127), "uint8": (0, 255)}
_REALS = ("bfloat16", "double", "float", "float16", "float32", "float64", "half")


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
        return self._call(str(node.value), [self.value(it) for it in node.operands])

    def real(self, it: Value) -> Value:
        """A tensor of float32."""
        if not it.text.startswith("v"):
            return self.let(f"tl.full((), {it.text}, tl.float32)", "real")
        return it if it.kind == "real" else self.let(f"{it.text}.to(tl.float32)", "real", it.axes)

    def _integer(self, it: Value) -> Value:
        """A tensor of int32, which a literal is not."""
        if not it.text.startswith("v"):
            return self.let(f"tl.full((), {it.text}, tl.int32)", "integer")
        return (
            it if it.kind == "integer" else self.let(f"{it.text}.to(tl.int32)", "integer", it.axes)
        )

    def _truth(self, it: Value) -> str:
        """The text of a truth, of which arrays hold 0 or 1."""
        return it.text if it.kind == "truth" else self.let(f"{it.text} != 0", "truth").text

    def _call(self, name: str, values: list[Value]) -> Value:
        axes = frozenset[str]().union(*(it.axes for it in values))
        test = self._truth(values.pop(0)) if name == "?:" else ""
        if name in ("&&", "||", "!"):
            values = [Value(self._truth(it), "truth") for it in values]
        kinds = {it.kind for it in values}
        if name not in REAL and kinds == {"integer"}:
            values = [self._integer(it) for it in values]
        elif kinds != {"truth"}:
            values = [self.real(it) for it in values]
        kind, texts = values[0].kind, [it.text for it in values]
        if test:
            return self.let(f"tl.where({test}, {texts[0]}, {texts[1]})", kind, axes)
        if name == "-" and len(values) == 1:
            return self.let(f"-{texts[0]}", kind, axes)
        if name in TRUTHS:
            return self.let(TRUTHS[name].format(*texts), "truth", axes)
        if name in PROMOTING:
            words = INTEGER if kind == "integer" else PROMOTING
            return self.let(words[name].format(*texts), kind, axes)
        if name in REAL:
            return self.let(REAL[name].format(*texts), "real", axes)
        if "int" in name:
            return self._integer(values[0])
        if name == "bool":
            return Value(self._truth(values[0]), "truth", axes)
        if name not in _REALS:
            raise ValueError(f"{name} has no kernel on GPUs, expected another function")
        return self.real(values[0])

    def _address(self, node: Node) -> tuple[str, list[str], frozenset[str]]:
        """The pointer of a read or a target, what must hold inside the array, and the axes."""
        array = self.arrays[node.value]
        pointer, axes = f"{node.value}_", frozenset[str]()
        texts, inside = list[str](), list[str]()
        for place, extent, step in zip(node.operands, array.shape, array.strides, strict=True):
            it = self.value(place)
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
        it = self._integer(it) if dtype in PLACES else self.real(it)
        if dtype in BYTES:  # to nearest even and saturated; the lowest where it is no number
            low, high = map(float, BYTES[dtype])
            text = self._call("rint", [it]).text
            text = f"tl.where({text} >= {low}, tl.minimum({text}, {high}), {low})"
            it = self.let(text, "real", it.axes)
        self.line(
            f"tl.store({pointer}, {it.text}.to(tl.{dtype}){f', mask={mask}' if mask else ''})"
        )
