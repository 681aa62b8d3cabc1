"""Axes of one element, to which NumPy gives any stride: operands and results lie where they lay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlprim
from drawing import RNG

STRIDES = (0, -4, -40, 3, 4, 40, 1 << 40)  # bytes
F4 = np.float32


def with_stride(array: np.ndarray, stride: int) -> np.ndarray:
    """The same elements, where every axis of one has this stride."""
    steps = zip(array.shape, array.strides, strict=True)
    strides = [stride if extent == 1 else step for extent, step in steps]
    return np.lib.stride_tricks.as_strided(array, array.shape, strides)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(F4)


def places(*shape: int) -> np.ndarray:
    return RNG.integers(0, 3, shape)


def contracts(formula: str, **sizes: int) -> Callable[..., Any]:
    return lambda *arrays, out=None: dlprim.contract(formula, *arrays, out=out, sizes=sizes)


CALLS: dict[str, tuple[Callable[..., Any], list[np.ndarray]]] = {
    "one row": (contracts("y(n,k) +=! x(n,c) * w(k,c)"), [floats(1, 5), floats(3, 5)]),
    "one column": (contracts("y(n,k) +=! x(n,c) * w(k,c)"), [floats(4, 5), floats(1, 5)]),
    "one term": (contracts("y(n,k) +=! x(n,c) * w(k,c)"), [floats(4, 1), floats(3, 1)]),
    "one of all": (contracts("y(g,n,k) +=! x(g,n,c) * w(g,k,c)"), [floats(1, 1, 1)] * 2),
    "maximum": (contracts("y(n,m) max=! x(n,m,c)"), [floats(3, 1, 7)]),
    "map": (contracts("y(n,m,c) = exp(x(n,m,c)) + w(m,c)"), [floats(1, 1, 7), floats(1, 7)]),
    "outside": (contracts("y(i,j) = x?(i-1,j) where i in 0:3"), [floats(1, 6)]),
    "gather": (contracts("y(b,d) +=! t(w(b,l),d)"), [floats(3, 1), places(1, 4)]),
    "bytes": (
        contracts("y(n,k) +=! x(n,c) * w(k,c)"),
        [places(1, 300).astype(np.int8), places(3, 300).astype(np.uint8)],
    ),
    "attention": (dlprim.attention, [floats(1, 1, 1, 8), floats(1, 1, 5, 8), floats(1, 1, 5, 8)]),
    "attention of one": (dlprim.attention, [floats(2, 3, 4, 1)] * 3),
    "attention in three axes": (dlprim.attention, [floats(1, 7, 8)] * 3),
    "attention with a mask": (
        lambda q, k, v, mask, out=None: dlprim.attention(q, k, v, mask, out=out),
        [floats(2, 1, 4, 8), floats(2, 1, 5, 8), floats(2, 1, 5, 8), floats(2, 1, 1, 5)],
    ),
    "linear": (dlprim.linear, [floats(1, 5), floats(3, 5)]),
    "linear of one": (dlprim.linear, [floats(4, 1), floats(1, 1), floats(1)]),
    "conv2d": (dlprim.conv2d, [floats(1, 1, 5, 5), floats(1, 1, 3, 3)]),
    "softmax": (dlprim.softmax, [floats(1, 1, 9)]),
    "layer norm": (dlprim.layer_norm, [floats(1, 1, 9)]),
    "matmul": (dlprim.matmul, [floats(1, 5), floats(5, 1)]),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_operands(name: str) -> None:
    call, arrays = CALLS[name]
    expected = call(*arrays)
    for stride in STRIDES:
        for i in range(len(arrays)):
            given = [with_stride(it, stride) if i == j else it for j, it in enumerate(arrays)]
            for _ in range(2):  # what is called again is looked up
                np.testing.assert_array_equal(call(*given), expected)
        np.testing.assert_array_equal(call(*[with_stride(it, stride) for it in arrays]), expected)


@pytest.mark.parametrize("name", CALLS)
def test_results(name: str) -> None:
    call, arrays = CALLS[name]
    expected = call(*arrays)
    for stride in STRIDES:
        dlprim.lang.definitions.contraction.cache_clear()
        for _ in range(2):  # the first call compiles
            out = with_stride(np.empty(expected.shape, expected.dtype), stride)
            assert call(*arrays, out=out) is out
            np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("stride", STRIDES)
def test_compiled_formulas(stride: int) -> None:
    layer = dlprim.define(
        "def f(float(N,C) x, float(K,C) w) -> (y) { y(n,k) +=! x(n,c) * w(k,c) }"
    ).f
    compiled = layer.compile((1, 5), (1, 5))
    x, w = floats(1, 5), floats(1, 5)
    out = with_stride(np.empty((1, 1), F4), stride)
    assert compiled(with_stride(x, stride), with_stride(w, stride), out=out) is out
    np.testing.assert_array_equal(out, compiled(x, w))
