"""The packages of the extra, imported when something needs them, and named where they are not."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def package(name: str, what: str) -> Any:
    """A package of the extra ``llm``; ImportError says what needs it and how to install it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(
            f'{what} needs the package {name.partition(".")[0]}: pip install "dlprim[llm]" '
            f"({error})"
        ) from error
