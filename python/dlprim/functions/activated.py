"""What gradients of functions with ``activation=`` need besides their operands: y or z."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from dlprim.arguments.arrays import Array, aligned
from dlprim.arguments.floats import type_of
from dlprim.arguments.names import FROM_ARGUMENT
from dlprim.primitives.linear import Linear

_MOST_CHANNELS = 1 << 24  # of a linear layer


def saved_by(activation: str | None, y: Any, z: Any, function: str) -> tuple[str | None, Any]:
    """Which of y and z the slope of an activation is taken from, and that.

    ValueError where it is missing, or the other one is given.
    """
    needs = None if activation is None else "z" if activation in FROM_ARGUMENT else "y"
    if (y is None) is (needs == "y") or (z is None) is (needs == "z"):
        raise ValueError(_about(needs, activation, (y is not None, z is not None), function))
    return needs, y if z is None else z


def in_front(activation: str, dy: Array, saved: Array) -> Array:
    """The gradient in front of an activation of arrays from `float_operand`, in a new array."""
    axis = 2 if math.prod(dy.shape[2:]) <= _MOST_CHANNELS else 3
    rows, columns = math.prod(dy.shape[:axis]), math.prod(dy.shape[axis:])
    result = aligned(dy.shape, dy.dtype)
    flat = [array.reshape(rows, columns) for array in (dy, saved, result)]
    _layer(rows, columns, type_of(dy), activation).backward_activation(*flat[:2], out=flat[2])
    return result


@lru_cache(maxsize=128)
def _layer(rows: int, columns: int, dtype: str, activation: str) -> Linear:
    """One whose results are such arrays; it multiplies nothing here."""
    return Linear((rows, 1), columns, dtype=dtype, activation=activation, layout="plain")


def _about(needs: str | None, activation: str | None, has: tuple[bool, bool], function: str) -> str:
    """Why there has to be a y or a z, or must not be one."""
    given = "y" if has[0] and needs != "y" else "z" if has[1] and needs != "z" else None
    if needs is None:
        return (
            f"{given} is given and activation is None, expected no {given}, or the activation "
            f"that was passed to {function}"
        )
    gradient = f"the gradient of activation={activation!r} needs"
    what = f"the result of {function}"
    if needs == "z":
        call = f"{function}(x, w, bias)" if function == "linear" else f"{function} without it"
        what = f"what the activation was applied to, {call}, not the result"
    if given:
        return f"{given} is given, but {gradient} {needs}, {what}"
    return f"{needs} is missing: {gradient} {what}"
