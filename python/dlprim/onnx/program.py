"""Models as steps: checked as a whole, sorted, without local functions and without dead ends.

Values get names of their own on the way, so that what stood in functions and branches can stand
beside everything else. Nothing here knows a shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dlprim.graph.graph import Array
from dlprim.onnx.proto import ModelError


class Port(NamedTuple):
    """An input or output of a model.

    Attributes
    ----------
    name : str
    dtype : str or None
        None where the file does not say it, of an output.
    shape : tuple of int, str or None, or None
        A name or None for an extent that may be any; None as a whole where even the rank may be.
    is_optional : bool
        Whether the model has a value where none is given.
    keys : tuple of str or int
        Of an output that is a list of dicts, one for each row: what its columns are called.
    kind : str
        "tensor", "sequence" for a list of arrays, "optional tensor" or "optional sequence" where
        it may be None; dtype and shape are those of the arrays.
    """

    name: str
    dtype: str | None
    shape: tuple[int | str | None, ...] | None
    is_optional: bool = False
    keys: tuple[str, ...] | tuple[int, ...] = ()
    kind: str = "tensor"


@dataclass(frozen=True, eq=False)
class Step:
    """A node whose operator is known, or the reason why it is refused.

    Attributes
    ----------
    label : str
        The node for messages, with its operator and opset.
    name : str
    function : callable or None
        Of the registry; None for what no network does, and for a choice between branches.
    on_values : callable or None
        The same on what values are in a run.
    inputs, outputs : tuple of str
        Names of values; empty for those left out.
    attributes : mapping
    bodies : tuple of Block
        Of a loop what is run; of a choice what is run where the input is true, and where it is
        false.
    problems : tuple of str
    types : tuple of frozenset of str
        Those that each input may have, the last one for all behind it, too; none for any.
    """

    label: str
    name: str
    function: Callable[..., Any] | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    bodies: tuple[Block, ...] = ()
    problems: tuple[str, ...] = ()
    types: tuple[frozenset[str], ...] = ()
    on_values: Callable[..., Any] | None = None

    @property
    def is_choice(self) -> bool:
        """Whether it runs one of two branches."""
        return len(self.bodies) == 2

    @property
    def is_of_networks(self) -> bool:
        """Whether a network can do it, if what decides is known."""
        if self.is_choice:
            return all(step.is_of_networks for body in self.bodies for step in body.steps)
        return self.function is not None

    def reads(self) -> Iterable[str]:
        """The values that it needs, and those that its bodies need from outside."""
        yield from filter(None, self.inputs)
        for body in self.bodies:
            yield from body.reads


@dataclass(frozen=True, eq=False)
class Block:
    """Steps in an order in which they can run.

    Attributes
    ----------
    steps : tuple of Step
    outputs : tuple of str
        What they give.
    reads : frozenset of str
        What they need from outside.
    inputs : tuple of str
        What a body is given each time.
    ports : tuple of Port
        What a body says of its outputs.
    """

    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    reads: frozenset[str]
    inputs: tuple[str, ...] = ()
    ports: tuple[Port, ...] = ()


class Program(NamedTuple):
    """A model; defaults are of inputs that may be left out."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    block: Block
    constants: Mapping[str, Array]
    defaults: Mapping[str, Array]


def block_of(steps: Sequence[Step], outputs: Sequence[str]) -> Block:
    """Those of the steps that the outputs need, sorted.

    Raises
    ------
    ModelError
        Where steps need each other in a circle.
    """
    makers = {name: step for step in steps for name in step.outputs if name}
    done: dict[Step, None] = {}
    waiting: set[Step] = set()
    stack = [(makers[name], False) for name in reversed(outputs) if name in makers]
    while stack:
        step, is_ready = stack.pop()
        if is_ready:
            waiting.discard(step)
            done[step] = None
            continue
        if step in done:
            continue
        if step in waiting:
            raise ModelError(f"{step.label} needs its own results, in a circle of nodes")
        waiting.add(step)
        stack.append((step, True))
        needed = [makers[name] for name in step.reads() if name in makers]
        stack.extend((it, False) for it in reversed(needed) if it not in done)
    read = {name for step in done for name in step.reads()}.union(outputs)
    return Block(tuple(done), tuple(outputs), frozenset(read - set(makers)))


class Section(NamedTuple):
    """Steps that run as one network, what they are given, and what they give."""

    inputs: tuple[str, ...]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]


def problems_of(block: Block) -> list[str]:
    """Why steps of the block, and of the bodies in it, are refused."""
    found: list[str] = []
    for step in block.steps:
        found.extend(f"{step.label}: {problem}" for problem in step.problems)
        for body in step.bodies:
            found.extend(problems_of(body))
    return found


def names_read(block: Block) -> set[str]:
    """All names that its steps and outputs need, those that they make among them."""
    found = {*block.outputs, *block.reads}
    for step in block.steps:
        found.update(step.inputs)
        found.update(*(names_read(body) for body in step.bodies))
    return found
