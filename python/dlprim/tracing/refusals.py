"""What cannot be traced, said in one sentence with the line of the user's function."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

import numpy as np

_OWN = tuple(str(Path(it).parent) for it in (Path(__file__).parent, np.__file__))


class TraceError(TypeError):
    """Something in a function cannot become a node of a network."""


def user_line() -> str:
    """Where the innermost function stands that is neither NumPy's nor dlprim's."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((*_OWN, "<dlprim", "<__array_function__")):
            return f"{file}, line {frame.f_lineno}"
        if frame.f_back is None:
            break
        frame = frame.f_back
    return "a line that is not known"


def refuse(what: str, expected: str) -> NoReturn:
    """Raises `TraceError`: what is met, and what may stand there instead."""
    raise TraceError(f"{user_line()}: {what}, expected {expected}")


def located(error: Exception) -> Exception:
    """The error with the user's line in front of what it says."""
    kind = type(error) if type(error) in (ValueError, TypeError, IndexError) else ValueError
    return kind(f"{user_line()}: {error}")
