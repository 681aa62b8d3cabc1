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
    """

    name: str
    dtype: str | None
    shape: tuple[int | str | None, ...] | None
    is_optional: bool = False
    keys: tuple[str, ...] | tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Step:
    """A node whose operator is known, or the reason why it is refused.

    Attributes
    ----------
    label : str
        The node for messages, with its operator and opset.
    name : str
    function : callable or None
        Of the registry; None for a choice between branches.
    inputs, outputs : tuple of str
        Names of values; empty for those left out.
    attributes : mapping
    branches : tuple of Block
        What is run where the input is true, and where it is false.
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
    branches: tuple[Block, ...] = ()
    problems: tuple[str, ...] = ()
    types: tuple[frozenset[str], ...] = ()

    def reads(self) -> Iterable[str]:
        """The values that it needs, and those that its branches need from outside."""
        yield from filter(None, self.inputs)
        for branch in self.branches:
            yield from branch.reads


class Block(NamedTuple):
    """Steps in an order in which they can run, what they give, and what they need from outside."""

    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    reads: frozenset[str]


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


def problems_of(block: Block) -> list[str]:
    """Why steps of the block, and of the branches in it, are refused."""
    found: list[str] = []
    for step in block.steps:
        found.extend(f"{step.label}: {problem}" for problem in step.problems)
        for branch in step.branches:
            found.extend(problems_of(branch))
    return found


def names_read(block: Block) -> set[str]:
    """All names that its steps and outputs need, those that they make among them."""
    found = {*block.outputs, *block.reads}
    for step in block.steps:
        found.update(step.inputs)
        found.update(*(names_read(branch) for branch in step.branches))
    return found
