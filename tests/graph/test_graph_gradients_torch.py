"""Gradients of small networks against PyTorch's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from dlprim.graph import Builder, Value, gradient, interpret
from dlprim.graph.compiled import compile_graph
from drawing import RNG

torch = pytest.importorskip("torch", reason="gradients are compared with PyTorch's")

Shapes = Sequence[tuple[int, ...]]
Written = Callable[..., Value]


def _check(write: Written, by_torch: Callable[..., Any], shapes: Shapes, *places: Any) -> None:
    """A scalar of parameters of these shapes, and of integers, in both libraries."""
    arrays = [RNG.standard_normal(shape) / max(1, shape[-1]) ** 0.5 for shape in shapes]
    parameters = [torch.tensor(it, requires_grad=True) for it in arrays]
    loss = by_torch(*parameters, *(torch.tensor(it) for it in places))
    loss.backward()
    for dtype, rtol in (("float64", 1e-9), ("float32", 2e-3)):
        b = Builder()
        values = [b.input(f"p{place}", shape, dtype) for place, shape in enumerate(shapes)]
        indices = [b.input(f"i{place}", it.shape, it.dtype) for place, it in enumerate(places)]
        y = write(b, *values, *indices)
        joint = gradient(b.graph([y]), [y], values)
        given = [*(it.astype(dtype) for it in arrays), *places, np.ones((), dtype)]
        is_wide = dtype == "float64"
        found, *by = interpret(joint, given) if is_wide else compile_graph(joint).run(given)
        np.testing.assert_allclose(found, loss.detach().numpy(), rtol=rtol)
        for mine, parameter in zip(by, parameters, strict=True):
            right = parameter.grad.numpy()
            atol = rtol / 10 * np.abs(right).max()
            np.testing.assert_allclose(mine, right, rtol=rtol, atol=atol)


# ---------------------------------------------------------------- layers


def _linear(b: Builder, x: Value, w: Value, bias: Value) -> Value:
    return b.apply("add", b.matmul(x, b.transpose(w, (1, 0))), bias)


def _cross_entropy(b: Builder, logits: Value, labels: Value) -> Value:
    """The mean over (N, C) logits."""
    n = logits.shape[0]
    (log,) = b.emit("softmax", [logits], axis=1, log=True)
    form = [((n, 1), logits.dtype)]
    (chosen,) = b.call("gather_elements", [log, b.reshape(labels, (n, 1))], form, axis=1)
    return b.apply("negate", b.reduce("mean", chosen, (0, 1)))


def _convolution(b: Builder, x: Value, w: Value, stride: int = 1) -> Value:
    side = w.shape[2] // 2
    form = {"groups": 1, "strides": (stride,) * 2, "dilations": (1, 1)}
    return b.emit("convolution", [x, w], padding=((side, side),) * 2, **form)[0]


def _batch_norm(b: Builder, x: Value, weight: Value, bias: Value) -> Value:
    return b.emit("batch_norm", [x, weight, bias], epsilon=1e-5)[0]


def _heads(b: Builder, x: Value, heads: int) -> Value:
    n, steps, channels = x.shape
    split = b.reshape(x, (n, steps, heads, channels // heads))
    return b.transpose(split, (0, 2, 1, 3))


def _self_attention(b: Builder, x: Value, w: Sequence[Value], heads: int) -> Value:
    n, steps, channels = x.shape
    parts = [_heads(b, b.matmul(x, b.transpose(it, (1, 0))), heads) for it in w[:3]]
    how = {"scale": (channels // heads) ** -0.5, "causal": True, "softcap": 0.0}
    y = b.transpose(b.emit("attention", parts, **how)[0], (0, 2, 1, 3))
    return b.matmul(b.reshape(y, (n, steps, channels)), b.transpose(w[3], (1, 0)))


def _attention_by_torch(x: Any, w: Sequence[Any], heads: int) -> Any:
    n, steps, channels = x.shape
    parts = [(x @ it.T).reshape(n, steps, heads, -1).transpose(1, 2) for it in w[:3]]
    y = torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
    return y.transpose(1, 2).reshape(n, steps, channels) @ w[3].T


# ---------------------------------------------------------------- networks


def test_mlp() -> None:
    def write(b: Builder, x: Value, w: Value, p: Value, v: Value, q: Value, it: Value) -> Value:
        return _cross_entropy(b, _linear(b, b.apply("relu", _linear(b, x, w, p)), v, q), it)

    def by_torch(x: Any, w: Any, p: Any, v: Any, q: Any, it: Any) -> Any:
        y = torch.relu(x @ w.T + p) @ v.T + q
        return torch.nn.functional.cross_entropy(y, it)

    labels = RNG.integers(0, 10, 16)
    _check(write, by_torch, [(16, 20), (32, 20), (32,), (10, 32), (10,)], labels)


def test_images_with_batch_norm_residual_and_pools() -> None:
    def write(b: Builder, x: Value, *p: Value) -> Value:
        stem, w, weight, bias, v, other, more, last, labels = p
        y = b.apply("relu", _convolution(b, x, stem, 2))
        form = {"strides": (2, 2), "dilations": (1, 1), "padding": ((1, 1), (1, 1))}
        how = {"kernel": (3, 3), "counts": (4, 4), "counts_padding": False, **form}
        (y,) = b.emit("pool", [y], function="max", **how)
        z = b.apply("relu", _batch_norm(b, _convolution(b, y, w), weight, bias))
        z = _batch_norm(b, _convolution(b, z, v), other, more)
        y = b.apply("relu", b.apply("add", y, z))
        y = b.reduce("mean", y, (2, 3))
        return _cross_entropy(b, b.matmul(y, b.transpose(last, (1, 0))), labels)

    def by_torch(x: Any, *p: Any) -> Any:
        stem, w, weight, bias, v, other, more, last, labels = p
        f = torch.nn.functional
        y = f.max_pool2d(torch.relu(f.conv2d(x, stem, stride=2, padding=2)), 3, 2, 1)
        z = f.conv2d(y, w, padding=1)
        z = torch.relu(f.batch_norm(z, None, None, weight, bias, training=True))
        z = f.batch_norm(f.conv2d(z, v, padding=1), None, None, other, more, training=True)
        y = torch.relu(y + z).mean((2, 3))
        return f.cross_entropy(y @ last.T, labels)

    shapes = [(3, 3, 15, 15), (8, 3, 5, 5), (8, 8, 3, 3), (8,), (8,), (8, 8, 3, 3), (8,), (8,)]
    _check(write, by_torch, [*shapes, (5, 8)], RNG.integers(0, 5, 3))


def test_transformer_block() -> None:
    def write(b: Builder, x: Value, *p: Value) -> Value:
        attention, (weight, bias, other, more, w, v) = p[:4], p[4:]
        how = {"axes": 1, "epsilon": 1e-5, "rms": False}
        (y,) = b.emit("normalize", [x, weight, bias], **how)
        x = b.apply("add", x, _self_attention(b, y, attention, 4))
        (y,) = b.emit("normalize", [x, other, more], **how)
        y = b.matmul(b.apply("gelu", b.matmul(y, b.transpose(w, (1, 0)))), b.transpose(v, (1, 0)))
        y = b.apply("add", x, y)
        return b.reduce("sum", b.apply("multiply", y, y), (0, 1, 2))

    def by_torch(x: Any, *p: Any) -> Any:
        attention, (weight, bias, other, more, w, v) = p[:4], p[4:]
        f = torch.nn.functional
        x = x + _attention_by_torch(f.layer_norm(x, (16,), weight, bias), attention, 4)
        y = f.gelu(f.layer_norm(x, (16,), other, more) @ w.T) @ v.T
        return ((x + y) ** 2).sum()

    shapes = [(2, 7, 16), *[(16, 16)] * 4, *[(16,)] * 4, (64, 16), (16, 64)]
    _check(write, by_torch, shapes)


def test_language_model() -> None:
    """Embeddings that tokens share with the last product, positions, attention, cross entropy."""

    def write(b: Builder, table: Value, positions: Value, *p: Value) -> Value:
        *w, tokens, labels = p
        x = b.apply("add", b.gather(table, tokens, 0), positions)
        x = b.apply("add", x, _self_attention(b, x, w, 2))
        logits = b.matmul(x, b.transpose(table, (1, 0)))
        rows = b.reshape(logits, (labels.size, table.shape[0]))
        return _cross_entropy(b, rows, b.reshape(labels, (labels.size,)))

    def by_torch(table: Any, positions: Any, *p: Any) -> Any:
        *w, tokens, labels = p
        x = table[tokens] + positions
        x = x + _attention_by_torch(x, w, 2)
        return torch.nn.functional.cross_entropy((x @ table.T).reshape(-1, 11), labels.reshape(-1))

    tokens = RNG.integers(0, 11, (3, 6))
    shapes = [(11, 8), (6, 8), *[(8, 8)] * 4]
    _check(write, by_torch, shapes, tokens, np.roll(tokens, -1, 1))


def test_recurrent_network() -> None:
    """Of sequences as long as each is, backward and forward in time."""
    lengths = np.array([5, 2, 4])

    def write(b: Builder, x: Value, *p: Value) -> Value:
        known = b.constant(lengths)
        y = [
            b.emit("recurrent", [x, *it, None, None, known], cell="lstm", reverse=reverse)[0]
            for it, reverse in ((p[:4], False), (p[4:], True))
        ]
        both = b.concat(y, 2)
        return b.reduce("mean", b.apply("multiply", both, both), (0, 1, 2))

    def by_torch(x: Any, *p: Any) -> Any:
        layer = torch.nn.LSTM(4, 6, bidirectional=True, dtype=torch.float64)
        names = [name for name, _ in layer.named_parameters()]
        rnn = torch.nn.utils.rnn
        packed = rnn.pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False)
        named = dict(zip(names, p, strict=True))
        y, _ = rnn.pad_packed_sequence(torch.func.functional_call(layer, named, (packed,))[0])
        return (y**2).mean()

    _check(write, by_torch, [(5, 3, 4), *[(24, 4), (24, 6), (24,), (24,)] * 2])
