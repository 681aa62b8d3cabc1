"""Small networks for the tests of passes and of what is compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlprim.graph import Builder, Graph, Value


def drawn(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng([seed, *shape]).standard_normal(shape, np.float32)


def convolution(b: Builder, x: Value, k: int, size: int, stride: int = 1, groups: int = 1) -> Value:
    spatial = len(x.shape) - 2
    w = b.constant(drawn(k, x.shape[1] // groups, *[size] * spatial) / np.float32(3))
    return b.emit(
        "convolution",
        [x, w],
        groups=groups,
        strides=(stride,) * spatial,
        dilations=(1,) * spatial,
        padding=((size // 2, size // 2),) * spatial,
    )[0]


def batch_norm(b: Builder, x: Value) -> Value:
    channels = (x.shape[1], 1, 1)
    scale, shift = b.constant(abs(drawn(*channels)) + 0.5), b.constant(drawn(*channels, seed=1))
    expression = ("add", ("multiply", ("input", 0), ("input", 1)), ("input", 2))
    return b.map(expression, x, scale, shift)


def linear(b: Builder, x: Value, channels: int) -> Value:
    w = b.constant(drawn(x.shape[-1], channels) / np.float32(np.sqrt(x.shape[-1])))
    return b.apply("add", b.matmul(x, w), b.constant(drawn(channels)))


def pool(b: Builder, x: Value, function: str, size: int) -> Value:
    return b.emit(
        "pool",
        [x],
        function=function,
        kernel=(size, size),
        strides=(2, 2),
        dilations=(1, 1),
        padding=((size // 2, size // 2),) * 2,
        counts=tuple((n + 2 * (size // 2) - size) // 2 + 1 for n in x.shape[2:]),
        counts_padding=False,
    )[0]


def residual_network() -> Graph:
    b = Builder()
    x = b.input("x", (2, 3, 13, 11), "float32")
    y = b.apply("relu", batch_norm(b, convolution(b, x, 20, 7, 2)))
    y = pool(b, y, "max", 3)
    z = b.apply("relu", batch_norm(b, convolution(b, y, 8, 1)))
    z = batch_norm(b, convolution(b, z, 20, 3))
    y = b.apply("relu", b.apply("add", z, y))
    z = b.apply("swish", convolution(b, y, 20, 3, groups=20))
    gate = b.reduce("mean", z, (2, 3), keepdims=True)
    z = b.apply("multiply", z, b.apply("sigmoid", convolution(b, gate, 20, 1)))
    return b.graph([linear(b, b.reduce("mean", z, (2, 3)), 7), y])


def inception_network(channels: int = 16, side: int = 14) -> Graph:
    """Two blocks of four branches each, whose results are one behind the other."""
    b = Builder()
    y = x = b.input("x", (1, 4 * channels, side, side), "float32")
    for _ in range(2):
        branches = []
        for sizes in ((1,), (1, 3), (1, 3, 3), (1, 5)):
            z = y
            for size in sizes:
                z = b.apply("relu", convolution(b, z, channels, size))
            branches.append(z)
        y = b.concat(branches, 1)
    return b.graph([b.apply("add", y, x)])


def heads_network(rows: int = 64, heads: int = 4) -> Graph:
    """Small linear layers, several in a row, on one input."""
    b = Builder()
    x = b.input("x", (rows, 128), "float32")
    results = []
    for head in range(heads):
        y = x
        for _ in range(2 + head % 2):
            y = b.apply("relu", linear(b, y, 128))
        results.append(y)
    return b.graph(results)


def _clipped(b: Builder, x: Value) -> Value:
    low, high = (b.constant(np.float32(limit)) for limit in (0, 6))
    return b.apply("minimum", b.apply("maximum", x, low), high)


def mobile_network() -> Graph:
    """Clips behind convolutions: alone, in a gate, and as x relu6(x + 3) / 6."""
    b = Builder()
    x = b.input("x", (2, 3, 13, 11), "float32")
    three, six = (b.constant(np.float32(number)) for number in (3, 6))
    y = _clipped(b, batch_norm(b, convolution(b, x, 20, 3, 2)))
    z = convolution(b, y, 20, 3, groups=20)
    gate = _clipped(b, b.apply("add", z, three))
    z = b.apply("divide", b.apply("multiply", z, gate), six)
    gate = convolution(b, b.reduce("mean", z, (2, 3), keepdims=True), 20, 1)
    gate = b.apply("divide", _clipped(b, b.apply("add", gate, three)), six)
    y = b.apply("add", convolution(b, b.apply("multiply", z, gate), 20, 1), y)
    return b.graph([b.apply("hardswish", linear(b, b.reduce("mean", y, (2, 3)), 7))])


def _heads(b: Builder, x: Value) -> Value:
    n, steps, channels = x.shape
    return b.transpose(b.reshape(x, (n, steps, 4, channels // 4)), (0, 2, 1, 3))


def transformer(is_causal: bool = False) -> Graph:
    """A layer as exporters write it: scale on both factors, guards, activations in pieces."""
    b = Builder()
    x = b.input("x", (2, 10, 48), "float32")
    inputs = [x]
    root = b.constant(np.float32(12**-0.25))
    q = b.apply("multiply", _heads(b, linear(b, x, 48)), root)
    k = b.reshape(_heads(b, linear(b, x, 48)), (8, 10, 12))
    k = b.reshape(b.transpose(k, (0, 2, 1)), (2, 4, 12, 10))
    scores = b.matmul(q, b.apply("multiply", k, root))
    if is_causal:
        hidden = np.where(np.tri(10, dtype=bool), 0, np.finfo(np.float32).min)
        mask = b.constant(hidden.astype(np.float32))
    else:
        mask = b.input("mask", (2, 1, 1, 10), "float32")
        inputs.append(mask)
    (p,) = b.emit("softmax", [b.apply("add", scores, mask)], axis=-1, log=False)
    zero = b.constant(np.float32(0))
    p = b.apply("where", b.apply("is_nan", p, dtype="bool"), zero, p, dtype="float32")
    o = b.matmul(p, _heads(b, linear(b, x, 48)))
    o = linear(b, b.reshape(b.transpose(o, (0, 2, 1, 3)), (2, 10, 48)), 48)
    weights = [b.constant(drawn(48, seed=2)), b.constant(drawn(48, seed=3))]
    o = b.apply("add", o, x)
    (o,) = b.emit("normalize", [o, *weights], axes=1, epsilon=1e-5, rms=False)
    return b.graph([b.apply("add", linear(b, _gelu(b, linear(b, o, 96)), 48), o)])


def _gelu(b: Builder, x: Value) -> Value:
    inner = b.apply("erf", b.apply("divide", x, b.constant(np.float32(np.sqrt(2)))))
    half = b.apply("multiply", x, b.apply("add", inner, b.constant(np.float32(1))))
    return b.apply("multiply", half, b.constant(np.float32(0.5)))


def rms_network() -> Graph:
    b = Builder()
    x = b.input("x", (3, 5, 32), "float32")
    mean = b.reduce("mean", b.apply("power", x, b.constant(np.float32(2))), (-1,), keepdims=True)
    root = b.apply("sqrt", b.apply("add", mean, b.constant(np.float32(1e-6))))
    y = b.apply("multiply", x, b.apply("reciprocal", root))
    return b.graph([b.apply("multiply", y, b.constant(drawn(32)))])


def recurrent_network(cell: str) -> Graph:
    gates = 4 if cell == "lstm" else 3
    b = Builder()
    x = b.input("x", (6, 2, 5), "float32")
    arrays = [(gates * 8, 5), (gates * 8, 8), (gates * 8,), (gates * 8,)]
    weights = [b.constant(drawn(*shape) / np.float32(3)) for shape in arrays]
    states = [b.input(name, (2, 8), "float32") for name in "hc"[: 1 + (cell == "lstm")]]
    forth = b.emit("recurrent", [x, *weights, *states], cell=cell, reverse=False)
    back = b.emit("recurrent", [x, *weights], cell=cell, reverse=True)
    return b.graph([b.concat([forth[0], back[0]], 2), *forth[1:]])


def moving_network() -> Graph:
    """Views, copies, tables, and what runs as a call."""
    b = Builder()
    x = b.input("x", (2, 6, 8, 9), "float32")
    words = b.input("words", (2, 3), "int64")
    y = b.slice(x, (0, 1, 7, 0), (2, 4, 4, 3), (1, 1, -2, 3))
    y = b.concat([y, b.expand(b.slice(x, (0,) * 4, (1, 1, 4, 3), (1,) * 4), (2, 2, 4, 3))], 1)
    y = b.reshape(b.transpose(y, (0, 2, 3, 1)), (2, 12, 6))
    table = b.constant(drawn(10, 6))
    z = b.concat([y, b.gather(table, words, 0)], 1)
    (p,) = b.emit("softmax", [z], axis=1, log=True)
    places = b.constant(np.array([[0, 0], [0, 1], [1, 2], [2, 2]]))
    weights = b.constant(np.array([[1, 0], [0.5, 0.5], [0.25, 0.75], [1, 0]], np.float32))
    (r,) = b.emit("resample", [x, places, weights], axis=3)
    return b.graph([p, b.reduce("max", z, (0, 2)), r, b.apply("floor", z), y])
