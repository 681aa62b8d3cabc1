"""Runs programs: networks one after the other, and what no network does between them.

Which steps a network cannot have shows when it is made: those that ask for elements that are not
known, or are given lists. The block is planned again without them, and goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dlprim.graph.graph import Array
from dlprim.onnx.importer import ElementsNeededError
from dlprim.onnx.parts.loops import Form, Steps, steps_of
from dlprim.onnx.parts.part import Part, Settings
from dlprim.onnx.parts.plan import Piece, Plan, Scope, planned
from dlprim.onnx.parts.single import SingleStep
from dlprim.onnx.program import Block, Program, Section, Step
from dlprim.onnx.proto import ModelError

# Given a network that is about to run, and its arrays by name.
Observer = Callable[[Part, Mapping[str, Array]], None]


class _Ready(NamedTuple):
    """A piece, with what runs it and what of the program a step reads."""

    runner: Part | SingleStep
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    done: tuple[str, ...]
    constants: Mapping[str, Array]


class _Planned(NamedTuple):
    ready: tuple[_Ready, ...]
    outputs: tuple[str, ...]
    whole: Part | None  # that the program is


class Executor:
    """The networks of a program, and what runs between them.

    Attributes
    ----------
    program : Program
    """

    def __init__(self, program: Program, settings: Settings) -> None:
        self.program = program
        self._settings = settings
        self._scope = Scope(program.constants)
        self._plans: dict[Block, _Planned] = {}
        self._parts: dict[tuple[Section, Step | None], Part | SingleStep] = {}
        self._lock = threading.RLock()

    @property
    def whole(self) -> Part | None:
        """The network that the program is, if it is one."""
        return self.planned(self.program.block).whole

    def run(self, given: Mapping[str, Any], observer: Observer | None = None) -> list[Any]:
        """The outputs of the program, for values of all of its inputs."""
        return _Run(self, dict(given), observer).block(self.program.block)

    def planned(self, block: Block) -> _Planned:
        """What runs of a block; the blocks around it are planned before."""
        found = self._plans.get(block)
        if found is not None:
            return found
        with self._lock:
            found = self._plans.get(block)
            if found is None:
                plan, is_whole = self._plan(block)
                ready = tuple(map(self._ready, plan.pieces))
                runner = ready[0].runner if is_whole else None
                whole = runner if isinstance(runner, Part) else None
                found = self._plans[block] = _Planned(ready, plan.outputs, whole)
        return found

    def part_from(self, error: ElementsNeededError, block: Block, plan: _Planned) -> None:
        """Runs steps of a block between networks from here on, which its plan did not."""
        with self._lock:
            if not self._scope.alone.issuperset(error.steps):
                self._scope.alone.update(error.steps)
                self._plans.clear()
            elif self._plans.get(block) is plan:  # which no other thread has made out of date
                raise ModelError(str(error)) from error

    def constant(self, name: str) -> Array:
        """A value that the program has."""
        return self._scope.constants[name]

    def parts(self, block: Block | None = None, depth: int = 0) -> Iterator[tuple[int, Any]]:
        """What ran of a block lately, and of the bodies in it: how deep, and the part or step."""
        found = self._plans.get(self.program.block if block is None else block)
        for ready in () if found is None else found.ready:
            yield depth, ready.runner
            if isinstance(ready.runner, SingleStep):
                for body in ready.runner.step.bodies:
                    yield from self.parts(body, depth + 1)

    # ------------------------------------------------------------ inside

    def _plan(self, block: Block) -> tuple[Plan, bool]:
        self._scope.note(block.steps)
        if block is self.program.block and not any(map(self._scope.runs_alone, block.steps)):
            inputs = tuple(it.name for it in self.program.inputs)
            section = Section(inputs, block.steps, block.outputs)
            return Plan((Piece(section),), block.outputs), True
        return planned(block, self._scope), False

    def _ready(self, piece: Piece) -> _Ready:
        inputs, constants = piece.section.inputs, self._scope.constants
        known = {name: constants[name] for name in inputs if name in constants}
        outputs = tuple(filter(None, piece.section.outputs))
        return _Ready(self._runner(piece), inputs, outputs, piece.done, known)

    def _runner(self, piece: Piece) -> Part | SingleStep:
        found = self._parts.get((piece.section, piece.step))
        if found is None:
            constants, how = self._scope.constants, (self._settings, self._lock)
            if piece.step is not None:
                found = SingleStep(piece.step, constants, *how)
            else:
                read = {name for step in piece.section.steps for name in step.reads()}
                read.update(piece.section.outputs)
                found = Part(
                    piece.section, {it: constants[it] for it in read if it in constants}, *how
                )
            self._parts[piece.section, piece.step] = found
        return found


class _Run:
    """The values of one run, by name: names in bodies are others than those outside."""

    def __init__(
        self, executor: Executor, values: dict[str, Any], observer: Observer | None
    ) -> None:
        self._executor, self._values, self._observer = executor, values, observer
        values[""] = None  # operands that are left out

    def block(self, block: Block) -> list[Any]:
        """What a block gives."""
        while True:
            plan = self._executor.planned(block)
            try:
                for ready in plan.ready:
                    self._piece(ready)
                return [self._value(name) for name in plan.outputs]
            except ElementsNeededError as error:
                self._executor.part_from(error, block, plan)

    def body(self, block: Block, inputs: Sequence[Any]) -> list[Any]:
        """What a body gives, for values of its inputs."""
        if block.inputs or inputs:
            self._values.update(zip(block.inputs, inputs, strict=True))
        return self.block(block)

    def steps(self, block: Block, inputs: Sequence[Any], states: int, rows: int) -> Steps | None:
        """Runs of a body in the core, where it is a network that has run for such inputs."""
        plan = self._executor.planned(block)
        part = plan.ready[0].runner if len(plan.ready) == 1 else None
        if not isinstance(part, Part) or self._observer is not None:
            return None
        values, own = self._values, dict(zip(block.inputs, inputs, strict=True))
        rowed = set(block.inputs[len(inputs) - rows :])
        try:
            graph = part.exact(
                [
                    (own[it].shape[1:] if it in rowed else own[it].shape)
                    if it in own
                    else values[it].shape
                    for it in plan.ready[0].inputs
                ]
            )
        except AttributeError:  # something is no array
            return None
        if graph is None:
            return None
        form = Form(len(inputs) > states + rows, states, rows)
        made = part.made_of(graph, lambda: steps_of(part, graph, block, plan.outputs, form))
        part.latest = graph
        return None if made is None else made.of(values)

    def _piece(self, ready: _Ready) -> None:
        values, runner = self._values, ready.runner
        if isinstance(runner, Part):
            arrays = [values[name] for name in ready.inputs]
            if self._observer is not None:
                self._observer(runner, dict(zip(ready.inputs, arrays, strict=True)))
            results: Sequence[Any] = runner.run(arrays)
        else:
            values.update(ready.constants)
            results = runner.run([values[name] for name in ready.inputs], self)
        for name, result in zip(ready.outputs, results, strict=True):
            values[name] = result
        for name in ready.done:
            del values[name]

    def _value(self, name: str) -> Any:
        return self._values[name] if name in self._values else self._executor.constant(name)
