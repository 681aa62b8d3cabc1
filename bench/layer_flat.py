"""Layers over plain arrays for `bench_layers.py`: element-wise, loss, embedding, optimisers."""

from typing import Any

import numpy as np

import dlprim
from dlprim.optim import SGD, AdamW
from layer_case import Case, as_dtype, difference, tensor


def embedding_cases(torch: Any, dtype: str) -> list[Case]:
    """Words of a language model; our gradient of the table is float32."""
    random = np.random.default_rng(5)
    table = as_dtype(random.standard_normal((32000, 512), np.float32), dtype)
    words = random.integers(0, 32000, (64, 64))
    dy = as_dtype(random.standard_normal((64, 64, 512), np.float32), dtype)
    out, gradient = np.empty_like(dy), np.empty((32000, 512), np.float32)
    their_table, their_words = tensor(torch, table).requires_grad_(), torch.from_numpy(words)
    y = torch.nn.functional.embedding(their_words, their_table)
    tdy = tensor(torch, dy)

    def theirs() -> Any:
        with torch.no_grad():
            return torch.nn.functional.embedding(their_words, their_table)

    def their_backward() -> Any:
        return torch.autograd.grad(y, their_table, tdy, retain_graph=True)[0]

    def backward() -> Any:
        return dlprim.embedding_backward(dy, words, 32000, out=gradient)

    errors = [
        difference(torch, dlprim.embedding(words, table, out=out), theirs()),
        difference(torch, backward(), their_backward()),
    ]
    return [
        Case("embedding forward", 2 * out.nbytes, lambda: dlprim.embedding(words, table, out=out),
             theirs, errors[0]),
        Case("embedding backward", gradient.nbytes + 2 * dy.nbytes, backward, their_backward,
             errors[1]),
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
        return dlprim.add(x, y, activation="relu", out=out)

    def loss() -> Any:
        return dlprim.softmax_cross_entropy(logits, targets, out=gradient)

    loss()
    errors = (
        difference(torch, add(), torch.relu(tx + ty)),
        difference(torch, gradient, their_loss()),
    )
    return [
        Case("add relu", 3 * x.nbytes, add, lambda: (tx + ty).relu_(), errors[0]),
        Case("dropout", 2 * x.nbytes, lambda: dlprim.dropout(x, 0.5, seed=1, out=out),
             lambda: torch.nn.functional.dropout(tx, 0.5), 0),
        Case("cross-entropy 4096x1000", 2 * logits.nbytes, loss, their_loss, errors[1]),
    ]  # fmt: skip


def optimizer_cases(torch: Any, dtype: str) -> list[Case]:
    """On float32 parameters; in bfloat16 with the rounded copies that the next step multiplies."""
    random = np.random.default_rng(3)
    w, g = (random.standard_normal(1 << 23, np.float32) for _ in range(2))
    cases = []
    for name, words, make, theirs in (
        ("SGD momentum", 5, lambda p, c: SGD(p, 0.1, 0.9, weight_decay=1e-4, copies=c),
         lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=1e-4, fused=True)),
        ("AdamW", 7, lambda p, c: AdamW(p, copies=c), lambda p: torch.optim.AdamW(p, fused=True)),
    ):  # fmt: skip
        copies = None if dtype == "float32" else [dlprim.to_bfloat16(w)]
        own = w.copy()
        ours = make([own], copies)
        parameter = torch.nn.Parameter(torch.from_numpy(w.copy()))
        parameter.grad = torch.from_numpy(g.copy())
        other = theirs([parameter])
        copy = parameter.detach().to(torch.bfloat16)

        def their_step(other: Any = other, copy: Any = copy, parameter: Any = parameter) -> None:
            other.step()
            if dtype == "bfloat16":
                copy.copy_(parameter.detach())

        ours.step([g])
        their_step()
        pair = (own, parameter) if copies is None else (copies[0], copy)
        moved = words * w.nbytes + (0 if copies is None else copies[0].nbytes)
        error = difference(torch, *pair)
        cases.append(Case(name, moved, lambda ours=ours: ours.step([g]), their_step, error))
    return cases
