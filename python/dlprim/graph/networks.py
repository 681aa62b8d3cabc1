"""The networks of a model: one for each shape that it met lately, compiled once for many shapes.

The first shape is compiled as it is. What another one has different is recorded as extents, and
what is compiled then makes the networks for all shapes for which the same choices hold, without
another look at the graph.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from dlprim.graph.graph import Value
from dlprim.graph.recording import Recording

Shapes = tuple[tuple[int, ...], ...]
Place = tuple[int, int]  # an input, and an axis of it

_MOST_RECORDED = 8
# In a row, before shapes are compiled one by one: they pin extents, or make other networks.
_FRUITLESS = 4
_LEAST_EXTENT = 2  # of those that may change: 0 and 1 are cases of their own


# Of what compiles, or makes steps.
FAULTS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, NameError, TypeError, ValueError,
)  # fmt: skip


class Network(Protocol):
    """What is kept: a compiled graph, or something that has one."""

    @property
    def structure(self) -> str: ...


Made = TypeVar("Made", bound=Network)
Given = TypeVar("Given", bound=Network, covariant=True)


class RecordedNetwork(Protocol[Given]):
    """What makes networks for all extents for which it holds; `RecordedGraph` is one."""

    @property
    def first(self) -> Given: ...

    def made(self, extents: Sequence[int], inputs: Sequence[Value]) -> Given | None: ...


class Makers(NamedTuple, Generic[Made]):
    """What makes graphs for shapes.

    Attributes
    ----------
    compile, record : callable
        With a recording some of the extents are its own.
    """

    compile: Callable[[Shapes], Made]
    record: Callable[[Shapes, Recording], RecordedNetwork[Made]]


class _Kind(Generic[Made]):
    """Inputs of the same ranks and known elements: what changed among them, and what was recorded.

    Attributes
    ----------
    changing : set of Place
    recorded : list of Recorded
    """

    def __init__(self, shapes: Shapes) -> None:
        self.first = shapes
        self.changing: set[Place] = set()
        self.recorded: list[_Recorded[Made]] = []
        self._hopes = _FRUITLESS  # recordings that may be made in vain

    def see(self, shapes: Shapes) -> None:
        """Adds what is different from the first shapes."""
        for number, (one, other) in enumerate(zip(self.first, shapes, strict=True)):
            differs = (axis for axis, extent in enumerate(one) if extent != other[axis])
            self.changing.update((number, axis) for axis in differs)

    def replayed(self, shapes: Shapes, inputs: Sequence[Value]) -> Made | None:
        """By a recording that holds for the shapes, if there is one."""
        for place, recorded in enumerate(self.recorded):
            try:
                made = recorded.made(shapes, inputs)
            except (*FAULTS, MemoryError):  # a step refuses such extents, or arrays do not fit
                continue
            if made is not None:
                self.recorded.insert(0, self.recorded.pop(place))
                self._hopes += 1
                return made
        return None

    def recording(self, shapes: Shapes, makers: Makers[Made]) -> Made | None:
        """Compiled and recorded, unless that cannot be done with extents."""
        changing = tuple(
            sorted(it for it in self.changing if shapes[it[0]][it[1]] >= _LEAST_EXTENT)
        )
        if not changing or self._hopes == 0:
            return None
        self._hopes -= 1
        recording = Recording()
        extents = [list(shape) for shape in shapes]
        for number, axis in changing:
            extents[number][axis] = recording.extent(shapes[number][axis])
        try:
            graph = makers.record(tuple(map(tuple, extents)), recording)
        except FAULTS:  # a fault of the model is met again without a recording
            return None
        made = makers.compile(shapes)
        # Elements of an array whose extent is not known decide nothing in a recording. Where they
        # do, the network is another one, and so might the last bits be.
        if made.structure == graph.first.structure:
            self.recorded = [_Recorded(graph, changing, shapes), *self.recorded][:_MOST_RECORDED]
        return made


class _Recorded(NamedTuple, Generic[Made]):
    graph: RecordedNetwork[Made]
    changing: tuple[Place, ...]
    shapes: Shapes  # it was recorded for these

    def made(self, shapes: Shapes, inputs: Sequence[Value]) -> Made | None:
        """For shapes that differ in what changes alone."""
        for number, (one, other) in enumerate(zip(self.shapes, shapes, strict=True)):
            for axis, extent in enumerate(one):
                if extent != other[axis] and (number, axis) not in self.changing:
                    return None
        extents = [shapes[number][axis] for number, axis in self.changing]
        if min(extents, default=_LEAST_EXTENT) < _LEAST_EXTENT:
            return None
        return self.graph.made(extents, inputs)


class Networks(Generic[Made]):
    """Compiled graphs by the shapes of inputs, of which so many are kept."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Hashable, Made] = OrderedDict()
        self._kinds: OrderedDict[Hashable, _Kind[Made]] = OrderedDict()

    @property
    def latest(self) -> Made | None:
        """What was asked for last."""
        return next(reversed(self._kept.values()), None)

    def get(
        self, kind: Hashable, shapes: Shapes, inputs: Sequence[Value], makers: Makers[Made]
    ) -> Made:
        """The graph for these shapes.

        Parameters
        ----------
        kind : hashable
            What else the graph depends on: ranks, and elements that are known.
        shapes : tuple of shapes
        inputs : sequence of Value
            Those of the graph.
        makers : Makers
        """
        key = kind, shapes
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        known = self._kinds.get(kind)
        if known is None:
            made = makers.compile(shapes)
            self._kinds[kind] = _Kind(shapes)
            if len(self._kinds) > self._most:
                self._kinds.popitem(last=False)
        else:
            self._kinds.move_to_end(kind)
            known.see(shapes)
            made = (
                known.replayed(shapes, inputs)
                or known.recording(shapes, makers)
                or makers.compile(shapes)
            )
        self._kept[key] = made
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return made
