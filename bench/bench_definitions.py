"""Layers of several statements, written with `dlprim.define`, against PyTorch on one core, float32.

Both sides have the same arrays and are called from Python in turns; results are compared before
anything is timed. `x torch` is how many times faster than PyTorch, eager or, with --compile, the
faster one of eager and `torch.compile`.
"""

import argparse
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

# Before NumPy, which then reads what --isa says.
from torch_peer import beside_torch

# isort: split

import numpy as np

import dlprim
import harness

LAYERS = """
def fcrelu(float(B,I) x, float(O,I) w, float(O) b) -> (y) {
    y(n,o) +=! x(n,i) * w(o,i)
    y(n,o) = fmax(y(n,o) + b(o), 0)
}
def mlp3(float(B,N) x, float(O,N) w2, float(O) b2, float(P,O) w3, float(P) b3, float(Q,P) w4,
         float(Q) b4) -> (y) {
    y2(b,o) +=! x(b,n) * w2(o,n)
    y2(b,o) = fmax(y2(b,o) + b2(o), 0)
    y3(b,p) +=! y2(b,o) * w3(p,o)
    y3(b,p) = fmax(y3(b,p) + b3(p), 0)
    y(b,q) +=! y3(b,p) * w4(q,p)
    y(b,q) = fmax(y(b,q) + b4(q), 0)
}
def softmax(float(N,D) x) -> (y) {
    highest(n) max=! x(n,d)
    power(n,d) = exp(x(n,d) - highest(n))
    total(n) +=! power(n,d)
    y(n,d) = power(n,d) / total(n)
}
def group_norm(float(N,G,D,H,W) x, float(G,D) gamma, float(G,D) beta) -> (y) {
    sum(n,g) +=! x(n,g,d,h,w)
    squares(n,g) +=! x(n,g,d,h,w) * x(n,g,d,h,w)
    mean(n,g) = sum(n,g) / (D*H*W)
    scale(n,g) = rsqrt(squares(n,g) / (D*H*W) - mean(n,g) * mean(n,g) + 1e-5)
    y(n,g,d,h,w) = gamma(g,d) * (x(n,g,d,h,w) - mean(n,g)) * scale(n,g) + beta(g,d)
}
def separable(float(N,C,H,W) x, float(C,R,S) d, float(K,C) p) -> (y) {
    m(n,c,h,w) +=! x?(n,c,h+r-1,w+s-1) * d(c,r,s) where h in 0:H, w in 0:W
    m(n,c,h,w) = fmax(m(n,c,h,w), 0)
    y(n,k,h,w) +=! m(n,c,h,w) * p(k,c)
    y(n,k,h,w) = fmax(y(n,k,h,w), 0)
}
def attention(float(B,H,Q,D) q, float(B,H,K,D) k, float(B,H,K,D) v) -> (o) {
    s(b,h,i,j) +=! 0.125 * q(b,h,i,d) * k(b,h,j,d)
    highest(b,h,i) max=! s(b,h,i,j)
    s(b,h,i,j) = exp(s(b,h,i,j) - highest(b,h,i))
    total(b,h,i) +=! s(b,h,i,j)
    o(b,h,i,d) +=! s(b,h,i,j) * v(b,h,j,d)
    o(b,h,i,d) = o(b,h,i,d) / total(b,h,i)
}
def tables(float(E,D) x, int64(B,L) i, float(F,D) z, int64(B,M) j) -> (a, b) {
    a(n,d) +=! x(i(n,k),d)
    b(n,d) +=! z(j(n,k),d)
}
"""


class Case(NamedTuple):
    name: str
    layer: str
    arrays: list[np.ndarray]


def peers(torch: Any) -> dict[str, Callable[..., Any]]:
    """The same layers of PyTorch, by their names here."""
    functions = torch.nn.functional

    def linear_relu(x: Any, w: Any, b: Any) -> Any:
        return torch.relu(functions.linear(x, w, b))

    def mlp3(x: Any, *wb: Any) -> Any:
        return linear_relu(linear_relu(linear_relu(x, *wb[:2]), *wb[2:4]), *wb[4:])

    def group_norm(x: Any, gamma: Any, beta: Any) -> Any:
        flat = x.reshape(x.shape[0], -1, *x.shape[3:])
        norm = functions.group_norm(flat, x.shape[1], gamma.reshape(-1), beta.reshape(-1))
        return norm.reshape(x.shape)

    def separable(x: Any, d: Any, p: Any) -> Any:
        inner = torch.relu(functions.conv2d(x, d[:, None], padding=1, groups=x.shape[1]))
        return torch.relu(functions.conv2d(inner, p[:, :, None, None]))

    def tables(x: Any, i: Any, z: Any, j: Any) -> Any:
        bag = functions.embedding_bag
        return bag(i, x, mode="sum"), bag(j, z, mode="sum")

    return {
        "fcrelu": linear_relu,
        "mlp3": mlp3,
        "softmax": lambda x: torch.softmax(x, -1),
        "group_norm": group_norm,
        "separable": separable,
        "attention": functions.scaled_dot_product_attention,
        "tables": tables,
    }


def cases() -> list[Case]:
    rng = np.random.default_rng(0)

    def drawn(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32)

    weights = [drawn(1024, 1024) / 32, drawn(1024), drawn(1024, 1024) / 32, drawn(1024)]
    last = [drawn(256, 1024) / 32, drawn(256)]
    norm = [drawn(8, 32, 4, 28, 28), drawn(32, 4), drawn(32, 4)]
    filters = [drawn(128, 3, 3), drawn(128, 128) / 11]
    made = [
        Case("fcrelu 128x1024x1024", "fcrelu", [drawn(128, 1024), *weights[:2]]),
        Case("mlp3 128x1024", "mlp3", [drawn(128, 1024), *weights, *last]),
        Case("softmax 4096x1024", "softmax", [drawn(4096, 1024)]),
        Case("group norm 8x32x4x28x28", "group_norm", norm),
        Case("separable 128x56x56", "separable", [drawn(1, 128, 56, 56), *filters]),
        Case("attention 8x12x128", "attention", [drawn(8, 12, 128, 64) for _ in "qkv"]),
        Case("attention 1x16x1024", "attention", [drawn(1, 16, 1024, 64) for _ in "qkv"]),
    ]
    for rows, bags, length in ((100_000, 128, 50), (1_000_000, 4096, 32)):
        table, (i, j) = drawn(rows, 64), rng.integers(0, rows, (2, bags, length))
        made.append(Case(f"tables {rows}x64", "tables", [table, i, table, j]))
    return made


def verify(ours: Any, theirs: Any) -> None:
    pairs = zip(ours, theirs, strict=True) if isinstance(ours, tuple) else [(ours, theirs)]
    for found, expected in pairs:
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-3, atol=1e-3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compile", action="store_true", help="torch.compile as a third side")
    options, torch = beside_torch(parser)
    layers = dlprim.define(LAYERS)
    known = peers(torch)
    ratios = []
    for name, layer, arrays in cases():
        ours, theirs = getattr(layers, layer), known[layer]
        tensors = [torch.from_numpy(array) for array in arrays]
        others = [theirs, torch.compile(theirs)] if options.compile else [theirs]
        verify(ours(*arrays), theirs(*tensors))
        sides = [lambda ours=ours, arrays=arrays: ours(*arrays)]
        sides += [lambda peer=peer, tensors=tensors: peer(*tensors) for peer in others]
        times = harness.alternate(map(harness.timed, sides), options.rounds)
        best = min(times[1:], key=median)
        ratios.append(harness.median_ratio(best, times[0]))
        print(
            f"{name:24s} {median(times[0]) * 1e6:10.1f} us  torch {median(best) * 1e6:10.1f} us"
            f"  x torch {ratios[-1]:5.2f}",
            flush=True,
        )
    print(f"geometric mean {np.exp(np.mean(np.log(ratios))):.2f}, least {min(ratios):.2f}")


if __name__ == "__main__":
    main()
