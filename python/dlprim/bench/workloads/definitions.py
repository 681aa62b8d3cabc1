"""Layers of several statements: in the notation of formulas, in NumPy and in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

CLOSE = 1e-3  # of the largest element
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
Shapes = tuple[tuple[int, ...], ...]
_HEADS, _LONG = (8, 12, 128, 64), (1, 16, 1024, 64)
# Name, layer and shapes; of whole numbers, which index the array in front, in the second half.
CASES: tuple[tuple[str, str, Shapes], ...] = (
    ("fcrelu 128x1024x1024", "fcrelu", ((128, 1024), (1024, 1024), (1024,))),
    ("mlp3 128x1024", "mlp3", ((128, 1024), (1024, 1024), (1024,), (1024, 1024), (1024,),
                               (256, 1024), (256,))),
    ("softmax 4096x1024", "softmax", ((4096, 1024),)),
    ("group norm 8x32x4x28x28", "group_norm", ((8, 32, 4, 28, 28), (32, 4), (32, 4))),
    ("separable 128x56x56", "separable", ((1, 128, 56, 56), (128, 3, 3), (128, 128))),
    ("attention 8x12x128", "attention", (_HEADS, _HEADS, _HEADS)),
    ("attention 1x16x1024", "attention", (_LONG, _LONG, _LONG)),
    ("tables 100000x64", "tables", ((100_000, 64), (128, 50), (100_000, 64), (128, 50))),
    ("tables 1000000x64", "tables", ((1_000_000, 64), (4096, 32), (1_000_000, 64), (4096, 32))),
)  # fmt: skip


def operands(shapes: Shapes) -> list[np.ndarray]:
    """Random arrays; matrices of weights are divided by the root of what they sum over."""
    random, found = np.random.default_rng(0), list[np.ndarray]()
    of_tables = len(shapes) == 4 and shapes[0] == shapes[2]
    for place, shape in enumerate(shapes):
        if of_tables and place % 2:
            found.append(random.integers(0, shapes[0][0], shape))
        else:
            fan = shape[1] if place and len(shape) == 2 and shape[1] > 64 else 1
            found.append(random.standard_normal(shape, np.float32) / np.float32(fan**0.5))
    return found


def reference(layer: str, *arrays: np.ndarray) -> Any:
    """In NumPy: float64, except for tables, whose rows are only added up."""
    if layer == "tables":
        x, i, z, j = arrays
        return x[i].sum(1), z[j].sum(1)
    x, *others = (it.astype(np.float64) for it in arrays)
    if layer in ("fcrelu", "mlp3"):
        for w, b in zip(others[::2], others[1::2], strict=True):
            x = np.maximum(x @ w.T + b, 0)
        return x
    if layer == "softmax":
        return _softmax(x)
    if layer == "attention":
        k, v = others
        return _softmax(0.125 * x @ k.swapaxes(-1, -2)) @ v
    if layer == "group_norm":
        axes: dict[str, Any] = {"axis": (2, 3, 4), "keepdims": True}
        gamma, beta = (it[:, :, None, None] for it in others)
        return gamma * (x - x.mean(**axes)) / np.sqrt(x.var(**axes) + 1e-5) + beta
    d, p = others
    padded, (height, width) = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), x.shape[2:]
    taps = [(r, s) for r in range(3) for s in range(3)]
    inner = sum(
        padded[:, :, r : r + height, s : s + width] * d[:, r, s, None, None] for r, s in taps
    )
    return np.maximum(np.einsum("nchw,kc->nkhw", np.maximum(inner, 0), p, optimize=True), 0)


def _softmax(x: np.ndarray) -> np.ndarray:
    power = np.exp(x - x.max(-1, keepdims=True))
    result: np.ndarray = power / power.sum(-1, keepdims=True)
    return result


def torch_layers(torch: Any) -> dict[str, Callable[..., Any]]:
    """The same layers of PyTorch, by their names here."""
    functions = torch.nn.functional

    def mlp(x: Any, *others: Any) -> Any:
        for w, b in zip(others[::2], others[1::2], strict=True):
            x = torch.relu(functions.linear(x, w, b))
        return x

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
        "fcrelu": mlp,
        "mlp3": mlp,
        "softmax": lambda x: torch.softmax(x, -1),
        "group_norm": group_norm,
        "separable": separable,
        "attention": functions.scaled_dot_product_attention,
        "tables": tables,
    }
