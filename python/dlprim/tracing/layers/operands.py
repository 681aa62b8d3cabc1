"""Operands of dlprim's functions in a trace, checked as the functions check arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from dlprim.arguments.arrays import about_numbers, require_shape
from dlprim.tracing.array import TracedArray, layer
from dlprim.tracing.refusals import located
from dlprim.tracing.tracer import is_float, tracer_of

Function = Callable[..., Any]


def checked_layer(function: Function) -> Function:
    """A `layer` whose refusals have the user's line in front."""

    @wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        try:
            return function(*given, **named)
        except (TypeError, ValueError, IndexError) as error:
            if ", line " in str(error):
                raise
            raise located(error) from error

    return layer(call)


def floats(**arrays: Any) -> list[Any]:
    """Arrays of floats by the names of arguments; None stays."""
    tracer = tracer_of(list(arrays.values()))
    found: list[Any] = []
    for name, it in arrays.items():
        if it is None:
            found.append(None)
            continue
        if not isinstance(it, TracedArray):
            it = TracedArray(tracer, tracer.value(it))
        if not is_float(it.dtype) or it.dtype == np.float16:
            how = about_numbers(name, it.dtype)
            raise TypeError(f"{name} has dtype {it.dtype}, expected float32 or bfloat16{how}")
        found.append(it)
    return found


def alike(name: str, x: Any, other: str, like: Any) -> None:
    """Raises where an array has another type than the first one."""
    if x is not None and x.dtype != like.dtype:
        raise TypeError(f"{name} has dtype {x.dtype}, expected {like.dtype} as {other} has")


def shaped(name: str, x: Any, shape: tuple[int, ...], why: str) -> None:
    """Raises where an array has another shape."""
    if x is not None:
        require_shape(name, x, shape, why)


def counted(name: str, places: Any, extent: Any, error: type[Exception]) -> Any:
    """Places, of which none is out of range or counts from the end; an error says which is."""
    for it in (places.min(), places.max()) if places.size else ():
        if not 0 <= it < extent:
            raise error(f"{name} holds {it}, expected values in [0, {extent})")
    return places


def values(*arrays: Any) -> list[Any]:
    """Of arrays their values, None of None."""
    return [None if it is None else it.value for it in arrays]
