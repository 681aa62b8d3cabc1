"""Functions of new shapes: what was recorded for one is right for the others, or made again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim.tracing import compiled as tracing

pytestmark = pytest.mark.any_level


def rows(n: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(n).standard_normal((n, 6), dtype=np.float32)


def results(function: Callable[..., Any], *args: Any) -> Any:
    """The result, or what it raises."""
    try:
        return function(*args)
    except (TypeError, ValueError, OverflowError) as error:
        return repr(error)


NUMBERS: dict[str, tuple[Callable[[Any], Any], Any, tuple[int, ...]]] = {
    "a bound": (lambda x: np.minimum(x, x.shape[0] // 2), np.uint8, (64, 128, 200, 600)),
    "a sum": (lambda x: x + x.shape[0], np.uint8, (20, 40, 60, 260)),
    "a difference": (lambda x: x.shape[0] - x, np.uint8, (20, 40, 60, 300)),
    "a product": (lambda x: x * x.shape[0] ** 5, np.int32, (5, 6, 7, 90)),
    "a comparison": (lambda x: x < x.shape[0], np.uint8, (20, 40, 60, 300)),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_a_type_does_not_hold(name: str) -> None:
    """Recorded with such as it holds."""
    function, dtype, extents = NUMBERS[name]
    kept = dlprim.compile(function)
    for n in extents:
        x = np.full((n, 3), 250 if dtype == np.uint8 else 3, dtype)
        found, expected = results(kept, x), results(dlprim.compile(function), x)
        assert type(found) is type(expected)
        np.testing.assert_array_equal(found, expected)


CHOICES: dict[str, Callable[[Any], Any]] = {
    "numbers": lambda x: x * 2 if isinstance(x.shape[0], int) else x * 3,
    "arrays": lambda x: x * np.full(6, 2 if isinstance(x.shape[0], int) else 3, np.float32),
    "functions": lambda x: x.max(1) if isinstance(x.shape[0], int) else x.min(1),
}


@pytest.mark.parametrize("name", CHOICES)
def test_what_asks_for_the_type_of_an_extent_is_not_replayed(name: str) -> None:
    kept = dlprim.compile(CHOICES[name])
    for n in (10, 20, 30, 40):
        np.testing.assert_array_equal(kept(rows(n)), CHOICES[name](rows(n)))


REPLAYED: dict[str, Callable[[Any], Any]] = {
    "a bound of floats": lambda x: np.maximum(x, 1 / x.shape[0]),
    "a number where elements are not": lambda x: np.where(x > 0, x, x.shape[0]),
    "a last row": lambda x: np.take(x, x.shape[0] - 1, 0),
    "a row in the middle": lambda x: x[x.shape[0] // 2] + x[-(x.shape[0] // 2), :1],
    "places of rows and a row": lambda x: x[x.shape[0] - 1, np.array([0, 2])],
    "a square root": lambda x: 1 / np.sqrt(x * x + 1 / x.shape[0]),
}


@pytest.mark.parametrize("name", REPLAYED)
def test_numbers_of_shapes_are_compiled_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    compile_graph = tracing.compile_graph

    def counted(*args: Any) -> Any:
        compiled.append(args)
        return compile_graph(*args)

    kept = dlprim.compile(REPLAYED[name])
    for n in (10, 20, 30, 41, 52):
        with monkeypatch.context() as patch:
            patch.setattr(tracing, "compile_graph", counted)
            found = kept(rows(n))
        np.testing.assert_array_equal(found, dlprim.compile(REPLAYED[name])(rows(n)))
    assert len(compiled) == 2  # the first as it is, and beside the recording
