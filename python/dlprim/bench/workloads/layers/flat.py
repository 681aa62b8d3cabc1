"""Layers over plain arrays: element-wise, loss, embedding, and the updates of optimisers."""

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
from dlprim.optim import SGD, AdamW

_ELEMENTS, _FEW = 1 << 23, 1 << 20
_WORDS, _WIDTH, _TEXT = 32000, 512, (64, 64)


def rows(settings: Settings) -> Iterator[Row]:
    """A sum with relu, dropout, and the loss of classes."""
    elements = _FEW if settings.brief else _ELEMENTS
    for dtype in settings.types("float32", "bfloat16"):
        for name, make in (("add relu", _add), ("dropout", _dropout)):
            yield Row("flat", name, dtype, partial(make, elements, dtype, settings.threads))
        yield Row("flat", "cross-entropy 4096x1000", dtype, partial(_loss, dtype, settings.threads))


def _add(elements: int, dtype: str, threads: int) -> Case:
    x, y = drawn(1, dtype, elements), drawn(2, dtype, elements)
    out = np.empty_like(x)

    def theirs() -> Callable[[], Any]:
        tx, ty = (peers.tensor_on(peers.torch(threads), it) for it in (x, y))
        return lambda: (tx + ty).relu_()

    return layer_case(
        lambda: dlprim.add(x, y, activation="relu", out=out), {"torch": theirs},
        lambda: np.maximum(doubles(x) + doubles(y), 0), traffic=3 * x.nbytes, dtype=dtype,
    )  # fmt: skip


def _dropout(elements: int, dtype: str, threads: int) -> Case:
    x = drawn(1, dtype, elements)
    out = np.empty_like(x)

    def theirs() -> Callable[[], Any]:
        torch = peers.torch(threads)
        tx = peers.tensor_on(torch, x)
        return lambda: torch.nn.functional.dropout(tx, 0.5)

    case = layer_case(
        lambda: dlprim.dropout(x, 0.5, seed=1, out=out), {"torch": theirs},
        lambda: 2 * doubles(x) * (doubles(out) != 0), traffic=2 * x.nbytes, dtype=dtype,
    )  # fmt: skip
    case.agrees = None  # PyTorch draws a mask of its own
    return case


def _loss(dtype: str, threads: int) -> Case:
    """The gradient of the mean loss."""
    logits = drawn(3, dtype, 4096, 1000)
    targets = np.random.default_rng(3).integers(0, 1000, 4096)
    gradient = np.empty_like(logits)

    def ours() -> np.ndarray:
        dlprim.softmax_cross_entropy(logits, targets, out=gradient)
        return gradient

    def exact() -> Any:
        power = np.exp(doubles(logits))
        power /= power.sum(1, keepdims=True)
        power[np.arange(4096), targets] -= 1
        return power / 4096

    def theirs() -> Callable[[], Any]:
        torch = peers.torch(threads)
        x, classes = peers.tensor_on(torch, logits).requires_grad_(), torch.from_numpy(targets)
        loss = torch.nn.functional.cross_entropy
        return lambda: torch.autograd.grad(loss(x, classes), x)[0]

    return layer_case(ours, {"torch": theirs}, exact, traffic=2 * logits.nbytes, dtype=dtype)


def embeddings(settings: Settings) -> Iterator[Row]:
    """Words of a language model; our gradient of the table is float32."""
    for which in settings.passes or ("forward", "backward"):
        for dtype in settings.types("float32", "bfloat16"):
            name = f"{_WORDS}x{_WIDTH}"
            yield Row(f"embedding {which}", name, dtype, partial(_embedding, which, dtype,
                                                                 settings.threads))  # fmt: skip


def _embedding(which: str, dtype: str, threads: int) -> Case:
    table, dy = drawn(5, dtype, _WORDS, _WIDTH), drawn(6, dtype, *_TEXT, _WIDTH)
    words = np.random.default_rng(5).integers(0, _WORDS, _TEXT)
    out, gradient = np.empty_like(dy), np.empty(table.shape, np.float32)

    def theirs() -> Callable[[], Any]:
        torch = peers.torch(threads)
        own, places, slope = (
            peers.tensor_on(torch, table).requires_grad_(which == "backward"),
            torch.from_numpy(words), peers.tensor_on(torch, dy),
        )  # fmt: skip
        look_up = torch.nn.functional.embedding
        if which == "forward":
            return lambda: look_up(places, own)
        y = look_up(places, own)
        return lambda: torch.autograd.grad(y, own, slope, retain_graph=True)[0]

    def scattered() -> np.ndarray:
        found = np.zeros(table.shape)
        np.add.at(found, words, doubles(dy))
        return found

    if which == "forward":
        return layer_case(
            lambda: dlprim.embedding(words, table, out=out), {"torch": theirs},
            lambda: doubles(table)[words], traffic=2 * out.nbytes, dtype=dtype,
        )  # fmt: skip
    return layer_case(
        lambda: dlprim.embedding_backward(dy, words, _WORDS, out=gradient), {"torch": theirs},
        scattered, traffic=gradient.nbytes + 2 * dy.nbytes, dtype=dtype,
    )  # fmt: skip


_MOVED = {"SGD momentum": 5, "AdamW": 7}  # arrays as large as the parameters, by an update


def optimizers(settings: Settings) -> Iterator[Row]:
    """On float32 parameters; in bfloat16 with the rounded copies that the next step multiplies."""
    elements = _FEW if settings.brief else _ELEMENTS
    for dtype in settings.types("float32", "bfloat16"):
        for name in _MOVED:
            yield Row("optimizer", name, dtype, partial(_optimizer, name, elements, dtype,
                                                        settings.threads))  # fmt: skip


def _optimizer(name: str, elements: int, dtype: str, threads: int) -> Case:
    """Verified is how far the first step moves the parameters."""
    w, g = drawn(3, "float32", elements), drawn(4, "float32", elements)
    own = w.copy()
    copies = None if dtype == "float32" else [dlprim.to_bfloat16(w)]
    is_adam = name == "AdamW"
    ours: Any = (
        AdamW([own], copies=copies)
        if is_adam
        else SGD([own], 0.1, 0.9, weight_decay=1e-4, copies=copies)
    )

    def first() -> Any:
        ours.step([g])
        moved = own - w
        own[...] = w
        return moved

    def exact() -> Any:
        if is_adam:  # Both means are as large as their first terms.
            wide = g.astype(np.float64)
            return -1e-3 * wide / (np.abs(wide) + 1e-8) - 1e-5 * w.astype(np.float64)
        return -0.1 * (g + 1e-4 * w.astype(np.float64))

    def theirs() -> Callable[[], Any]:
        torch = peers.torch(threads)
        parameter = torch.nn.Parameter(torch.from_numpy(w.copy()))
        parameter.grad = torch.from_numpy(g.copy())
        rounded = parameter.detach().to(torch.bfloat16)
        step = (
            torch.optim.AdamW([parameter], fused=True)
            if is_adam
            else torch.optim.SGD([parameter], 0.1, 0.9, weight_decay=1e-4, fused=True)
        ).step

        def call() -> None:
            step()
            if dtype == "bfloat16":
                rounded.copy_(parameter.detach())

        return call

    traffic = _MOVED[name] * w.nbytes + (0 if copies is None else copies[0].nbytes)
    case = layer_case(lambda: ours.step([g]), {"torch": theirs}, exact,
                      traffic=traffic, dtype="float32", result=lambda _: first())  # fmt: skip
    case.agrees = None
    moves = layer_case(first, {}, exact, traffic=0, dtype="float32")
    case.verify = moves.verify
    return case
