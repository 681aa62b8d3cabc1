"""Which steps of a block run together as a network, and what runs between networks.

A network takes all steps that need none of the results that are made between networks later than
it. Steps on shapes alone cost nothing where they are known, and are part of every network that
reads them; so is what gives a value another name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dlprim.graph import Builder
from dlprim.graph.graph import Array
from dlprim.onnx.operators import shapes
from dlprim.onnx.operators.control import loop
from dlprim.onnx.program import Block, Section, Step

# Of the steps that a loop runs in all, where they are part of a network.
_MOST_UNROLLED = 64
_OF_SHAPES = (shapes.shape, shapes.shape_15, shapes.size)


class Piece(NamedTuple):
    """What runs at a time.

    Attributes
    ----------
    section : Section
        Of a network; of one step its inputs are its operands, empty where they are left out.
    step : Step or None
        What runs alone.
    done : tuple of str
        What nothing of the block reads behind it.
    """

    section: Section
    step: Step | None = None
    done: tuple[str, ...] = ()


class Plan(NamedTuple):
    """The pieces of a block in order, and the values that it gives."""

    pieces: tuple[Piece, ...]
    outputs: tuple[str, ...]


class Scope:
    """What planners know of the blocks around theirs.

    Attributes
    ----------
    constants : dict of str to ndarray
        Views, so that no result is mistaken for a caller's own array.
    free : dict of str to Step
        Of values that follow from shapes or constants what makes them: part of every network that
        reads them.
    alone : set of Step
        What runs between networks although it might be part of one.
    """

    def __init__(self, constants: Mapping[str, Array]) -> None:
        self.constants = {name: it.view() for name, it in constants.items()}
        self.free: dict[str, Step] = {}
        self.alone: set[Step] = set()
        self._names: dict[str, str] = {}  # first names of values that have several
        self._order: dict[Step, int] = {}
        self._count = 0

    def runs_alone(self, step: Step) -> bool:
        """Whether a network cannot have the step."""
        return step in self.alone or not (step.is_of_networks or self._is_unrolled(step))

    def note(self, steps: Iterable[Step]) -> None:
        """Adds the constants among the steps."""
        for step in steps:
            if step.function is shapes.constant and step.outputs[0] not in self.constants:
                builder = Builder()
                value = step.function(builder, **step.attributes)
                self.constants[step.outputs[0]] = builder.array(value).view()

    def named(self, name: str) -> str:
        """The first name of a value."""
        return self._names.get(name, name)

    def enter(self, step: Step) -> bool:
        """Notes the step; whether it is free."""
        self._count += 1
        self._order[step] = self._count
        for name in step.outputs:
            self.free.pop(name, None)
        if step.function is None or step in self.alone:
            return False
        if step.function is shapes.constant:
            return True
        is_name = step.function is shapes.identity
        if is_name:
            self._names[step.outputs[0]] = self.named(step.inputs[0])
        operands = [self.named(it) for it in step.inputs if it]
        is_known = bool(operands) and all(
            it in self.constants or it in self.free for it in operands
        )
        if is_name or is_known or step.function in _OF_SHAPES:
            self.free.update(dict.fromkeys(filter(None, step.outputs), step))
            return True
        return False

    def ordered(self, steps: Iterable[Step]) -> tuple[Step, ...]:
        """Steps as blocks have them, those of outer ones first."""
        return tuple(sorted(steps, key=self._order.__getitem__))

    def _is_unrolled(self, step: Step) -> bool:
        """Whether it is a loop of few steps in all, whose number a constant says."""
        trips = self.constants.get(step.inputs[0]) if step.inputs else None
        if step.on_values is not loop or trips is None or trips.size != 1:
            return False
        body, given = step.bodies[0], max(2, len(step.inputs))
        if len(body.inputs) != given or len(body.outputs) < max(given - 1, len(step.outputs) + 1):
            return False  # which the loop refuses
        count = int(trips.item()) * len(body.steps)
        return count <= _MOST_UNROLLED and all(it.is_of_networks for it in body.steps)

    def chain(self, names: Iterable[str]) -> tuple[dict[Step, None], dict[str, None]]:
        """The free steps that make these values, and what they read that none of them makes."""
        steps: dict[Step, None] = {}
        roots: dict[str, None] = {}
        stack = list(names)[::-1]
        while stack:
            name = stack.pop()
            step = self.free.get(name)
            if step is None:
                if name not in self.constants:
                    roots[name] = None
            elif step not in steps:
                steps[step] = None
                stack.extend(filter(None, step.inputs))
        return steps, roots


class _Planner:
    """Plans one block."""

    def __init__(self, block: Block, scope: Scope) -> None:
        self.scope = scope
        self.levels: dict[str, int] = {}
        self.networks: dict[int, list[Step]] = {}
        self.between: dict[int, list[Step]] = {}
        scope.note(block.steps)
        for step in block.steps:
            self._place(step)
        self.outputs = tuple(map(scope.named, block.outputs))

    def pieces(self) -> list[Piece]:
        """What runs, in this order."""
        alone = [step for steps in self.between.values() for step in steps]
        wanted = [*self.outputs, *(name for step in alone for name in self._operands(step))]
        free: dict[int, list[str]] = {}  # that have to be there, by the network that makes them
        for name in dict.fromkeys(wanted):
            if name in self.scope.free:
                free.setdefault(self.levels.get(name, 0), []).append(name)
        sections = {
            level: self._section(self.networks.get(level, []), free.get(level, []))
            for level in {*self.networks, *free}
        }
        read = {*wanted, *(name for step in alone for name in self._captured(step))}
        read.update(*(it.inputs for it in sections.values()))
        found: list[Piece] = []
        for level in range(max((*sections, *self.between), default=0) + 1):
            if level in sections:
                it = sections[level]
                outputs = tuple(name for name in it.outputs if name in read)
                found += [Piece(it._replace(outputs=outputs))] if outputs else []
            for step in self.between.get(level, []):
                operands = tuple(map(self.scope.named, step.inputs))
                found.append(Piece(Section(operands, (step,), step.outputs), step))
        return found

    def with_ends(self, pieces: Sequence[Piece]) -> Iterator[Piece]:
        """Pieces that say what nothing reads behind them."""
        last: dict[str, int] = {}
        for place, piece in enumerate(pieces):
            captured = [] if piece.step is None else self._captured(piece.step)
            for name in (*piece.section.inputs, *piece.section.outputs, *captured):
                last[name] = place
        ends: dict[int, list[str]] = {}
        for name in {name for it in pieces for name in it.section.outputs if name}:
            if name not in self.outputs:
                ends.setdefault(last[name], []).append(name)
        for place, piece in enumerate(pieces):
            yield piece._replace(done=tuple(ends.get(place, ())))

    # ------------------------------------------------------------ inside

    def _place(self, step: Step) -> None:
        is_free = self.scope.enter(step)
        needed = [*self._operands(step), *self._captured(step)]
        level = max((self.levels.get(it, 0) for it in needed), default=0)
        if not is_free and self.scope.runs_alone(step):
            self.between.setdefault(level, []).append(step)
            level += 1
        elif not is_free:
            self.networks.setdefault(level, []).append(step)
        self.levels.update(dict.fromkeys(filter(None, step.outputs), level))

    def _operands(self, step: Step) -> list[str]:
        return [self.scope.named(it) for it in step.inputs if it]

    def _captured(self, step: Step) -> list[str]:
        """What bodies read from outside."""
        return list(self.scope.chain(it for body in step.bodies for it in body.reads)[1])

    def _section(self, steps: Sequence[Step], free: Sequence[str]) -> Section:
        """Its outputs are all that it makes."""
        chain, roots = self.scope.chain([*free, *(name for step in steps for name in step.reads())])
        made = {name: None for step in steps for name in step.outputs if name}
        inputs = tuple(it for it in roots if it not in made)
        return Section(inputs, self.scope.ordered((*steps, *chain)), (*made, *free))


def planned(block: Block, scope: Scope) -> Plan:
    """What runs of a block."""
    planner = _Planner(block, scope)
    return Plan(tuple(planner.with_ends(planner.pieces())), planner.outputs)
