"""Runs programs: networks one after the other, and what no network does between them.

Which steps a network cannot have shows when it is made: those that ask for elements that are not
known, or are given lists. The block is planned again without them, and goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from dlprim import _core
from dlprim.arguments.locks import Lock
from dlprim.graph.compiled import CompiledGraph
from dlprim.graph.graph import Array
from dlprim.onnx.importer import ElementsNeededError
from dlprim.onnx.maps import in_dicts
from dlprim.onnx.parts.loops import Form, looped
from dlprim.onnx.parts.part import Part, Settings
from dlprim.onnx.parts.plan import Piece, Plan, Scope, planned
from dlprim.onnx.parts.single import SingleStep
from dlprim.onnx.program import Block, Port, Program, Section, Step
from dlprim.onnx.proto import ModelError, dtype_named
from dlprim.onnx.strings import Texts

# Given a network that is about to run, and its arrays by name.
Observer = Callable[[Part, Mapping[str, Array]], None]


class _Planned(NamedTuple):
    runners: tuple[Part | SingleStep, ...]
    outputs: tuple[str, ...]
    whole: Part | None  # that the program is


class Executor:
    """The networks of a program, and what the core runs between them.

    Attributes
    ----------
    program : Program
    core : PartProgram of the core
        Which runs it, and asks here for what it has not met.
    asking : type
        What is raised where a step asks for elements.
    """

    asking = ElementsNeededError

    def __init__(self, program: Program, settings: Settings) -> None:
        self.program = program
        self._settings = settings
        self._scope = Scope(program.constants)
        self._numbers = {"": 0}  # of values, by name
        self._plans: dict[Block, _Planned] = {}
        self._turn = 0  # how often they were made anew
        self._blocks: dict[Block, Any] = {}  # what the core has of them
        self._parts: dict[tuple[Section, Step | None], Part | SingleStep] = {}
        self._lock = Lock()
        has_keys = any(port.keys for port in program.outputs)
        inputs = [self._input(port) for port in program.inputs]
        self.core = _core.PartProgram(self._block(program.block), inputs, has_keys)

    @property
    def whole(self) -> Part | None:
        """The network that the program is, if it is one."""
        return self.planned(self.program.block).whole

    def run(self, given: Mapping[str, Any], observer: Observer | None = None) -> list[Any]:
        """The outputs of the program, for values of all of its inputs."""
        results: list[Any] = self.core.run(self, dict(given), observer)
        return results

    def told(self, results: Sequence[Any], texts: Texts | None = None) -> list[Any]:
        """Results as a caller gets them: texts for their codes, and dicts where it has keys."""
        return in_dicts((texts or Texts()).decoded(results), self.program.outputs)

    def planned(self, block: Block) -> _Planned:
        """What runs of a block, which the core knows then; those around it are planned before."""
        found = self._plans.get(block)
        if found is not None:
            return found
        with self._lock:
            found = self._plans.get(block)
            if found is None:
                found = self._plans[block] = self._plan(block)
        return found

    def part_from(self, error: ElementsNeededError, turn: int) -> None:
        """Runs steps between networks from here on, which the plan of a turn did not."""
        with self._lock:
            if not self._scope.alone.issuperset(error.steps):
                self._scope.alone.update(error.steps)
                self._turn += 1
                self._plans.clear()
                for block in self._blocks.values():
                    block.forget()
            elif turn == self._turn:  # which no other thread has made out of date
                raise ModelError(str(error)) from error

    def looped(
        self, block: Block, graph: CompiledGraph, is_loop: bool, states: int
    ) -> tuple[Any, list[Any], list[int]] | None:
        """What runs a network in a loop, if it is all that there is of a body."""
        plan = self.planned(block)
        part, rows = plan.runners[0], len(block.inputs) - states - (2 if is_loop else 0)
        if not isinstance(part, Part):  # which another thread found out meanwhile
            return None
        made = looped(part, graph, block, plan.outputs, Form(is_loop, states, rows))
        if made is None:
            return None
        return made.loop, made.kept, [self._numbers[it] for it in made.fixed]

    def parts(self, block: Block | None = None, depth: int = 0) -> Iterator[tuple[int, Any]]:
        """What ran of a block lately, and of the bodies in it: how deep, and the part or step."""
        found = self._plans.get(self.program.block if block is None else block)
        for runner in () if found is None else found.runners:
            yield depth, runner
            if isinstance(runner, SingleStep):
                for body in runner.step.bodies:
                    yield from self.parts(body, depth + 1)

    # ------------------------------------------------------------ inside

    def _number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def _listed(self, names: Iterable[str]) -> list[int]:
        return [self._number(it) for it in names]

    def _input(self, port: Port) -> tuple[Any, ...]:
        """A port as the core has it: without a dtype where only Python knows what it may be."""
        dtype, shape = None, port.shape
        if port.kind == "tensor" and port.dtype not in (None, "string"):
            dtype = dtype_named(port.dtype)
        if shape is not None:
            shape = tuple(it if isinstance(it, int) else -1 for it in shape)
        default = self.program.defaults.get(port.name)
        return port.name, self._number(port.name), dtype, shape, default

    def _block(self, block: Block) -> Any:
        if block not in self._blocks:
            self._blocks[block] = _core.PartBlock(block, self._listed(block.inputs))
        return self._blocks[block]

    def _plan(self, block: Block) -> _Planned:
        plan, is_whole = self._pieces(block)
        runners = tuple(map(self._runner, plan.pieces))
        whole = runners[0] if is_whole and isinstance(runners[0], Part) else None
        pieces = [self._of_core(*it) for it in zip(plan.pieces, runners, strict=True)]
        constants = self._scope.constants
        outputs = [(self._number(it), constants.get(it)) for it in plan.outputs]
        values = len(self._numbers)
        how = whole is not None, self._turn
        self._block(block).set_plan(pieces, outputs, values, how)
        return _Planned(runners, plan.outputs, whole)

    def _of_core(self, piece: Piece, runner: Part | SingleStep) -> dict[str, Any]:
        """What the core has of a piece."""
        inputs, names = piece.section.inputs, piece.section.outputs
        outputs = [self._number(it) if it else -1 for it in names]
        made = {
            "runner": runner,
            "inputs": self._listed(inputs),
            "outputs": outputs,
            "done": self._listed(piece.done),
        }
        if isinstance(runner, Part):
            return {**made, "networks": runner.known}
        step, constants = runner.step, self._scope.constants
        if step.on_values is None:
            made["outputs"] = [it for it in outputs if it >= 0]
        return {
            **made,
            "function": step.on_values and partial(step.on_values, **step.attributes),
            "bodies": [self._block(it) for it in step.bodies],
            "constants": [(self._number(it), constants[it]) for it in inputs if it in constants],
            "takes_texts": runner.takes_texts,
            "takes_lists": runner.takes_lists,
        }

    def _pieces(self, block: Block) -> tuple[Plan, bool]:
        self._scope.note(block.steps)
        if block is self.program.block and not any(map(self._scope.runs_alone, block.steps)):
            inputs = tuple(it.name for it in self.program.inputs)
            section = Section(inputs, block.steps, block.outputs)
            return Plan((Piece(section),), block.outputs), True
        return planned(block, self._scope), False

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
