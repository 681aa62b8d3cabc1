"""Attributes of nodes as Python values, held against the annotations of the operator."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, get_args

from dlprim.graph.graph import Array
from dlprim.onnx.proto import Folders, array_of
from dlprim.onnx.registry import Operator, RefusedError
from dlprim.onnx.strings import coded, in_codes


class Declared:
    """The type that an attribute declares."""


# By AttributeProto.AttributeType: how annotations write it, and the field that holds it.
_FIELDS: dict[int, tuple[Any, str]] = {
    1: (float, "f"),
    2: (int, "i"),
    3: (str, "s"),
    4: (Array, "t"),
    6: (tuple[float, ...], "floats"),
    7: (tuple[int, ...], "ints"),
    8: (tuple[str, ...], "strings"),
    13: (Declared, "tp"),
}
_OTHERS = {5: "a graph", 9: "tensors", 10: "graphs", 11: "a sparse tensor"}
_WORDS = {
    float: "a number",
    int: "an integer",
    str: "text",
    Array: "a tensor",
    tuple[float, ...]: "numbers",
    tuple[int, ...]: "integers",
    tuple[str, ...]: "texts",
    Declared: "a type",
}


class Signature(NamedTuple):
    """What a function of the registry takes.

    Attributes
    ----------
    least, most : int
        Inputs; most is None where there is no limit.
    optional : frozenset of int
        Places of inputs that may be left out in front of others.
    kinds : mapping
        The types that every attribute may have.
    required : frozenset of str
        Attributes without a default.
    asks_outputs : bool
        Whether it wants to know how many outputs the node names.
    """

    least: int
    most: int | None
    optional: frozenset[int]
    kinds: Mapping[str, tuple[Any, ...]]
    required: frozenset[str]
    asks_outputs: bool

    def range(self) -> str:
        """How many inputs there may be, for messages."""
        if self.most is None:
            return f"at least {self.least}"
        return str(self.least) if self.least == self.most else f"{self.least} to {self.most}"


@cache
def signature_of(operator: Operator) -> Signature:
    """What the operator's function takes, behind the builder."""
    _, *parameters = inspect.signature(operator.function, eval_str=True).parameters.values()
    inputs = [it for it in parameters if it.kind is it.POSITIONAL_OR_KEYWORD]
    keywords = {it.name: it for it in parameters if it.kind is it.KEYWORD_ONLY}
    more = [it for it in parameters if it.kind is it.VAR_POSITIONAL]
    required = sum(it.default is it.empty for it in inputs)
    asks_outputs = keywords.pop("outputs", None) is not None
    return Signature(
        required + (len(more) if required == len(inputs) else 0),
        None if more else len(inputs),
        frozenset(at for at, it in enumerate(inputs) if _may_be_none(it)),
        {name: _kinds(it.annotation) for name, it in keywords.items()},
        frozenset(name for name, it in keywords.items() if it.default is it.empty),
        asks_outputs,
    )


def _may_be_none(parameter: inspect.Parameter) -> bool:
    of_run = parameter.annotation is Any and parameter.default is None
    return of_run or NoneType in get_args(parameter.annotation)


def attributes_of(
    protos: Mapping[str, Any], operator: Operator, folders: Folders
) -> dict[str, Any]:
    """The attributes of a node, as the operator takes them.

    Raises
    ------
    RefusedError
        Where it does not know one, or knows it as something else.
    """
    kinds = signature_of(operator).kinds
    known = ", ".join(sorted(kinds)) or "none"
    values: dict[str, Any] = {}
    for name, proto in protos.items():
        if name not in kinds:
            raise RefusedError(f"attribute '{name}' is not known, expected one of: {known}")
        kind, field = _FIELDS.get(proto.type, (None, ""))
        if kind not in kinds[name]:
            given = _WORDS[kind] if kind else _OTHERS.get(proto.type, "of no type")
            raise RefusedError(f"attribute '{name}' is {given}, expected {_words(kinds[name])}")
        values[name] = _value_of(getattr(proto, field), name, folders)
    for name in sorted(signature_of(operator).required - set(values)):
        raise RefusedError(f"attribute '{name}' is missing, expected {_words(kinds[name])}")
    for value in values.values():
        if isinstance(value[0] if isinstance(value, tuple) and value else value, str):
            coded(value)  # which may be elements of strings
    return values


def _kinds(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)


def _words(kinds: tuple[Any, ...]) -> str:
    return " or ".join(_WORDS[kind] for kind in kinds if kind in _WORDS)


def _value_of(value: Any, name: str, folders: Folders) -> Any:
    if isinstance(value, float | int):
        return value
    if isinstance(value, bytes):
        return _text_of(value, name)
    if hasattr(value, "data_type"):
        return in_codes(array_of(value, folders))
    if hasattr(value, "sequence_type"):
        return Declared()
    return tuple(_text_of(it, name) if isinstance(it, bytes) else it for it in value)


def _text_of(value: bytes, name: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise RefusedError(f"attribute '{name}' is no text in UTF-8") from None
