"""help() of every public name: sections, every parameter, and signatures that a person can read."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import dlprim

pytestmark = pytest.mark.any_level

LONGEST = 560  # characters of a signature; a union of all that is a dtype has 200


def _public() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in dlprim.__all__:
        it = getattr(dlprim, name)
        if callable(it):
            yield name, it
        if inspect.isclass(it):
            for method, function in inspect.getmembers(it, callable):
                if method == "__call__" or not method.startswith("_"):
                    yield f"{name}.{method}", function


PUBLIC = dict(_public())


@pytest.mark.parametrize("name", PUBLIC)
def test_documentation(name: str) -> None:
    it = PUBLIC[name]
    text, signature = inspect.getdoc(it) or "", inspect.signature(it)
    parameters = [each for each in signature.parameters if each != "self"]
    missing = [each for each in parameters if not re.search(rf"\b{each}\b", text)]
    assert not missing, f"{name} does not say what these are"
    assert not parameters or "Parameters\n----------\n" in text
    assert not re.search(r"^(Errors|Returns): ", text, re.MULTILINE)
    assert not re.search(r"^(Type|Value)Error (or|where)", text, re.MULTILINE)
    nothing = (None, "None", inspect.Signature.empty)
    if not inspect.isclass(it) and signature.return_annotation not in nothing:
        assert "Returns\n-------\n" in text
    if parameters and name != "Activations.empty":  # which takes whatever it is given
        assert "Raises\n------\n" in text


@pytest.mark.parametrize("name", PUBLIC)
def test_signatures_can_be_read(name: str) -> None:
    text = str(inspect.signature(PUBLIC[name]))
    assert len(text) < LONGEST
    assert "numpy._typing" not in text
    assert "Union" not in text
