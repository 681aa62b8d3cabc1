"""Linear layers: every pass and type on packed operands; with ``plain`` on arrays as people hold
them, stored in several orders, against NumPy, PyTorch and its oneDNN on plain operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import dlprim
from dlprim.bench import peers, tables
from dlprim.bench.measuring.case import Case, Row, UnavailableError
from dlprim.bench.measuring.timing import Call
from dlprim.bench.measuring.verification import doubles, verify_product
from dlprim.bench.settings import Settings

PASSES = ("forward", "backward_data", "backward_weights")
FUNCTIONS = ("linear", "linear_backward")
# How plain arrays are stored: in C order; w as the transpose of an array; every second row of x; x
# in Fortran's order.
STORAGES = ("plain", "transposed w", "strided x", "Fortran x")
_QUICK = ("fc-1024-1024", "mlp-512", "db-5124-4")
_SMALL = 1e8  # products, of a plain row that a quick run has


class Layer(NamedTuple):
    name: str
    N: int
    C: int
    K: int


def load_layers(settings: Settings, default: str) -> Iterator[Layer]:
    """Raises `TableError`."""
    for path in settings.tables("linear", default):
        named = "name" in tables.read(path, ("N", "C", "K"))[0]
        names = [row["name"] for row in tables.read(path, ("name",))] if named else None
        for place, row in enumerate(tables.integers(path, ("N", "C", "K"))):
            name = "x".join(map(str, row.values())) if names is None else names[place]
            if settings.wanted(name):
                yield Layer(name, **row)


def rows(settings: Settings) -> Iterator[Row]:
    """Of every pass, type and layer."""
    if settings.plain:
        yield from _plain_rows(settings)
        return
    for which in settings.passes or PASSES:
        for dtype in settings.types("float32", "bfloat16"):
            for layer in load_layers(settings, "fc"):
                if not settings.quick or settings.rows or settings.shapes or layer.name in _QUICK:
                    make = partial(_case, layer, which, dtype, settings.threads)
                    yield Row(which, layer.name, dtype, make)


def _plain_rows(settings: Settings) -> Iterator[Row]:
    for function in settings.passes or FUNCTIONS:
        for storage in settings.layouts or STORAGES[:1]:
            for layer in load_layers(settings, "plain_linear"):
                small = layer.N * layer.C * layer.K < _SMALL
                if settings.types("float32") and (small or not settings.brief):
                    make = partial(_plain_case, layer, function, storage, settings.threads)
                    yield Row(f"{function}, {storage}", layer.name, "float32", make)


class LinearCase:
    """Linear on packed operands and results."""

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

    def factors(self, which: str) -> tuple[np.ndarray, np.ndarray]:
        """Whose product the pass is, plain."""
        x, w, dy = self.plain
        products = {"forward": (x, w.T), "backward_data": (dy, w), "backward_weights": (dy.T, x)}
        return products[which]

    def verify(self, which: str) -> None:
        unpack: Callable[[Any], np.ndarray] = {
            "forward": self.linear.unpack_dst,
            "backward_data": self.linear.unpack_diff_src,
            "backward_weights": self.linear.unpack_diff_weights,
        }[which]
        result = unpack(self.ours(which)())
        verify_product(f"{self.name} {which}", result, *self.factors(which))


def _case(layer: Layer, which: str, dtype: str, threads: int) -> Case:
    it = LinearCase(layer, dtype)
    sizes = [array.nbytes for array in it.plain]
    if which == "backward_weights":
        sizes[1] = 4 * it.plain[1].size  # gradients of weights are float32
    sides: dict[str, Callable[[], Call]] = {"torch": lambda: _torch(it, which, threads)}
    if dtype == "float32":
        a, b = it.factors(which)
        sides["numpy"] = lambda: partial(np.matmul, a, b)
    if which == "forward":
        sides["onednn"] = lambda: _prepared(it, threads)
    return Case(
        it.ours(which), partial(it.verify, which), sides, operations=it.linear.flops,
        traffic=float(sum(sizes)), peak_dtype=dtype,
    )  # fmt: skip


def _torch(it: LinearCase, which: str, threads: int) -> Call:
    torch = peers.torch(threads)
    # Copies lie where PyTorch itself would put them.
    x, w, dy = (peers.tensor_on(torch, array).clone() for array in it.plain)
    if which == "forward":
        return lambda: torch.nn.functional.linear(x, w)
    return (lambda: dy @ w) if which == "backward_data" else (lambda: dy.t() @ x)


def _prepared(it: LinearCase, threads: int) -> Call:
    """With weights that oneDNN packed before."""
    torch = peers.torch(threads)
    x, w, _ = (peers.tensor_on(torch, array).clone() for array in it.plain)
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(w, it.layer.N)
        linear = torch.ops.mkldnn._linear_pointwise
        linear(x, packed, None, "none", [], "")
    except (AttributeError, RuntimeError) as error:
        raise UnavailableError("this PyTorch packs no such weights on this CPU") from error
    return lambda: linear(x, packed, None, "none", [], "")


class PlainCase:
    """A linear layer or its gradients on plain arrays."""

    def __init__(self, layer: Layer, function: str, storage: str) -> None:
        _, n, c, k = layer
        random = np.random.default_rng(n + c + k)
        self.function, self.name = function, f"{function} {layer.name} {storage}"
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

    def torchs(self, threads: int) -> Call:
        torch = peers.torch(threads)
        x, w, dy = (peers.tensor_on(torch, each) for each in (self.x, self.w, self.dy))
        if self.function == "linear":
            return lambda: torch.nn.functional.linear(x, w)
        return lambda: (dy @ w, dy.t() @ x, dy.sum(0))

    def verify(self) -> None:
        x, w, dy = (doubles(each) for each in (self.x, self.w, self.dy))
        results: Any = self.ours()()
        if self.function == "linear":
            verify_product(self.name, results, x, w.T)
            return
        verify_product(self.name, results[0], dy, w)
        verify_product(self.name, results[1], dy.T, x)


def _plain_case(layer: Layer, function: str, storage: str, threads: int) -> Case:
    it, passes = PlainCase(layer, function, storage), 1 if function == "linear" else 2
    return Case(
        it.ours(), it.verify, {"numpy": it.numpys, "torch": lambda: it.torchs(threads)},
        operations=2.0 * passes * layer.N * layer.C * layer.K,
        traffic=float(passes * (it.x.nbytes + it.w.nbytes + it.dy.nbytes)),
    )  # fmt: skip
