"""Arrays that stand for others while a function is traced, as functions meet them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NoReturn


class Traced(ABC):
    """An array of which only shape and dtype are known (`dlprim.tracing`)."""

    __slots__ = ()

    @abstractmethod
    def called(self, function: str, given: Sequence[Any], named: dict[str, Any]) -> Any:
        """What the public function of this name gives of these arguments."""

    @abstractmethod
    def refuse(self) -> NoReturn:
        """Says that the function that is running takes no such arrays."""


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
