"""Extents that remember how they were computed, so that a network is compiled once for many shapes.

While a network is compiled for inputs some of whose extents are `Extent`s, arithmetic on these is
written down, and so is what every comparison of them came to. What is compiled then holds for all
shapes for which the comparisons come to the same. Whoever takes an extent for a plain number, NumPy
or the core for example, pins it: it has to be this number again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np

from dlprim.arguments.traced import RUNNING

_PLAIN = (int, str, bool, type(None))
# Up to which arithmetic on extents cannot leave a type of arrays, by its name: a product of two
# stays within it.
_MOST = {"int64": 2**31, "int32": 2**15}


class Recorded:
    """What a recording made, and the name that it has there."""

    __slots__ = ("name", "recording", "value")

    def __init__(self, recording: Recording, value: Any, name: str) -> None:
        self.recording, self.value, self.name = recording, value, name


class RecordedObject(Recorded):
    """An object that is built by calls of its methods, whose results are the same in every run."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.value, name)
        if not callable(attribute):
            return attribute

        def called(*arguments: Any, **named: Any) -> Any:
            result = attribute(*plain(arguments), **plain(named))
            self.recording.note(self.name, name, arguments, named)
            return result

        return called


class Extent(Recorded):
    """A number that follows from extents of inputs."""

    __slots__ = ()

    def _made(
        self, other: object, sign: str, compute: Callable[[int, int], int], back: bool
    ) -> Any:
        if isinstance(other, Extent):
            theirs, value = other.name, other.value
        elif isinstance(other, int):
            theirs, value = repr(int(other)), int(other)
        else:
            return NotImplemented
        left, right = (theirs, self.name) if back else (self.name, theirs)
        result = compute(value, self.value) if back else compute(self.value, value)
        return self.recording.computed(result, f"{left} {sign} {right}")

    def __add__(self, other: object) -> Any:
        return self if _is(other, 0) else self._made(other, "+", int.__add__, False)

    def __radd__(self, other: object) -> Any:
        return self if _is(other, 0) else self._made(other, "+", int.__add__, True)

    def __sub__(self, other: object) -> Any:
        return self if _is(other, 0) else self._made(other, "-", int.__sub__, False)

    def __rsub__(self, other: object) -> Any:
        return self._made(other, "-", int.__sub__, True)

    def __mul__(self, other: object) -> Any:
        return self if _is(other, 1) else self._made(other, "*", int.__mul__, False)

    def __rmul__(self, other: object) -> Any:
        return self if _is(other, 1) else self._made(other, "*", int.__mul__, True)

    def __floordiv__(self, other: object) -> Any:
        return self if _is(other, 1) else self._made(other, "//", int.__floordiv__, False)

    def __rfloordiv__(self, other: object) -> Any:
        return self._made(other, "//", int.__floordiv__, True)

    def __mod__(self, other: object) -> Any:
        return self._made(other, "%", int.__mod__, False)

    def __rmod__(self, other: object) -> Any:
        return self._made(other, "%", int.__mod__, True)

    def __neg__(self) -> Any:
        return self.recording.computed(-self.value, f"-{self.name}")

    def __pos__(self) -> Extent:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    # ------------------------------------------------------------ comparisons

    def _compared(self, other: object, sign: str, opposite: str, compare: Any) -> Any:
        if isinstance(other, Extent):
            name, value = other.name, other.value
        elif isinstance(other, int | float):
            name, value = self.recording.text(other), other
        else:
            return NotImplemented
        outcome = compare(self.value, value)
        if name != self.name:
            self.recording.require(f"{self.name} {sign if outcome else opposite} {name}")
        return outcome

    def __eq__(self, other: object) -> Any:
        return self._compared(other, "==", "!=", lambda a, b: a == b)

    def __ne__(self, other: object) -> Any:
        return self._compared(other, "!=", "==", lambda a, b: a != b)

    def __lt__(self, other: object) -> Any:
        return self._compared(other, "<", ">=", lambda a, b: a < b)

    def __le__(self, other: object) -> Any:
        return self._compared(other, "<=", ">", lambda a, b: a <= b)

    def __gt__(self, other: object) -> Any:
        return self._compared(other, ">", "<=", lambda a, b: a > b)

    def __ge__(self, other: object) -> Any:
        return self._compared(other, ">=", "<", lambda a, b: a >= b)

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __hash__(self) -> int:
        # Who looks an extent up in a function that is traced decides by it, found or not.
        return hash(self.value if RUNNING.tracer is None else self.__index__())

    # ------------------------------------------------------------ plain numbers

    def __index__(self) -> int:
        self.recording.require(f"{self.name} == {self.value}")
        return int(self.value)

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())

    def __truediv__(self, other: Any) -> Any:
        return self.__index__() / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / self.__index__()

    def __str__(self) -> str:
        return str(self.__index__())

    def __format__(self, how: str) -> str:
        return format(self.__index__(), how)

    def __repr__(self) -> str:
        return self.name


def _is(other: object, number: int) -> bool:
    return isinstance(other, int) and other == number


def is_known(shape: Sequence[Any]) -> bool:
    """Whether none of the extents is recorded."""
    return not any(isinstance(it, Extent) for it in shape)


def integers(numbers: Any, dtype: Any = np.int64) -> Any:
    """An array of numbers that may be extents: of objects, which then stand for the dtype."""
    array: Any = np.array(numbers, dtype=object)
    return array.astype(dtype) if is_known(array.reshape(-1)) else array


def require_range(array: Any, dtype: Any) -> None:
    """Refuses extents that arithmetic in arrays of the type might have wrapped."""
    most = _MOST.get(dtype.name, 0)
    if not all(-most <= it <= most for it in array.reshape(-1)):
        raise OverflowError(f"{array} may not be what {dtype} holds")


def derived(function: Callable[..., int], *arguments: Any) -> Any:
    """A number that a function without effects gives, of arguments that may be extents."""
    found = _recording_of(arguments)
    return function(*arguments) if found is None else found.derived(function, arguments)


def _recording_of(arguments: Sequence[Any]) -> Recording | None:
    for it in arguments:
        inner = _recording_of(it) if isinstance(it, tuple | list) else None
        if isinstance(it, Recorded) or inner is not None:
            return inner or it.recording
    return None


def plain(argument: Any) -> Any:
    """The argument without recordings: what they hold."""
    if isinstance(argument, Recorded):
        return argument.value
    if isinstance(argument, tuple) and type(argument) is not tuple:
        return type(argument)(*map(plain, argument))
    if isinstance(argument, tuple | list):
        return type(argument)(map(plain, argument))
    if isinstance(argument, dict):
        return {name: plain(it) for name, it in argument.items()}
    return argument


def is_plain(argument: Any) -> bool:
    """Whether nothing of the argument is recorded."""
    if isinstance(argument, tuple | list):
        return all(map(is_plain, argument))
    if isinstance(argument, dict):
        return all(map(is_plain, argument.values()))
    return not isinstance(argument, Recorded)


class Recording:
    """Arithmetic on extents, what comparisons came to, and calls, as the text of a program."""

    def __init__(self) -> None:
        self._inputs: list[Extent] = []
        self._names: dict[str, Any] = {}  # what was computed, by its text
        self._texts: dict[str, str] = {}  # the other way
        self._required: dict[str, None] = {}
        self._objects: dict[int, tuple[str, Any]] = {}  # by identity
        self._called: dict[str, Recorded] = {}
        self._lines: list[str] = []

    def extent(self, value: int) -> Any:
        """An extent of an input, which stands where a number does."""
        made = Extent(self, value, f"e{len(self._inputs)}")
        self._inputs.append(made)
        return made

    def computed(self, value: int, text: str) -> Extent:
        """What arithmetic gave."""
        known = self._names.get(text)
        if known is None:
            known = self._names[text] = Extent(self, value, f"v{len(self._names)}")
            self._texts[known.name] = text
        return known

    def derived(self, function: Callable[..., int], arguments: Sequence[Any]) -> Extent:
        """What a function gave."""
        return self.computed(
            function(*map(plain, arguments)), self._call_text(function, arguments, {})
        )

    def require(self, text: str) -> None:
        """Keeps what a comparison came to."""
        self._required[text] = None

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """What a function without effects gives; recorded, once, where that depends on extents."""
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

    def finished(self, result: Recorded) -> Replay:
        """The program that makes the result."""
        names = ", ".join(it.name for it in self._inputs)
        objects = dict(self._objects.values())
        conditions = " and ".join(f"({it})" for it in self._required) or "True"
        holds = [f"def holds({names}):", *self._definitions(conditions), f"    return {conditions}"]
        lines = "\n".join(f"    {it}" for it in self._lines)
        make = [
            f"def make({names}):",
            *self._definitions(lines),
            lines,
            f"    return {result.name}",
        ]
        exec(compile("\n".join([*holds, *make]), "<recorded>", "exec"), objects)
        return Replay(objects["holds"], objects["make"])

    # ------------------------------------------------------------ inside

    def _definitions(self, text: str) -> Iterator[str]:
        """Lines that compute what the text names."""
        needed: set[str] = set()
        stack = _words(text)
        while stack:
            name = stack.pop()
            if name in self._texts and name not in needed:
                needed.add(name)
                stack.extend(_words(self._texts[name]))
        return (f"    {name} = {text}" for name, text in self._texts.items() if name in needed)

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
        if is_plain(argument) and not isinstance(argument, list | dict):
            return self._object(argument)
        if isinstance(argument, tuple):
            inner = "".join(f"{self.text(it)}, " for it in argument)
            return (
                f"({inner})"
                if type(argument) is tuple
                else (f"{self._object(type(argument))}({inner})")
            )
        if isinstance(argument, list):
            return f"[{', '.join(map(self.text, argument))}]"
        return f"{{{', '.join(f'{name!r}: {self.text(it)}' for name, it in argument.items())}}}"

    def _object(self, it: Any) -> str:
        known = self._objects.setdefault(id(it), (f"c{len(self._objects)}", it))
        return known[0]


def _words(text: str) -> list[str]:
    return "".join(it if it.isalnum() or it == "_" else " " for it in text).split()


class Replay:
    """What a recording does, for any extents of inputs.

    Attributes
    ----------
    holds : callable
        Whether comparisons come to the same for these extents.
    make : callable
        What was made, for these extents.
    """

    def __init__(self, holds: Callable[..., bool], make: Callable[..., Any]) -> None:
        self.holds, self.make = holds, make
