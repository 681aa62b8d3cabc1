"""The examples in docstrings of public names do what they show, as those of the pages do."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator

import numpy as np
import pytest

import dlprim

pytestmark = [pytest.mark.any_level, pytest.mark.slow]

NAMES = {"np": np, "dlprim": dlprim}


def _public() -> Iterator[tuple[str, object]]:
    for name in dlprim.__all__:
        it = getattr(dlprim, name)
        yield name, it
        if inspect.isclass(it):
            yield from ((f"{name}.{method}", each) for method, each in vars(it).items())


def _examples() -> Iterator[doctest.DocTest]:
    parser = doctest.DocTestParser()
    for name, it in _public():
        text = inspect.getdoc(it) or ""
        if ">>>" in text and (callable(it) or inspect.ismodule(it)):
            yield parser.get_doctest(text, dict(NAMES), name, None, None)


EXAMPLES = {it.name: it for it in _examples()}


def test_examples_are_found() -> None:
    assert {"contract", "conv1d", "pad"} <= set(EXAMPLES)


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_examples_hold(name: str) -> None:
    said: list[str] = []
    doctest.DocTestRunner(verbose=False).run(EXAMPLES[name], out=said.append)
    assert not said, "".join(said)
