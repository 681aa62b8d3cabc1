"""Long chains: what compiling them takes grows as they do, counted in calls of functions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dlprim.graph import Builder, Value
from dlprim.graph.compiled import compile_graph
from networks import convolution

pytestmark = pytest.mark.any_level

_LENGTH = 300


def _asked(b: Builder, y: Value) -> Value:
    """A constant that is looked at, as exporters' shapes are."""
    y = b.apply("exp", y)
    b.array(y)
    return y


CHAINS: dict[str, tuple[tuple[int, ...], bool, Callable[[Builder, Value], Value]]] = {
    "maps": ((4, 8), False, lambda b, y: b.apply("negate", b.apply("tanh", y))),
    "maps of NumPy": ((4, 8), False, lambda b, y: b.apply("erf", y)),
    "products": ((4, 8), False, lambda b, y: b.matmul(y, b.constant(np.eye(8, dtype="f4")))),
    "softmax": ((4, 8), False, lambda b, y: b.emit("softmax", [y], axis=1, log=False)[0]),
    "moves": ((4, 8), False, lambda b, y: b.reshape(b.transpose(y, (1, 0)), (4, 8))),
    "convolutions": ((1, 8, 4, 4), False, lambda b, y: convolution(b, y, 8, 1)),
    "constants": ((4, 8), True, lambda b, y: b.apply("tanh", y)),
    "constants that are asked for": ((4, 8), True, _asked),
}


def calls(name: str, length: int) -> int:
    """Of Python's functions and NumPy's, to build and compile the chain."""
    shape, is_known, link = CHAINS[name]
    count = 0

    def counted(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += 1

    sys.setprofile(counted)
    try:
        b = Builder()
        y = b.constant(np.ones(shape, "f4")) if is_known else b.input("x", shape, "float32")
        for _ in range(length):
            y = link(b, y)
        compile_graph(b.graph([y]))
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("name", CHAINS)
def test_chains_twice_as_long_take_twice_as_much(name: str) -> None:
    calls(name, 8)  # what is kept for all chains
    short, long = calls(name, _LENGTH), calls(name, 2 * _LENGTH)
    assert long < 2.2 * short
