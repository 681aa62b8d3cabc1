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
    run : callable
        Gives the outputs of a body as a list, for a sequence of its inputs.
    max_bytes : int
        What a result may take.
    steps : callable
        Of a body, a sequence of its inputs, how many of them are states and how many are arrays of
        which each run takes a row: `Steps` of the core, or None where it has none for these.
    """

    bodies: tuple[Any, ...]
    run: Callable[[Any, Sequence[Any]], list[Any]]
    max_bytes: int
    steps: Callable[[Any, Sequence[Any], int, int], Any]


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
