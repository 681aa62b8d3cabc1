"""MLP: forward and backward against float64, and against its own layers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import dlprim
from conv_reference import ACTIVATIONS, doubles
from linear_checker import slope


def activate(kind: str | None, z: np.ndarray) -> np.ndarray:
    if kind is None:
        return z
    return np.maximum(z, 0) if kind == "relu" else ACTIVATIONS[kind](z)


@pytest.mark.parametrize("activation", ["relu", *ACTIVATIONS])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients(dtype: str, activation: str) -> None:
    random = np.random.default_rng(0)
    sizes = [13, 70, 1, 33]
    mlp = dlprim.MLP(
        (21, sizes[0]), sizes[1:], dtype=dtype, activation=activation, final_activation="tanh"
    )
    x, dy = random.standard_normal((2, 21, 33), np.float32)
    x = x[:, :13]
    weights = [
        random.standard_normal((k, c), np.float32) / np.sqrt(np.float32(c))
        for c, k in pairwise(sizes)
    ]
    biases = [random.standard_normal(k, np.float32) for k in sizes[1:]]
    if dtype == "bfloat16":
        x, dy, *weights = (dlprim.to_bfloat16(each) for each in (x, dy, *weights))
    packed = mlp.pack_weights(weights)
    src = mlp.pack_src(x)
    dst, saved = mlp.forward(src, packed, biases, training=True)
    gradients = mlp.backward(mlp.pack_diff_dst(dy), saved, packed)

    kinds = [activation, activation, "tanh"]
    layers, value = [], doubles(x)
    for w, b, kind in zip(weights, biases, kinds, strict=True):
        z = value @ doubles(w).T + b
        layers.append((value, z))
        value = activate(kind, z)
    tolerance = 1e-5 if dtype == "float32" else 4e-2

    def close(actual: np.ndarray, expected: np.ndarray) -> None:
        limit = tolerance * max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(doubles(actual), expected, rtol=0, atol=limit)

    close(mlp.unpack_dst(dst), value)
    close(mlp.unpack_dst(mlp.forward(src, packed, biases)), value)
    diff = doubles(dy)
    dws = mlp.unpack_diff_weights(gradients.diff_weights)
    for number in (2, 1, 0):
        before, z = layers[number]
        diff = diff * slope(kinds[number], z)
        close(dws[number], diff.T @ before)
        close(gradients.diff_biases[number], diff.sum(0))
        diff = diff @ doubles(weights[number])
    close(mlp.unpack_diff_src(gradients.diff_src), diff)
    assert mlp.backward(mlp.pack_diff_dst(dy), saved, packed, needs_diff_src=False).diff_src is None


def test_wrong_numbers_of_layers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^widths is empty"):
        dlprim.MLP((3, 4), [])
    mlp = dlprim.MLP((3, 4), [5, 6])
    assert mlp.flops == 2 * 3 * (4 * 5 + 5 * 6)
    with pytest.raises(ValueError, match=r"^weights has 0 entries, expected 2"):
        mlp.forward(mlp.pack_src(np.zeros((3, 4), np.float32)), [], [])
