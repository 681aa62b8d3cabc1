"""What is done with extents while a network is compiled, as a program that does it for others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np

from dlprim.graph.extents import Extent, Recorded, RecordedObject, is_plain, plain
from dlprim.graph.recorded_arrays import RecordedArray

_PLAIN = (int, str, bool, type(None))


class Recording:
    """Arithmetic on extents, what comparisons came to, and calls, as the text of a program."""

    def __init__(self) -> None:
        self._inputs: list[Extent] = []
        self._names: dict[str, Any] = {}  # what was computed, by its text
        self._texts: dict[str, str] = {}  # the other way
        self._required: dict[str, int] = {}  # behind so many texts
        self._objects: dict[int, tuple[str, Any]] = {}  # by identity
        self._called: dict[str, Recorded] = {}
        self._lines: list[str] = []
        self._numbers: dict[str, Extent] = {}  # in texts, by their names there

    def extent(self, value: int) -> Any:
        """An extent of an input, which stands where a number does."""
        made = Extent(self, value, f"e{len(self._inputs)}")
        self._inputs.append(made)
        return made

    def computed(self, value: Any, text: str) -> Any:
        """What arithmetic or a function gave: a number, an array, or a tuple of such."""
        if isinstance(value, np.generic):
            value, text = value.item(), f"{text}.item()"
        known = self._names.get(text)
        if known is None:
            is_array = isinstance(value, np.ndarray)
            known = (RecordedArray if is_array else Extent)(self, value, f"v{len(self._names)}")
            self._names[text], self._texts[known.name] = known, text
        if isinstance(value, tuple):
            parts = enumerate(value)
            return tuple(self.computed(it, f"{known.name}[{at}]") for at, it in parts)
        return known

    def derived(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """What a function gave."""
        return self.computed(
            function(*map(plain, arguments)), self._call_text(function, arguments, {})
        )

    def number_name(self, number: Extent) -> str:
        """What stands in a text for a number that is known when it is compiled."""
        name = f"number_{number.name}"
        self._numbers[name] = number
        return name

    def require(self, text: str) -> None:
        """Keeps what a comparison came to."""
        self._required.setdefault(text, len(self._texts))

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """What a function without effects gives; recorded, once, where that depends on extents.

        In texts among the arguments numbers stand for the names that `number_name` gave them.
        """
        arguments = tuple(self._numbered(it) if type(it) is str else it for it in arguments)
        if is_plain(arguments) and is_plain(named):
            return function(*arguments, **named)
        text = self._call_text(function, arguments, named)
        made = self._called.get(text)
        if made is None:
            result = function(*map(plain, arguments), **plain(named))
            made = self._called[text] = Recorded(self, result, f"r{len(self._lines)}")
            self._lines.append(f"{made.name} = {text}")
        return made

    def new(self, function: Callable[[], Any]) -> RecordedObject:
        """What a function makes anew each time."""
        made = RecordedObject(self, function(), f"r{len(self._lines)}")
        self._lines.append(f"{made.name} = {self._call_text(function, (), {})}")
        return made

    def note(
        self, of: str, method: str, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> None:
        """Writes down a call of a method."""
        self._lines.append(f"{of}.{method}({self._arguments(arguments, named)})")

    def finished(self, result: Recorded) -> Callable[..., Any]:
        """The program that makes the result for other extents of inputs.

        It gives None where a comparison comes to something else. Conditions stand where they were
        noted, so that a bound is looked at before what it keeps small is made.
        """
        decisive, made = self._needed(self._required), self._needed(self._lines)
        program: list[tuple[int, str]] = [
            (place, f"if not ({it}): return None") for it, place in self._required.items()
        ]
        texts = list(enumerate(self._texts.items()))
        program += [(at, f"{name} = {it}") for at, (name, it) in texts if name in decisive]
        program.sort(key=lambda it: it[0])
        lines = [
            *(line for _, line in program),
            *(f"del {name}" for name in decisive if name not in made),
            *(f"{name} = {it}" for _, (name, it) in texts if name in made - decisive),
            *self._lines,
            f"return {result.name}",
        ]
        head = f"def replay({', '.join(it.name for it in self._inputs)}):"
        objects = dict(self._objects.values())
        exec(compile("\n    ".join([head, *lines]), "<recorded>", "exec"), objects)
        replay: Callable[..., Any] = objects["replay"]
        return replay

    # ------------------------------------------------------------ inside

    def _numbered(self, text: str) -> Any:
        words = dict.fromkeys(_words(text)) if self._numbers else ()
        known = {it: self._numbers[it] for it in words if it in self._numbers}
        return self.derived(_with_numbers, (text, known)) if known else text

    def _needed(self, lines: Iterable[str]) -> set[str]:
        """What lines name of what was computed, and what that is computed of."""
        needed: set[str] = set()
        stack = [word for line in lines for word in _words(line)]
        while stack:
            name = stack.pop()
            if name in self._texts and name not in needed:
                needed.add(name)
                stack.extend(_words(self._texts[name]))
        return needed

    def _call_text(self, function: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> str:
        return f"{self._object(function)}({self._arguments(arguments, named)})"

    def _arguments(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> str:
        listed = [self.text(it) for it in arguments]
        return ", ".join([*listed, *(f"{name}={self.text(it)}" for name, it in named.items())])

    def text(self, argument: Any) -> str:
        """How the program says it."""
        if isinstance(argument, Recorded):
            return argument.name
        if type(argument) in _PLAIN or (type(argument) is float and isfinite(argument)):
            return repr(argument)
        if isinstance(argument, list):
            return f"[{', '.join(map(self.text, argument))}]"
        if isinstance(argument, dict):
            return f"{{{', '.join(f'{name!r}: {self.text(it)}' for name, it in argument.items())}}}"
        if is_plain(argument) and type(argument) is not tuple:
            return self._object(argument)
        if isinstance(argument, slice):
            return f"slice{self.text((argument.start, argument.stop, argument.step))}"
        if isinstance(argument, np.ndarray):
            listed = self.text(argument.reshape(-1).tolist())
            return f"{self._object(_whole_numbers)}({listed}, {argument.shape})"
        inner = "".join(f"{self.text(it)}, " for it in argument)
        name = "" if type(argument) is tuple else self._object(type(argument))
        return f"{name}({inner})"

    def _object(self, it: Any) -> str:
        known = self._objects.setdefault(id(it), (f"c{len(self._objects)}", it))
        return known[0]


def _whole_numbers(numbers: list[int], shape: tuple[int, ...]) -> Any:
    return np.array(numbers, np.int64).reshape(shape)


def _with_numbers(text: str, numbers: Mapping[str, float]) -> str:
    return re.sub(r"number_[ev]\d+", lambda it: repr(numbers[it[0]]), text)


def _words(text: str) -> list[str]:
    return "".join(it if it.isalnum() or it == "_" else " " for it in text).split()
