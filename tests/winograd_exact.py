"""Winograd's transforms in exact arithmetic, twice: from the points, and as the C++ states them.

Numbers are p + q * sqrt(2) with fractions, which hold every point and constant that is used. The
second part reads the bodies of the transforms in ``winograd_axis.cpp`` and evaluates them on
linear forms, so that it cannot go stale.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

SOURCE = "winograd_axis.cpp"
NONE = "kNone"
TAPS = 3


@dataclass(frozen=True)
class Surd:
    """``p + q * sqrt(2)``."""

    p: Fraction = Fraction(0)
    q: Fraction = Fraction(0)

    @staticmethod
    def of(value: Number) -> Surd:
        return value if isinstance(value, Surd) else Surd(Fraction(value))

    def __add__(self, other: Number) -> Surd:
        other = Surd.of(other)
        return Surd(self.p + other.p, self.q + other.q)

    def __neg__(self) -> Surd:
        return Surd(-self.p, -self.q)

    def __sub__(self, other: Number) -> Surd:
        return self + -Surd.of(other)

    def __mul__(self, other: Number) -> Surd:
        other = Surd.of(other)
        return Surd(
            self.p * other.p + 2 * self.q * other.q,
            self.p * other.q + self.q * other.p,
        )

    __rmul__ = __mul__

    def __truediv__(self, other: Number) -> Surd:
        other = Surd.of(other)
        norm = other.p * other.p - 2 * other.q * other.q
        return self * Surd(other.p / norm, -other.q / norm)

    def __bool__(self) -> bool:
        return bool(self.p or self.q)


Number = Surd | Fraction | int
Vector = tuple[Surd, ...]
Matrix = list[Vector]

ZERO, ONE = Surd.of(0), Surd.of(1)
ROOT_OF_TWO = Surd(Fraction(0), Fraction(1))
INFINITY = None
A, B = ROOT_OF_TWO / 2, ROOT_OF_TWO
POINTS: dict[int, tuple[Surd | None, ...]] = {
    4: (ZERO, A, -A, B, -B, INFINITY),
    3: (ZERO, A, -A, B, INFINITY),
    2: (ZERO, ONE, -ONE, INFINITY),
}
# Of the six slots those that tiles of 3 have.
SLOTS = {4: (0, 1, 2, 3, 4, 5), 3: (0, 1, 2, 3, 5), 2: (0, 1, 2, 3)}


# ---------------------------------------------------------------- from the points


def powers(point: Surd | None, count: int) -> Vector:
    """A polynomial of ``count`` coefficients at a point; at infinity, its leading coefficient."""
    if point is INFINITY:
        return (*[ZERO] * (count - 1), ONE)
    row = [ONE]
    while len(row) < count:
        row.append(row[-1] * point)
    return tuple(row)


def normalisation(points: Sequence[Surd | None], point: Surd | None) -> Surd:
    """Product of the distances to the other finite points, Lagrange's denominator."""
    product = ONE
    for other in points:
        if point is not INFINITY and other is not INFINITY and other != point:
            product = product * (point - other)
    return product


def solved(rows: Matrix, right: Vector) -> Vector:
    """The one solution of more equations than unknowns that agree.

    Raises
    ------
    ValueError
        There is none, or several.
    """
    unknowns = len(rows[0])
    system = [[*row, value] for row, value in zip(rows, right, strict=True)]
    for column in range(unknowns):
        pivot = next((i for i in range(column, len(system)) if system[i][column]), None)
        if pivot is None:
            raise ValueError("several solutions")
        system[column], system[pivot] = system[pivot], system[column]
        first = system[column]
        first[:] = [each / first[column] for each in first]
        for i, row in enumerate(system):
            if i != column and row[column]:
                row[:] = [a - row[column] * b for a, b in zip(row, first, strict=True)]
    if any(row[-1] for row in system[unknowns:]):
        raise ValueError("no solution")
    return tuple(row[-1] for row in system[:unknowns])


def input_transform(results: Matrix, filters: Matrix) -> Matrix:
    """The transform of inputs that makes a correlation of the other two.

    ``sum over p of results[i][p] * filters[p][j] * inputs[p][d]`` is to be 1 where d = i + j and 0
    elsewhere, for every result i, tap j and input d.
    """
    slots = len(filters)
    pairs = [(i, j) for i in range(len(results)) for j in range(TAPS)]
    rows = [tuple(results[i][p] * filters[p][j] for p in range(slots)) for i, j in pairs]
    columns = [
        solved(rows, tuple(ONE if d == i + j else ZERO for i, j in pairs))
        for d in range(len(results) + TAPS - 1)
    ]
    return transposed(columns)


def transposed(matrix: Matrix) -> Matrix:
    return list(zip(*matrix, strict=True))


# ---------------------------------------------------------------- as the C++ states them


def number(literal: str) -> Surd:
    return Surd.of(Fraction(literal))


def times(factor: Surd, x: Vector) -> Vector:
    return tuple(factor * each for each in x)


def plus(x: Vector, *rest: Any) -> Vector:
    """``x + y``, or ``x + factor * y``."""
    y = rest[0] if len(rest) == 1 else times(*rest)
    return tuple(a + b for a, b in zip(x, y, strict=True))


def minus(x: Vector, y: Vector) -> Vector:
    return plus(x, -ONE, y)


def at_both(point: Surd, even: Vector, odd: Vector) -> Given:
    return Given(plus(even, point, odd), plus(even, -point, odd))


class Given(NamedTuple):
    first: Vector
    second: Vector | None


Transform = Callable[[list[Vector], int], Given]


def python_expression(cpp: str) -> str:
    """Numbers exact, ``?:`` as ``if else``."""
    cpp = re.sub(r"(\d+\.\d+)F", r'number("\1")', cpp)
    condition, question, rest = cpp.partition(" ? ")
    if not question:
        return cpp
    then, _, other = rest.partition(" : ")
    return f"({then} if {condition} else {python_expression(other)})"


def python_body(cpp: str) -> str:
    """Statements of a transform: branches on the pass, definitions and what is returned."""
    cpp = re.sub(r"return {(.*?)};", r"return Given(\1);", " ".join(cpp.split()))
    cpp = re.sub(r"\bpass\b", "which", cpp.replace("{}", "None"))
    lines, depth = [], 0
    for statement in re.findall(r"[^;{}]+[;{]|}", cpp):
        text = re.sub(r"^if \((.*?)\)( {)?", r"if \1:", statement.strip().rstrip(";"))
        if text != "}":
            name, defines, value = text.partition(" = ")
            if defines:
                text = f"{name.split()[-1]} = {python_expression(value)}"
            lines.append("    " * depth + python_expression(text))
        depth += statement.count("{") - statement.count("}")
    return "\n".join(lines)


class Transforms:
    """The axes of the source by name, ``input4`` for example, as matrices."""

    def __init__(self, folder: Path) -> None:
        text = re.sub(r"//.*", "", (folder / SOURCE).read_text())

        def found(pattern: str) -> list[tuple[str, ...]]:
            return re.findall(pattern, text, re.MULTILINE | re.DOTALL)

        self.literals = dict(found(r"^constexpr float (k[AB]) = ([\d.]+)F;"))
        places = {
            name: re.findall(r"{(\d), (\w+)}", passes)
            for name, passes in found(r"^constexpr GivenPlaces (\w+)\[\] = {([^;]*)};")
        }
        transforms = {
            name: transform_of(operand, body)
            for name, operand, body in found(
                r"^Given (\w+)\(int[^,]*, const Values& (\w)\) {\n(.*?)^}"
            )
        }
        self._rows = {
            name: rows_of(transforms[name], int(operands), places[passes])
            for operands, passes, name in found(r"{(\d), (k\w+), (\w+)}")
        }

    def matrix(self, name: str) -> Matrix:
        """A row for every slot or result that the transform gives, a column for every operand."""
        return self._rows[name]


def transform_of(operand: str, statements: str) -> Transform:
    scope: dict[str, Any] = {
        "kA": A, "kB": B, "number": number, "times": times, "plus": plus, "minus": minus,
        "at_both": at_both, "Given": Given,
    }  # fmt: skip
    body = textwrap.indent(python_body(statements), "    ")
    exec(f"def transform({operand}, which):\n{body}\n", scope)
    transform: Transform = scope["transform"]
    return transform


def rows_of(transform: Transform, operands: int, given: Sequence[tuple[str, str]]) -> Matrix:
    unit = [tuple(ONE if i == j else ZERO for j in range(operands)) for i in range(operands)]
    rows: dict[int, Vector] = {}
    for which, places in enumerate(given):
        for place, row in zip(places, transform(unit, which), strict=True):
            if (place == NONE) != (row is None) or place in map(str, rows):
                raise ValueError(f"pass {which} gives {row} for place {place}")
            if row is not None:
                rows[int(place)] = row
    return [rows[place] for place in sorted(rows)]
