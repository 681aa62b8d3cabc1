"""Which operators of ONNX there are, as functions whose signature is the operator's schema.

A function takes a `Builder` and the operator's inputs, None for those left out; its keywords are
the attributes, with their defaults and with annotations that say their types. One called
``outputs`` is no attribute, but how many outputs the node names. It returns a value, or a tuple of
as many as the node names at least. What it cannot do it refuses with `RefusedError`.

What no network can do, such as loops and lists of arrays, is a function on what values are in a
run: arrays, lists of them, None. It takes a `Call` in the place of the builder.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from dlprim.graph.graph import Array

_Function = TypeVar("_Function", bound=Callable[..., Any])


class RefusedError(ValueError):
    """An operator that is not there, or not in this form; says what would be accepted."""


class Operator(NamedTuple):
    """A version of an operator.

    Attributes
    ----------
    since : int
        The first opset that it holds for.
    function : callable
    attributes : frozenset of str
        Those that it knows; others are refused.
    """

    since: int
    function: Callable[..., Any]
    attributes: frozenset[str]


class Call(NamedTuple):
    """What a function on values is given besides its operands.

    Attributes
    ----------
    bodies : tuple of Block
    max_bytes : int
        What a result may take.
    runs : StepBodies of the core, or None
        Runs the bodies, where there are some.
    """

    bodies: tuple[Any, ...]
    max_bytes: int
    runs: Any = None

    def around(self, runs: Any) -> Call:
        """The same, with what runs the bodies."""
        return Call(self.bodies, self.max_bytes, runs)

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of the first body, for values of its inputs."""
        outputs: list[Any] = self.runs.run(inputs)
        return outputs

    def choose(self, condition: Any) -> tuple[Any, ...]:
        """The outputs of the first body where a condition holds, of the second where not."""
        outputs: tuple[Any, ...] = self.runs.choose(condition)
        return outputs

    def repeat(
        self, condition: Any, states: Sequence[Any], rows: Sequence[Array], most: int | None
    ) -> tuple[tuple[Any, ...], list[Array | None]]:
        """States behind the last run of the first body, and the rows that runs made of the rest.

        With a condition the body is given the number of the run and the condition in front of the
        states, and gives the next condition; without, it runs ``most`` times. Behind the states it
        is given a row of each array. Rows are None where nothing ran.
        """
        made: tuple[tuple[Any, ...], list[Array | None]]
        made = self.runs.repeat(condition, states, rows, most, self.max_bytes)
        return made


# By domain ("" is ONNX's own) and name, the newest first.
OPERATORS: dict[tuple[str, str], list[Operator]] = {}
# The same of functions on what values are in a run.
ON_VALUES: dict[tuple[str, str], list[Operator]] = {}


def operator(
    name: str, since: int = 1, domain: str = "", on_values: bool = False
) -> Callable[[_Function], _Function]:
    """Makes a function what an operator of this name does from this opset on."""

    def named(function: _Function) -> _Function:
        parameters = inspect.signature(function).parameters.values()
        keywords = {it.name for it in parameters if it.kind is it.KEYWORD_ONLY}
        versions = (ON_VALUES if on_values else OPERATORS).setdefault((domain, name), [])
        assert all(it.since != since for it in versions), f"{name} of {since} is there already"
        versions.append(Operator(since, function, frozenset(keywords - {"outputs"})))
        versions.sort(key=lambda it: -it.since)
        return function

    return named


# Why there are no operators of a domain, or none with a name in it.
REASONS: dict[str | tuple[str, str], str] = {}


def operator_for(domain: str, name: str, version: int, on_values: bool = False) -> Operator | None:
    """The newest of its versions that is not above the opset.

    Raises
    ------
    RefusedError
        Where there is a reason why it is not there.
    """
    reason = REASONS.get(domain) or REASONS.get((domain, name))
    if reason is not None:
        raise RefusedError(reason)
    versions = (ON_VALUES if on_values else OPERATORS).get((domain, name), [])
    return next((it for it in versions if it.since <= version), None)
