"""Keyword arguments that have another name, or another form, here: told what is expected.

They are those of an earlier version, and those of PyTorch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, NoReturn, TypeVar

from dlprim.arguments.traced import traced_among

Function = TypeVar("Function", bound=Callable[..., Any])

# What PyTorch's functions call their first arrays.
ARRAYS = {"input": "x", "weight": "w"}
IN_PLACE = {"inplace": "out=x, which writes into x"}
AXES = {"input": "x", "dim": "axis", "keepdim": "keepdims"}
# What all of its layers take.
LAYER = {
    "device": "none: there is the CPU alone",
    "dtype": "model.use(nn.Context('bfloat16')) for activations; parameters are float32",
}


def instead(**expected: str) -> Callable[[Function], Function]:
    """Of a function without some keyword arguments: a call with one is told what is expected.

    Of arrays that are traced it gives what they say. It adds a call of Python to each; `refusing`
    does without, for functions whose calls are short.

    Parameters
    ----------
    **expected : str
        By a name that it does not have what stands in its place, for example
        ``relu="activation='relu'"``.
    """

    def decorate(function: Function) -> Function:
        @wraps(function)
        def call(*given: Any, **named: Any) -> Any:
            try:
                return function(*given, **named)
            except TypeError:
                traced = traced_among((*given, *named.values()))
                if traced is not None and traced.knows(function.__name__):
                    return traced.called(function.__name__, given, named)
                name = call.__qualname__
                if name.endswith(".__init__"):  # perhaps of a class that inherits it
                    name = type(given[0]).__name__
                _tell(name, named, expected)
                raise

        return call  # type: ignore[return-value]

    return decorate


def refusing(**expected: str) -> Callable[[Function], Function]:
    """Of a function that takes any other keyword arguments, for `refuse`, and does not show them.

    Parameters
    ----------
    **expected : str
        As for `instead`.
    """

    def decorate(function: Function) -> Function:
        shown = inspect.signature(function)
        taken = [it for it in shown.parameters.values() if it.kind is not it.VAR_KEYWORD]
        vars(function).update(expected=expected, __signature__=shown.replace(parameters=taken))
        return function

    return decorate


def refuse(function: Callable[..., Any], others: Mapping[str, Any]) -> NoReturn:
    """TypeError for arguments that a function of `refusing` does not have."""
    _tell(function.__name__, others, vars(function)["expected"])
    raise TypeError(
        f"{function.__name__}() got an unexpected keyword argument {next(iter(others))!r}"
    )


def _tell(name: str, given: Mapping[str, Any], expected: Mapping[str, str]) -> None:
    for other, here in expected.items():
        if other in given:
            raise TypeError(f"{name} has no argument {other}, expected {here}") from None
