"""Functions of NumPy drawn at random: straight programs of its functions on a few arrays.

A program is drawn along with values in float64, so that every operation is drawn only where it is
smooth and of moderate size; it then runs on arrays of any kind, traced ones too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from drawn_operations import (
    BINARY,
    LARGEST,
    UNARY,
    Array,
    Operation,
    every,
    indices,
    matrices,
    reductions,
    shapes,
)

MOST = 30.0  # of a value


class Step(NamedTuple):
    """An operation on values by their numbers."""

    name: str
    operation: Operation
    operands: tuple[int, ...]


class Program(NamedTuple):
    """Steps, and arrays that they may begin with."""

    arrays: list[Array]
    steps: list[Step]

    def __call__(self, *arrays: Any) -> Any:
        """The last value, and what stands beside it in a dict."""
        values = list(arrays)
        for step in self.steps:
            values.append(step.operation(*(values[it] for it in step.operands)))
        return {"last": values[-1], "others": tuple(values[len(arrays) : -1][-2:])}

    def total(self, *arrays: Any) -> Any:
        """A number that depends on every result, and the results."""
        found = self(*arrays)
        made = 0.0
        for place, it in enumerate((found["last"], *found["others"])):
            made = made + np.mean(it * (1.0 + 0.5 * place)) + 0.1 * np.sum(np.sin(it))
        return made, found

    def __repr__(self) -> str:
        shapes = [it.shape for it in self.arrays]
        return f"{shapes}: " + "; ".join(f"{it.name}{it.operands}" for it in self.steps)


def _candidates(rng: np.random.Generator, values: Sequence[Array]) -> Step | None:
    """A step on the values, drawn; None where it may not be applied."""
    at = int(rng.integers(len(values)))
    x = values[at]
    kind = rng.choice(["unary", "binary", "reduction", "index", "shape", "matrix"],
                      p=[0.3, 0.2, 0.15, 0.1, 0.15, 0.1])  # fmt: skip
    if kind == "unary":
        name = str(rng.choice(list(UNARY)))
        operation, fits = UNARY[name]
        return Step(name, operation, (at,)) if x.size and fits(x) else None
    if kind == "binary":
        name, other = str(rng.choice(list(BINARY))), int(rng.integers(len(values)))
        operation, may = BINARY[name]
        if "outer" not in name:
            try:
                if np.prod(np.broadcast_shapes(x.shape, values[other].shape)) > LARGEST:
                    return None
            except ValueError:
                return None
        return Step(name, operation, (at, other)) if may(x, values[other]) else None
    if x.ndim == 0 or x.size == 0:
        return None
    table = {"reduction": reductions, "index": indices, "shape": shapes, "matrix": matrices}[kind]
    found = table(rng, x)
    name, operation = found[int(rng.integers(len(found)))]
    return Step(name, operation, (at,))


def drawn(rng: np.random.Generator) -> Program:
    """A program of up to six steps, each of which may read any value before it."""
    rank = int(rng.integers(1, 4))
    whole = tuple(int(it) for it in rng.integers(2, 5, rank))
    arrays = []
    for _ in range(int(rng.integers(1, 4))):
        shape = whole[int(rng.integers(rank)) :] if rng.integers(2) else whole
        shape = tuple(1 if rng.integers(5) == 0 else extent for extent in shape)
        arrays.append(rng.uniform(-2, 2, shape).astype(np.float32).astype(np.float64))
    values, steps = list(arrays), list[Step]()
    wanted, tries = int(rng.integers(2, 7)), 0
    while len(steps) < wanted and tries < 200:
        tries += 1
        step = _candidates(rng, values)
        if step is None:
            continue
        made = np.asarray(step.operation(*(values[it] for it in step.operands)), np.float64)
        is_usual = 0 < made.size <= LARGEST and made.ndim <= 5 and every(np.isfinite(made))
        if is_usual and np.abs(made).max() < MOST:
            values.append(made)
            steps.append(step)
    return Program(arrays, steps)
