"""One row of the benchmark of plain functions: arrays as people hold them, and every side."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dlprim
import harness
from torch_peer import tensor_on

Call = Callable[[], object]

FUNCTIONS = ("linear", "linear_backward")
# How the arrays are stored: in C order; w as the transpose of an array; every second row of x; x in
# Fortran's order.
STORAGES = ("plain", "transposed w", "strided x", "Fortran x")


class Shape(NamedTuple):
    N: int
    C: int
    K: int


def load_shapes(path: Path) -> list[Shape]:
    with path.open() as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return [Shape(*(int(row[key]) for key in "NCK")) for row in rows]


class PlainCase:
    """A linear layer or its gradients."""

    def __init__(self, shape: Shape, function: str, storage: str) -> None:
        random = np.random.default_rng(sum(shape))
        n, c, k = shape
        self.function, self.name = function, f"{function} {tuple(shape)} {storage}"
        self.flops = 2.0 * n * c * k * (1 if function == "linear" else 2)
        self.bytes = 4.0 * (n * c + c * k + n * k) * (1 if function == "linear" else 2)
        x = random.standard_normal((2 * n if storage == "strided x" else n, c), np.float32)
        w = random.standard_normal((k, c), np.float32)
        self.x = {"strided x": x[::2], "Fortran x": np.asfortranarray(x)}.get(storage, x)
        self.w = np.asfortranarray(w) if storage == "transposed w" else w
        self.dy = random.standard_normal((n, k), np.float32)

    def ours(self) -> Call:
        x, w, dy = self.x, self.w, self.dy
        if self.function == "linear":
            return lambda: dlprim.linear(x, w)
        return lambda: dlprim.linear_backward(dy, x, w)

    def numpys(self) -> Call:
        x, w, dy = self.x, self.w, self.dy
        if self.function == "linear":
            return lambda: np.matmul(x, w.T)
        return lambda: (np.matmul(dy, w), np.matmul(dy.T, x), dy.sum(0))

    def torchs(self, torch: Any) -> Call:
        x, w, dy = (tensor_on(torch, each) for each in (self.x, self.w, self.dy))
        if self.function == "linear":
            return lambda: torch.nn.functional.linear(x, w)
        return lambda: (dy @ w, dy.t() @ x, dy.sum(0))

    def verify(self) -> None:
        x, w, dy = (each.astype(np.float64) for each in (self.x, self.w, self.dy))
        products = [(x, w.T)] if self.function == "linear" else [(dy, w), (dy.T, x)]
        results: Any = self.ours()()
        for (a, b), result in zip(
            products, [results] if len(products) == 1 else results, strict=False
        ):
            bound = harness.sum_bound(a.shape[1], np.abs(a) @ np.abs(b))
            harness.verify(self.name, result.astype(np.float64), a @ b, bound)
