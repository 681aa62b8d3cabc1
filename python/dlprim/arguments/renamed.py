"""Keyword arguments that had another name, or another form, in an earlier version."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def formerly(**expected: str) -> Callable[[Function], Function]:
    """Of a function that lost keyword arguments: a call with one is told what is expected now.

    Parameters
    ----------
    **expected : str
        By the old name what stands in its place, for example ``relu="activation='relu'"``.
    """

    def decorate(function: Function) -> Function:
        @wraps(function)
        def call(*given: Any, **named: Any) -> Any:
            try:
                return function(*given, **named)
            except TypeError:
                for old, now in expected.items():
                    if old in named:
                        name = function.__qualname__.removesuffix(".__init__")
                        raise TypeError(f"{name} has no argument {old}, expected {now}") from None
                raise

        return call  # type: ignore[return-value]

    return decorate
