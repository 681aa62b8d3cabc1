"""Arrays that stand for others while a function is traced, as functions meet them."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NoReturn

from numpy.lib.mixins import NDArrayOperatorsMixin


class _Running(threading.local):
    """What is traced in this thread.

    Attributes
    ----------
    tracer : Tracer or None
        Of the trace that is under way.
    place : str
        What nodes are called there; empty where they are called by the line of the function.
    layer : str
        What errors call the layer of this package that is running; empty in functions of users.
    """

    tracer: Any = None
    place = ""
    layer = ""


# The trace that this thread is in the middle of, if there is one.
RUNNING = _Running()


class Traced(ABC):
    """An array of which only shape and dtype are known (`dlprim.tracing`)."""

    __slots__ = ()

    @abstractmethod
    def called(self, function: str, given: Sequence[Any], named: dict[str, Any]) -> Any:
        """What the public function of this name gives of these arguments."""

    @abstractmethod
    def knows(self, function: str) -> bool:
        """Whether `called` gives anything for the public function of this name."""

    @abstractmethod
    def refuse(self) -> NoReturn:
        """Says that the function that is running takes no such arrays."""


class Held(Traced, NDArrayOperatorsMixin):
    """An array that outlives calls: in a trace it is an input of the network, met on demand.

    There it has the operators, methods and attributes of a traced array; every run of the network
    reads `held` anew. Elsewhere it is no array.

    Attributes
    ----------
    name : str
    is_drawn : bool
        Of the class: whether `held` is another array each time.
    """

    __slots__ = ()
    name: str
    is_drawn = False
    __hash__ = object.__hash__

    @property
    @abstractmethod
    def held(self) -> Any:
        """The ndarray, in C order, for who does not write it, or calls `written`."""

    @property
    def form(self) -> tuple[tuple[int, ...], Any]:
        """The shape and the dtype of `held`."""
        return self.held.shape, self.held.dtype

    def key(self) -> int:
        """What two that hold one array have in common."""
        return id(self.held)

    @abstractmethod
    def written(self) -> None:
        """Says that `held` was written."""

    def __eq__(self, other: object) -> Any:
        """Of elements, with numbers and arrays in a trace; else whoever looks for one means it."""
        if RUNNING.tracer is None or other is None or isinstance(other, Held):
            return self is other
        return self._in_trace() == other

    def __ne__(self, other: object) -> Any:
        if RUNNING.tracer is None or other is None or isinstance(other, Held):
            return self is not other
        return self._in_trace() != other

    def __bool__(self) -> bool:
        return True  # it is there

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **named: Any) -> Any:
        return self._in_trace().__array_ufunc__(ufunc, method, *inputs, **named)

    def __array_function__(self, function: Any, types: Any, given: Any, named: Any) -> Any:
        return self._in_trace().__array_function__(function, types, given, named)

    def __array__(self, *given: Any, **named: Any) -> Any:
        return self._in_trace().__array__(*given, **named)

    def __getitem__(self, key: Any) -> Any:
        return self._in_trace()[key]

    def __iter__(self) -> Any:
        return iter(self._in_trace())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or RUNNING.tracer is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._in_trace(), name)

    def called(self, function: str, given: Sequence[Any], named: dict[str, Any]) -> Any:
        return self._in_trace().called(function, given, named)

    def knows(self, function: str) -> bool:
        found: bool = self._in_trace().knows(function)
        return found

    def refuse(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} {self.name!r} is used as an array, expected its value, as in "
            "parameter.value; in the forward of a module, which model(x) traces, it is one itself"
        )

    def _in_trace(self) -> Any:
        """What it is in the trace that is running."""
        if RUNNING.tracer is None:
            self.refuse()
        return RUNNING.tracer.of_held(self)


class HeldArray(Held):
    """An ndarray that networks read, and may write, in every run."""

    def __init__(self, array: Any, name: str) -> None:
        self._array, self.name = array, name

    @property
    def held(self) -> Any:
        return self._array

    def written(self) -> None:
        """Nobody asks."""


def lifted(tracer: Any, it: Any) -> Any:
    """An argument with what it is in the trace for each `Held` in it."""
    if isinstance(it, Held):
        return tracer.of_held(it)
    if type(it) is list or type(it) is tuple:
        return type(it)([lifted(tracer, part) for part in it])
    if type(it) is dict:
        return {key: lifted(tracer, part) for key, part in it.items()}
    return it


def traced_among(arguments: Sequence[Any]) -> Traced | None:
    """One of the arguments that is traced, or is a list or tuple with such a one."""
    for it in arguments:
        if isinstance(it, Traced):
            return it
        if isinstance(it, list | tuple):
            found = traced_among(it)
            if found is not None:
                return found
    return None
