"""Weights of few bits, experts, crops, distances and the like of com.microsoft; what is refused."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from drawing import RNG

pytestmark = pytest.mark.any_level

pytest.importorskip("onnx.numpy_helper", reason="onnx makes the models that are read here")
one: Any = import_module("one_node")
plain: Any = import_module("test_onnx_microsoft")
onnx: Any = import_module("dlprim.onnx")
f, run, close = plain.f, plain.run, plain.close


def packed(numbers: np.ndarray, bits: int) -> np.ndarray:
    """Numbers along the last axis in bytes, the low bits first."""
    lines = (numbers[..., None] >> np.arange(bits)) & 1
    flat = lines.reshape(*numbers.shape[:-1], -1).astype(np.uint8)
    return np.packbits(flat, axis=-1, bitorder="little")


# ---------------------------------------------------------------- few bits


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 8])
@pytest.mark.parametrize(("inner", "block"), [(64, 32), (100, 16), (768, 128)])
@pytest.mark.parametrize("points", ["none", "packed", "floats"])
def test_products_with_weights_of_few_bits(bits: int, inner: int, block: int, points: str) -> None:
    rows, blocks = 24, -(-inner // block)
    numbers = RNG.integers(0, 1 << bits, (rows, blocks, block))
    scales, x, bias = np.abs(f(rows, blocks)) / 8, f(3, 5, inner), f(rows)
    zeros = np.full((rows, blocks), 1 << (bits - 1))
    given = None
    if points == "packed":
        zeros = RNG.integers(0, 1 << bits, (rows, blocks))
        given = packed(zeros, bits)
    if points == "floats":
        zeros = given = f(rows, blocks)
    weights = ((numbers - zeros[..., None]) * scales[..., None]).reshape(rows, -1)[:, :inner]
    arrays = [x, packed(numbers, bits), scales, given, None, bias]
    due = x.astype(float) @ weights.T.astype(float) + bias
    attributes = {"K": inner, "N": rows, "bits": bits, "block_size": block}
    for constants in ((1, 2, 3, 5), ()):
        close(run("MatMulNBits", arrays, constants, **attributes)[0], due)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("has_points", [False, True])
@pytest.mark.parametrize(("inner", "block"), [(64, 32), (200, 128)])
def test_products_where_x_may_be_rounded(
    bits: int, has_points: bool, inner: int, block: int
) -> None:
    rows, blocks = 70, -(-inner // block)
    numbers = RNG.integers(0, 1 << bits, (rows, blocks, block))
    scales, x, bias = np.abs(f(rows, blocks)) / 8, f(3, 5, inner), f(rows)
    zeros = np.full((rows, blocks), 1 << (bits - 1))
    if has_points:
        zeros = RNG.integers(0, 1 << bits, (rows, blocks))
    weights = ((numbers - zeros[..., None]) * scales[..., None]).reshape(rows, -1)[:, :inner]
    given = packed(zeros, bits) if has_points else None
    arrays = [x, packed(numbers, bits), scales, given, None, bias]
    due = x.astype(float) @ weights.T.astype(float) + bias
    attributes = {"K": inner, "N": rows, "bits": bits, "block_size": block, "accuracy_level": 4}
    close(run("MatMulNBits", arrays, (1, 2, 3, 5), **attributes)[0], due, 2e-4)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("has_points", [False, True])
def test_rows_of_tables_of_few_bits(bits: int, has_points: bool) -> None:
    rows, width, block = 40, 96, 32
    numbers = RNG.integers(0, 1 << bits, (rows, width))
    scales = np.abs(f(rows, width // block))
    zeros = np.full(scales.shape, 1 << (bits - 1))
    if has_points:
        zeros = RNG.integers(0, 1 << bits, scales.shape)
    table = (numbers - zeros.repeat(block, 1)) * scales.repeat(block, 1)
    places = RNG.integers(0, rows, (2, 3))
    arrays = [packed(numbers, bits), places, scales, packed(zeros, bits) if has_points else None]
    (y,) = run("GatherBlockQuantized", arrays, (0, 2, 3), bits=bits, block_size=block)
    close(y, table[places])


def test_tables_of_four_bits_with_a_type_of_their_own() -> None:
    """Blocks along the first axis, the last of them not whole, places along the second."""
    numbers, zeros = RNG.integers(-8, 8, (40, 3, 5)), RNG.integers(-8, 8, (3, 3, 5))
    scales, places = np.abs(f(3, 3, 5)), np.array([2, 0])
    bits = import_module("ml_dtypes").int4
    spread = [it.repeat(16, 0)[:40] for it in (zeros, scales)]
    table = (numbers - spread[0]) * spread[1]
    arrays = [numbers.astype(bits), places, scales, zeros.astype(bits)]
    attributes = {"block_size": 16, "gather_axis": 1, "quantize_axis": 0}
    (y,) = run("GatherBlockQuantized", arrays, (0, 2, 3), **attributes)
    close(y, table[:, places])


# ---------------------------------------------------------------- experts

GATES: dict[str, Any] = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": plain.gelu,
    "silu": lambda x: x * plain.sigmoid(x),
    "identity": lambda x: x,
}


@pytest.mark.parametrize("name", [*GATES, "swiglu 1", "swiglu 2", "swiglu fc3"])
@pytest.mark.parametrize(("k", "is_normalized"), [(1, 0), (2, 0), (2, 1)])
def test_mixtures_of_experts(name: str, k: int, is_normalized: int) -> None:
    rows, experts, width, inner = 6, 5, 16, 24
    fused = 2 if name in ("swiglu 1", "swiglu 2") else 1
    x, logits = f(2, 3, width), f(rows, experts)
    w1, b1 = f(experts, fused * inner, width), f(experts, fused * inner)
    w2, b2 = f(experts, width, inner), f(experts, width)
    w3 = f(experts, inner, width) if name == "swiglu fc3" else None
    attributes: dict[str, Any] = {"activation_type": name.split()[0], "k": k}
    attributes["normalize_routing_weights"] = is_normalized
    if fused == 2:
        attributes |= {"swiglu_fusion": int(name[-1]), "activation_beta": 1.0, "swiglu_limit": 2.0}
    due = np.zeros((rows, width))
    for row, it in enumerate(x.reshape(rows, width).astype(float)):
        chances = np.exp(logits[row]) / np.exp(logits[row]).sum()
        best = np.argsort(-chances)[:k]
        for expert in best:
            y = w1[expert] @ it + b1[expert]
            if name in GATES:
                y = GATES[name](y)
            elif w3 is not None:
                y = GATES["silu"](y) * (w3[expert] @ it)
            else:
                pairs = (y[::2], y[1::2]) if name[-1] == "1" else np.split(y, 2)
                y = GATES["silu"](np.minimum(pairs[0], 2)) * (np.clip(pairs[1], -2, 2) + 1)
            share = chances[expert] / (chances[best].sum() if is_normalized else 1)
            due[row] += share * (w2[expert] @ y + b2[expert])
    arrays = [x, logits, w1, b1, w2, b2, w3]
    close(run("MoE", arrays, (2, 3, 4, 5, 6), **attributes)[0], due.reshape(x.shape), 5e-5)


@pytest.mark.parametrize("rows", [1, 13, 150])
@pytest.mark.parametrize("has_constants", [True, False])
def test_many_rows_through_few_experts(rows: int, has_constants: bool) -> None:
    experts, width, inner, k = 7, 24, 40, 2
    x, logits = f(rows, width), f(rows, experts)
    logits[:, 3] = -50  # which none of them takes
    logits[: rows // 2, 1] = 9
    w1, w2 = f(experts, inner, width), f(experts, width, inner)
    chances = np.exp(logits.astype(float))
    chances /= chances.sum(1, keepdims=True)
    least = np.sort(chances, 1)[:, -k, None]
    shares = np.where(chances >= least, chances, 0)
    y = np.maximum(np.einsum("nc,eic->eni", x.astype(float), w1), 0)
    due = np.einsum("eni,eoi,ne->no", y, w2, shares)
    constants = (2, 3, 4) if has_constants else ()
    (made,) = run("MoE", [x, logits, w1, None, w2], constants, k=k)
    close(made, due, 5e-5)


# ---------------------------------------------------------------- images


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("size", [(4, 4), (1, 5), (7, 1)])
def test_crops_are_resized(mode: str, size: tuple[int, int]) -> None:
    images, samples = f(2, 3, 8, 9), np.array([0, 1, 1, 0], np.int32)
    regions = [[0, 0, 1, 1], [0.1, 0.2, 0.8, 0.7], [-0.2, 0.5, 1.1, 0.6], [0.9, 0.8, 0.1, 0.2]]
    due = np.full((4, 3, *size), 0.5)
    for n, region in enumerate(regions):
        at = []
        for start, end, count, extent in zip(
            region[:2], region[2:], size, images.shape[2:], strict=True
        ):
            middle = [(start + end) / 2]
            line = np.array(middle) if count == 1 else np.linspace(start, end, count)
            at.append(line * (extent - 1))
        for p, q in np.ndindex(*size):
            y, x = at[0][p], at[1][q]
            if not (0 <= y <= 7 and 0 <= x <= 8):
                continue
            if mode == "nearest":
                due[n, :, p, q] = images[samples[n], :, int(y + 0.5), int(x + 0.5)]
                continue
            low, left = min(int(y), 6), min(int(x), 7)
            pixels = images[samples[n], :, low : low + 2, left : left + 2].astype(float)
            shares = np.outer([1 - (y - low), y - low], [1 - (x - left), x - left])
            due[n, :, p, q] = (pixels * shares).sum((1, 2))
    arrays = [images, np.array(regions, np.float32), samples, np.array(size, np.int32)]
    (y,) = run("CropAndResize", arrays, (3,), mode=mode, extrapolation_value=0.5)
    close(y, due)


def test_pooling_of_channels_that_come_last() -> None:
    x = RNG.integers(0, 256, (1, 9, 8, 4)).astype(np.uint8)
    attributes = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    (y,) = run("NhwcMaxPool", [x], like=[x], **attributes)
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))[:, ::2, ::2]
    np.testing.assert_array_equal(y, taps.max((4, 5)))


# ---------------------------------------------------------------- arrays


def test_distances_and_inverses() -> None:
    a, b = f(40, 30), f(50, 30)
    squares = ((a[:, None].astype(float) - b) ** 2).sum(2)
    close(run("CDist", [a, b])[0], squares)
    close(run("CDist", [a, b], metric="euclidean")[0], np.sqrt(squares))
    x = f(3, 2, 5, 5) + 3 * np.eye(5, dtype=np.float32)
    close(run("Inverse", [x])[0] @ x, np.broadcast_to(np.eye(5), x.shape))
    x[1, 1] = 0
    y = run("Inverse", [x])[0]
    assert np.isnan(y[1, 1]).all()
    assert np.isfinite(y[0]).all()


def test_what_onnx_has_otherwise() -> None:
    x, whole = f(3, 4), [np.zeros(0, np.int64)]
    assert run("ExpandDims", [x, np.array(-2, np.int32)], (1,))[0].shape == (3, 1, 4)
    np.testing.assert_array_equal(run("Trilu", [x, np.array(1)], (1,))[0], np.triu(x, 1))
    arrays = [x, np.array([[0, 1, 2, 0]]), np.ones(1, np.float32)]
    padded = np.pad(x, ((0, 2), (1, 0)), constant_values=1)
    np.testing.assert_array_equal(run("Pad", arrays, (1,))[0], padded)
    ends = [np.array(2), np.array(9), np.array(3)]
    np.testing.assert_array_equal(run("Range", ends, (0, 1, 2), whole)[0], [2, 5, 8])
    np.testing.assert_array_equal(run("Range", ends[:2], (0, 1), whole)[0], np.arange(2, 9))
    np.testing.assert_array_equal(run("GatherND", [x, np.array([[2, 1]])])[0], [x[2, 1]])
    listed = np.array([2, 1, 1, 3, 4, 3], np.float32)
    found = run("Unique", [listed], (0,), [listed, *whole * 2])
    for y, due in zip(found, ([2, 1, 3, 4], [0, 1, 1, 2, 3, 2], [1, 2, 2, 1]), strict=True):
        np.testing.assert_array_equal(y, due)
    spectrum = run("Rfft", [x], signal_ndim=1)[0]
    close(spectrum[..., 0] + 1j * spectrum[..., 1], np.fft.rfft(x))
    close(run("Irfft", [spectrum], signal_ndim=1)[0], x)


def test_tokens_that_would_repeat_a_run_are_blocked() -> None:
    tokens, scores = np.array([[1, 2, 3, 1, 2], [0, 1, 0, 1, 0]]), f(2, 6)
    (y,) = run("NGramRepeatBlock", [tokens, scores], like=[scores], ngram_size=3)
    due = scores.copy()
    due[0, 3] = due[1, 1] = -np.inf
    np.testing.assert_array_equal(y, due)


def test_hashes() -> None:
    """Of 4 zeros without a seed, and with seed 1: values that MurmurHash3's own tests have."""
    like = [np.zeros(0, np.uint32)]
    x = np.zeros(1, np.int32)
    assert run("MurmurHash3", [x], like=like)[0].item() == 0x2362F9DE
    x = np.array([0x87654321], np.uint32).view(np.int32)
    assert run("MurmurHash3", [x], like=like)[0].item() == 0xF55B516B
    assert run("MurmurHash3", [x], like=like, seed=0x5082EDEE)[0].item() == 0x2362F9DE


# ---------------------------------------------------------------- refusals

REFUSED: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "expected one of Celu": ("FusedGemm", [f(2, 3), f(3, 4)], {"activation": "Sin"}),
    "which it does not have": (
        "FusedGemm", [f(2, 3), f(3, 4)], {"activation": "Relu", "activation_alpha": 1.0}),
    "expected 2 to 8 bits": (
        "MatMulNBits", [f(2, 64), np.zeros((4, 2, 36), np.uint8), f(4, 2)],
        {"K": 64, "N": 4, "bits": 9, "block_size": 32}),
    "expected 1 or 2": (
        "MoE", [f(2, 4), f(2, 3), f(3, 8, 4), None, f(3, 4, 8)], {"activation_type": "swiglu"}),
    "expected euclidean or sqeuclidean": ("CDist", [f(2, 3), f(4, 3)], {"metric": "cosine"}),
    "expected square matrices": ("Inverse", [f(2, 3)], {}),
    "to search for tokens": ("GreedySearch", [f(2, 3)], {}),
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
def test_what_does_not_fit_is_refused(words: str) -> None:
    op, arrays, attributes = REFUSED[words]
    with pytest.raises(ValueError, match=words):
        run(op, arrays, **attributes)


def test_the_layout_of_one_cpu_is_refused_with_a_way_out() -> None:
    case = one.Case("ReorderInput", [f(1, 16, 4, 4)], {}, domain="com.microsoft.nchwc")
    with pytest.raises(ValueError, match="optimisation level up to 'extended'"):
        one.by_dlprim(case)
