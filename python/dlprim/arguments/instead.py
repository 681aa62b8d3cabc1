"""Keyword arguments that have another name, or another form, here: told what is expected.

They are those of an earlier version, and those of PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from dlprim import _core
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

    Of arrays that are traced it gives what they say. Both are looked at where a call ends in a
    TypeError; others are as short as without.

    Parameters
    ----------
    **expected : str
        By a name that it does not have what stands in its place, for example
        ``relu="activation='relu'"``.
    """

    def decorate(function: Function) -> Function:
        def answer(given: tuple[Any, ...], named: dict[str, Any]) -> Any:
            traced = traced_among((*given, *named.values()))
            if traced is not None:
                return traced.called(function.__name__, given, named)
            name = function.__qualname__
            if name.endswith(".__init__"):  # perhaps of a class that inherits it
                name = type(given[0]).__name__
            for other, here in expected.items():
                if other in named:
                    raise TypeError(f"{name} has no argument {other}, expected {here}")
            return NotImplemented

        return wraps(function)(_core.answered(function, answer))  # type: ignore[return-value]

    return decorate
