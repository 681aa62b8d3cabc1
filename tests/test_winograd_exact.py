"""The constants and formulas of Winograd's transforms, derived anew and compared exactly."""

from __future__ import annotations

import random
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import winograd_exact as exact
from winograd_exact import INFINITY, ONE, POINTS, SLOTS, TAPS, ZERO, Matrix, Surd

pytestmark = pytest.mark.any_level

PRIMITIVES = Path(__file__).parent.parent / "cpp" / "primitives" / "winograd"

if not PRIMITIVES.is_dir():
    pytest.skip(f"{PRIMITIVES} is absent", allow_module_level=True)

TRANSFORMS = exact.Transforms(PRIMITIVES)
every_tile = pytest.mark.parametrize("tile", [4, 3, 2])


def filter_of(tile: int) -> Matrix:
    """The filter's transform, of a tile of 3 the slots that it has of that of a tile of 4."""
    matrix = TRANSFORMS.matrix(f"filter{2 if tile == 2 else 4}")
    return [matrix[slot] for slot in SLOTS[tile]]


def results_of(tile: int) -> Matrix:
    rows = TRANSFORMS.matrix(f"result{tile}")
    absent = set(range(len(rows[0]))) - set(SLOTS[tile])
    assert not any(row[slot] for row in rows for slot in absent)
    return [tuple(row[slot] for slot in SLOTS[tile]) for row in rows]


def product(left: Matrix, right: Matrix) -> Matrix:
    columns = exact.transposed(right)
    return [
        tuple(sum((a * b for a, b in zip(row, column, strict=True)), ZERO) for column in columns)
        for row in left
    ]


def test_surds() -> None:
    x = Surd(Fraction(2, 3), Fraction(-5, 7))
    assert x / x == ONE
    assert Surd.of(2) == exact.ROOT_OF_TWO * exact.ROOT_OF_TWO
    assert exact.A * exact.B == ONE
    with pytest.raises(ValueError, match="several"):
        exact.solved([(ONE, ONE), (ONE, ONE)], (ONE, ONE))
    with pytest.raises(ValueError, match="no solution"):
        exact.solved([(ONE,), (ONE,)], (ONE, ZERO))


@pytest.mark.parametrize(("name", "square"), [("kA", Fraction(1, 2)), ("kB", Fraction(2))])
def test_constant_is_the_float_nearest_to_its_root(name: str, square: Fraction) -> None:
    value = np.float32(TRANSFORMS.literals[name])
    below, above = (np.nextafter(value, np.float32(end)) for end in (0, 2))
    middles = [(Fraction(float(value)) + Fraction(float(each))) / 2 for each in (below, above)]
    assert middles[0] ** 2 < square < middles[1] ** 2


@every_tile
def test_results_are_powers_of_the_points(tile: int) -> None:
    columns = [exact.powers(point, tile) for point in POINTS[tile]]
    assert results_of(tile) == exact.transposed(columns)


@pytest.mark.parametrize("tile", [4, 2])
def test_filter_is_its_value_at_the_points_over_lagranges_denominator(tile: int) -> None:
    for point, row in zip(POINTS[tile], filter_of(tile), strict=True):
        normal = ONE if point is INFINITY else exact.normalisation(POINTS[tile], point)
        expected = tuple(each / normal for each in exact.powers(point, TAPS))
        opposite = tuple(-each for each in expected)  # the input's transform has the other sign
        assert row == expected or (point == ZERO and row == opposite)


@every_tile
def test_input_is_what_the_other_two_leave(tile: int) -> None:
    rows = TRANSFORMS.matrix(f"input{tile}")
    assert rows == exact.input_transform(results_of(tile), filter_of(tile))


@every_tile
def test_identity(tile: int) -> None:
    """Results times filter times input, summed over the slots, is the correlation."""
    results, filters = results_of(tile), filter_of(tile)
    inputs = TRANSFORMS.matrix(f"input{tile}")
    slots = range(len(filters))
    for i in range(tile):
        for j in range(TAPS):
            for d in range(tile + TAPS - 1):
                terms = (results[i][p] * filters[p][j] * inputs[p][d] for p in slots)
                assert sum(terms, ZERO) == (ONE if d == i + j else ZERO)


@every_tile
def test_gradient_is_the_transpose_of_results(tile: int) -> None:
    gradient = TRANSFORMS.matrix(f"gradient{tile}")
    assert gradient == exact.transposed(results_of(tile))


@pytest.mark.parametrize("tile", [4, 2])
def test_gradient_of_the_filter_is_the_transpose_of_the_filter(tile: int) -> None:
    gradient = TRANSFORMS.matrix(f"filter_gradient{tile}")
    assert gradient == exact.transposed(filter_of(tile))


@pytest.mark.parametrize(("high", "wide"), [(4, 4), (4, 3), (3, 4), (3, 3), (2, 2)])
def test_two_dimensions(high: int, wide: int) -> None:
    """A whole tile of each class on random fractions, with the filter that its slots share."""
    draw = random.Random(high * 10 + wide)

    def drawn(rows: int, columns: int) -> Matrix:
        return [
            tuple(
                Surd.of(Fraction(draw.randint(-9, 9), draw.randint(1, 9))) for _ in range(columns)
            )
            for _ in range(rows)
        ]

    def both_sides(left: Matrix, middle: Matrix, right: Matrix) -> Matrix:
        return product(product(left, middle), exact.transposed(right))

    taps, pixels = drawn(TAPS, TAPS), drawn(high + 2, wide + 2)
    u = both_sides(filter_of(high), taps, filter_of(wide))
    inputs = [TRANSFORMS.matrix(f"input{tile}") for tile in (high, wide)]
    v = both_sides(inputs[0], pixels, inputs[1])
    m = [tuple(a * b for a, b in zip(*rows, strict=True)) for rows in zip(u, v, strict=True)]
    expected = [
        tuple(
            sum((taps[r][s] * pixels[i + r][j + s] for r in range(3) for s in range(3)), ZERO)
            for j in range(wide)
        )
        for i in range(high)
    ]
    assert both_sides(results_of(high), m, results_of(wide)) == expected
