"""Operators of com.microsoft around products, norms and elements, by their meaning in float64."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from drawing import RNG

pytestmark = pytest.mark.any_level

pytest.importorskip("onnx.numpy_helper", reason="onnx makes the models that are read here")
one: Any = import_module("one_node")
onnx: Any = import_module("dlprim.onnx")


def f(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def run(
    op: str, arrays: list[Any], constants: tuple[int, ...] = (), like: Any = None, **attributes: Any
) -> list[np.ndarray]:
    """The outputs; as many as there are arrays in ``like``, of float32 unless it says else."""
    outputs = [np.zeros(0, np.float32)] if like is None else like
    domain = one.MICROSOFT
    made = one.Case(op, arrays, attributes, 17, domain, constants, len(outputs))
    results: list[np.ndarray] = one.by_dlprim(made, outputs)
    return results


def close(found: np.ndarray, due: np.ndarray, tolerance: float = 2e-5) -> None:
    assert found.shape == due.shape
    scale = max(1.0, float(np.abs(due).max(initial=0)))
    np.testing.assert_allclose(found, due, rtol=tolerance, atol=tolerance * scale)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x.astype(float))))


def gelu(x: np.ndarray) -> np.ndarray:
    erf = np.vectorize(math.erf, otypes=[float])
    return np.asarray(x * (1 + erf(x.astype(float) / math.sqrt(2))) / 2)


# ---------------------------------------------------------------- products and convolutions

ACTIVATIONS: dict[str, tuple[dict[str, float], Any]] = {
    "Relu": ({}, lambda x: np.maximum(x, 0)),
    "Sigmoid": ({}, sigmoid),
    "Tanh": ({}, np.tanh),
    "LeakyRelu": ({"alpha": 0.1}, lambda x: np.where(x < 0, 0.1 * x, x)),
    "HardSigmoid": ({"alpha": 0.3, "beta": 0.4}, lambda x: np.clip(0.3 * x + 0.4, 0, 1)),
    "Elu": ({"alpha": 0.5}, lambda x: np.where(x > 0, x, 0.5 * np.expm1(x))),
    "Clip": ({"min": -0.5, "max": 0.7}, lambda x: np.clip(x, -0.5, 0.7)),
}


def convolved(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    """By 3 x 3 filters with padding of 1."""
    padded = np.pad(x.astype(float), ((0, 0), (0, 0), (1, 1), (1, 1)))
    taps = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return np.einsum("ncpqrs,kcrs->nkpq", taps, w) + b.reshape(1, -1, 1, 1)


@pytest.mark.parametrize("has_summand", [False, True])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_fused_convolution(name: str, has_summand: bool) -> None:
    parameters, activation = ACTIVATIONS[name]
    x, w, b = f(1, 8, 7, 9), f(6, 8, 3, 3) / np.float32(8), f(6)
    z = f(1, 6, 7, 9) if has_summand else None
    attributes: dict[str, Any] = {"activation": name, "pads": [1, 1, 1, 1]}
    if parameters:
        attributes["activation_params"] = list(parameters.values())
    (y,) = run("FusedConv", [x, w, b, z], (1, 2), **attributes)
    close(y, activation(convolved(x, w, b) + (0 if z is None else z)))


@pytest.mark.parametrize("op", ["FusedGemm", "FusedMatMulActivation"])
@pytest.mark.parametrize("name", [it for it in ACTIVATIONS if it != "Clip"])
def test_fused_products(op: str, name: str) -> None:
    parameters, activation = ACTIVATIONS[name]
    attributes: dict[str, Any] = {f"activation_{key}": it for key, it in parameters.items()}
    attributes |= {"activation": name, "transA": 1, "transB": 1, "alpha": 0.5}
    a, b, c = f(48, 5), f(40, 48), f(40)
    product = 0.5 * (a.T.astype(float) @ b.T)
    if op == "FusedGemm":
        (y,) = run(op, [a, b, c], (1, 2), beta=2.0, **attributes)
        product = product + 2 * c
    else:
        (y,) = run(op, [a, b], (1,), **attributes)
    close(y, activation(product))


@pytest.mark.parametrize("turned", range(16))
def test_fused_matmul_of_every_order(turned: int) -> None:
    """The axis of samples may come behind that of rows, and the last two be exchanged."""
    flags = [turned >> bit & 1 for bit in range(4)]
    a, b = f(3, 5, 7), f(3, 7, 6)
    due = 0.5 * (a.astype(float) @ b)
    given = []
    for array, is_last, is_batch in ((a, *flags[:2]), (b, *flags[2:])):
        array = array.swapaxes(1, 2) if is_last else array
        given.append(np.ascontiguousarray(array.transpose(1, 0, 2) if is_batch else array))
    names = ("transA", "transBatchA", "transB", "transBatchB")
    (y,) = run("FusedMatMul", given, alpha=0.5, **dict(zip(names, flags, strict=True)))
    close(y, due)


def test_softmax_behind_a_product() -> None:
    a, b = f(2, 3, 4), f(4, 5)
    (y,) = run("FusedMatMulActivation", [a, b], activation="Softmax", activation_axis=1)
    powers = np.exp(a.astype(float) @ b)
    close(y, powers / powers.sum(1, keepdims=True))


# ---------------------------------------------------------------- norms


def normal(x: np.ndarray, gamma: Any, beta: Any, epsilon: float, rms: bool = False) -> np.ndarray:
    x = x.astype(float)
    away = x if rms else x - x.mean(-1, keepdims=True)
    return np.asarray(away / np.sqrt((away**2).mean(-1, keepdims=True) + epsilon) * gamma + beta)


@pytest.mark.parametrize("width", [8, 768])
@pytest.mark.parametrize("rms", [False, True])
@pytest.mark.parametrize("lead", [(2, 5), (1, 5), (5,)])
def test_norms_of_sums(width: int, rms: bool, lead: tuple[int, ...]) -> None:
    x, skip, bias, gamma = f(2, 5, width), f(*lead, width), f(width), f(width)
    beta = None if rms else f(width)
    op = "SkipSimplifiedLayerNormalization" if rms else "SkipLayerNormalization"
    arrays = [x, skip, gamma, *([] if rms else [beta]), bias]
    like = [np.zeros(0, np.float32)] * 4
    y, mean, root, total = run(op, arrays, like=like, epsilon=1e-5)
    wide = x.astype(float) + skip + bias
    close(total, wide)
    close(y, normal(wide, gamma, 0 if beta is None else beta, 1e-5, rms))
    close(mean, wide.mean(-1, keepdims=True))
    spread = (wide**2).mean(-1, keepdims=True) if rms else wide.var(-1, keepdims=True)
    close(root, 1 / np.sqrt(spread + 1e-5))


@pytest.mark.parametrize("opset", [11, 13, 16])
@pytest.mark.parametrize("op", ["LayerNormalization", "SimplifiedLayerNormalization"])
def test_norms_of_any_opset(op: str, opset: int) -> None:
    x, gamma = f(3, 96), f(96)
    rms = op.startswith("Simplified")
    outputs = 2 if rms else 3
    case = one.Case(op, [x, gamma], {"axis": -1, "epsilon": 1e-5}, opset, outputs=outputs)
    y, *_, root = one.by_dlprim(case, [x] * outputs)
    close(y, normal(x, gamma, 0, 1e-5, rms))
    spread = (x.astype(float) ** 2).mean(-1, keepdims=True) if rms else x.var(-1, keepdims=True)
    close(root, 1 / np.sqrt(spread + 1e-5))


@pytest.mark.parametrize("width", [8, 768])
@pytest.mark.parametrize("has_segments", [False, True])
def test_norms_of_embeddings(width: int, has_segments: bool) -> None:
    words = RNG.integers(0, 30, (2, 5)).astype(np.int32)
    segments = RNG.integers(0, 2, (2, 5)).astype(np.int32) if has_segments else None
    tables = [f(30, width), f(16, width), f(2, width) if has_segments else None]
    gamma, beta = f(width), f(width)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    like = [np.zeros(0, it) for it in (np.float32, np.int32, np.float32)]
    for at in (None, np.array([[3, 4, 5, 6, 7]], np.int32)):
        arrays = [words, segments, *tables, gamma, beta, mask, at]
        y, counts, total = run("EmbedLayerNormalization", arrays, (2, 3, 4), like)
        due = tables[0][words].astype(float) + tables[1][np.arange(5) if at is None else at[0]]
        due = due if segments is None else due + tables[2][segments]
        close(total, due)
        close(y, normal(due, gamma, beta, 1e-12))
        np.testing.assert_array_equal(counts, [3, 5])


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("op", ["GroupNorm", "SkipGroupNorm"])
def test_norms_of_groups(op: str, last: int) -> None:
    """As between the layers of a diffusion network, of 64 channels here."""
    images, gamma, beta = f(2, 64, 6, 5), f(64), f(64)
    skip, bias = f(2, 64), f(64)
    attributes = {"activation": 1, "groups": 4, "channels_last": last, "epsilon": 1e-5}
    total = images.astype(float)
    if op == "SkipGroupNorm":
        total = total + skip[:, :, None, None] + bias[None, :, None, None]
    rows = total.reshape(2, 4, -1)
    due = normal(rows, 1, 0, 1e-5).reshape(total.shape)
    due = due * gamma[None, :, None, None] + beta[None, :, None, None]
    due = due * sigmoid(due)
    axes = (0, 2, 3, 1) if last else (0, 1, 2, 3)
    arrays = [np.ascontiguousarray(images.transpose(axes)), gamma, beta]
    if op == "GroupNorm":
        (y,) = run(op, arrays, **attributes)
    else:
        like = [np.zeros(0, np.float32)] * 2
        y, summed = run(op, [*arrays, skip, bias], like=like, **attributes)
        close(summed, total.transpose(axes))
    close(y, due.transpose(axes))


# ---------------------------------------------------------------- elements


def test_activations_with_sums() -> None:
    x, b, z = f(2, 5, 320), f(320), f(2, 5, 320)
    wide = x.astype(float) + b
    close(run("BiasGelu", [x, b])[0], gelu(wide))
    close(run("Gelu", [x])[0], gelu(x))
    inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)
    close(run("FastGelu", [x, b])[0], wide / 2 * (1 + np.tanh(inner)))
    close(run("QuickGelu", [x], alpha=1.5)[0], x * sigmoid(1.5 * x))
    close(run("BiasAdd", [x, b, z])[0], wide + z)
    close(run("BiasSplitGelu", [x, b])[0], wide[..., :160] * gelu(wide[..., 160:]))
    gate, up = np.minimum(x, 1), np.clip(z, -1, 1)
    (y,) = run("SwiGLU", [x, z], activation_alpha=1.7, activation_beta=1.0, limit=1.0)
    close(y, gate * sigmoid(1.7 * gate) * (up + 1.0))


def test_softmax_of_a_sum() -> None:
    x, b = f(2, 3, 4, 5), f(2, 1, 1, 5)
    powers = np.exp((x.astype(float) + b).reshape(6, 20))
    due = (powers / powers.sum(1, keepdims=True)).reshape(x.shape)
    close(run("BiasSoftmax", [x, b], axis=2, is_inner_broadcast=1)[0], due)


def test_products_of_complex_numbers() -> None:
    a, b = f(3, 4, 2), f(3, 4, 2)
    one_number, other = a[..., 0] + 1j * a[..., 1], b[..., 0] + 1j * b[..., 1]
    for op, due in (
        ("ComplexMul", one_number * other),
        ("ComplexMulConj", one_number * other.conj()),
    ):
        close(run(op, [a, b])[0], np.stack([due.real, due.imag], -1))


@pytest.mark.parametrize("bad", [None, np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_found(bad: float | None) -> None:
    arrays = [f(3, 4), f(5)]
    if bad is not None:
        arrays[1][2] = bad
    like = [np.zeros(0, bool)]
    found = [
        run("IsAllFinite", arrays, like=like, **it)[0].item()
        for it in ({}, {"isinf_only": 1}, {"isnan_only": 1})
    ]
    is_nan, is_inf = bad is not None and np.isnan(bad), bad is not None and np.isinf(bad)
    assert found == [bad is None, not is_inf, not is_nan]
