"""Networks of `dlprim.nn` in float64 NumPy, from the equations, without gradients.

The gradients of the library are compared with derivatives of these along random directions: a
central difference in float64 is exact to some 1e-9, far below what float32 rounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conv_reference import ACTIVATIONS

Values = Mapping[str, NDArray[np.float64]]
Double = NDArray[np.float64]


def conv(x: Double, w: Double, stride: int, padding: int) -> Double:
    """A convolution of (N, C, H, W) with (K, C, R, S)."""
    _, _, r, s = w.shape
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (r, s), axis=(2, 3))
    return np.einsum("nchwrs,kcrs->nkhw", windows[:, :, ::stride, ::stride], w, optimize=True)


def batch_norm(x: Double, values: Values, name: str) -> Double:
    """With the statistics of the minibatch."""
    mean = x.mean((0, 2, 3), keepdims=True)
    var = x.var((0, 2, 3), keepdims=True)
    weight, bias = (values[f"{name}.{it}"].reshape(1, -1, 1, 1) for it in ("weight", "bias"))
    return (x - mean) / np.sqrt(var + 1e-5) * weight + bias


def max_pool(x: Double, kernel: int, stride: int, padding: int) -> Double:
    pads = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    x = np.pad(x, pads, constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), axis=(2, 3))
    return np.asarray(windows[:, :, ::stride, ::stride].max((4, 5)))


def bottleneck(x: Double, values: Values, name: str, stride: int) -> Double:
    y = conv(x, values[f"{name}.conv1.weight"], 1, 0)
    y = np.maximum(batch_norm(y, values, f"{name}.bn1"), 0)
    y = conv(y, values[f"{name}.conv2.weight"], stride, 1)
    y = np.maximum(batch_norm(y, values, f"{name}.bn2"), 0)
    y = batch_norm(conv(y, values[f"{name}.conv3.weight"], 1, 0), values, f"{name}.bn3")
    if f"{name}.downsample.0.weight" in values:
        x = conv(x, values[f"{name}.downsample.0.weight"], stride, 0)
        x = batch_norm(x, values, f"{name}.downsample.1")
    return np.maximum(y + x, 0)


def resnet(x: Double, values: Values, blocks: tuple[int, ...]) -> Double:
    """The logits of `dlprim.nn.resnet`."""
    x = np.maximum(batch_norm(conv(x, values["conv1.weight"], 2, 3), values, "bn1"), 0)
    x = max_pool(x, 3, 2, 1)
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            x = bottleneck(x, values, f"layer{stage + 1}.{block}", stride)
    return x.mean((2, 3)) @ values["fc.weight"].T + values["fc.bias"]


def sigmoid(x: Double) -> Double:
    return 1 / (1 + np.exp(-x))


def activated(x: Double, activation: str) -> Double:
    """By the definitions of docs/kernel.md."""
    return np.maximum(x, 0) if activation == "relu" else ACTIVATIONS[activation](x)


def recurrent(x: Double, values: Values, cell: str, layers: int) -> Double:
    """All layers of an LSTM or GRU from zero states, on (T, N, C)."""
    for layer in range(layers):
        w_ih, w_hh, b_ih, b_hh = (
            values[f"rnn.{name}_l{layer}"]
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        k = w_hh.shape[1]
        h = c = np.zeros((x.shape[1], k))
        steps = []
        for row in x:
            inner, state = row @ w_ih.T + b_ih, h @ w_hh.T + b_hh
            if cell == "lstm":
                i, f, g, o = np.split(inner + state, 4, axis=1)
                c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
                h = sigmoid(o) * np.tanh(c)
            else:
                r, z = (sigmoid(it) for it in np.split((inner + state)[:, : 2 * k], 2, axis=1))
                n = np.tanh(inner[:, 2 * k :] + r * state[:, 2 * k :])
                h = (1 - z) * n + z * h
            steps.append(h)
        x = np.stack(steps)
    return x


def language_model(x: NDArray[np.int64], values: Values, cell: str, layers: int) -> Double:
    """The logits of `dlprim.train.models.LanguageModel`."""
    y = recurrent(values["encoder.weight"][x], values, cell, layers)
    return y.reshape(-1, y.shape[-1]) @ values["decoder.weight"].T + values["decoder.bias"]


def cross_entropy(logits: Double, targets: NDArray[np.int64]) -> float:
    """The mean loss."""
    shifted = logits - logits.max(1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return float(-log_softmax[np.arange(targets.size), targets].mean())


def derivative(loss: Any, values: Values, name: str, direction: Double, step: float) -> float:
    """Of the loss as a function of one parameter, along a direction."""
    moved = dict(values)
    moved[name] = values[name] + step * direction
    above = loss(moved)
    moved[name] = values[name] - step * direction
    return float(above - loss(moved)) / (2 * step)
