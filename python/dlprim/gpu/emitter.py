"""Expressions, loads and stores of a kernel as Triton's text.

Every index is a variable that has its axes already: what runs along the rows of a tile is
``[:, None]``, what runs along its columns ``[None, :]``, and what is the same for the whole tile is
a number. So whatever an expression mixes is broadcast as it should, and a mask asks of an axis only
where a place moves along it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dlprim.gpu.functions import INTEGER, PROMOTING, REAL, TRUTHS
from dlprim.gpu.tree import Index, Node, affine, count

FLOATS = ("float32", "bfloat16", "float16")
BYTES = {"int8": (-128, 127), "uint8": (0, 255)}


class Array(NamedTuple):
    """What a kernel is given: elements, or as a text with {} for the place how to find them."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int | str, ...]

    @property
    def span(self) -> int:
        """Elements from the first to the last one."""
        pairs = zip(self.shape, self.strides, strict=True)
        return sum((extent - 1) * step for extent, step in pairs if isinstance(step, int))


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
        self.used: list[str] = []  # arrays, in order
        self._extents: dict[str, int] = {}
        self._names = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def let(self, text: str, kind: str, axes: frozenset[str] = frozenset()) -> Value:
        self._names += 1
        self.line(f"v{self._names} = {text}")
        return Value(f"v{self._names}", kind, axes)

    def split_index(self, flat: str, indices: Sequence[Index], axis: str = "") -> None:
        """Indices from one number that counts all their values, the last one fastest."""
        for number, index in enumerate(indices):
            inner = count(indices[number + 1 :])
            text = flat if inner == 1 else f"{flat} // {inner}"
            text = f"{text} % {index.extent}" if number else text
            axes = frozenset(axis.split())
            self.env[index.name] = self.let(text, "integer", axes)
            self._extents[index.name] = index.extent

    def tile_axis(self, axis: str, first: str, size: int, extent: int) -> None:
        """The variable of that name: where a lane is along the axis."""
        where = "[None, :]" if axis in ("n", "column") else "[:, None]"
        self.line(f"{axis} = ({first} + tl.arange(0, {size})){where}")
        if extent % size:
            self.tails[axis] = f"({axis} < {extent})"

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
        """A tensor of float32, which a literal is not."""
        if not it.text.startswith("v"):
            return self.let(f"tl.full((), {it.text}, tl.float32)", "real")
        if it.kind == "real":
            return it
        return self.let(f"{it.text}.to(tl.float32)", "real", it.axes)

    def _call(self, name: str, values: list[Value]) -> Value:
        axes = frozenset[str]().union(*(it.axes for it in values))
        if name == "-" and len(values) == 1:
            return self.let(f"-{values[0].text}", values[0].kind, axes)
        kinds = {it.kind for it in values}
        if name == "?:":
            test, *values = values
            kinds = {it.kind for it in values}
        if kinds != {"integer"} and kinds != {"truth"}:
            values = [self.real(it) for it in values]
        texts = [it.text for it in values]
        if name == "?:":
            text = f"tl.where({test.text}, {texts[0]}, {texts[1]})"
            return self.let(text, values[0].kind, axes)
        if name in TRUTHS:
            return self.let(TRUTHS[name].format(*texts), "truth", axes)
        if name in PROMOTING:
            is_whole = kinds == {"integer"}
            text = (INTEGER if is_whole else PROMOTING)[name].format(*texts)
            return self.let(text, "integer" if is_whole else "real", axes)
        if name in REAL:
            texts = [self.real(it).text for it in values]
            return self.let(REAL[name].format(*texts), "real", axes)
        if "int" in name:
            whole = self.let(f"({texts[0]}).to(tl.int32)", "integer", axes)
            return whole if kinds != {"integer"} else values[0]
        if name.lstrip("b") not in ("double", "float", "float16", "float32", "float64", "half"):
            raise ValueError(f"{name} has no kernel on GPUs, expected another function")
        return self.real(values[0])

    def _address(self, node: Node) -> tuple[str, list[str], frozenset[str]]:
        """The pointer of a read or a target, what must hold inside the array, and the axes."""
        if node.value not in self.used:
            self.used.append(node.value)
        array = self.arrays[node.value]
        pointer, axes = f"{node.value}_", frozenset[str]()
        texts, inside = list[str](), list[str]()
        for place, extent, step in zip(node.operands, array.shape, array.strides, strict=True):
            it = self.value(place)
            axes |= it.axes
            if self._may_leave(node, place, extent):
                inside.append(f"({it.text} >= 0) & ({it.text} < {extent})")
            if isinstance(step, str):
                pointer += f" + {step.format(it.text)}"
            elif step != 0:
                texts.append(it.text if step == 1 else f"{it.text} * {step}")
        return f"{pointer} + ({' + '.join(texts) or 0})", inside, axes

    def _may_leave(self, node: Node, place: Node, extent: int) -> bool:
        it = affine(place)
        if it is None:
            return True  # a place that is read, which only the kernel sees
        if not node.may_lie_outside:
            return False
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
        is_place = self.arrays[node.value].dtype in ("int32", "int64")
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
        if dtype not in ("int32", "int64") or it.kind != "integer":
            it = self.real(it)
        if dtype in BYTES:  # to nearest even and saturated; the lowest where it is no number
            low, high = map(float, BYTES[dtype])
            text = self._call("rint", [it]).text
            text = f"tl.where({text} >= {low}, tl.minimum({text}, {high}), {low})"
            it = self.let(text, "real", it.axes)
        self.line(
            f"tl.store({pointer}, {it.text}.to(tl.{dtype}){f', mask={mask}' if mask else ''})"
        )
