"""Strings in networks: every text has a code, and arrays of codes travel where strings do.

Codes are 64-bit numbers of a type of their own, so that moves, comparisons and look-ups run as on
numbers, and operators that take no strings refuse them. Texts of models are numbered from 0 on when
a model is read, for as long as the process lives; those that only the inputs of a call have are
numbered from -1 downwards, for this call.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dlprim.arguments.locks import Lock
from dlprim.graph.graph import Array

# No number of ONNX is of this type; NumPy moves and compares its elements as 64-bit integers.
STRING = np.dtype("m8")

_codes: dict[str, int] = {}
_texts: list[str] = []
_lock = Lock()


def name_of(dtype: str) -> str:
    """What ONNX calls the type of elements that NumPy calls so."""
    return "string" if dtype == STRING.name else dtype


def coded(texts: Any) -> Array:
    """The codes of a model's texts, in their shape."""
    array = np.asarray(texts, object)
    with _lock:
        codes = [_code_of(it) for it in array.reshape(-1)]
    return np.array(codes, np.int64).reshape(array.shape).view(STRING)


def in_codes(array: Array) -> Array:
    """An array of a model, with codes for its texts where it has objects."""
    return coded(array) if array.dtype == object else array


def _code_of(text: str) -> int:
    code = _codes.get(text)
    if code is None:
        code = _codes[text] = len(_texts)
        _texts.append(text)
    return code


def has_texts(result: Any) -> bool:
    """Whether an array, or one of a list of them, is of codes."""
    if isinstance(result, list):
        return any(map(has_texts, result))
    return result is not None and bool(result.dtype == STRING)


class Texts:
    """What the inputs of one call have besides the texts of models."""

    def __init__(self) -> None:
        self._own: dict[str, int] = {}

    def coded(self, texts: Array) -> Array:
        """The codes of an array of objects, all of which have to be text.

        Raises
        ------
        TypeError
            Where one is not.
        """
        flat = texts.reshape(-1).tolist()
        codes: Any = [None]
        if not self._own:
            try:
                codes = list(map(_codes.get, flat))
            except TypeError:  # of what is no text and cannot be looked up
                codes = [None]
        if None in codes:
            codes = [self._code_of(it) for it in flat]
        return np.array(codes, np.int64).reshape(texts.shape).view(STRING)

    def _code_of(self, text: Any) -> int:
        if not isinstance(text, str):
            raise TypeError(f"an element is of {type(text).__name__}, expected str")
        # Its own first: meanwhile another model may be loaded that has the text.
        code = self._own.get(text)
        code = _codes.get(text) if code is None else code
        return self._own.setdefault(str(text), -1 - len(self._own)) if code is None else code

    def decoded(self, results: Iterable[Any]) -> list[Any]:
        """Arrays of texts, as objects, in the place of their codes; others as they are."""
        own = list(self._own)

        def text(code: int) -> str:
            return _texts[code] if code >= 0 else own[-1 - code]

        def found(result: Any) -> Any:
            if isinstance(result, list):
                return [found(it) for it in result]
            if not has_texts(result):
                return result
            codes = result.view(np.int64)
            made = np.array([text(it) for it in codes.reshape(-1).tolist()], object)
            return made.reshape(result.shape)

        return [found(it) for it in results]
