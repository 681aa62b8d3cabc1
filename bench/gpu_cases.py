"""What `bench_gpu.py` measures: products, convolutions, formulas, and PyTorch's words for each."""

import csv
import itertools
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as functional

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

# isort: split

from dlprim import define, gpu
from dlprim.bench.workloads import definitions

SHAPES = Path(__file__).parent / "shapes"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LAYERS = define(
    definitions.LAYERS
    + """
def layer_norm(float(N,D) x, float(D) g, float(D) b) -> (y) {
    mean(n) +=! x(n,d) / D
    var(n) +=! (x(n,d) - mean(n)) * (x(n,d) - mean(n)) / D
    y(n,d) = (x(n,d) - mean(n)) * rsqrt(var(n) + 1e-5) * g(d) + b(d)
}
"""
)
# A name, the formula, shapes, sizes that they do not say, and PyTorch's words for it.
FORMULAS: list[tuple[str, Any, list[tuple[int, ...]], dict[str, int], Callable[..., Any]]] = [
    ("linear and relu", LAYERS.fcrelu, [(2048, 1024), (1024, 1024), (1024,)], {},
     lambda x, w, b: torch.relu(functional.linear(x, w, b))),
    ("softmax", LAYERS.softmax, [(8192, 1024)], {}, lambda x: torch.softmax(x, 1)),
    ("layer norm", LAYERS.layer_norm, [(8192, 1024), (1024,), (1024,)], {},
     lambda x, g, b: functional.layer_norm(x, x.shape[1:], g, b)),
    ("attention", LAYERS.attention, [(4, 16, 512, 64)] * 3, {},
     lambda q, k, v: torch.softmax(0.125 * q @ k.mT, -1) @ v),
    ("largest", "y(n) max=! x(n,c)", [(8192, 1024)], {}, lambda x: x.amax(1)),
    ("sum of all", "y() +=! x(n,c)", [(8192, 1024)], {}, torch.sum),
    ("sum of columns", "y(c) +=! x(n,c)", [(8192, 1024)], {}, lambda x: x.sum(0)),
    ("gate", "y(n,c) = x(n,c) * sigmoid(x(n,c))", [(8192, 1024)], {}, functional.silu),
    ("triangle", "y(i,j) = i >= j ? x(i,j) : 0", [(4096, 4096)], {}, torch.tril),
    ("reversed", "y(n,c) = x(n,1023-c)", [(8192, 1024)], {"c": 1024}, lambda x: x.flip(1)),
    ("squares", "y(n) +=! (x(n,c) - z(n,c)) * (x(n,c) - z(n,c))", [(8192, 1024)] * 2, {},
     lambda x, z: ((x - z) * (x - z)).sum(1)),
    ("groups", "y(n,g,k,i) +=! x(n,g,c,i) * w(g,k,c)", [(16, 8, 64, 512), (8, 64, 64)], {},
     lambda x, w: torch.einsum("ngci,gkc->ngki", x, w)),
    ("dilated", "y(n,k,p) +=! x(n,c,p+8*s) * w(k,c,s)", [(16, 64, 2048), (64, 64, 3)], {},
     lambda x, w: functional.conv1d(x, w, dilation=8)),
    ("pooled", "y(n,c,p,q) max=! x(n,c,2*p+r,2*q+s) where r in 0:2, s in 0:2",
     [(32, 64, 112, 112)], {}, lambda x: functional.max_pool2d(x, 2)),
    ("outer", "y(i,j) = a(i) * b(j)", [(4096,), (4096,)], {}, torch.outer),
]  # fmt: skip


class Row(NamedTuple):
    group: str
    name: str
    own: Callable[[], Any]
    peers: list[Callable[[], Any]]


def drawn(*shape: int, dtype: torch.dtype = torch.float32, last: bool = False) -> Any:
    made = torch.randn(shape, device=DEVICE, dtype=torch.float32).to(dtype)
    return made.contiguous(memory_format=torch.channels_last) if last else made


def rows_of(name: str) -> list[dict[str, str]]:
    with (SHAPES / name).open() as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def products(tiny: bool) -> Iterator[Row]:
    n = 32 if tiny else 4096
    a, b, c = drawn(1, n, n, dtype=torch.bfloat16), drawn(n, n, dtype=torch.bfloat16), drawn(n, n)
    kernel, c = gpu.Brgemm(n, n, n, "bfloat16", out_dtype="bfloat16"), c.to(torch.bfloat16)
    yield Row("product", f"{n}^3 bf16", lambda: kernel(a, b, c) or c, [lambda: a[0] @ b])


def convolutions(tiny: bool) -> Iterator[Row]:
    for row, dtype in itertools.product(
        rows_of("resnet50_conv.csv"), (torch.bfloat16, torch.float32)
    ):
        n, c, k, h, w = 32, *(int(row[it]) for it in "CKHW")
        if tiny:
            n, c, k, h, w = 1, min(c, 16), min(k, 16), min(h, 8), min(w, 8)
        r, s, *steps = (int(row[it]) for it in ("R", "S", "stride", "pad"))
        x, f = drawn(n, c, h, w, dtype=dtype, last=True), drawn(k, c, r, s, dtype=dtype, last=True)
        y = functional.conv2d(x, f, None, *steps)
        dy, name = torch.randn_like(y), f"{row['id']} {str(dtype)[6:]}"
        own = partial(gpu.conv2d, x, f, None, *steps, tf32=True)
        yield Row("forward", name, own, [partial(functional.conv2d, x, f, None, *steps)])
        both = [[it, it] for it in (*steps, 1)]
        peer = partial(
            torch.ops.aten.convolution_backward, dy, x, f, None, *both, False, [0, 0], 1
        )  # fmt: skip
        own = partial(gpu.conv2d_backward, dy, x, f, *steps, tf32=True)
        yield Row(
            "gradients", name, lambda o=own: o()[:2], [lambda p=peer: p([True, True, False])[:2]]
        )


def formulas(tiny: bool) -> Iterator[Row]:
    for name, formula, shapes, sizes, function in FORMULAS:
        if tiny and "1023" not in str(formula):
            shapes = [tuple(min(it, 32) for it in shape) for shape in shapes]
        if not tiny or shapes != [(8192, 1024)]:
            arrays = [drawn(*shape) for shape in shapes]
            yield Row("formulas", name, *sides(formula, arrays, sizes, function, tiny))


def contractions(tiny: bool) -> Iterator[Row]:
    for row in rows_of("einsum.csv"):
        extents = {it.partition("=")[0]: int(it.partition("=")[2]) for it in row["sizes"].split()}
        work = torch.Size(extents.values()).numel()
        by = min(1.0, (1e3 / work) ** (1 / len(extents))) if tiny else 2 * (work < 2**30) or 1
        extents = {name: max(int(it * by), 1) for name, it in extents.items()}
        operands, _, result = row["spec"].partition("->")
        groups = operands.split(",")
        reads = [f"t{i}({','.join(group)})" for i, group in enumerate(groups)]
        arrays = [drawn(*(extents[it] for it in group)) for group in groups]
        formula = f"y({','.join(result)}) +=! {' * '.join(reads)}"
        if len(groups) == 2:  # of more, PyTorch chooses an order that formulas leave to `einsum`
            function = partial(torch.einsum, row["spec"])
            yield Row("einsum", row["name"], *sides(formula, arrays, {}, function, tiny))


def sides(formula: Any, arrays: Any, sizes: Any, function: Any, tiny: bool) -> Any:
    own = partial(gpu.contract, formula, *arrays, tf32=True, **sizes)
    eager = partial(function, *arrays)
    return own, [eager] if tiny else [eager, partial(torch.compile(function), *arrays)]
