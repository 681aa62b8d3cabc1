"""The one checker of LSTM and GRU: both passes of the primitive against float64.

Operands and results lie next to forbidden pages. With lengths the padding of x and of the gradient
of y holds NaN, which would show in a result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike, NDArray

import dlprim
import rnn_reference as reference
from guarded import guarded
from levels import few
from rnn_cases import F4, Operands, Rnn, doubles, drawn_lengths, fixed_rnns, random_rnns

# Of a sum of float32, and of states and gradients that are rounded to bfloat16 at every step.
_ROUNDOFF = {"float32": 2.0**-24, "bfloat16": 2.0**-8}
_SAFETY = {"float32": 2.0, "bfloat16": 1.0}


@dataclass(frozen=True)
class Variant:
    """What a call is besides its shape."""

    dtype: str = "float32"
    lengths: bool = False
    states: bool = True  # h_0 and c_0 are given, and gradients of h_n and c_n
    edge: str = "end"


def drawn_variant(dtype: str, seed: int) -> Variant:
    lengths, states, end = (bool(bit) for bit in np.random.default_rng(seed).integers(0, 2, 3))
    return Variant(dtype, lengths, states, "end" if end else "begin")


def tolerance(rnn: Rnn, dtype: str) -> float:
    """Of results whose largest is about one: roundings of the sums of all steps, as if random."""
    terms = max(rnn.T, 1) * (rnn.C + rnn.K) if dtype == "float32" else max(rnn.T, 1)
    return _SAFETY[dtype] * _ROUNDOFF[dtype] * (2 + math.sqrt(terms))


def assert_close(actual: NDArray, expected: NDArray, limit: float) -> None:
    """Raise AssertionError unless errors are below ``limit`` times the largest, at least one."""
    assert actual.shape == expected.shape
    scale = max(1.0, float(np.max(np.abs(expected), initial=0)))
    np.testing.assert_allclose(doubles(actual), expected, rtol=0, atol=limit * scale)


def primitive(
    rnn: Rnn, dtype: str, schedule: dict[str, str] | None = None
) -> dlprim.LSTM | dlprim.GRU:
    make = {"lstm": dlprim.LSTM, "gru": dlprim.GRU}[rnn.cell]
    how = {"dtype": dtype, "reverse": rnn.reverse, "bias": rnn.bias}
    return make(rnn.x_shape, rnn.K, **how, schedule=schedule)


def states(rnn: Rnn, h: NDArray, c: NDArray, *names: str) -> dict[str, NDArray]:
    """The keywords for the states that the cell has."""
    return dict(zip(names, (h, c), strict=True)) if rnn.cell == "lstm" else {names[0]: h}


class Checked:
    """A primitive with operands in guarded memory."""

    def __init__(
        self, rnn: Rnn, variant: Variant, seed: int, schedule: dict[str, str] | None
    ) -> None:
        self.rnn, self.variant = rnn, variant
        self.t = t = Operands(rnn, variant.dtype, seed)
        self.cell = primitive(rnn, variant.dtype, schedule)
        self.lengths = drawn_lengths(rnn, t.random) if variant.lengths else None
        if self.lengths is not None:
            padding = np.arange(rnn.T)[:, None] >= self.lengths
            t.x[padding] = t.diff_y[padding] = np.nan
        for name in ("x", "diff_y", "w_ih", "w_hh", "h_0", "c_0", "diff_h_n", "diff_c_n"):
            setattr(t, name, self.placed(getattr(t, name)))
        self.given = [t.x, t.diff_y, t.h_0, t.c_0, t.diff_h_n, t.diff_c_n]
        self.before = [each.tobytes() for each in self.given]

    def placed(self, values: NDArray) -> NDArray:
        memory = guarded(values.size, self.variant.edge, values.dtype).reshape(values.shape)
        memory[...] = values
        return memory

    def like(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray:
        return self.placed(np.full(shape, np.nan, F4).astype(dtype))

    def check(self) -> None:
        rnn, t, limit = self.rnn, self.t, tolerance(self.rnn, self.variant.dtype)
        start, diff_end = t.start, t.diff_end
        first = states(rnn, t.h_0, t.c_0, "h_0", "c_0")
        last = states(rnn, t.diff_h_n, t.diff_c_n, "diff_h_n", "diff_c_n")
        if not self.variant.states:
            start, diff_end = (reference.State(s.h * 0, s.c * 0) for s in (start, diff_end))
            first, last = {}, {}
        expected = reference.forward(
            rnn.cell, doubles(t.x), t.weights, start, self.lengths, rnn.reverse
        )
        gradients = reference.backward(rnn.cell, t.weights, expected, doubles(t.diff_y), diff_end)

        weights = self.cell.pack_weights(*t.parameters)
        plain = self.cell.forward(t.x, weights, **first, lengths=self.lengths)
        out = self.like(rnn.y_shape, t.x.dtype)
        *results, saved = self.cell.forward(
            t.x, weights, **first, lengths=self.lengths, training=True, out=out
        )
        assert results[0] is out
        assert [each.tobytes() for each in plain] == [each.tobytes() for each in results]
        assert [each.dtype for each in results] == [t.x.dtype, t.x.dtype, F4][: len(results)]
        for actual, exact in zip(results, expected[:3], strict=False):
            assert_close(actual, exact, limit)
        found = self.cell.backward(t.diff_y, saved, weights, **last)
        for name, actual in found._asdict().items():
            if actual is None:
                assert "_b_" in name
                assert not rnn.bias
                continue
            assert actual.dtype == (t.x.dtype if name in ("diff_src", "diff_h_0") else F4)
            assert_close(actual, getattr(gradients, name), limit)
        self.check_padding(results[0], found.diff_src)
        assert [each.tobytes() for each in self.given] == self.before, "an operand was changed"

    def check_padding(self, y: NDArray, diff_src: NDArray) -> None:
        if self.lengths is not None:
            padding = np.arange(self.rnn.T)[:, None] >= self.lengths
            assert not doubles(y)[padding].any()
            assert not doubles(diff_src)[padding].any()


def check(
    rnn: Rnn, variant: Variant, seed: int = 0, schedule: dict[str, str] | None = None
) -> None:
    """Run both passes and raise AssertionError unless the contract held."""
    Checked(rnn, variant, seed, schedule).check()


def results(rnn: Rnn, t: Operands, lengths: np.ndarray | None = None) -> list[np.ndarray]:
    """Everything that the two passes compute."""
    cell = primitive(rnn, t.dtype)
    weights = cell.pack_weights(*t.parameters)
    first = states(rnn, t.h_0, t.c_0, "h_0", "c_0")
    last = states(rnn, t.diff_h_n, t.diff_c_n, "diff_h_n", "diff_c_n")
    *forward, saved = cell.forward(t.x, weights, **first, lengths=lengths, training=True)
    return [*forward, *cell.backward(t.diff_y, saved, weights, **last)]


def check_nan(cell: str, dtype: str, where: str) -> None:
    """A NaN in the operand `where` of one sequence is in all its results and in no other's."""
    rnn = Rnn(cell, 3, 7, 18, 35)
    t = Operands(rnn, dtype)
    clean = results(rnn, t)
    getattr(t, where)[..., 4, 2] = np.nan
    found = results(rnn, t)
    others = np.arange(rnn.N) != 4
    count = 3 if cell == "lstm" else 2  # y and last states; then diff_src and those of the states
    for number, (one, other) in enumerate(zip(clean[:-4], found[:-4], strict=True)):
        before, after = doubles(one), doubles(other)
        assert before[..., others, :].tobytes() == after[..., others, :].tobytes()
        if number < count:
            assert np.isnan(after[..., 4, :]).all()


def check_on_this_level(count: int, seed: int) -> None:
    """The fixed shapes and `count` random ones, for a process that was told its ISA level."""
    for dtype in ("float32", "bfloat16"):
        for number, rnn in few([*fixed_rnns(), *random_rnns(count, seed)], dlprim.isa()):
            check(rnn, drawn_variant(dtype, number), number)
        for cell in ("lstm", "gru"):
            check_nan(cell, dtype, "x")
