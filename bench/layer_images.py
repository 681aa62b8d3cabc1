"""Layers over images for `bench_layers.py`: batch normalisation and pooling, on both sides."""

from functools import partial
from typing import Any

import numpy as np

import dlprim
from layer_case import Case, as_dtype, difference, tensor


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
        self.mean, self.var = np.zeros_like(self.weight), np.ones_like(self.weight)
        self.dst, self.inferred, self.diff_src = (np.empty_like(self.src) for _ in range(3))
        self.saved = np.empty((2, self.weight.size), np.float32)
        self.statistics = {
            "running_mean": self.mean, "running_var": self.var,
            "weights": self.weight, "bias": self.bias,
        }  # fmt: skip

    def forward(self) -> object:
        return self.layer.forward(
            self.src, **self.statistics, residual=self.added,
            out=self.dst, relu_mask=self.mask, saved=self.saved,
        )  # fmt: skip

    def backward(self) -> object:
        return self.layer.backward(
            self.diff_dst, self.src, self.saved, weights=self.weight, bias=self.bias,
            relu_mask=self.mask, out=self.diff_src, diff_residual=self.passed,
        )  # fmt: skip

    def inference(self) -> object:
        return self.layer.forward(
            self.src, **self.statistics, residual=self.added,
            training=False, out=self.inferred,
        )  # fmt: skip


class TorchNorm:
    """The same in PyTorch."""

    def __init__(self, torch: Any, operands: list[np.ndarray], residual: bool) -> None:
        self.torch, (x, dy, z, *parameters) = torch, operands
        self.x, self.z = (tensor(torch, it).requires_grad_() for it in (x, z))
        self.dy, self.residual = tensor(torch, dy), residual
        self.parameters = [torch.from_numpy(it.copy()) for it in parameters]
        zeros = torch.zeros_like(self.parameters[0])
        self.statistics = [zeros, torch.ones_like(zeros)]
        self.wanted = [self.x, self.z] if residual else [self.x]
        self.y = self._normalised((None, None), True)

    def forward(self) -> Any:
        with self.torch.no_grad():
            return self._normalised(self.statistics, True)

    def backward(self) -> Any:
        return self.torch.autograd.grad(self.y, self.wanted, self.dy, retain_graph=True)[0]

    def inference(self) -> Any:
        with self.torch.no_grad():
            return self._normalised(self.statistics, False)

    def _normalised(self, statistics: Any, training: bool) -> Any:
        y = self.torch.nn.functional.batch_norm(
            self.x, *statistics, *self.parameters, training=training
        )
        return self.torch.relu_(y.add_(self.z) if self.residual else y)


def batch_norm_cases(
    torch: Any, name: str, shape: Any, dtype: str, layout: str, residual: bool = False
) -> list[Case]:
    """Training forward and backward, and inference."""
    random = np.random.default_rng(0)
    operands = [as_dtype(random.standard_normal(shape, np.float32), dtype) for _ in range(3)]
    operands += [random.random(shape[1], np.float32) for _ in range(2)]
    ours = Norm(operands, layout, dtype, residual)
    theirs = TorchNorm(torch, operands, residual)
    ours.inference(), ours.forward(), ours.backward()
    cases = []
    for which, tensors, result in (
        ("inference", 2, ours.inferred), ("forward", 2, ours.dst), ("backward", 3, ours.diff_src)
    ):  # fmt: skip
        call = getattr(theirs, which)
        error = difference(torch, ours.layer.activations.unpack(result), call())
        moved = (tensors + residual) * ours.src.nbytes
        cases.append(Case(f"{name} {which}", moved, getattr(ours, which), call, error))
    return cases


def pool_cases(torch: Any, dtype: str, layout: str) -> list[Case]:
    shape = (8, 64, 112, 112)
    random = np.random.default_rng(1)
    pool = dlprim.MaxPool2d(shape, 3, 2, 1, layout=layout, dtype=dtype)
    x = as_dtype(random.standard_normal(shape, np.float32), dtype)
    dy = as_dtype(random.standard_normal(pool.y_shape, np.float32), dtype)
    src, diff_dst = pool.activations.pack(x), pool.dst_activations.pack(dy)
    indices = pool.new_indices()
    dst = pool.forward(src, indices=indices)
    diff_src = pool.backward(diff_dst, indices)
    tx, tdy = tensor(torch, x).requires_grad_(), tensor(torch, dy)
    y = torch.nn.functional.max_pool2d(tx, 3, 2, 1)

    def theirs() -> Any:
        with torch.no_grad():
            return torch.nn.functional.max_pool2d(tx, 3, 2, 1)

    def their_backward() -> Any:
        return torch.autograd.grad(y, tx, tdy, retain_graph=True)[0]

    errors = [
        difference(torch, pool.dst_activations.unpack(dst), theirs()),
        difference(torch, pool.activations.unpack(diff_src), their_backward()),
    ]
    moved = src.nbytes + dst.nbytes + indices.nbytes
    return [
        Case("maxpool forward", moved, lambda: pool.forward(src, dst, indices), theirs, errors[0]),
        Case("maxpool backward", moved, lambda: pool.backward(diff_dst, indices, diff_src),
             their_backward, errors[1]),
    ]  # fmt: skip


def mean_cases(torch: Any, dtype: str, layout: str) -> list[Case]:
    """Means of windows, and of all pixels."""
    random = np.random.default_rng(4)
    cases = []
    functional = torch.nn.functional
    for name, shape, pool, theirs in (
        ("avgpool 3x3/2", (8, 64, 112, 112),
         lambda it: dlprim.AvgPool2d(it, 3, 2, 1, layout=layout, dtype=dtype),
         lambda x: functional.avg_pool2d(x, 3, 2, 1)),
        ("global avgpool", (32, 2048, 7, 7),
         lambda it: dlprim.GlobalAvgPool2d(it, layout=layout, dtype=dtype),
         lambda x: functional.adaptive_avg_pool2d(x, 1)),
    ):  # fmt: skip
        layer = pool(shape)
        x = as_dtype(random.standard_normal(shape, np.float32), dtype)
        tx = tensor(torch, x).requires_grad_()
        y = theirs(tx)
        dy = as_dtype(random.standard_normal(tuple(y.shape), np.float32), dtype)
        tdy = tensor(torch, dy)
        src, diff_dst = layer.activations.pack(x), layer.dst_activations.pack(dy)
        dst, diff_src = layer.forward(src), layer.backward(diff_dst)

        def their_forward(theirs: Any = theirs, tx: Any = tx) -> Any:
            with torch.no_grad():
                return theirs(tx)

        def their_backward(y: Any = y, tx: Any = tx, tdy: Any = tdy) -> Any:
            return torch.autograd.grad(y, tx, tdy, retain_graph=True)[0]

        errors = [
            difference(torch, layer.dst_activations.unpack(dst), their_forward()),
            difference(torch, layer.activations.unpack(diff_src), their_backward()),
        ]
        moved = src.nbytes + dst.nbytes
        cases += [
            Case(f"{name} forward", moved, partial(layer.forward, src, dst), their_forward,
                 errors[0]),
            Case(f"{name} backward", moved, partial(layer.backward, diff_dst, diff_src),
                 their_backward, errors[1]),
        ]  # fmt: skip
    return cases
