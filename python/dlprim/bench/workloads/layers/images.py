"""Batch normalisation and pooling of images: training forward and backward, and inference."""

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

_NORMS = {
    "bn 56x56x256": ((256, 56, 56), False),
    "bn 14x14x1024": ((1024, 14, 14), False),
    "bn 56x56x256 residual": ((256, 56, 56), True),
}
_BATCH, _QUICK_BATCH = 8, 2
_EPSILON = 1e-5
Shape = tuple[int, ...]


def norms(settings: Settings) -> Iterator[Row]:
    """Of each shape, layout and type."""
    batch = (settings.batches or (_QUICK_BATCH if settings.brief else _BATCH,))[0]
    for which in ("inference", "forward", "backward"):
        for layout in settings.layouts or ("blocked",):
            for dtype in settings.types("float32", "bfloat16"):
                for name, (shape, residual) in _NORMS.items():
                    make = partial(
                        _norm_case, which, (batch, *shape), dtype, layout, residual,
                        settings.threads,
                    )  # fmt: skip
                    yield Row(f"norm {which} {layout}", name, dtype, make)


class Norm:
    """Batch normalisation with relu, as in ResNet: the gradient's mask from the result or, where a
    residual is added, from the bits that forward wrote."""

    def __init__(self, operands: list[np.ndarray], layout: str, dtype: str, residual: bool) -> None:
        x, dy, z, self.weight, self.bias = operands
        self.layer = bn = dlprim.BatchNorm(
            x.shape, layout=layout, dtype=dtype, activation="relu", residual=residual
        )
        self.src, self.diff_dst = bn.activations.pack(x), bn.activations.pack(dy)
        self.added = bn.activations.pack(z) if residual else None
        self.mask = np.empty(bn.relu_mask_shape, np.uint8) if residual else None
        self.passed = np.empty_like(self.src) if residual else None
        self.dst, self.diff_src = np.empty_like(self.src), np.empty_like(self.src)
        self.saved = np.empty((2, self.weight.size), np.float32)

    def forward(self, training: bool = True) -> np.ndarray:
        statistics: dict[str, Any] = {
            "running_mean": np.zeros_like(self.weight), "running_var": np.ones_like(self.weight),
            "weights": self.weight, "bias": self.bias, "residual": self.added, "out": self.dst,
        }  # fmt: skip
        if not training:
            self.layer.forward(self.src, training=False, **statistics)
        else:
            self.layer.forward(self.src, relu_mask=self.mask, saved=self.saved, **statistics)
        return self.dst

    def inference(self) -> np.ndarray:
        return self.forward(training=False)

    def backward(self) -> np.ndarray:
        self.layer.backward(
            self.diff_dst, self.src, self.saved, weights=self.weight, bias=self.bias,
            relu_mask=self.mask, out=self.diff_src, diff_residual=self.passed,
        )  # fmt: skip
        return self.diff_src


def _exact(operands: list[np.ndarray], which: str, residual: bool) -> Any:
    """By the definition, over images and pixels."""
    x, dy, z = map(doubles, operands[:3])
    w, b = (it.reshape(1, -1, 1, 1).astype(np.float64) for it in operands[3:])
    axes: dict[str, Any] = {"axis": (0, 2, 3), "keepdims": True}
    mean, var = (0.0, 1.0) if which == "inference" else (x.mean(**axes), x.var(**axes))
    scale = 1 / np.sqrt(var + _EPSILON)
    hat = (x - mean) * scale
    y = w * hat + b + (z if residual else 0)
    if which != "backward":
        return np.maximum(y, 0)
    slope = dy * (y > 0)
    inner = slope - slope.mean(**axes) - hat * (slope * hat).mean(**axes)
    return w * scale * inner


def _norm_case(
    which: str, shape: Shape, dtype: str, layout: str, residual: bool, threads: int
) -> Case:
    operands = [drawn(seed, dtype, *shape) for seed in range(3)]
    random = np.random.default_rng(0)
    operands += [random.random(shape[1], np.float32) for _ in range(2)]
    ours = Norm(operands, layout, dtype, residual)
    ours.forward()  # saves what backward needs
    tensors = (3 if which == "backward" else 2) + residual
    return layer_case(
        getattr(ours, which),
        {"torch": partial(_torch_norm, operands, which, residual, threads)},
        partial(_exact, operands, which, residual),
        traffic=tensors * ours.src.nbytes, dtype=dtype, result=ours.layer.activations.unpack,
    )  # fmt: skip


def _torch_norm(
    operands: list[np.ndarray], which: str, residual: bool, threads: int
) -> Callable[[], Any]:
    torch = peers.torch(threads)
    x, dy, z = (_images(torch, it) for it in operands[:3])
    parameters = [torch.from_numpy(it.copy()) for it in operands[3:]]
    zeros = torch.zeros_like(parameters[0])

    def normalised(running: Any, training: bool) -> Any:
        y = torch.nn.functional.batch_norm(x, *running, *parameters, training=training)
        return torch.relu_(y.add_(z) if residual else y)

    def forward() -> Any:
        with torch.no_grad():
            return normalised([zeros, torch.ones_like(zeros)], which == "forward")

    if which != "backward":
        return forward
    wanted = [it.requires_grad_() for it in ([x, z] if residual else [x])]
    y = normalised((None, None), True)
    return lambda: torch.autograd.grad(y, wanted, dy, retain_graph=True)[0]


def _images(torch: Any, array: np.ndarray) -> Any:
    return peers.tensor_on(torch, array).contiguous(memory_format=torch.channels_last)


_POOLS: dict[str, tuple[Shape, Callable[..., Any], Callable[[Any, Any], Any]]] = {
    "max 3x3/2": ((64, 112, 112),
                  lambda it, **how: dlprim.MaxPool2d(it, 3, 2, 1, **how),
                  lambda f, x: f.max_pool2d(x, 3, 2, 1)),
    "average 3x3/2": ((64, 112, 112),
                      lambda it, **how: dlprim.AvgPool2d(it, 3, 2, 1, **how),
                      lambda f, x: f.avg_pool2d(x, 3, 2, 1)),
    "global average": ((2048, 7, 7),
                       dlprim.GlobalAvgPool2d, lambda f, x: f.adaptive_avg_pool2d(x, 1)),
}  # fmt: skip


def pools(settings: Settings) -> Iterator[Row]:
    """Of each window, layout and type."""
    batch = (settings.batches or (_QUICK_BATCH if settings.brief else _BATCH,))[0]
    for which in settings.passes or ("forward", "backward"):
        for layout in settings.layouts or ("blocked",):
            for dtype in settings.types("float32", "bfloat16"):
                for name in _POOLS:
                    make = partial(_pool_case, name, which, batch, dtype, layout, settings.threads)
                    yield Row(f"pool {which} {layout}", name, dtype, make)


def _pool_case(name: str, which: str, batch: int, dtype: str, layout: str, threads: int) -> Case:
    extents, make, functional = _POOLS[name]
    pool = make((batch, *extents), layout=layout, dtype=dtype)
    x = drawn(1, dtype, batch, *extents)
    dy = drawn(2, dtype, *pool.y_shape)
    src, diff_dst = pool.activations.pack(x), pool.dst_activations.pack(dy)
    indices = pool.new_indices() if name.startswith("max") else None
    saved = {} if indices is None else {"indices": indices}
    dst = pool.forward(src, **saved)
    diff_src = pool.backward(diff_dst, **saved)
    traffic = src.nbytes + dst.nbytes + (0 if indices is None else indices.nbytes)

    def theirs() -> Callable[[], Any]:
        torch = peers.torch(threads)
        tx, tdy = _images(torch, x).requires_grad_(which == "backward"), _images(torch, dy)
        y = functional(torch.nn.functional, tx)
        if which == "backward":
            return lambda: torch.autograd.grad(y, tx, tdy, retain_graph=True)[0]
        return lambda: functional(torch.nn.functional, tx)

    if which == "forward":
        return layer_case(
            lambda: pool.forward(src, dst, **saved), {"torch": theirs},
            lambda: _pooled(name, doubles(x), None), traffic=traffic, dtype=dtype,
            result=pool.dst_activations.unpack,
        )  # fmt: skip
    return layer_case(
        lambda: pool.backward(diff_dst, out=diff_src, **saved), {"torch": theirs},
        lambda: _pooled(name, doubles(x), doubles(dy)), traffic=traffic, dtype=dtype,
        result=pool.activations.unpack,
    )  # fmt: skip


def _pooled(name: str, x: np.ndarray, dy: np.ndarray | None) -> Any:
    """The means or maxima of windows; of a gradient ``dy`` what goes to each pixel."""
    if name.startswith("global"):
        if dy is None:
            return x.mean((2, 3), keepdims=True)
        return np.broadcast_to(dy / (x.shape[2] * x.shape[3]), x.shape)
    is_max = name.startswith("max")
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf if is_max else 0)
    views = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2]
    if dy is None:
        return views.max((4, 5)) if is_max else views.mean((4, 5))
    flat = views.reshape(*views.shape[:4], 9)
    first = flat.argmax(-1) if is_max else None
    spread, (p, q) = np.zeros_like(padded), dy.shape[2:]
    for tap in range(9):
        share = dy / 9 if first is None else dy * (first == tap)
        r, s = divmod(tap, 3)
        spread[:, :, r : r + 2 * p : 2, s : s + 2 * q : 2] += share
    return spread[:, :, 1:-1, 1:-1]
