"""Numbers given as arguments, checked: each refusal is a sentence that names the argument."""

from __future__ import annotations

import math
from operator import index
from typing import Any

import numpy as np


def shown(value: Any) -> str:
    """What a message says that an argument is: of an array the shape, not the elements."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape:
        return f"an array of shape {shape}"
    return repr(value)


def refuse_array(name: str, value: Any, axes: str) -> None:
    """Raise TypeError where an array of several axes is given for its shape."""
    if getattr(value, "ndim", 1) > 1:
        raise TypeError(
            f"{name} is {shown(value)}, expected the shape itself, a tuple of integers {axes}"
        )


def refuse_flag(value: Any) -> Any:
    """``value``; TypeError for True and False, which Python counts as integers."""
    if value is True or value is False:
        raise TypeError
    return value


def integer(name: str, value: Any, least: int, end: int = 2**63) -> int:
    """``value`` as an int in [least, end); TypeError for no integer, ValueError outside."""
    try:
        number = index(refuse_flag(value))
    except TypeError:
        raise TypeError(f"{name} is {shown(value)}, expected an integer") from None
    if not least <= number < end:
        largest = "" if end == 2**63 > number else f" and below {end}"
        raise ValueError(f"{name} is {number}, expected an integer of at least {least}{largest}")
    return number


def held_integer(name: str, value: Any) -> int:
    """An extent or step that an argument holds, as an int of 32 bits; else as `integer`."""
    try:
        number = index(refuse_flag(value))
    except TypeError:
        raise TypeError(f"{name} holds {shown(value)}, expected an integer") from None
    if not -(2**31) <= number < 2**31:
        raise ValueError(f"{name} holds {number}, which is out of range")
    return number


def typed_integer(name: str, value: Any) -> int:
    """``value`` as an int of any size; TypeError names the type of what is none."""
    try:
        return index(refuse_flag(value))
    except TypeError:
        raise TypeError(f"{name} is of type {type(value).__name__}, expected an integer") from None


def flag(name: str, value: Any) -> bool:
    """``value`` as a bool; TypeError for everything else, however true it may be."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise TypeError(f"{name} is {value!r}, expected True or False")


def operand_flag(name: str, value: Any, taker: str) -> bool:
    """As `flag`, where callers confuse saying that there is an operand with passing it."""
    if isinstance(getattr(value, "shape", None), tuple) and value.shape:
        raise TypeError(
            f"{name} is {shown(value)}, expected True or False: "
            f"the array itself is an argument of {taker}"
        )
    return flag(name, value)


def real(name: str, value: Any, least: float = -math.inf) -> float:
    """``value`` as a finite float of at least ``least``; else as `integer`."""
    if type(value) is float and least <= value < math.inf:
        return value
    try:
        number = math.nan if isinstance(value, str | bytes | bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if math.isfinite(number) and number >= least:
        return number
    bound = "" if least == -math.inf else f" >= {least:g}"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    kind = ValueError if is_number else TypeError
    raise kind(f"{name} is {shown(value)}, expected a finite number{bound}")


def fraction(name: str, value: Any, closed: bool = True) -> float:
    """``value`` in [0, 1], or in [0, 1) unless ``closed``; else as `integer`."""
    if type(value) is float and 0 <= value < 1:
        return value
    number = real(name, value)
    if not (0 <= number < 1 or (closed and number == 1)):
        raise ValueError(f"{name} is {value}, expected a number in [0, 1{']' if closed else ')'}")
    return number
