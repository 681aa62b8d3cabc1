"""Layers around the products against their floor of memory traffic and against PyTorch, one core.

A layer's floor is the bytes that it must at least move from and to memory (operands once, results
once) at the read bandwidth that is measured in the same run; what fits in a cache may be above 1.
PyTorch runs the same layer on channels-last tensors in the same process, the sides take turns.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

import dlprim
from dlprim.optim import SGD, AdamW
from harness import alternate, median_ratio, pin, repeats_for, seconds_per_call
from machine import environment, stream_bandwidth
from torch_peer import load_torch

Call = Callable[[], object]
_SHAPES = {"bn 56x56x256": (8, 256, 56, 56), "bn 14x14x1024": (8, 1024, 14, 14)}


class Case(NamedTuple):
    name: str
    bytes: float
    ours: Call
    theirs: Call
    error: float


def tensor(torch: Any, x: np.ndarray) -> Any:
    plain = torch.from_numpy(x if x.dtype == np.float32 else x.view(np.int16))
    typed = plain if x.dtype == np.float32 else plain.view(torch.bfloat16)
    return typed.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else typed


def as_dtype(x: np.ndarray, dtype: str) -> np.ndarray:
    return dlprim.to_bfloat16(x) if dtype == "bfloat16" else x


def wide(x: np.ndarray) -> np.ndarray:
    return x if x.dtype == np.float32 else dlprim.to_float32(x)


def difference(torch: Any, ours: np.ndarray, theirs: Any) -> float:
    # The mean: where relu turns, two roundings may differ on one element.
    return float(np.abs(wide(ours) - theirs.detach().float().numpy()).mean())


def batch_norm_cases(torch: Any, name: str, shape: Any, dtype: str, layout: str) -> list[Case]:
    """Training forward with relu, and backward with the mask from the result, as in ResNet."""
    random = np.random.default_rng(0)
    bn = dlprim.BatchNorm(shape, layout, dtype, relu=True)
    x, dy = (as_dtype(random.standard_normal(shape, np.float32), dtype) for _ in range(2))
    weight, bias = (random.random(shape[1], np.float32) for _ in range(2))
    mean, var = np.zeros(shape[1], np.float32), np.ones(shape[1], np.float32)
    src, diff_dst = bn.activations.pack(x), bn.activations.pack(dy)
    dst, saved = bn.forward(src, weight, bias)
    diff_src = np.empty_like(src)

    def forward() -> object:
        return bn.forward(src, weight, bias, mean, var, out=dst, saved=saved)

    def backward() -> object:
        return bn.backward(diff_dst, src, saved, weight, bias, out=diff_src)

    tx, tdy = tensor(torch, x).requires_grad_(), tensor(torch, dy)
    parameters = [torch.from_numpy(each.copy()) for each in (weight, bias, mean, var)]

    def their_forward() -> Any:
        w, b, m, v = parameters
        with torch.no_grad():
            y = torch.nn.functional.batch_norm(tx, m, v, w, b, training=True)
            return torch.relu_(y)

    y = torch.relu(torch.nn.functional.batch_norm(tx, None, None, *parameters[:2], training=True))

    def their_backward() -> Any:
        return torch.autograd.grad(y, tx, tdy, retain_graph=True)[0]

    forward(), backward()
    errors = [
        difference(torch, bn.activations.unpack(dst), their_forward()),
        difference(torch, bn.activations.unpack(diff_src), their_backward()),
    ]
    return [
        Case(f"{name} forward", 2 * src.nbytes, forward, their_forward, errors[0]),
        Case(f"{name} backward", 3 * src.nbytes, backward, their_backward, errors[1]),
    ]


def pool_cases(torch: Any, dtype: str, layout: str) -> list[Case]:
    shape = (8, 64, 112, 112)
    random = np.random.default_rng(1)
    pool = dlprim.MaxPool2d(shape, 3, 2, 1, layout, dtype)
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


def flat_cases(torch: Any, dtype: str) -> list[Case]:
    random = np.random.default_rng(2)
    x, y = (as_dtype(random.standard_normal(1 << 23, np.float32), dtype) for _ in range(2))
    out = np.empty_like(x)
    tx, ty = tensor(torch, x), tensor(torch, y)
    logits = as_dtype(random.standard_normal((4096, 1000), np.float32), dtype)
    targets = random.integers(0, 1000, 4096)
    gradient = np.empty_like(logits)
    their_logits = tensor(torch, logits).requires_grad_()

    def their_loss() -> Any:
        loss = torch.nn.functional.cross_entropy(their_logits, torch.from_numpy(targets))
        return torch.autograd.grad(loss, their_logits)[0]

    def add() -> Any:
        return dlprim.add(x, y, relu=True, out=out)

    def loss() -> Any:
        return dlprim.softmax_cross_entropy(logits, targets, out=gradient)

    loss()
    errors = (
        difference(torch, add(), torch.relu(tx + ty)),
        difference(torch, gradient, their_loss()),
    )
    return [
        Case("add relu", 3 * x.nbytes, add, lambda: (tx + ty).relu_(), errors[0]),
        Case("dropout", 2 * x.nbytes, lambda: dlprim.dropout(x, 0.5, 1, out=out),
             lambda: torch.nn.functional.dropout(tx, 0.5), 0),
        Case("cross-entropy 4096x1000", 2 * logits.nbytes, loss, their_loss, errors[1]),
    ]  # fmt: skip


def optimizer_cases(torch: Any) -> list[Case]:
    random = np.random.default_rng(3)
    w, g = (random.standard_normal(1 << 23, np.float32) for _ in range(2))
    cases = []
    for name, words, ours, theirs in (
        ("SGD momentum", 5, SGD([w.copy()], 0.1, 0.9, 1e-4),
         lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=1e-4, fused=True)),
        ("AdamW", 7, AdamW([w.copy()]), lambda p: torch.optim.AdamW(p, fused=True)),
    ):  # fmt: skip
        parameter = torch.nn.Parameter(torch.from_numpy(w.copy()))
        parameter.grad = torch.from_numpy(g.copy())
        other = theirs([parameter])
        ours.step([g])
        other.step()
        error = difference(torch, ours._parameters[0], parameter)
        step = ours.step
        cases.append(Case(name, words * w.nbytes, lambda step=step: step([g]), other.step, error))
    return cases


def cases(torch: Any, dtype: str, layout: str) -> list[Case]:
    found = [
        case
        for name, shape in _SHAPES.items()
        for case in batch_norm_cases(torch, name, shape, dtype, layout)
    ]
    found += pool_cases(torch, dtype, layout)
    if layout == "blocked":
        found += flat_cases(torch, dtype)
        found += optimizer_cases(torch) if dtype == "float32" else []
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--layouts", nargs="+", default=["blocked", "NHWC"])
    parser.add_argument("--json", type=Path, help="append a record per row")
    options = parser.parse_args()
    pin(options.core)
    dlprim.set_num_threads(1)
    torch = load_torch(1)
    if torch is None:
        raise SystemExit("PyTorch is not installed")
    roof = stream_bandwidth()
    print(f"memory {roof * 1e-9:.1f} GB/s\n{'':46s} GB/s  of memory  x torch")
    for dtype in options.dtype:
        for layout in options.layouts:
            for case in cases(torch, dtype, layout):
                if not case.error < (1e-3 if dtype == "float32" else 0.1):
                    raise SystemExit(f"{case.name}: differs by {case.error}")
                sides = [case.ours, case.theirs]
                repeats = [repeats_for(side, 0.005) for side in sides]
                series = alternate(
                    [
                        lambda side=side, n=n: seconds_per_call(side, n)
                        for side, n in zip(sides, repeats, strict=True)
                    ],
                    options.rounds,
                )
                rate = case.bytes / median(series[0])
                ratio = median_ratio(series[1], series[0])
                label = f"{case.name} {dtype} {layout}"
                print(f"{label:44s} {rate * 1e-9:6.1f}  {rate / roof:9.2f}  {ratio:7.2f}")
                if options.json:
                    record = {"case": label, "of_memory": rate / roof, "x_torch": ratio}
                    with options.json.open("a") as file:
                        file.write(json.dumps(environment() | record) + "\n")


if __name__ == "__main__":
    main()
