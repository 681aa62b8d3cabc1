"""Shapes that nobody chose, for `bench_random.py`: a drawer for each plain function and gradient.

A drawer takes a generator and returns what one row is made of: a label, our call, and the same as
PyTorch has it, both on the same arrays and returning what is compared. Large and small extents are
drawn alike often, from a logarithmic scale, and real widths beside those that fit no vector.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import dlprim


class Row(NamedTuple):
    label: str
    ours: Callable[[], Any]
    theirs: Callable[[], Any]


_MOST = 4e8  # operations of a row


class Drawing:
    """Extents and arrays by one generator."""

    def __init__(self, seed: int, torch: Any) -> None:
        self.random = np.random.default_rng(seed)
        self.torch = torch

    def extent(self, least: int, most: int) -> int:
        """Of a logarithmic scale; every second one a multiple of 8 where there is one."""
        found = round(np.exp(self.random.uniform(np.log(least), np.log(most + 0.49))))
        if found > 8 and self.random.random() < 0.5:
            found -= found % 8
        return int(found)

    def one_of(self, *values: Any) -> Any:
        return values[self.random.integers(len(values))]

    def array(self, *shape: int) -> np.ndarray:
        return self.random.standard_normal(shape, np.float32)

    def tensors(self, *arrays: np.ndarray | None) -> list[Any]:
        return [None if it is None else self.torch.from_numpy(it) for it in arrays]


def _convolution(draw: Drawing, axes: int) -> dict[str, Any]:
    """The shape of an ordinary convolution of at most `_MOST` operations."""
    while True:
        most = {1: 4000, 2: 128, 3: 32}[axes]
        size = [draw.extent(4, most) for _ in range(axes)]
        taps = [min(draw.one_of(1, 1, 3, 3, 5, 2, 7), extent) for extent in size]
        groups = draw.one_of(1, 1, 1, 1, 1, 2, 4)
        c, k = draw.extent(1, 256), draw.extent(1, 256)
        if draw.random.random() < 0.15:
            groups = k = c
        c, k = max(groups, c - c % groups), max(groups, k - k % groups)
        it = {
            "x": (draw.extent(1, 16), c, *size),
            "w": (k, c // groups, *taps),
            "stride": draw.one_of(1, 1, 1, 2),
            "padding": tuple(tap // 2 for tap in taps) if draw.random.random() < 0.7 else 0,
            "groups": groups,
        }
        if 2 * np.prod(it["x"]) * np.prod(it["w"]) / c < _MOST:
            return it


def _forward_of(axes: int) -> Callable[[Drawing], Row]:
    def drawn(draw: Drawing) -> Row:
        it = _convolution(draw, axes)
        x, w, bias = draw.array(*it["x"]), draw.array(*it["w"]), draw.array(it["w"][0])
        how = it["stride"], it["padding"], 1, it["groups"]
        ours = getattr(dlprim, f"conv{axes}d")
        theirs = getattr(draw.torch.nn.functional, f"conv{axes}d")
        tensors = draw.tensors(x, w, bias)
        return Row(_label(it), lambda: ours(x, w, bias, *how), lambda: theirs(*tensors, *how))

    return drawn


def _label(it: dict[str, Any]) -> str:
    return f"{it['x']} {it['w']} s{it['stride']} p{it['padding']} g{it['groups']}"


def _backward_of(axes: int) -> Callable[[Drawing], Row]:
    def drawn(draw: Drawing) -> Row:
        it = _convolution(draw, axes)
        x, w = draw.array(*it["x"]), draw.array(*it["w"])
        how = it["stride"], it["padding"], 1, it["groups"]
        dy = draw.array(*getattr(dlprim, f"conv{axes}d")(x, w, None, *how).shape)
        ours = getattr(dlprim, f"conv{axes}d_backward")
        padding = it["padding"] or (0,) * axes
        theirs = (
            [it["w"][0]], [it["stride"]] * axes, list(padding), [1] * axes, False, [0] * axes,
            it["groups"], [True] * 3,
        )  # fmt: skip
        backward = draw.torch.ops.aten.convolution_backward
        tensors = draw.tensors(dy, x, w)
        return Row(_label(it), lambda: ours(dy, x, w, *how), lambda: backward(*tensors, *theirs))

    return drawn


def _transposed(draw: Drawing) -> Row:
    it = _convolution(draw, 2)
    x, w = draw.array(*it["x"]), draw.array(it["x"][1], *it["w"][:1], *it["w"][2:])
    if it["groups"] > 1 or min(it["x"][2:]) < 3:
        w = w[:, : max(1, w.shape[1] // 8)].copy()
    theirs, (tx, tw) = draw.torch.nn.functional.conv_transpose2d, draw.tensors(x, w)
    stride = it["stride"]
    return Row(
        f"{x.shape} {w.shape} s{stride}",
        lambda: dlprim.conv_transpose2d(x, w, None, stride),
        lambda: theirs(tx, tw, None, stride),
    )


def _linear(draw: Drawing) -> tuple[np.ndarray, ...]:
    while True:
        n, c, k = draw.extent(1, 2048), draw.extent(1, 4096), draw.extent(1, 8192)
        if 2.0 * n * c * k < _MOST:
            return draw.array(n, c), draw.array(k, c), draw.array(k), draw.array(n, k)


def _linear_row(draw: Drawing) -> Row:
    x, w, bias, _ = _linear(draw)
    tensors, theirs = draw.tensors(x, w, bias), draw.torch.nn.functional.linear
    label = f"{x.shape} {w.shape}"
    return Row(label, lambda: dlprim.linear(x, w, bias), lambda: theirs(*tensors))


def _linear_backward(draw: Drawing) -> Row:
    x, w, _, dy = _linear(draw)
    tx, tw, tdy = draw.tensors(x, w, dy)
    return Row(
        f"{x.shape} {w.shape}",
        lambda: dlprim.linear_backward(dy, x, w),
        lambda: (tdy @ tw, tdy.t() @ tx, tdy.sum(0)),
    )


def _rows(draw: Drawing) -> tuple[np.ndarray, np.ndarray]:
    columns = draw.extent(2, 8192)
    n = draw.extent(1, max(1, int(2e6) // columns))
    return draw.array(n, columns), draw.array(n, columns)


def _map(name: str) -> Callable[[Drawing], Row]:
    def drawn(draw: Drawing) -> Row:
        x, _ = _rows(draw)
        ours, theirs = getattr(dlprim, name), getattr(draw.torch.nn.functional, name)
        (tx,) = draw.tensors(x)
        return Row(str(x.shape), lambda: ours(x), lambda: theirs(tx))

    return drawn


def _softmax(draw: Drawing) -> Row:
    x, _ = _rows(draw)
    (tx,) = draw.tensors(x)
    return Row(str(x.shape), lambda: dlprim.softmax(x), lambda: draw.torch.softmax(tx, -1))


def _softmax_backward(draw: Drawing) -> Row:
    x, dy = _rows(draw)
    y = dlprim.softmax(x)
    ty, tdy = draw.tensors(y, dy)
    theirs = draw.torch.ops.aten._softmax_backward_data
    return Row(
        str(x.shape),
        lambda: dlprim.softmax_backward(dy, y),
        lambda: theirs(tdy, ty, -1, draw.torch.float32),
    )


def _layer_norm(draw: Drawing) -> Row:
    x, _ = _rows(draw)
    weight, bias = draw.array(x.shape[1]), draw.array(x.shape[1])
    tx, tw, tb = draw.tensors(x, weight, bias)
    return Row(
        str(x.shape),
        lambda: dlprim.layer_norm(x, weight, bias),
        lambda: draw.torch.nn.functional.layer_norm(tx, tx.shape[1:], tw, tb),
    )


def _layer_norm_backward(draw: Drawing) -> Row:
    x, dy = _rows(draw)
    weight = draw.array(x.shape[1])
    tx, tdy, tw = draw.tensors(x, dy, weight)
    aten, shape = draw.torch.ops.aten, list(x.shape[1:])

    def theirs() -> Any:
        # PyTorch keeps these from its forward pass; ours sums them up again.
        return aten.native_layer_norm_backward(tdy, tx, shape, mean, rstd, tw, tw, [True] * 3)

    _, mean, rstd = aten.native_layer_norm(tx, shape, tw, tw, 1e-5)
    return Row(str(x.shape), lambda: dlprim.layer_norm_backward(dy, x, weight), theirs)


def _attention(draw: Drawing) -> Row:
    while True:
        n, heads, size = draw.extent(1, 8), draw.extent(1, 32), draw.one_of(8, 32, 40, 64, 80, 128)
        queries, keys = draw.one_of(1, draw.extent(1, 512)), draw.extent(1, 2048)
        if 4.0 * n * heads * queries * keys * size < _MOST and n * heads * keys * size < 1e7:
            break
    q, k, v = (draw.array(n, heads, rows, size) for rows in (queries, keys, keys))
    tensors, theirs = draw.tensors(q, k, v), draw.torch.nn.functional.scaled_dot_product_attention
    return Row(
        f"{q.shape} {keys} keys", lambda: dlprim.attention(q, k, v), lambda: theirs(*tensors)
    )


def _recurrent(cell: str) -> Callable[[Drawing], Row]:
    def drawn(draw: Drawing) -> Row:
        torch = draw.torch
        while True:
            t, n = draw.extent(1, 64), draw.extent(1, 64)
            c, h = draw.extent(1, 512), draw.extent(2, 512)
            gates = {"LSTM": 4, "GRU": 3}[cell]
            if 2.0 * t * n * (c + h) * h * gates < _MOST:
                break
        module, x = getattr(torch.nn, cell)(c, h), draw.array(t, n, c)
        weights = [each.detach().numpy() for each in module.parameters()]
        ours, (tx,) = getattr(dlprim, cell.lower()), draw.tensors(x)

        def theirs() -> Any:
            with torch.no_grad():
                return module(tx)[0]

        return Row(f"T{t} N{n} {c}->{h}", lambda: ours(x, *weights)[0], theirs)

    return drawn


def _einsum(draw: Drawing) -> Row:
    letters = "abcdefg"
    while True:
        sizes = {letter: draw.extent(1, 64) for letter in letters}
        kinds = [draw.one_of("x", "y", "sum", "batch", "none") for _ in letters]
        of = {
            kind: [i for i, found in zip(letters, kinds, strict=True) if found == kind]
            for kind in ("x", "y", "sum", "batch")
        }
        operands = [
            "".join(draw.random.permutation(of[side] + of["sum"] + of["batch"]))
            for side in ("x", "y")
        ]
        result = "".join(draw.random.permutation(of["x"] + of["y"] + of["batch"]))
        work = np.prod([sizes[i] for i in set("".join(operands))])
        if all(operands) and of["sum"] and work < _MOST / 8:
            break
    arrays = [draw.array(*(sizes[i] for i in operand)) for operand in operands]
    text, tensors = ",".join(operands) + "->" + result, draw.tensors(*arrays)
    shapes = " ".join(str(it.shape) for it in arrays)
    return Row(
        f"{text} {shapes}",
        lambda: dlprim.einsum(text, *arrays),
        lambda: draw.torch.einsum(text, *tensors),
    )


DRAWERS: dict[str, Callable[[Drawing], Row]] = {
    "linear": _linear_row,
    "linear_backward": _linear_backward,
    "conv1d": _forward_of(1),
    "conv2d": _forward_of(2),
    "conv3d": _forward_of(3),
    "conv1d_backward": _backward_of(1),
    "conv2d_backward": _backward_of(2),
    "conv3d_backward": _backward_of(3),
    "conv_transpose2d": _transposed,
    "softmax": _softmax,
    "softmax_backward": _softmax_backward,
    "layer_norm": _layer_norm,
    "layer_norm_backward": _layer_norm_backward,
    "gelu": _map("gelu"),
    "silu": _map("silu"),
    "attention": _attention,
    "lstm": _recurrent("LSTM"),
    "gru": _recurrent("GRU"),
    "einsum": _einsum,
}
