"""Formulas: beside dlprim's own functions, and definitions and contractions beside peers.

The kind ``layers`` has ResNet-50's convolutions (N = 1), plain linear layers and a dilated
convolution with its derived gradients as formulas, with the function of the same arrays as a side;
``definitions`` are layers of several statements; ``einsum`` is a table of contractions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np

import dlprim
from dlprim.bench import peers, tables
from dlprim.bench.measuring.case import Case, Row
from dlprim.bench.measuring.verification import close_to
from dlprim.bench.settings import Settings
from dlprim.bench.workloads import definitions
from dlprim.bench.workloads.conv import load_layers
from dlprim.bench.workloads.conv_exact import Layer

LINEAR = "y(n,k) +=! x(n,c) * w(k,c)"
DILATED = "y(n,k,p) +=! x(n,c,p+8*s) * w(k,c,s)"
_CLOSE = 1e-4  # of the largest element
_MOST = 1 << 32  # products of a linear layer
_QUICK_LAYERS, _QUICK_EINSUMS = 6, 4  # every so many
_QUICK_ELEMENTS = 1e7  # of a result


def rows(settings: Settings) -> Iterator[Row]:
    """Of the kinds that were asked for; --shapes is a table of contractions."""
    if not settings.types("float32"):
        return
    kinds: dict[str, Callable[[Settings], Iterator[Row]]] = {
        "layers": _layers, "definitions": _definitions, "einsum": _einsums,
    }  # fmt: skip
    for kind in settings.kinds or kinds:
        for row in kinds[kind](settings):
            if settings.wanted(row.name):
                yield row


def _layers(settings: Settings) -> Iterator[Row]:
    share = _QUICK_LAYERS if settings.brief else 1
    for layer in load_layers(tables.path_of("resnet50", "conv"))[::share]:
        yield Row("convolutions", str(layer), "float32", partial(_convolution, layer))
    table = tables.integers(tables.path_of("plain_linear", "linear"), ("N", "C", "K"))
    for row in table[::share]:
        if row["N"] * row["C"] * row["K"] <= _MOST:
            name = "x".join(map(str, row.values()))
            yield Row("linear", name, "float32", partial(_linear, **row))
    for which in ("forward", "backward"):
        yield Row("dilated", which, "float32", partial(_dilated, which))


def _drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def _beside(formula: Callable[[], Any], own: Callable[[], Any], operations: float) -> Case:
    """A formula verified against the function that a row also measures."""
    check = close_to("formula", own(), _CLOSE)
    return Case(formula, lambda: check(formula()), {"function": lambda: own}, operations=operations)


def _convolution(layer: Layer) -> Case:
    x, w = _drawn(*layer.x_shape(1)), _drawn(*layer.w_shape)
    step, pad = layer.stride, layer.pad
    read = f"x{'?' if pad else ''}(n,c,{step}*p+r-{pad},{step}*q+s-{pad})"
    formula = f"y(n,k,p,q) +=! {read} * w(k,c,r,s)"
    p, q = layer.y_shape(1)[2:]
    return _beside(
        lambda: dlprim.contract(formula, x, w, sizes={"p": p, "q": q}),
        lambda: dlprim.conv2d(x, w, stride=step, padding=pad),
        2.0 * w.size * p * q,
    )


def _linear(N: int, C: int, K: int) -> Case:
    x, w = _drawn(N, C), _drawn(K, C)
    return _beside(
        lambda: dlprim.contract(LINEAR, x, w), lambda: dlprim.linear(x, w), 2.0 * N * C * K
    )


def _dilated(which: str) -> Case:
    """A layer of ATAC-seq networks: 51 taps, eight apart."""
    width, taps = 60400, 51
    x, w = _drawn(1, 15, width + 8 * (taps - 1)), _drawn(15, 15, taps)
    dy = _drawn(1, 15, width)
    layer = dlprim.define(f"def f(float(N,C,W) x, float(K,C,S) w) -> (y) {{ {DILATED} }}").f
    operations = 2.0 * w.size * width
    if which == "forward":
        return _beside(lambda: layer(x, w), lambda: dlprim.conv1d(x, w, dilation=8), operations)
    by_x, by_w = layer.gradient("x"), layer.gradient("w")
    return _beside(
        lambda: (by_x(x, w, dy), by_w(x, w, dy)),
        lambda: dlprim.conv1d_backward(dy, x, w, dilation=8)[:2],
        2 * operations,
    )


def _definitions(settings: Settings) -> Iterator[Row]:
    for name, layer, shapes in definitions.CASES[:: 2 if settings.brief else 1]:
        make = partial(_definition, layer, shapes, settings.threads)
        yield Row("definitions", name, "float32", make)


@cache
def _compiled() -> Any:
    return dlprim.define(definitions.LAYERS)


def _definition(layer: str, shapes: definitions.Shapes, threads: int) -> Case:
    """Verified against NumPy's, which is written from the same equations."""
    arrays = definitions.operands(shapes)
    ours = partial(getattr(_compiled(), layer), *arrays)
    expected = definitions.reference(layer, *arrays)
    check = close_to(layer, expected, definitions.CLOSE)

    def theirs(compiled: bool) -> Callable[[], Any]:
        torch = peers.torch(threads)
        call = definitions.torch_layers(torch)[layer]
        tensors = [torch.from_numpy(array) for array in arrays]
        return partial(torch.compile(call) if compiled else call, *tensors)

    sides = {"torch": partial(theirs, False), "compile": partial(theirs, True)}
    traffic = float(sum(it.nbytes for it in arrays if it.dtype == np.float32))
    return Case(ours, lambda: check(ours()), sides, check, traffic=traffic)


def _einsums(settings: Settings) -> Iterator[Row]:
    columns = ("name", "spec", "sizes")
    for path in settings.tables("formulas", "einsum"):
        small = [
            row for row in tables.read(path, columns)
            if not settings.brief or _result_elements(row) < _QUICK_ELEMENTS
        ]  # fmt: skip
        for row in small[:: _QUICK_EINSUMS if settings.brief else 1]:
            make = partial(_einsum, row["spec"], row["sizes"], settings.threads)
            yield Row("einsum", row["name"], "float32", make)


def _result_elements(row: tables.Row) -> float:
    extents = extents_of(row["sizes"])
    return float(np.prod([extents[letter] for letter in row["spec"].split("->")[1]], dtype=float))


def extents_of(sizes: str) -> dict[str, int]:
    """``"m=2 k=3"`` by letter."""
    return {letter: int(value) for letter, value in (it.split("=") for it in sizes.split())}


def _einsum(spec: str, sizes: str, threads: int) -> Case:
    """Verified against NumPy's."""
    extents = extents_of(sizes)
    random = np.random.default_rng(0)
    arrays = [
        random.standard_normal([extents[letter] for letter in term], np.float32)
        for term in spec.split("->")[0].split(",")
    ]
    ours = partial(dlprim.einsum, spec, *arrays)
    numpys = partial(np.einsum, spec, *arrays, optimize=True)
    expected = numpys()

    def theirs() -> Callable[[], Any]:
        torch = peers.torch(threads)
        return partial(torch.einsum, spec, *(torch.from_numpy(array) for array in arrays))

    check = close_to(spec, expected, _CLOSE)
    # Of more than two operands the order decides how many operations there are.
    operations = 2.0 * np.prod(list(extents.values()), dtype=float) if len(arrays) == 2 else 0
    return Case(
        ours, lambda: check(ours()), {"numpy": lambda: numpys, "torch": theirs}, check,
        operations, float(sum(it.nbytes for it in (*arrays, expected))),
    )  # fmt: skip
