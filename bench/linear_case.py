"""One row of the linear benchmark: operands, and every side that computes with them.

Operands are random: zeros would run at another clock. Every pass is verified against float64
before it is timed.
"""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dlprim
import harness

PASSES = ("forward", "backward_data", "backward_weights")

Call = Callable[[], object]


class Layer(NamedTuple):
    name: str
    N: int
    C: int
    K: int


def load_layers(path: Path) -> list[Layer]:
    with path.open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    return [Layer(row["name"], *(int(row[key]) for key in "NCK")) for row in rows]


class LinearCase:
    """Linear on packed operands and results, against PyTorch on plain tensors."""

    def __init__(self, layer: Layer, dtype: str) -> None:
        self.layer, self.dtype, self.name = layer, dtype, f"{layer.name} {dtype}"
        random = np.random.default_rng(layer.N + layer.C + layer.K)
        shapes = ((layer.N, layer.C), (layer.K, layer.C), (layer.N, layer.K))
        values = [random.standard_normal(shape, np.float32) for shape in shapes]
        self.plain = [dlprim.to_bfloat16(v) if dtype == "bfloat16" else v for v in values]
        self.linear = linear = dlprim.Linear((layer.N, layer.C), layer.K, dtype=dtype)
        self.src = linear.pack_src(self.plain[0])
        self.weights = linear.pack_weights(self.plain[1])
        self.diff_dst = linear.pack_diff_dst(self.plain[2])

    def least_bytes(self, which: str) -> int:
        """That any program must move: both operands and the result, once."""
        element = self.src.itemsize
        sizes = [array.size * element for array in self.plain]
        if which == "backward_weights":
            sizes[1] = self.plain[1].size * 4
        return sum(sizes)

    def ours(self, which: str) -> Call:
        """A call of the pass into a result that is there already."""
        linear, src, weights, diff_dst = self.linear, self.src, self.weights, self.diff_dst
        if which == "forward":
            dst = linear.forward(src, weights)
            return lambda: linear.forward(src, weights, out=dst)
        if which == "backward_data":
            diff_src = linear.backward_data(diff_dst, weights)
            return lambda: linear.backward_data(diff_dst, weights, out=diff_src)
        diff_weights = linear.backward_weights(src, diff_dst)
        return lambda: linear.backward_weights(src, diff_dst, out=diff_weights)

    def theirs(self, which: str, torch: Any) -> Call:
        x, w, dy = (_tensor(torch, array) for array in self.plain)
        if which == "forward":
            return lambda: torch.nn.functional.linear(x, w)
        if which == "backward_data":
            return lambda: dy @ w
        return lambda: dy.t() @ x

    def verify(self, which: str) -> None:
        result = self.ours(which)()
        x, w, dy = (_doubles(array) for array in self.plain)
        unpack, (a, b) = {
            "forward": (self.linear.unpack_dst, (x, w.T)),
            "backward_data": (self.linear.unpack_diff_src, (dy, w)),
            "backward_weights": (self.linear.unpack_diff_weights, (dy.T, x)),
        }[which]
        exact = a @ b
        bound = harness.sum_bound(a.shape[1], np.abs(a) @ np.abs(b))
        unpacked = unpack(result)
        if unpacked.dtype != np.float32:
            bound += 2.0**-8 * (np.abs(exact) + bound)
        harness.verify(f"{self.name} {which}", _doubles(unpacked), exact, bound)


def _doubles(array: np.ndarray) -> np.ndarray:
    widened = array if array.dtype == np.float32 else dlprim.to_float32(array, dtype="bfloat16")
    return widened.astype(np.float64)


def _tensor(torch: Any, array: np.ndarray) -> Any:
    """A copy where PyTorch itself would put it."""
    if array.dtype == np.float32:
        return torch.from_numpy(array).clone()
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).clone()
