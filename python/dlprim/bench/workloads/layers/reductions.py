"""Softmax and layer norm along rows, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import dlprim
from dlprim.bench import peers
from dlprim.bench.measuring.case import Case, Row
from dlprim.bench.measuring.verification import doubles
from dlprim.bench.settings import Settings
from dlprim.bench.workloads.layers.layer import drawn, layer_case

_SHAPES = ((256, 64), (16, 1024), (16384, 64), (4096, 1024), (256, 16384))
_QUICK = ((16384, 64), (256, 1024))
_FUNCTIONS = ("softmax", "softmax_backward", "layer_norm", "layer_norm_backward")
_EPSILON = 1e-5


def rows(settings: Settings) -> Iterator[Row]:
    """Of each function, type and shape."""
    for function in _FUNCTIONS:
        for dtype in settings.types("float32", "bfloat16"):
            for shape in _QUICK if settings.brief else _SHAPES:
                make = partial(_case, function, shape, dtype, settings.threads)
                yield Row(function, "x".join(map(str, shape)), dtype, make)


def _case(function: str, shape: tuple[int, int], dtype: str, threads: int) -> Case:
    x, dy = drawn(1, dtype, *shape), drawn(2, dtype, *shape)
    weight, bias = np.ones(shape[1], np.float32), np.zeros(shape[1], np.float32)
    y = dlprim.softmax(x)
    calls: dict[str, Callable[[], Any]] = {
        "softmax": lambda: dlprim.softmax(x),
        "softmax_backward": lambda: dlprim.softmax_backward(dy, y),
        "layer_norm": lambda: dlprim.layer_norm(x, weight, bias),
        "layer_norm_backward": lambda: dlprim.layer_norm_backward(dy, x, weight).dx,
    }
    traffic = (3 if "backward" in function else 2) * x.nbytes
    exact = partial(_exact, function, x, dy, y)
    theirs = partial(_torch, function, (x, dy, y, weight, bias), threads)
    return layer_case(calls[function], {"torch": theirs}, exact, traffic=traffic, dtype=dtype)


def _exact(function: str, x: np.ndarray, dy: np.ndarray, y: np.ndarray) -> Any:
    x, dy, y = map(doubles, (x, dy, y))

    def mean(values: np.ndarray) -> Any:
        return values.mean(1, keepdims=True)

    if function == "softmax":
        power = np.exp(x - x.max(1, keepdims=True))
        return power / power.sum(1, keepdims=True)
    if function == "softmax_backward":
        return y * (dy - (dy * y).sum(1, keepdims=True))
    scale = 1 / np.sqrt(x.var(1, keepdims=True) + _EPSILON)
    hat = (x - mean(x)) * scale
    if function == "layer_norm":
        return hat
    return scale * (dy - mean(dy) - hat * mean(dy * hat))


def _torch(function: str, arrays: tuple[np.ndarray, ...], threads: int) -> Callable[[], Any]:
    torch = peers.torch(threads)
    x, dy, y = (peers.tensor_on(torch, it) for it in arrays[:3])
    weight, bias = (torch.from_numpy(it).to(x.dtype) for it in arrays[3:])
    shape = list(x.shape[1:])
    if function == "softmax":
        return lambda: torch.softmax(x, -1)
    if function == "softmax_backward":
        return lambda: torch._softmax_backward_data(dy, y, -1, x.dtype)
    if function == "layer_norm":
        return lambda: torch.layer_norm(x, shape, weight, bias)
    _, mean, deviation = torch.native_layer_norm(x, shape, weight, bias, _EPSILON)
    gradients = torch.ops.aten.native_layer_norm_backward
    return lambda: gradients(dy, x, shape, mean, deviation, weight, bias, [True] * 3)[0]
