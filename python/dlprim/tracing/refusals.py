"""What cannot be traced, said in one sentence with the line of the user's function."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import numpy as np

from dlprim.arguments.traced import RUNNING

_OWN = (
    *(str(Path(it).parent) for it in (Path(__file__).parent, np.__file__)),
    "<dlprim",
    "<__array_function__",
)


class TraceError(TypeError):
    """Something in a function cannot become a node of a network."""


class ForeignArrayError(TraceError):
    """An array of another trace is used: that around this one, or one that has ended."""


def _place() -> tuple[str, int]:
    """File and line of the innermost function that is neither NumPy's nor dlprim's."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_OWN):
            return file, frame.f_lineno
        frame = frame.f_back
    return "a file that is not known", 0


def user_line() -> str:
    """Where the user's function is, for a message, and which layer of this package it runs."""
    file, line = _place()
    inside = f", in {RUNNING.layer}" if RUNNING.layer else ""
    return f"{file}, line {line}{inside}"


def node_name() -> str:
    """The layer, or where the user's function is, for the nodes that it makes."""
    if RUNNING.place:
        return RUNNING.place
    file, line = _place()
    return f"{Path(file).name}:{line}"


def function_line(function: Any) -> str:
    """Where a function begins, in front of a message; empty of what is not written in Python."""
    code = getattr(function, "__code__", None)
    return "" if code is None else f"{code.co_filename}, line {code.co_firstlineno}: "


def running_function() -> str:
    """Which function of dlprim the user's has called."""
    frame: FrameType | None = sys._getframe(2)
    name = ""
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):
        code = frame.f_code
        name = name if code.co_name == "call" else code.co_qualname
        frame = frame.f_back
    return name


def refuse(what: str, expected: str) -> NoReturn:
    """Raises `TraceError`: what is met, and what may stand there instead."""
    raise TraceError(f"{user_line()}: {what}, expected {expected}")


def located(error: Exception) -> Exception:
    """The error with the user's line in front of what it says."""
    kind = type(error) if type(error) in (ValueError, TypeError, IndexError) else ValueError
    return kind(f"{user_line()}: {error}")
