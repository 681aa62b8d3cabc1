"""Extents that remember how they were computed, so that a network is compiled once for many shapes.

While a network is compiled for inputs some of whose extents are `Extent`s, arithmetic on these is
written down, and so is what every comparison of them came to. What is compiled then holds for all
shapes for which the comparisons come to the same. Whoever takes an extent for a plain number, NumPy
or the core for example, pins it: it has to be this number again.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dlprim.arguments.traced import RUNNING

if TYPE_CHECKING:
    from dlprim.graph.recording import Recording

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
    """A number that follows from extents of inputs: one itself, or a float, or whether it is so."""

    __slots__ = ()

    def _made(
        self, other: object, sign: str, compute: Callable[[Any, Any], Any], back: bool = False
    ) -> Any:
        if isinstance(other, Extent):
            theirs, value = other.name, other.value
        elif isinstance(other, int | float):
            value = float(other) if isinstance(other, float) else int(other)
            theirs = f"({self.recording.text(value)})"
        else:
            return NotImplemented
        left, right = (theirs, self.name) if back else (self.name, theirs)
        result = compute(value, self.value) if back else compute(self.value, value)
        return self.recording.computed(result, f"{left} {sign} {right}")

    def __add__(self, other: object) -> Any:
        return self if _is(other, 0) else self._made(other, "+", operator.add)

    def __radd__(self, other: object) -> Any:
        return self if _is(other, 0) else self._made(other, "+", operator.add, True)

    def __sub__(self, other: object) -> Any:
        return self if _is(other, 0) else self._made(other, "-", operator.sub)

    def __rsub__(self, other: object) -> Any:
        return self._made(other, "-", operator.sub, True)

    def __mul__(self, other: object) -> Any:
        return self if _is(other, 1) else self._made(other, "*", operator.mul)

    def __rmul__(self, other: object) -> Any:
        return self if _is(other, 1) else self._made(other, "*", operator.mul, True)

    def __floordiv__(self, other: object) -> Any:
        return self if _is(other, 1) else self._made(other, "//", operator.floordiv)

    def __rfloordiv__(self, other: object) -> Any:
        return self._made(other, "//", operator.floordiv, True)

    def __truediv__(self, other: object) -> Any:
        return self._made(other, "/", operator.truediv)

    def __rtruediv__(self, other: object) -> Any:
        return self._made(other, "/", operator.truediv, True)

    def __mod__(self, other: object) -> Any:
        return self._made(other, "%", operator.mod)

    def __rmod__(self, other: object) -> Any:
        return self._made(other, "%", operator.mod, True)

    def __pow__(self, other: object) -> Any:
        return self._made(other, "**", operator.pow)

    def __rpow__(self, other: object) -> Any:
        return self._made(other, "**", operator.pow, True)

    def __and__(self, other: object) -> Any:
        return self._made(other, "&", operator.and_)

    def __rand__(self, other: object) -> Any:
        return self._made(other, "&", operator.and_, True)

    def __neg__(self) -> Any:
        return self.recording.computed(-self.value, f"-{self.name}")

    def __pos__(self) -> Extent:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __floor__(self) -> Any:
        return self if isinstance(self.value, int) else derived(math.floor, self)

    def __ceil__(self) -> Any:
        return self if isinstance(self.value, int) else derived(math.ceil, self)

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
        return hash(self.value if RUNNING.tracer is None else self._pinned())

    # ------------------------------------------------------------ plain numbers

    def __index__(self) -> int:
        return operator.index(self._pinned())

    def __int__(self) -> int:
        return int(self._pinned())

    def __float__(self) -> float:
        return float(self._pinned())

    def _pinned(self) -> Any:
        self.recording.require(f"{self.name} == {self.recording.text(self.value)}")
        return self.value

    def __str__(self) -> str:
        return str(self._pinned())

    def __format__(self, how: str) -> str:
        return format(self._pinned(), how)

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


def may_hold(dtype: Any) -> bool:
    """Whether arrays of objects stand for arrays of the type, or have such elements compared."""
    return dtype.kind == "b" or dtype.name in _MOST


def require_range(array: Any, dtype: Any) -> None:
    """Refuses extents that arithmetic in arrays of the type might have wrapped."""
    most = _MOST.get(dtype.name, 0)
    if not all(-most <= it <= most for it in array.reshape(-1)):
        raise OverflowError(f"{array} may not be what {dtype} holds")


def derived(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function without effects gives, of arguments that may be recorded.

    Numbers, arrays, and tuples of them are recorded then, too.
    """
    found = _recording_of(arguments)
    return function(*arguments) if found is None else found.derived(function, arguments)


def _recording_of(argument: Any) -> Recording | None:
    if isinstance(argument, Recorded):
        return argument.recording
    parts = parts_of(argument)
    return next((it for it in map(_recording_of, parts) if it is not None), None)


def parts_of(argument: Any) -> Sequence[Any]:
    """What an argument holds that may be recorded."""
    if isinstance(argument, dict):
        return tuple(argument.values())
    if isinstance(argument, slice):
        return argument.start, argument.stop, argument.step
    if has_extents(argument):
        listed: list[Any] = argument.reshape(-1).tolist()
        return listed
    return argument if isinstance(argument, tuple | list) else ()


def has_extents(array: Any) -> bool:
    """Whether it is an array of objects, some of which are extents."""
    is_array = isinstance(array, np.ndarray) and array.dtype == object
    return is_array and not is_known(array.reshape(-1))


def plain(argument: Any) -> Any:
    """The argument without recordings: what they hold."""
    if isinstance(argument, Recorded):
        return argument.value
    if has_extents(argument):
        return np.array(plain(argument.reshape(-1).tolist())).reshape(argument.shape)
    if isinstance(argument, slice):
        return slice(*map(plain, parts_of(argument)))
    if isinstance(argument, tuple) and type(argument) is not tuple:
        return type(argument)(*map(plain, argument))
    if isinstance(argument, tuple | list):
        return type(argument)(map(plain, argument))
    if isinstance(argument, dict):
        return {name: plain(it) for name, it in argument.items()}
    return argument


def is_plain(argument: Any) -> bool:
    """Whether nothing of the argument is recorded."""
    return not isinstance(argument, Recorded) and all(map(is_plain, parts_of(argument)))
