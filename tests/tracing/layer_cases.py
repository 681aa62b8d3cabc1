"""Calls of dlprim's functions by name: a function of arrays, and what draws these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import dlprim
from drawing import RNG


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def positive(*shape: int) -> Any:
    return np.abs(floats(*shape)) + np.float32(0.5)


LAYERS = dlprim.define(
    """
def fc(float(N,C) x, float(K,C) w, float(K) b) -> (y) {
    y(n,k) +=! x(n,c) * w(k,c)
    y(n,k) = tanh(y(n,k) + b(k))
}
def both(float(N) a, float(N) b) -> (s, p) { s(n) = a(n) + b(n)  p(n) = a(n) * b(n) }
def rows(float(V,K) w, int64(N) at) -> (y) { y(n,k) = w(at(n),k) }
"""
)

Case = tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]


def images() -> tuple[Any, ...]:
    return (floats(2, 4, 8, 8),)


def convolved(*filters: int) -> Callable[[], tuple[Any, ...]]:
    return lambda: (*images(), floats(*filters), floats(filters[0]))


def normed(*columns: int) -> Callable[[], tuple[Any, ...]]:
    return lambda: (*images(), positive(*columns), floats(*columns))


CASES: dict[str, Case] = {
    "linear": (
        lambda x, w, b: dlprim.linear(x, w, b, activation="gelu"),
        lambda: (floats(2, 3, 5), floats(4, 5), floats(4)),
    ),
    "linear by name": (lambda x, w: dlprim.linear(w=w, x=x), lambda: (floats(3, 5), floats(2, 5))),
    "matmul": (dlprim.matmul, lambda: (floats(2, 3, 4), floats(4, 5))),
    "einsum": (
        lambda a, b: dlprim.einsum("bij,jk->kb", a, b),
        lambda: (floats(2, 3, 4), floats(4, 5)),
    ),
    "contract": (
        lambda a, b: dlprim.contract("y(n,k) +=! x(n,c) * w(k,c)", a, b),
        lambda: (floats(3, 4), floats(5, 4)),
    ),
    "define": (LAYERS.fc, lambda: (floats(3, 4), floats(5, 4), floats(5))),
    "define of two results": (LAYERS.both, lambda: (floats(6), floats(6))),
    "define with places": (LAYERS.rows, lambda: (floats(4, 3), np.array([2, 0, 2]))),
    "conv1d": (
        lambda x, w, b: dlprim.conv1d(x, w, b, padding="same"),
        lambda: (floats(2, 4, 9), floats(5, 4, 3), floats(5)),
    ),
    "conv2d": (
        lambda x, w, b: dlprim.conv2d(x, w, b, 2, 1, activation="tanh"),
        convolved(6, 4, 3, 3),
    ),
    "conv2d in groups": (
        lambda x, w, b: dlprim.conv2d(x, w, b, padding=((1, 0), (2, 2)), groups=2),
        convolved(6, 2, 3, 3),
    ),
    "conv2d channels last": (
        lambda x, w, b, r: dlprim.conv2d(x, w, b, 1, 1, layout="NHWC", residual=r),
        lambda: (floats(2, 5, 6, 4), floats(3, 4, 3, 3), floats(3), floats(2, 5, 6, 3)),
    ),
    "conv3d": (dlprim.conv3d, lambda: (floats(1, 3, 4, 4, 4), floats(2, 3, 2, 2, 2), floats(2))),
    "conv_transpose1d": (
        lambda x, w: dlprim.conv_transpose1d(x, w, stride=2, output_padding=1),
        lambda: (floats(2, 4, 5), floats(4, 3, 3)),
    ),
    "conv_transpose2d": (
        lambda x, w, b: dlprim.conv_transpose2d(x, w, b, 2, 1),
        lambda: (floats(2, 4, 5, 5), floats(4, 6, 3, 3), floats(6)),
    ),
    "max_pool1d": (lambda x: dlprim.max_pool1d(x, 3, 2), lambda: (floats(2, 3, 9),)),
    "max_pool2d": (lambda x: dlprim.max_pool2d(x, 3, 2, 1), images),
    "max_pool3d": (lambda x: dlprim.max_pool3d(x, 2), lambda: (floats(1, 2, 4, 4, 4),)),
    "avg_pool2d": (lambda x: dlprim.avg_pool2d(x, 3, 2, 1, count_include_pad=False), images),
    "avg_pool3d": (lambda x: dlprim.avg_pool3d(x, 2), lambda: (floats(1, 2, 4, 4, 4),)),
    "adaptive": (lambda x: dlprim.adaptive_avg_pool2d(x, (3, 8)), images),
    "adaptive to one": (lambda x: dlprim.adaptive_avg_pool2d(x, 1, layout="NHWC"), images),
    "bilinear": (lambda x: dlprim.interpolate(x, (5, 11), mode="bilinear"), images),
    "corners": (
        lambda x: dlprim.interpolate(x, 5, mode="bilinear", align_corners=True, layout="NHWC"),
        images,
    ),
    "nearest": (lambda x: dlprim.interpolate(x, scale_factor=1.5), images),
    "softmax": (lambda x: dlprim.softmax(x, 1), images),
    "log_softmax": (dlprim.log_softmax, images),
    "layer_norm": (dlprim.layer_norm, normed(8)),
    "layer_norm of planes": (lambda x, w, b: dlprim.layer_norm(x, bias=b), normed(8, 8)),
    "rms_norm": (lambda x, w, b: dlprim.rms_norm(x, w), normed(8)),
    "group_norm": (lambda x, w, b: dlprim.group_norm(x, 2, w, b), normed(4)),
    "instance_norm": (lambda x, w, b: dlprim.instance_norm(x, w, b), normed(4)),
    "batch_norm": (lambda x, w, b: dlprim.batch_norm(x, None, None, w, b, True), normed(4)),
    "batch_norm by statistics": (lambda x, v, m: dlprim.batch_norm(x, m, v), normed(4)),
    "add_layer_norm": (
        lambda x, r, w, b: dlprim.add_layer_norm(x, r, w, b),
        lambda: (floats(3, 8), floats(3, 8), positive(8), floats(8)),
    ),
    "add_rms_norm": (lambda x, r: tuple(dlprim.add_rms_norm(x, r)), lambda: (*images(), *images())),
    "attention": (
        lambda q, k, v: dlprim.attention(q, k, v, causal=True),
        lambda: (floats(2, 4, 5, 6), floats(2, 2, 5, 6), floats(2, 2, 5, 3)),
    ),
    "attention after others": (
        lambda q, k, v: dlprim.attention(q, k, v, causal=True, past=2),
        lambda: (floats(3, 5, 6), floats(3, 7, 6), floats(3, 7, 6)),
    ),
    "attention with a mask": (
        lambda q, k, v, m: dlprim.attention(q, k, v, m, scale=0.3, softcap=5.0),
        lambda: (floats(5, 6), floats(7, 6), floats(7, 3), floats(5, 7)),
    ),
    "embedding": (
        lambda w: dlprim.embedding(np.array([[1, 2], [0, 1]]), w),
        lambda: (floats(4, 5),),
    ),
    "lstm": (
        lambda x, w, r, b, h, c: dlprim.lstm(x, w, r, b, b, h_0=h, c_0=c),
        lambda: (
            floats(4, 2, 3), floats(20, 3), floats(20, 5), floats(20), floats(1, 2, 5),
            floats(1, 2, 5),
        ),
    ),
    "lstm in both directions": (
        lambda x, w, r, v: dlprim.lstm(
            x, [w, w, v, v], [r, r, r, r], bidirectional=True, num_layers=2, batch_first=True,
            lengths=[3, 0],
        ),
        lambda: (floats(2, 3, 3), floats(20, 3), floats(20, 5), floats(20, 10)),
    ),
    "gru": (
        lambda x, w, r, b: dlprim.gru(x, w, r, b, b, reverse=True),
        lambda: (floats(4, 2, 3), floats(15, 3), floats(15, 5), floats(15)),
    ),
    "gru with reset before": (
        lambda x, w, r, b: dlprim.gru(x, w, r, b, b, reset_after=False),
        lambda: (floats(4, 2, 3), floats(15, 3), floats(15, 5), floats(15)),
    ),
    "rnn": (dlprim.rnn, lambda: (floats(4, 2, 3), floats(5, 3), floats(5, 5))),
    "rnn of relu": (
        lambda x, w, r: dlprim.rnn(x, w, r, activation="relu"),
        lambda: (floats(4, 2, 3), floats(5, 3), floats(5, 5)),
    ),
    "mse_loss": (lambda x, y: dlprim.mse_loss(x, y), lambda: (floats(3, 4), floats(3, 4))),
    "mse_loss of each": (
        lambda x, y: dlprim.mse_loss(x, y, reduction="none"),
        lambda: (floats(3, 4), floats(3, 4)),
    ),
    "binary_cross_entropy": (
        lambda x, y, w: dlprim.binary_cross_entropy_with_logits(
            x, y, w, pos_weight=w, reduction="sum"
        ),
        lambda: (floats(3, 4), positive(3, 4), positive(4)),
    ),
    "reductions": (
        lambda x: (dlprim.reduce_sum(x, (1, 2)), dlprim.reduce_mean(x), dlprim.reduce_max(x, -1)),
        images,
    ),
    "joins": (lambda x, y: dlprim.concat([x, y], 1), lambda: (floats(2, 3), floats(2, 1))),
    "splits": (lambda x: dlprim.split(x, [3, 5], 2), images),
    "splits alike": (lambda x: dlprim.split(x, 3, -1), images),
    "pad": (lambda x: dlprim.pad(x, (1, 2, 0, 1), value=3.0), images),
    "pad by reflection": (lambda x: dlprim.pad(x, (1, 2), "reflect"), images),
    "pad by edges": (lambda x: dlprim.pad(x, (1, 2), mode="replicate"), images),
    "prelu": (dlprim.prelu, lambda: (*images(), positive(4))),
    "add": (lambda x, y: dlprim.add(x, y), lambda: (floats(3), floats(3))),
    "gelu_tanh": (lambda x: dlprim.gelu(x, "tanh"), images),
    "leaky_relu": (lambda x: dlprim.leaky_relu(x, 0.2), images),
    "elu": (lambda x: dlprim.elu(x, 0.5), images),
    "softplus": (lambda x: dlprim.softplus(x, 2.0, 3.0), images),
    **{
        name: (getattr(dlprim, name), images)
        for name in (
            "gelu", "hardsigmoid", "hardswish", "mish", "relu", "selu", "sigmoid", "silu", "tanh",
        )
    },
}  # fmt: skip
# By places the notation has no sums; recurrent layers go back in PyTorch's forms.
WITHOUT_GRADIENT = {"define with places", "gru with reset before", "rnn of relu"}
# Whose slopes jump: differences are no measure unless they are small.
WITH_CORNERS = {"hardsigmoid", "hardswish", "leaky_relu", "prelu", "relu", "selu", "elu"}
