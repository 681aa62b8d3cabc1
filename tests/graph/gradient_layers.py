"""Products, windows and recurrent layers with drawn extents, whose gradients are tested."""

from __future__ import annotations

from typing import Any

from gradient_cases import CASES, Case, extents, given, number, of, some

from dlprim.graph import Builder, Value
from drawing import RNG


@of("matmul")
def matrix_products(b: Builder, dtype: str) -> list[Value]:
    n, m, k, p = extents(4)
    shapes = some(
        ((m, k), (k, p)),
        ((n, m, k), (k, p)),
        ((n, m, k), (n, k, p)),
        ((1, m, k), (n, k, p)),
        ((2, 1, m, k), (n, k, p)),
        ((k,), (n, k, p)),
        ((n, m, k), (k,)),
        ((k,), (k,)),
    )
    return [b.matmul(*given(b, dtype, *shapes))]


CASES["matmul"] *= 6


@of("matmul")
def finished_products(b: Builder, dtype: str) -> list[Value]:
    n, k, p = extents(3)
    inputs = given(b, dtype, (n, k), (k, p), (p,))
    return [b.emit("matmul", inputs, activation=it)[0] for it in ("gelu", "relu", None)]


@of("einsum")
def sums_of_products(b: Builder, dtype: str) -> list[Value]:
    """Letters that one term has alone, that it repeats, and axes of one element."""
    i, j, k = extents(3, 2, 4)
    x, y, z = given(b, dtype, (i, j), (j, k), (j, j, i))
    w = b.slice(y, (0, 0), (1, k), (1, 1))
    made = [
        ("ij,jk->ki", [x, y]),
        ("ij,jk,jja->ia", [x, y, z]),
        ("ij->j", [x]),
        ("jji->ij", [z]),
        ("ij,kl->il", [x, y]),
        ("ij,jk->ik", [x, w]),
    ]
    return [b.emit("einsum", values, equation=equation)[0] for equation, values in made]


def _geometry(spatial: int) -> dict[str, Any]:
    return {
        "strides": tuple(extents(spatial, 1, 2)),
        "dilations": tuple(extents(spatial, 1, 2)),
        "padding": tuple((number(0, 2), number(0, 2)) for _ in range(spatial)),
    }


@of("convolution", "convolution_weights_gradient")
def convolutions(b: Builder, dtype: str) -> list[Value]:
    spatial, groups = number(1, 3), number(1, 2)
    kernel = extents(spatial, 1, 3)
    c, k = groups * number(1, 3), groups * number(1, 3)
    how = _geometry(spatial)
    covered = [d * (r - 1) + 1 for d, r in zip(how["dilations"], kernel, strict=True)]
    images = [n + number(0, 4) for n in covered]
    x, w, bias = given(b, dtype, (2, c, *images), (k, c // groups, *kernel), (k,))
    y = b.emit("convolution", [x, w, bias], groups=groups, **how)[0]
    by = b.emit("convolution_weights_gradient", [x, y], groups=groups, kernel=tuple(kernel), **how)
    return [y, *by]


CASES["convolution"] *= 4


@of("convolution")
def a_whole_block(b: Builder, dtype: str) -> list[Value]:
    """Bias, residual and activation in one node, of the sizes of a network's stem."""
    x, w, bias = given(b, dtype, (1, 3, 23, 23), (4, 3, 7, 7), (4,))
    how = {"groups": 1, "strides": (2, 2), "dilations": (1, 1), "padding": ((3, 3), (3, 3))}
    y = b.emit("convolution", [x, w, bias], **how)[0]
    return [b.emit("convolution", [x, w, bias, y], activation="swish", **how)[0]]


@of("convolution")
def channels_by_themselves(b: Builder, dtype: str) -> list[Value]:
    x, w = given(b, dtype, (2, 6, 7, 7), (6, 1, 3, 3))
    how = {"groups": 6, "strides": (1, 1), "dilations": (1, 1), "padding": ((1, 1), (1, 1))}
    return list(b.emit("convolution", [x, w], **how))


@of("transposed_convolution")
def transposed_convolutions(b: Builder, dtype: str) -> list[Value]:
    spatial, groups = number(1, 3), number(1, 2)
    kernel = extents(spatial, 2, 3)
    c, k = groups * number(1, 2), number(1, 2)
    how = _geometry(spatial)
    how["padding"] = tuple((number(0, 1), number(0, 1)) for _ in range(spatial))
    pairs = zip(how["strides"], how["dilations"], strict=True)
    how["output_padding"] = tuple(number(0, max(pair) - 1) for pair in pairs)
    images = extents(spatial, 2, 4)
    x, w, bias = given(b, dtype, (2, c, *images), (c, k, *kernel), (k * groups,))
    return list(b.emit("transposed_convolution", [x, w, bias], groups=groups, **how))


CASES["transposed_convolution"] *= 4


@of("attention", "attention_gradient")
def attentions(b: Builder, dtype: str) -> list[Value]:
    """Heads that share keys; masks that are added or say where, one row of them without any key."""
    shared, heads = number(1, 2), number(1, 2)
    rows, keys, depth, out = extents(4, 2, 5)
    scores = (1, shared * heads, rows, keys)
    q, k, v, added = given(
        b, dtype, (2, *scores[1:3], depth), (2, shared, keys, depth), (2, shared, keys, out), scores
    )
    said = RNG.random((rows, keys)) > 0.3
    said[0] = False
    made = []
    for mask in (None, added, b.constant(said)):
        inputs = [q, k, v] if mask is None else [q, k, v, mask]
        how = {"scale": 0.6, "causal": bool(number(0, 1)), "softcap": some(0.0, 1.5)}
        made += b.emit("attention", inputs, **how)
        diff = b.input(f"dy{len(made)}", made[-1].shape, dtype)
        made += b.emit("attention_gradient", [diff, *inputs], **how)
    return made


@of("formula")
def formulas(b: Builder, dtype: str) -> list[Value]:
    x, w = given(b, dtype, (2, 3, 7), (4, 3, 3))
    text = "def f(float(N,C,W) x, float(K,C,R) w) -> (y) { y(n,k,i) +=! x(n,c,i+r) * w(k,c,r) }"
    return list(b.emit("formula", [x, w], text=text, sizes=(), shapes=()))


# ---------------------------------------------------------------- windows and time


@of("pool", "pool_gradient")
def pools(b: Builder, dtype: str) -> list[Value]:
    spatial = number(1, 3)
    how = _geometry(spatial) | {"kernel": tuple(extents(spatial, 1, 3))}
    images = extents(spatial, 3, 6)
    how["padding"] = tuple((number(0, k // 2), number(0, k // 2)) for k in how["kernel"])
    (x,) = given(b, dtype, (2, 2, *images))
    rows = zip(
        images, *(how[it] for it in ("kernel", "strides", "dilations", "padding")), strict=True
    )
    counts = tuple(max(1, (n + sum(p) - d * (k - 1) - 1) // s + 1) for n, k, s, d, p in rows)
    how |= {"counts": counts, "counts_padding": bool(number(0, 1))}
    made = [b.emit("pool", [x], function=it, **how)[0] for it in ("max", "mean")]
    made += b.emit("pool_gradient", [made[1], None], function="mean", extents=x.shape[2:], **how)
    return made


CASES["pool"] *= 4


def _recurrent(cell: str, gates: int) -> Case:
    def case(b: Builder, dtype: str) -> list[Value]:
        steps, samples, channels, hidden = extents(4, 1, 4)
        rows, state = gates * hidden, (samples, hidden)
        shapes = [(steps, samples, channels), (rows, channels), (rows, hidden), (rows,), (rows,)]
        x, w, r, *rest = given(b, dtype, *shapes, state, state)
        bias_x, bias_h, h, c = some(rest, [None] * 4)
        lengths = b.constant(RNG.integers(0, steps + 1, samples)) if number(0, 1) else None
        inputs = [x, w, r, bias_x, bias_h, h, c if cell == "lstm" else None, lengths]
        how = {"functions": some((), (("Relu", 0.0, 0.0),))} if cell == "rnn" else {}
        return list(b.emit("recurrent", inputs, cell=cell, reverse=bool(number(0, 1)), **how))

    return case


CASES["recurrent"] = [_recurrent(cell, n) for cell, n in (("lstm", 4), ("gru", 3), ("rnn", 1)) * 3]
