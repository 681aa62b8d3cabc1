"""One row of the benchmark of recurrent cells: operands, and every side that computes with them.

Operands are random, weights as large as those of PyTorch before training. Every mode is verified
against float64 before it is timed.
"""

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dlprim
from rnn_exact import Exact, Parameters, verify
from torch_peer import tensor_on

MODES = ("inference", "training", "backward")
CELLS = ("lstm", "gru")
_GATES = {"lstm": 4, "gru": 3}
_VERIFIED = 2  # sequences
_CACHE_LINE = 64

Call = Callable[[], Any]


@dataclass(frozen=True)
class Row:
    """A row of the table of shapes."""

    name: str
    N: int
    C: int
    K: int
    T: int


def load_rows(path: Path) -> list[Row]:
    with path.open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    return [
        Row(row["name"], **{key: int(row[key]) for key in ("N", "C", "K", "T")}) for row in rows
    ]


class RnnCase:
    """LSTM or GRU on packed weights, against PyTorch's module with the same parameters."""

    def __init__(self, row: Row, cell: str, dtype: str, prepacked: bool) -> None:
        self.row, self.cell, self.dtype, self.prepacked = row, cell, dtype, prepacked
        self.name = f"{row.name} {cell} {dtype}"
        random = np.random.default_rng(row.N + row.K)
        rows = _GATES[cell] * row.K

        def draw(*shape: int, scale: float = 1) -> np.ndarray:
            values = scale * random.standard_normal(shape, np.float32)
            return _aligned(values if dtype == "float32" else dlprim.to_bfloat16(values))

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
        self.y = _aligned(np.zeros_like(self.diff_y))

    def flops(self, mode: str) -> float:
        """Of the products; backward counts both passes."""
        row = self.row
        forward = 2.0 * row.T * row.N * _GATES[self.cell] * row.K * (row.C + row.K)
        return forward * (3 if mode == "backward" else 1)

    def bytes_read(self, mode: str) -> float:
        """Of weights: w_hh in every step, w_ih once; as often in the backward pass."""
        w_ih, w_hh = self.parameters[:2]
        return (self.row.T * w_hh.nbytes + w_ih.nbytes) * (2.0 if mode == "backward" else 1.0)

    def ours(self, mode: str) -> Call:
        """A call that ends with what `verify` looks at."""
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

    def theirs(self, mode: str, torch: Any) -> Call:
        """PyTorch's module; gradients of x and of all parameters."""
        module, x, diff_y = self._module(torch)
        if mode == "inference":

            def inference() -> Any:
                with torch.inference_mode():  # a few percent faster than no_grad
                    return module(x)

            return inference
        if mode == "training":
            return lambda: module(x)
        wanted = [x, *module.parameters()]
        return lambda: torch.autograd.grad(module(x)[0], wanted, diff_y)

    def engine(self, torch: Any) -> str:
        """What PyTorch runs: "oneDNN", its primitive for all steps, or operators in every step."""
        module, x, _ = self._module(torch)
        open_nodes, names = [module(x)[0].grad_fn], set()
        while open_nodes:
            node = open_nodes.pop()
            if node is not None and node.name() not in names:
                names.add(node.name())
                open_nodes += [following for following, _ in node.next_functions]
        return "oneDNN" if any(name.startswith("Mkldnn") for name in names) else "steps"

    def verify(self, mode: str) -> None:
        """Stop unless a few sequences are right, alone in the gradients of the weights."""
        random = np.random.default_rng(0)
        some = random.choice(self.row.N, min(_VERIFIED, self.row.N), replace=False)
        exact = Exact(self.cell, self.x[:, some], self.parameters)
        if mode != "backward":
            y = self.ours(mode)()[0]
            verify(f"{self.name} {mode} y", y[:, some], exact.y, self.dtype)
            return
        diff_y = _aligned(np.zeros_like(self.diff_y))
        diff_y[:, some] = self.diff_y[:, some]
        call: Any = self.ours(mode)
        found = call(diff_y)
        for name, expected in exact.gradients(diff_y[:, some]).items():
            result = getattr(found, name)
            if name == "diff_src":
                result = result[:, some]
            verify(f"{self.name} {name}", result, expected, self.dtype)

    def _module(self, torch: Any) -> tuple[Any, Any, Any]:
        """The module, x and the gradient of y."""
        kind = torch.nn.LSTM if self.cell == "lstm" else torch.nn.GRU
        dtype = torch.float32 if self.dtype == "float32" else torch.bfloat16
        module = kind(self.row.C, self.row.K).to(dtype)
        with torch.no_grad():
            for parameter, value in zip(module.parameters(), self.parameters, strict=True):
                parameter.copy_(tensor_on(torch, value))
        x = tensor_on(torch, self.x).clone().requires_grad_()
        return module, x, tensor_on(torch, self.diff_y)


class PlainRnnCase(RnnCase):
    """`dlprim.lstm` and `gru` on plain arrays, which pack the weights in every call."""

    def ours(self, mode: str) -> Call:
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


def _aligned(values: np.ndarray) -> np.ndarray:
    memory = np.empty(values.nbytes + _CACHE_LINE, np.uint8)
    begin = -memory.ctypes.data % _CACHE_LINE
    result = memory[begin : begin + values.nbytes].view(values.dtype).reshape(values.shape)
    result[...] = values
    return result
