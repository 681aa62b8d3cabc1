"""Extents that remember how they were computed: what holds for other ones, and what does not."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dlprim.graph.extents import Extent, derived, integers, is_known
from dlprim.graph.lowering.place import Place, dense_strides
from dlprim.graph.networks import Makers, Networks
from dlprim.graph.recording import Recording

pytestmark = pytest.mark.any_level


class Listed:
    """What is recorded: numbers in a list."""

    def __init__(self) -> None:
        self.numbers: list[Any] = []

    def add(self, number: Any) -> int:
        self.numbers.append(number)
        return len(self.numbers)


def recorded(
    compute: Callable[..., Any], *values: int
) -> tuple[Callable[..., bool], Callable[..., Any]]:
    """Whether it holds for other values, and what is computed of them."""
    recording = Recording()
    result = recording.new(Listed)
    result.add(compute(*(recording.extent(it) for it in values)))
    replay = recording.finished(result)
    return (
        lambda *others: replay(*others) is not None,
        lambda *others: replay(*others).numbers[0],
    )


def test_arithmetic_is_that_of_integers() -> None:
    draw = random.Random(0)

    def compute(a: Any, b: Any) -> Any:
        return (a + 3) * b - 2 * a, (a - 1) // 2, (5 + b) % 3, -a, abs(a - 100), 7 // b, 11 % a

    holds, make = recorded(compute, 5, 9)
    for _ in range(100):
        a, b = draw.randint(1, 99), draw.randint(1, 99)
        assert holds(a, b)
        assert make(a, b) == compute(a, b)


def test_calls_alike_are_made_once() -> None:
    made: list[tuple[Any, ...]] = []

    def function(*arguments: Any, **named: Any) -> int:
        made.append((*arguments, *named.values()))
        return len(made)

    recording = Recording()
    n = recording.extent(5)
    result = recording.new(Listed)
    for shape, bias in [((n, 3), True), ((n, 3), True), ((n, 3), False), ((n, 4), True)]:
        result.add(recording.call(function, shape, bias=bias))
    replay = recording.finished(result)
    assert result.value.numbers == [1, 1, 2, 3]
    made.clear()
    assert replay(7).numbers == [1, 1, 2, 3]
    assert made == [((7, 3), True), ((7, 3), False), ((7, 4), True)]


def test_floats_and_conditions_are_numbers_too() -> None:
    def compute(a: Any, b: Any) -> Any:
        share = a / b
        return 1 / a, share**0.5, (-2) ** b, a & b, math.floor(share), math.ceil(a / 2), a * 1.5

    holds, make = recorded(compute, 5, 9)
    for a in range(1, 30):
        for b in range(1, 30):
            assert holds(a, b)
            assert make(a, b) == compute(a, b)


def test_what_a_comparison_came_to_has_to_hold() -> None:
    def compute(a: Any, b: Any) -> Any:
        return ("small" if a < 10 else "large"), (a if a == b else a * b)

    holds, make = recorded(compute, 4, 7)
    for a in range(1, 30):
        for b in range(1, 30):
            if holds(a, b):
                assert make(a, b) == compute(a, b)
            assert holds(a, b) == (a < 10 and a != b)


@pytest.mark.parametrize(
    "take",
    [
        int,
        float,
        str,
        range,
        "{}".format,
        lambda a: [0] * 30 and list(range(30))[a],
        lambda a: np.zeros(a).shape,
        lambda a: np.array([a], np.int64).sum(),
        lambda a: [1.5] * a,
        lambda a: {5: "five"}.get(a, "another") if a == 5 else "another",
    ],
)
def test_who_takes_a_plain_number_pins_it(take: Callable[[Any], Any]) -> None:
    holds, make = recorded(lambda a: repr(take(a)), 5)
    assert holds(5)
    assert make(5) == repr(take(5))
    assert not holds(6)


def test_a_number_without_extents_is_a_plain_one() -> None:
    assert derived(max, 3, 4) == 4
    assert is_known((1, 2))
    assert integers([1, 2]).dtype == np.int64


def test_functions_of_extents_are_called_again() -> None:
    holds, make = recorded(lambda a: derived(math.isqrt, a) + 1, 17)
    assert holds(100)
    assert make(100) == 11


def test_extents_stay_in_arrays() -> None:
    def compute(a: Any, b: Any) -> Any:
        array = integers([a, 3, b])
        return tuple(np.concatenate([array[1:], array[:1] * 2]))

    holds, make = recorded(compute, 5, 6)
    assert holds(8, 9)
    assert make(8, 9) == (3, 9, 16)


def test_arrays_of_extents_are_made_again() -> None:
    """With what NumPy does to them, and parts and elements of them."""

    def compute(a: Any) -> Any:
        line = derived(np.arange, a)
        mask = (line[:, None] >= line).astype(np.float32) * 2 - 1
        return mask, line[1 : a - 1], (3 - line).max().item(), line.shape, mask.reshape(a * a)

    holds, make = recorded(compute, 5)
    for a in range(3, 12):
        assert holds(a)
        for found, expected in zip(make(a), compute(a), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_who_decides_by_elements_has_what_it_came_to_as_a_condition() -> None:
    def compute(a: Any) -> str:
        line = derived(np.arange, a)
        return "many" if (line > 6).any() else "few"

    holds, make = recorded(compute, 5)
    assert [a for a in range(1, 20) if holds(a)] == list(range(1, 8))
    assert make(3) == "few"


@pytest.mark.parametrize(
    "take",
    [np.asarray, np.ascontiguousarray, lambda a: np.zeros(8)[a], lambda a: list(map(float, a))],
)
def test_who_takes_a_plain_array_pins_it(take: Callable[[Any], Any]) -> None:
    holds, make = recorded(lambda a: repr(take(derived(np.arange, a) // 4)), 5)
    assert holds(5)
    assert make(5) == repr(take(np.arange(5) // 4))
    assert not holds(6)


def test_bounds_are_looked_at_before_what_they_keep_small() -> None:
    made = []

    def large(extent: int) -> np.ndarray[Any, Any]:
        made.append(extent)
        return np.zeros(extent)

    def compute(a: Any) -> Any:
        if a * 8 > 80:
            raise ValueError
        return "zeros" if (derived(large, a) == 0).all() else "others"

    holds, _ = recorded(compute, 5)
    assert not holds(11)
    assert holds(7)
    assert made == [5, 7]


def test_where_arrays_do_not_fit_the_model_itself_is_asked() -> None:
    class Made:
        structure = ""

    class RecordedMade:
        first = Made()

        def made(self, *_: Any) -> Made:
            raise MemoryError

    kept: Networks[Made] = Networks(4)
    makers = Makers(lambda _: Made(), lambda *_: RecordedMade())
    for n in (5, 6, 7):
        assert isinstance(kept.get("kind", ((n,),), [], makers), Made)


def test_arrays_made_of_extents_and_of_no_others_are_alike() -> None:
    assert isinstance(derived(np.arange, 5), np.ndarray)
    holds, make = recorded(lambda a: derived(np.add, integers([a, 3]), derived(np.arange, 2)), 7)
    assert holds(9)
    np.testing.assert_array_equal(make(9), [9, 4])


def test_objects_are_made_anew_and_share_what_does_not_change() -> None:
    recording = Recording()
    extent, array = recording.extent(3), np.ones(2)
    result = recording.new(Listed)
    assert result.add(array) == 1
    assert result.add(recording.call(tuple.__new__, tuple, [extent, "a"])) == 2
    replay = recording.finished(result)
    one, other = replay(4), replay(5)
    assert one is not other
    assert one.numbers[0] is other.numbers[0] is array
    assert [it.numbers[1] for it in (one, other)] == [(4, "a"), (5, "a")]


def test_equal_extents_of_different_inputs_are_not_one() -> None:
    def compute(a: Any, b: Any) -> Any:
        return {a: "a"}.get(b, "none")

    holds, _ = recorded(compute, 6, 6)
    assert holds(9, 9)
    assert not holds(9, 8)


def view_of(place: Place) -> np.ndarray[Any, np.dtype[np.float32]]:
    base: np.ndarray[Any, np.dtype[np.float32]] = np.empty(1, np.float32)
    return np.lib.stride_tricks.as_strided(base, place.shape, place.strides)


def test_views_of_views_are_numpys() -> None:
    """Of arrays whose axes were exchanged, sliced and spread, in all shapes that they can take."""
    draw = random.Random(1)
    seen = {True: 0, False: 0}
    for _ in range(3000):
        shape = tuple(draw.choice((1, 2, 3, 4, 6)) for _ in range(draw.randint(1, 4)))
        order = tuple(draw.sample(range(len(shape)), len(shape)))
        place = Place.dense(0, shape, np.dtype(np.float32)).transposed(order)
        if draw.random() < 0.5:
            steps = tuple(draw.choice((1, 1, 2)) for _ in shape)
            counts = tuple(-(-n // it) for n, it in zip(place.shape, steps, strict=True))
            place = place.sliced((0,) * len(shape), counts, steps)
        wanted = factored(math.prod(place.shape), draw)
        try:
            expected = np.reshape(view_of(place), wanted, copy=False).strides
        except ValueError:
            expected = None
        found = place.reshaped(wanted)
        seen[found is None] += 1
        assert (found is None) == (expected is None)
        if found is not None and expected is not None:
            apart = zip(wanted, found.strides, expected, strict=True)
            assert all(n == 1 or a == b for n, a, b in apart)
    assert min(seen.values()) > 100


def factored(size: int, draw: random.Random) -> tuple[int, ...]:
    """A shape of so many elements."""
    shape = [1] * draw.randint(1, 4)
    for prime in (2, 3):
        while size % prime == 0:
            size //= prime
            shape[draw.randrange(len(shape))] *= prime
    return tuple(shape)


def test_strides_of_extents() -> None:
    holds, make = recorded(lambda a: dense_strides((2, a, 3), 4), 5)
    assert holds(7)
    assert make(7) == (84, 12, 4)
    assert isinstance(Recording().extent(3) * 2, Extent)
