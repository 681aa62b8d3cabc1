"""LSTM and GRU: inference, the forward pass of training, and that with the backward pass behind.

Primitives have packed weights; as weights change between the steps of training, ``backward`` packs
them in every call, into the same memory as a training loop does, unless ``prepacked`` is asked
for; ``plain`` measures the functions, which pack in every call. y has memory of its own, everything
else is made in the call. PyTorch's side is its module with the same numbers and whatever it packs
and makes in a call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import dlprim
from dlprim.bench import peers, tables
from dlprim.bench.measuring.case import Case, Row, UnavailableError
from dlprim.bench.measuring.timing import Call
from dlprim.bench.settings import Settings
from dlprim.bench.workloads.kernel import aligned
from dlprim.bench.workloads.rnn_exact import Parameters, verify_gradients, verify_states

MODES = ("inference", "training", "backward")
CELLS = ("lstm", "gru")
_GATES = {"lstm": 4, "gru": 3}
_VERIFIED = 2  # sequences
_QUICK_MODES = ("inference", "backward")
_QUICK = ("small-256", "infer-512")


@dataclass(frozen=True)
class Shape:
    """A row of the table of shapes."""

    name: str
    N: int
    C: int
    K: int
    T: int


def load_shapes(settings: Settings) -> Iterator[Shape]:
    """Raises `TableError`."""
    for path in settings.tables("rnn", "rnn"):
        names = [row["name"] for row in tables.read(path, ("name", "N", "C", "K", "T"))]
        for name, row in zip(names, tables.integers(path, ("N", "C", "K", "T")), strict=True):
            if settings.wanted(name):
                yield Shape(name, **row)


def rows(settings: Settings) -> Iterator[Row]:
    """Of every cell, mode, type and shape."""
    for cell in settings.kinds or CELLS:
        for mode in settings.passes or (_QUICK_MODES if settings.brief else MODES):
            for dtype in settings.types("float32", "bfloat16"):
                for it in load_shapes(settings):
                    if not settings.brief or settings.rows or settings.shapes or it.name in _QUICK:
                        make = partial(_case, it, cell, mode, dtype, settings)
                        yield Row(f"{cell} {mode}", it.name, dtype, make)


def _case(shape: Shape, cell: str, mode: str, dtype: str, settings: Settings) -> Case:
    kind = PlainRnnCase if settings.plain else RnnCase
    return kind(shape, cell, dtype, settings.prepacked).case(mode, settings.threads)


class RnnCase:
    """LSTM or GRU on packed weights; weights are as large as PyTorch's before training."""

    def __init__(self, row: Shape, cell: str, dtype: str, prepacked: bool) -> None:
        self.row, self.cell, self.dtype, self.prepacked = row, cell, dtype, prepacked
        self.name = f"{row.name} {cell} {dtype}"
        random = np.random.default_rng(row.N + row.K)
        rows = _GATES[cell] * row.K

        def draw(*shape: int, scale: float = 1) -> np.ndarray:
            values = scale * random.standard_normal(shape, np.float32)
            return aligned(values if dtype == "float32" else dlprim.to_bfloat16(values))

        small = 0.5 * row.K**-0.5
        self.x, self.diff_y = draw(row.T, row.N, row.C), draw(row.T, row.N, row.K)
        self.parameters = Parameters(
            draw(rows, row.C, scale=small),
            draw(rows, row.K, scale=small),
            *(small * random.standard_normal(rows, np.float32) for _ in range(2)),
        )
        make = dlprim.LSTM if cell == "lstm" else dlprim.GRU
        self.rnn = make((row.T, row.N, row.C), row.K, dtype=dtype)
        self.weights = self.rnn.pack_weights(*self.parameters)
        self.y = aligned(np.zeros_like(self.diff_y))

    def ours(self, mode: str) -> Any:
        """A call that ends with what `verify` looks at; backward takes another gradient of y."""
        rnn, x, weights, y = self.rnn, self.x, self.weights, self.y
        if mode != "backward":
            training = mode == "training"
            return lambda: rnn.forward(x, weights, training=training, out=y)

        def forward_and_backward(diff_y: np.ndarray = self.diff_y) -> Any:
            if not self.prepacked:
                rnn.pack_weights(*self.parameters, out=weights)
            *_, saved = rnn.forward(x, weights, training=True, out=y)
            return rnn.backward(diff_y, saved, weights)

        return forward_and_backward

    def verify(self, mode: str) -> None:
        """A few sequences, which alone have a part in the gradients of the weights."""
        random = np.random.default_rng(0)
        some = random.choice(self.row.N, min(_VERIFIED, self.row.N), replace=False)
        if mode != "backward":
            y = self.ours(mode)()[0]
            name = f"{self.name} {mode} y"
            verify_states(name, self.cell, y[:, some], self.x[:, some], self.parameters)
            return
        diff_y = aligned(np.zeros_like(self.diff_y))
        diff_y[:, some] = self.diff_y[:, some]
        found = self.ours(mode)(diff_y)
        gradients = [found.diff_src[:, some]]
        gradients += [getattr(found, f"diff_{name}") for name in Parameters._fields]
        operands = [self.x[:, some], *self.parameters]
        verify_gradients(self.name, self.cell, gradients, operands, diff_y[:, some])

    def case(self, mode: str, threads: int) -> Case:
        row, backward = self.row, mode == "backward"
        forward = 2.0 * row.T * row.N * _GATES[self.cell] * row.K * (row.C + row.K)
        w_ih, w_hh = self.parameters[:2]
        # The recurrent weights are read in every step, the others once; twice with backward.
        traffic = (row.T * w_hh.nbytes + w_ih.nbytes) * (2.0 if backward else 1.0)
        return Case(
            self.ours(mode), partial(self.verify, mode),
            {"torch": lambda: self.theirs(mode, threads)},
            operations=forward * (3 if backward else 1), traffic=traffic,
            buffer=w_hh.nbytes, peak_dtype=self.dtype,
        )  # fmt: skip

    def theirs(self, mode: str, threads: int) -> Call:
        """PyTorch's module; gradients of x and of all parameters."""
        torch = peers.torch(threads)
        kind = torch.nn.LSTM if self.cell == "lstm" else torch.nn.GRU
        dtype = torch.float32 if self.dtype == "float32" else torch.bfloat16
        module = kind(self.row.C, self.row.K).to(dtype)
        with torch.no_grad():
            for parameter, value in zip(module.parameters(), self.parameters, strict=True):
                parameter.copy_(peers.tensor_on(torch, value))
        x = peers.tensor_on(torch, self.x).clone().requires_grad_()
        diff_y = peers.tensor_on(torch, self.diff_y)
        try:
            module(x)
        except RuntimeError as error:
            raise UnavailableError(str(error).splitlines()[0]) from error
        if mode == "inference":

            def inference() -> Any:
                with torch.inference_mode():  # a few percent faster than no_grad
                    return module(x)

            return inference
        if mode == "training":
            return lambda: module(x)
        wanted = [x, *module.parameters()]
        return lambda: torch.autograd.grad(module(x)[0], wanted, diff_y)


class PlainRnnCase(RnnCase):
    """`dlprim.lstm` and `gru` on plain arrays, which pack the weights in every call."""

    def ours(self, mode: str) -> Any:
        forward = getattr(dlprim, self.cell)
        backward = getattr(dlprim, f"{self.cell}_backward")
        x, parameters = self.x, self.parameters
        if mode != "backward":
            training = mode == "training"
            return lambda: forward(x, *parameters, training=training)

        def forward_and_backward(diff_y: np.ndarray = self.diff_y) -> Any:
            *_, saved = forward(x, *parameters, training=True)
            return backward(diff_y, saved)

        return forward_and_backward
