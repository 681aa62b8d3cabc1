"""Arrays of other libraries whose elements are others than what lies in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import nn
from dlprim.train.prediction import _as_array

pytestmark = pytest.mark.any_level

X = np.arange(-8, 8, dtype=np.float32).reshape(4, 4)
IMAGES = X.reshape(1, 1, 4, 4)


class View:
    """As PyTorch has the imaginary part of a conjugate: minus what its memory holds."""

    def __init__(self, array: np.ndarray[Any, Any], bit: str) -> None:
        self._array, self._bit = array, bit
        self.shape, self.dtype, self.ndim = array.shape, array.dtype, array.ndim

    def is_neg(self) -> bool:
        return self._bit == "neg"

    def is_conj(self) -> bool:
        return self._bit == "conj"

    def __dlpack__(self, **keywords: Any) -> Any:
        return self._array.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


definition = dlprim.define("def f(float(N,C) x) -> (y) { y(n,c) = x(n,c) * 2 }").f
CALLS: dict[str, tuple[np.ndarray[Any, Any], Callable[[Any], Any]]] = {
    "relu": (X, dlprim.relu),
    "sigmoid": (X, dlprim.sigmoid),
    "softmax": (X, dlprim.softmax),
    "layer_norm": (X, dlprim.layer_norm),
    "reduce_sum": (X, dlprim.reduce_sum),
    "linear": (X, lambda it: dlprim.linear(X, it)),
    "matmul": (X, lambda it: dlprim.matmul(X, it)),
    "einsum": (X, lambda it: dlprim.einsum("ij,jk->ik", X, it)),
    "contract": (X, lambda it: dlprim.contract("y(i,j) +=! a(i,k) * b(k,j)", X, it)),
    "definition": (X, definition),
    "concat": (X, lambda it: dlprim.concat([X, it])),
    "mse_loss": (X, lambda it: dlprim.mse_loss(X, it)),
    "to_bfloat16": (X, dlprim.to_bfloat16),
    "conv2d": (IMAGES, lambda it: dlprim.conv2d(it, np.ones((1, 1, 2, 2), np.float32))),
    "out": (X, lambda it: dlprim.relu(X, out=it)),
    "primitive": (X, lambda it: dlprim.Linear((4, 4), 4).pack_weights(it)),
    "layer": (X, nn.Linear(4, 4)),
    "no layer": (X, nn.ReLU()),
    "parameter": (X, nn.Parameter),
    "prediction": (X, _as_array),
}


@pytest.mark.parametrize("bit", ["neg", "conj"])
@pytest.mark.parametrize("call", CALLS)
def test_views_that_memory_does_not_tell_are_refused(call: str, bit: str) -> None:
    """They arrived with the wrong sign."""
    array, function = CALLS[call]
    function(array.copy())
    with pytest.raises(TypeError, match=rf"has its {bit} bit set|^(out|value) "):
        function(View(array, bit))


def test_views_that_are_resolved_are_taken() -> None:
    for call, (array, function) in CALLS.items():
        if call not in ("out", "parameter", "prediction"):
            function(View(array, ""))


@pytest.mark.parametrize("call", CALLS)
def test_tensors_with_the_bit_are_refused(call: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an optional peer")
    array, function = CALLS[call]
    tensor = torch.complex(torch.zeros(array.shape), torch.from_numpy(array)).conj().imag
    assert tensor.is_neg()
    with pytest.raises(TypeError, match=r"neg(ative)? bit set|^out "):
        function(tensor)
    if call not in ("out", "parameter"):
        np.testing.assert_equal(function(tensor.resolve_neg()), function(-array))
