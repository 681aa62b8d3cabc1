"""Public functions whose TypeErrors are told in other words are functions all the same."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import pydoc
import sys
import weakref
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import _core
from dlprim.arguments.instead import instead

pytestmark = pytest.mark.any_level

FUNCTIONS = [dlprim.conv2d, dlprim.linear, dlprim.gelu, dlprim.max_pool2d, dlprim.reduce_sum]


class Layer:
    @instead(size="extent")
    def __init__(self, extent: int) -> None:
        self.extent = extent

    @instead()
    def times(self, number: int, *, more: int = 0) -> int:
        return self.extent * number + more


class Wider(Layer):
    pass


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda it: it.__name__)
def test_they_are_found_shown_and_copied_as_functions(function: Any) -> None:
    assert inspect.isroutine(function)
    assert getattr(dlprim, function.__name__) is function
    assert repr(function).startswith(f"<function {function.__name__} ")
    assert function.__doc__
    assert function.__doc__.splitlines()[0] in pydoc.plain(pydoc.render_doc(function))
    assert next(iter(inspect.signature(function).parameters)) == "x"
    assert pickle.loads(pickle.dumps(function)) is copy.deepcopy(function) is function
    assert weakref.ref(function)() is function


def test_in_a_class_they_are_methods() -> None:
    layer = Wider(extent=3)
    assert layer.times(2) == Layer.times(layer, number=2) == 6
    assert layer.times(*[2], **{"more": 1}) == 7
    assert list(inspect.signature(Wider).parameters) == ["extent"]
    with pytest.raises(TypeError, match=r"^Wider has no argument size, expected extent$"):
        Wider(size=3)  # type: ignore[call-arg]


def test_an_error_without_an_answer_is_the_one_that_was_raised() -> None:
    raised = TypeError("no")

    def fails(kind: Exception) -> None:
        raise kind

    asked: list[Any] = []
    answered = _core.answered(fails, lambda *given: asked.append(given) or NotImplemented)
    with pytest.raises(TypeError) as found:
        answered(raised)
    assert found.value is raised
    assert found.value.__context__ is None
    assert found.traceback[-1].name == "fails"
    with pytest.raises(ValueError, match=r"^other$"):
        answered(kind=ValueError("other"))
    with pytest.raises(TypeError, match="missing 1 required"):
        answered()
    assert asked == [((raised,), {}), ((), {})]


def test_what_answers_gives_a_result_or_an_error_in_its_place() -> None:
    def fails(*given: Any, **named: Any) -> None:
        raise TypeError

    answered = _core.answered(fails, lambda given, named: (given, named))
    assert answered(1, 2, a=3) == ((1, 2), {"a": 3})

    def divides(given: Any, named: Any) -> float:
        return 1 / 0

    with pytest.raises(ZeroDivisionError):
        _core.answered(fails, divides)()


def test_they_let_go_of_arguments_and_of_themselves() -> None:
    array = np.ones((2, 3), np.float32)
    before = sys.getrefcount(array)
    for _ in range(3):
        dlprim.relu(array)
        with pytest.raises(TypeError):
            dlprim.relu(array, inplace=True)  # type: ignore[call-arg]
        with pytest.raises(TypeError):
            dlprim.linear(array, weight=array)  # type: ignore[call-arg]
    gc.collect()
    assert sys.getrefcount(array) == before

    def plain() -> None:
        return None

    made = _core.answered(plain, lambda *given: NotImplemented)
    made.itself = made
    ends = weakref.ref(made)
    del made
    gc.collect()
    assert ends() is None
