"""The recurrent cells that tests run over, and their operands as PyTorch holds them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import dlprim
from rnn_reference import GATES, State, Weights

F4 = np.float32
PRIMITIVES = ("lstm", "gru")  # with a backward pass of their own


class Rnn(NamedTuple):
    cell: str
    T: int
    N: int
    C: int
    K: int
    reverse: bool = False
    bias: bool = True

    def __str__(self) -> str:
        flags = "-reverse" * self.reverse + "-unbiased" * (not self.bias)
        return f"{self.cell}-{self.T}x{self.N}x{self.C}-{self.K}{flags}"

    @property
    def x_shape(self) -> tuple[int, int, int]:
        return self.T, self.N, self.C

    @property
    def y_shape(self) -> tuple[int, int, int]:
        return self.T, self.N, self.K

    @property
    def rows(self) -> int:
        return GATES[self.cell] * self.K

    @property
    def products(self) -> int:
        return self.T * max(self.N, 1) * self.rows * (self.C + self.K)


FIXED = [
    # One of everything, no step, no sequence.
    (1, 1, 1, 1),
    (0, 3, 5, 7),
    (4, 0, 5, 7),
    (0, 0, 1, 1),
    # One sequence, one step, many of either.
    (7, 1, 33, 31),
    (1, 17, 16, 16),
    (23, 2, 3, 5),
    (2, 67, 5, 3),
    # One below, at and above a vector and a block of channels.
    (3, 5, 15, 17),
    (3, 5, 17, 15),
    (2, 16, 64, 64),
    (2, 6, 63, 65),
    (2, 7, 65, 63),
    (2, 24, 128, 128),
    (2, 3, 1, 130),
    (2, 3, 130, 1),
    (3, 4, 100, 257),
]

_EXTENTS = (1, 2, 3, 5, 7, 11, 13, 15, 16, 17, 19, 23, 31, 32, 33, 37, 47, 48, 61, 64, 67, 80, 97)
_BATCHES = (1, 1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 24, 31)
_MOST_PRODUCTS = 1_500_000


def fixed_rnns() -> list[Rnn]:
    return [
        Rnn(cell, *shape, reverse=bool(number % 2), bias=number % 3 != 0)
        for cell in PRIMITIVES
        for number, shape in enumerate(FIXED)
    ]


def random_rnns(count: int, seed: int) -> list[Rnn]:
    """The same for the same seed; small enough for a float64 oracle."""
    random = np.random.default_rng(seed)
    found: list[Rnn] = []
    while len(found) < count:
        c, k = (int(each) for each in random.choice(_EXTENTS, 2))
        t, n = int(random.integers(1, 12)), int(random.choice(_BATCHES))
        reverse, bias = (bool(bit) for bit in random.integers(0, 2, 2))
        rnn = Rnn(PRIMITIVES[len(found) % 2], t, n, c, k, reverse, bias)
        if rnn.products <= _MOST_PRODUCTS:
            found.append(rnn)
    return found


def drawn_lengths(rnn: Rnn, random: np.random.Generator) -> NDArray[np.int64]:
    """0 to T, of which 0 and T both occur where there is room."""
    lengths = random.integers(0, rnn.T + 1, rnn.N)
    lengths[:2] = (rnn.T, 0)[: len(lengths)]
    return random.permutation(lengths)


def doubles(array: NDArray) -> NDArray[np.float64]:
    """Of float32, or of bfloat16 as an array of it or as bits."""
    return (array if array.dtype == F4 else dlprim.to_float32(array)).astype(np.float64)


class Operands:
    """Of one layer in one direction; weights so small that most gates are not saturated."""

    def __init__(self, rnn: Rnn, dtype: str = "float32", seed: int = 0) -> None:
        random = np.random.default_rng(seed)

        def draw(*shape: int, scale: float = 1) -> NDArray:
            values = scale * random.standard_normal(shape, F4)
            return values if dtype == "float32" else dlprim.to_bfloat16(values)

        small = max(rnn.C, rnn.K) ** -0.5
        self.rnn, self.dtype, self.random = rnn, dtype, random
        self.x, self.diff_y = draw(*rnn.x_shape), draw(*rnn.y_shape)
        self.w_ih, self.w_hh = (draw(rnn.rows, n, scale=small) for n in (rnn.C, rnn.K))
        self.b_ih, self.b_hh = (
            small * random.standard_normal(rnn.rows, F4) if rnn.bias else None for _ in range(2)
        )
        state = (rnn.N, rnn.K)
        self.h_0, self.diff_h_n = draw(*state), draw(*state)
        self.c_0, self.diff_c_n = (random.standard_normal(state, F4) for _ in range(2))

    @property
    def parameters(self) -> tuple[NDArray | None, ...]:
        return self.w_ih, self.w_hh, self.b_ih, self.b_hh

    @property
    def weights(self) -> Weights:
        zeros = np.zeros(self.rnn.rows)
        return Weights(*(zeros if each is None else doubles(each) for each in self.parameters))

    @property
    def start(self) -> State:
        return self._state(self.h_0, self.c_0)

    @property
    def diff_end(self) -> State:
        return self._state(self.diff_h_n, self.diff_c_n)

    def _state(self, h: NDArray, c: NDArray) -> State:
        return State(doubles(h), doubles(c) * (self.rnn.cell == "lstm"))
