"""The one checker of kernels: any request, on operands next to forbidden pages, against float64.

Whatever a request does not own is poisoned: the gaps between rows and matrices of A and B hold NaN,
which would show in the result, those of C hold a bit pattern that must still be there afterwards,
and so does C itself where beta is 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

import dlprim
from guarded import guarded
from reference import assert_close, brgemm

_POISON = 0x7FC0DEAD  # a NaN that no arithmetic makes


@dataclass(frozen=True, kw_only=True)
class Request:
    m: int
    n: int
    k: int
    batch: int = 1
    trans_a: bool = False
    beta: int = 0
    addressing: str = "stride"  # or "memory": a plain vector and strides as arguments
    slack: tuple[int, int, int] = (0, 0, 0)  # how much longer than the row lda, ldb and ldc are
    bias: bool = False
    activation: str | None = None
    edge: str = "end"
    integers: bool = False  # operands that make every rounding exact
    seed: int = 0

    @property
    def a_shape(self) -> tuple[int, int]:
        return (self.k, self.m) if self.trans_a else (self.m, self.k)

    def kernel(self, isa: str) -> dlprim.Brgemm:
        return dlprim.Brgemm(
            self.m,
            self.n,
            self.k,
            lda=self.a_shape[1] + self.slack[0],
            ldb=self.n + self.slack[1],
            ldc=self.n + self.slack[2],
            trans_a=self.trans_a,
            beta=self.beta,
            addressing="stride" if self.addressing == "memory" else self.addressing,
            bias=self.bias,
            activation=self.activation,
            isa=isa,
        )


@dataclass
class Placed:
    """Matrices in guarded memory, and how a call is told of them."""

    matrices: list[NDArray]
    memory: list[NDArray]
    argument: Any
    keywords: dict[str, Any] = field(default_factory=dict)


class Draw:
    """The values of a request, the same for the same request."""

    def __init__(self, request: Request) -> None:
        self._random = np.random.default_rng(request.seed)
        self._integers = request.integers

    def __call__(self, shape: tuple[int, ...]) -> NDArray:
        if self._integers:
            return self._random.integers(-4, 5, shape).astype(np.float32)
        return self._random.standard_normal(shape, np.float32)

    def order(self, count: int) -> NDArray:
        return self._random.permutation(count)


def matrix_at(memory: NDArray, start: int, shape: tuple[int, int], ld: int) -> NDArray:
    return as_strided(memory[start:], shape, (4 * ld, 4))


def place(name: str, request: Request, shape: tuple[int, int], slack: int, draw: Draw) -> Placed:
    """The matrices of operand `name`, as the request's addressing wants them."""
    ld = shape[1] + slack
    span = (shape[0] - 1) * ld + shape[1]
    count = request.batch
    if request.addressing == "address":
        memory = [guarded(span, request.edge) for _ in range(count)]
        matrices = [matrix_at(each, 0, shape, ld) for each in memory]
        placed = Placed(matrices, memory, matrices)
    else:
        step = span + slack
        memory = [guarded((count - 1) * step + span if count else 0, request.edge)]
        order = draw.order(count) if request.addressing == "offset" else np.arange(count)
        matrices = [matrix_at(memory[0], step * i, shape, ld) for i in order]
        placed = Placed(matrices, memory, memory[0])
        if request.addressing == "stride":
            placed.argument = as_strided(memory[0], (count, *shape), (4 * step, 4 * ld, 4))
        elif request.addressing == "memory":
            placed.keywords[f"stride_{name}"] = 4 * step
        else:
            offsets = guarded(count, request.edge, np.int64)
            offsets[...] = 4 * step * order
            placed.keywords[f"offsets_{name}"] = offsets
    for each in placed.memory:
        each.fill(np.nan)
    for matrix in placed.matrices:
        matrix[...] = draw(shape)
    return placed


class Result:
    """C in guarded memory, poisoned."""

    def __init__(self, request: Request, draw: Draw) -> None:
        ld = request.n + request.slack[2]
        self.memory = guarded((request.m - 1) * ld + request.n, request.edge)
        self.memory.view(np.uint32).fill(_POISON)
        self.matrix = matrix_at(self.memory, 0, (request.m, request.n), ld)
        self.before = None
        if request.beta == 1:
            self.matrix[...] = draw(self.matrix.shape)
            self.before = self.matrix.copy()

    def assert_untouched_outside(self) -> None:
        value = self.matrix.copy()
        self.matrix.view(np.uint32)[...] = _POISON
        np.testing.assert_array_equal(self.memory.view(np.uint32), np.uint32(_POISON))
        self.matrix[...] = value


def check(request: Request, isa: str) -> None:
    """Run `request` on a kernel for `isa` and raise AssertionError unless the contract held."""
    draw = Draw(request)
    a = place("a", request, request.a_shape, request.slack[0], draw)
    b = place("b", request, (request.k, request.n), request.slack[1], draw)
    c = Result(request, draw)
    bias = None
    if request.bias:
        bias = guarded(request.n, request.edge)
        bias[...] = draw(bias.shape)
    inputs = [*a.memory, *b.memory, *([] if bias is None else [bias])]
    before = [each.tobytes() for each in inputs]

    keywords = a.keywords | b.keywords
    request.kernel(isa)(
        a.argument, b.argument, c.matrix, batch=request.batch, bias=bias, **keywords
    )

    assert [each.tobytes() for each in inputs] == before, "an operand was changed"
    c.assert_untouched_outside()
    a_shape = (request.batch, request.m, request.k)
    matrices = [each.T if request.trans_a else each for each in a.matrices]
    expected = brgemm(
        np.array(matrices, np.float32).reshape(a_shape),
        np.array(b.matrices, np.float32).reshape(request.batch, request.k, request.n),
        c.before,
        bias,
        request.activation,
    )
    if request.integers:
        np.testing.assert_array_equal(c.matrix, expected.value)
    else:
        assert_close(c.matrix, expected)
