"""What ONNX Runtime's quantiser writes besides products: LSTM layers, elements, what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import pytest

from drawing import RNG

pytest.importorskip("onnx.reference", reason="onnx makes the models that are read here")
one: Any = import_module("one_node")

pytestmark = pytest.mark.any_level
MICROSOFT = one.MICROSOFT


def f(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def of_type(dtype: Any, *shape: int) -> np.ndarray:
    whole = np.iinfo(dtype)
    return RNG.integers(whole.min, whole.max + 1, shape).astype(dtype)


# ---------------------------------------------------------------- LSTM


class Weights(NamedTuple):
    """(directions, columns, gates) in 8 bits, with scales and zero points."""

    q: np.ndarray
    scale: np.ndarray
    zero: np.ndarray

    @property
    def floats(self) -> np.ndarray:
        spread = (len(self.q), 1, -1)
        centred = self.q.astype(np.float64) - self.zero.astype(np.float64).reshape(spread)
        return centred * self.scale.astype(np.float64).reshape(spread)


def weights(shape: tuple[int, int, int], dtype: Any, is_listed: bool) -> Weights:
    """Scales for each column of gates or for each direction; of the size of trained ones."""
    directions, _, gates = shape
    hidden = gates // 4
    listed = (directions, gates) if is_listed else (directions,)
    scale = RNG.uniform(0.5, 1, listed).astype(np.float32) / np.float32(80 * math.sqrt(hidden))
    middle = 128 if dtype == np.uint8 else 0
    zero = np.full(listed, middle, dtype)
    return Weights((RNG.integers(-90, 91, shape) + middle).astype(dtype), scale, zero)


def rounded(x: np.ndarray) -> np.ndarray:
    """What is left of an array in 256 steps from its least to its greatest element, and zero."""
    low, high = min(0, x.min()), max(0, x.max())
    step = np.float32((high - low) / 255) or np.float32(1)
    zero = np.clip(np.rint(-low / step), 0, 255)
    return (np.clip(np.rint(x / step) + zero, 0, 255) - zero) * step


def same(x: np.ndarray) -> np.ndarray:
    return x


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def lstm(
    x: np.ndarray, layer: tuple[Weights, Weights, np.ndarray], round_: Callable[..., np.ndarray]
) -> np.ndarray:
    """Y in float64; of activations what rounding leaves of them."""
    w, r, bias = layer
    steps, samples, _ = x.shape
    directions, hidden, _ = r.q.shape
    y = np.zeros((steps, directions, samples, hidden))
    for place in range(directions):
        gates = round_(x.astype(np.float64)) @ w.floats[place]
        gates = gates + bias[place].reshape(2, -1).sum(0)
        h, c = np.zeros((2, samples, hidden))
        for step in range(steps)[:: -1 if place else 1]:
            i, o, forget, g = np.split(gates[step] + round_(h) @ r.floats[place], 4, axis=1)
            c = sigmoid(forget) * c + sigmoid(i) * np.tanh(g)
            h = y[step, place] = sigmoid(o) * np.tanh(c)
    return y


def run_lstm(
    x: np.ndarray, layer: tuple[Weights, Weights, np.ndarray], **attributes: Any
) -> list[np.ndarray]:
    w, r, bias = layer
    arrays = [x, w.q, r.q, bias, None, None, None, None, *w[1:], *r[1:]]
    named = {"hidden_size": r.q.shape[1], **attributes}
    places = [place for place in range(1, len(arrays)) if arrays[place] is not None]
    case = one.Case("DynamicQuantizeLSTM", arrays, named, 17, MICROSOFT, places, 3)
    return list(one.by_dlprim(case, [x] * 3))


@pytest.mark.parametrize("is_listed", [False, True])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize(
    ("steps", "samples", "channels", "hidden", "directions"),
    [
        (20, 1, 138, 25, 1),
        (9, 3, 64, 128, 2),
        (6, 2, 300, 300, 1),
        (5, 1, 768, 256, 2),
        (1, 2, 5, 256, 1),
    ],
)
def test_lstm_is_as_near_as_rounding_activations_leaves_it(
    dtype: Any,
    is_listed: bool,
    steps: int,
    samples: int,
    channels: int,
    hidden: int,
    directions: int,
) -> None:
    x = f(steps, samples, channels)
    w, r = (weights((directions, it, 4 * hidden), dtype, is_listed) for it in (channels, hidden))
    layer = (w, r, f(directions, 8 * hidden) / np.float32(math.sqrt(hidden)))
    direction = "bidirectional" if directions == 2 else "forward"
    y, h, _ = run_lstm(x, layer, direction=direction)
    right, coarse = lstm(x, layer, same), lstm(x, layer, rounded)
    bound = np.abs(coarse - right).max()
    assert bound < 0.05
    assert np.abs(y - right).max() <= 1.5 * bound + 1e-6
    # A hidden state between two steps may round to either.
    assert np.abs(y - coarse).max() <= bound + 1e-6
    ends = [y[-1 if place == 0 else 0, place] for place in range(directions)]
    np.testing.assert_array_equal(h, ends)


@pytest.mark.parametrize("hidden", [25, 256])
def test_lstm_begins_with_states_and_runs_backwards(hidden: int) -> None:
    w, r = (weights((1, it, 4 * hidden), np.int8, False) for it in (40, hidden))
    bias = np.zeros((1, 8 * hidden), np.float32)
    x = f(12, 2, 40)
    whole = run_lstm(x, (w, r, bias), direction="reverse")
    behind = run_lstm(x[6:], (w, r, bias), direction="reverse")
    arrays = [x[:6], w.q, r.q, bias, None, *behind[1:], None, *w[1:], *r[1:]]
    places = [1, 2, 3, 8, 9, 10, 11]
    named = {"hidden_size": hidden, "direction": "reverse"}
    case = one.Case("DynamicQuantizeLSTM", arrays, named, 17, MICROSOFT, places, 3)
    front = one.by_dlprim(case, [x] * 3)
    # The input is quantised in ranges of its own.
    for a, b in zip(front[1:], whole[1:], strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=0.02)


def test_lstm_in_other_forms_is_one_of_floats() -> None:
    w, r = (weights((1, it, 32), np.int8, False) for it in (5, 8))
    layer = (w, r, f(1, 64))
    x = f(4, 2, 5)
    y = run_lstm(x, layer, activations=["Sigmoid", "Tanh", "Tanh"])[0]
    np.testing.assert_allclose(y, lstm(x, layer, same), rtol=0, atol=1e-5)


def test_lstm_of_sequences_without_steps() -> None:
    w, r = (weights((1, it, 1024), np.int8, False) for it in (5, 256))
    y, h, c = run_lstm(f(0, 2, 5), (w, r, f(1, 2048)))
    assert y.shape == (0, 1, 2, 256)
    assert not h.any()
    assert not c.any()


@pytest.mark.parametrize(
    ("name", "place", "shape"),
    [("W", 1, (1, 6, 32)), ("B", 3, (1, 63)), ("initial_h", 5, (1, 3, 8))],
)
def test_lstm_of_other_shapes_is_refused(name: str, place: int, shape: tuple[int, ...]) -> None:
    w, r = (weights((1, it, 32), np.int8, False) for it in (5, 8))
    arrays = [f(4, 2, 5), w.q, r.q, f(1, 64), None, f(1, 2, 8), None, None, *w[1:], *r[1:]]
    arrays[place] = np.zeros(shape, arrays[place].dtype)
    case = one.Case("DynamicQuantizeLSTM", arrays, {}, 17, MICROSOFT, [1, 2], 3)
    with pytest.raises(ValueError, match=rf"{name} of \[{', '.join(map(str, shape))}\], expected"):
        one.by_dlprim(case, [arrays[0]] * 3)


def test_lstm_with_scales_of_other_counts_is_refused() -> None:
    w, r = (weights((1, it, 32), np.int8, False) for it in (5, 8))
    wrong = w._replace(scale=np.ones(3, np.float32))
    with pytest.raises(ValueError, match=r"of W of \[3\], expected \[1\] or \[1, 32\]"):
        run_lstm(f(4, 2, 5), (wrong, r, f(1, 64)))


# ---------------------------------------------------------------- elements

_A, _B, _Y = (np.float32(0.02), 120), (np.float32(0.03), 100), (np.float32(0.05), 128)


def operands(dtype: Any, *pairs: tuple[Any, int]) -> list[np.ndarray]:
    """Scales and zero points, of int8 128 less."""
    less = 0 if dtype == np.uint8 else 128
    return [it for scale, zero in pairs for it in (np.array(scale), np.array(zero - less, dtype))]


def meant(q: np.ndarray, pair: tuple[Any, int]) -> np.ndarray:
    zero = pair[1] - (0 if q.dtype == np.uint8 else 128)
    return (q.astype(np.float64) - zero) * np.float64(pair[0])


def require_rounded(result: np.ndarray, right: np.ndarray) -> None:
    """Of the floats that it stands for: the nearest step, or the one beside it next to a half."""
    scale, zero = _Y
    less, whole = 0 if result.dtype == np.uint8 else 128, np.iinfo(result.dtype)
    exact = np.clip(right / np.float64(scale) + zero - less, whole.min, whole.max)
    assert np.abs(result - exact).max() <= 0.5 + 1e-3


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_where_chooses_between_bytes_of_two_scales(dtype: Any) -> None:
    a, b, condition = of_type(dtype, 3, 300), of_type(dtype, 300), RNG.random((3, 1)) > 0.5
    one_, two, end = (operands(dtype, it) for it in (_A, _B, _Y))
    case = one.Case(
        "QLinearWhere",
        [condition, a, *one_, b, *two, *end],
        {},
        17,
        MICROSOFT,
        [2, 3, 5, 6, 7, 8],
    )
    (result,) = one.by_dlprim(case, [a])
    require_rounded(result, np.where(condition, meant(a, _A), meant(b, _B)))


@pytest.mark.parametrize(("axes", "keepdims"), [((2, 3), 1), ((1,), 0), ((-1,), 1), (None, 0)])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_mean_of_bytes(dtype: Any, axes: Any, keepdims: int) -> None:
    x = of_type(dtype, 2, 5, 7, 9)
    attributes = {"keepdims": keepdims} | ({} if axes is None else {"axes": axes})
    arrays = [x, *operands(dtype, _A, _Y)]
    case = one.Case("QLinearReduceMean", arrays, attributes, 17, MICROSOFT, [1, 2, 3, 4])
    (result,) = one.by_dlprim(case, [x])
    require_rounded(result, meant(x, _A).mean(axis=axes, keepdims=bool(keepdims)))


@pytest.mark.parametrize("name", ["QLinearGlobalAveragePool", "QLinearAveragePool"])
def test_pools_of_images_with_channels_last(name: str) -> None:
    x = of_type(np.uint8, 2, 6, 7, 5)
    attributes = {"channels_last": 1} | ({} if "Global" in name else {"kernel_shape": [6, 7]})
    arrays = [x, *operands(np.uint8, _A, _Y)]
    case = one.Case(name, arrays, attributes, 17, MICROSOFT, [1, 2, 3, 4])
    (result,) = one.by_dlprim(case, [x])
    require_rounded(result, meant(x, _A).mean(axis=(1, 2), keepdims=True))


def test_zero_points_in_front_of_others_may_be_left_out() -> None:
    a, b = of_type(np.uint8, 4, 8), of_type(np.uint8, 4, 8)
    arrays = [a, np.array(_A[0]), None, b, np.array(_B[0]), None, *operands(np.uint8, _Y)]
    case = one.Case("QLinearAdd", arrays, {}, 17, MICROSOFT, [1, 4, 6, 7])
    (result,) = one.by_dlprim(case, [a])
    require_rounded(result, meant(a, (_A[0], 0)) + meant(b, (_B[0], 0)))


def test_products_of_16_bits_have_32() -> None:
    a, b = of_type(np.int16, 3, 40), of_type(np.int16, 40, 5)
    case = one.Case("MatMulInteger16", [a, b], {}, 17, MICROSOFT, [1])
    right = (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)
    np.testing.assert_array_equal(one.by_dlprim(case, [right])[0], right)


@pytest.mark.parametrize("name", ["QOrderedMatMul", "QOrderedAttention", "QuantizeWithOrder"])
def test_layouts_of_one_device_are_refused_by_name(name: str) -> None:
    case = one.Case(name, [f(2, 2)], {}, 17, MICROSOFT)
    with pytest.raises(ValueError, match=rf"{name}.*: its arrays lie in tiles of NVIDIA's"):
        one.by_dlprim(case)


# ---------------------------------------------------------------- attention and embeddings


def attended(x: np.ndarray, w: np.ndarray, bias: np.ndarray, heads: int) -> np.ndarray:
    """Self-attention of (N, S, C) in float64."""
    samples, rows, _ = x.shape
    parts = np.split(x @ w + bias, 3, axis=2)
    q, k, v = (it.reshape(samples, rows, heads, -1).swapaxes(1, 2) for it in parts)
    scores = q @ k.swapaxes(2, 3) / math.sqrt(q.shape[3])
    power = np.exp(scores - scores.max(-1, keepdims=True))
    y = power / power.sum(-1, keepdims=True) @ v
    return y.swapaxes(1, 2).reshape(samples, rows, -1)


@pytest.mark.parametrize(("dtype", "zero"), [(np.int8, 0), (np.uint8, 128), (np.uint8, 117)])
@pytest.mark.parametrize("width", [8, 300, 768])
def test_attention_projects_bytes(dtype: Any, zero: int, width: int) -> None:
    x, w, bias = of_type(np.uint8, 2, 5, width), of_type(dtype, width, 3 * 24), f(72)
    scales = [np.float32(0.02), RNG.uniform(1e-4, 1e-3, 72).astype(np.float32)]
    zeros = [np.array(128, np.uint8), np.full(72, zero, dtype)]
    arrays = [x, w, bias, *scales, None, *zeros]
    places = [1, 2, 3, 4, 6, 7]
    case = one.Case("QAttention", arrays, {"num_heads": 3}, 17, MICROSOFT, places)
    (y,) = one.by_dlprim(case, [bias])
    floats = (x - 128.0) * np.float64(scales[0]), (w - float(zero)) * scales[1].astype(np.float64)
    right = attended(*floats, bias, 3)
    np.testing.assert_allclose(y, right, rtol=0, atol=2e-5 * np.abs(right).max())


@pytest.mark.parametrize("has_segments", [False, True])
def test_embeddings_of_bytes_are_normalised(has_segments: bool) -> None:
    width = 48
    tables = [
        of_type(np.uint8, *s) for s in ((50, width), (16, width), (2, width), (width,), (width,))
    ]
    scales = [np.float32(0.01 + 0.001 * it) for it in range(5)]
    zeros = [np.uint8(120 + it) for it in range(5)]
    words, segments = RNG.integers(0, 50, (2, 7)), RNG.integers(0, 2, (2, 7))
    mask = np.array([[1] * 7, [1] * 4 + [0] * 3], np.int32)
    arrays: list[Any] = [words.astype(np.int32), segments.astype(np.int32), *tables, mask]
    arrays += [*(np.array(it) for it in scales), *(np.array(it) for it in zeros)]
    if not has_segments:
        for place in (1, 4, 10, 15):
            arrays[place] = None
    constants = [it for it in range(2, 18) if it != 7]
    case = one.Case("QEmbedLayerNormalization", arrays, {}, 17, MICROSOFT, constants, 2)
    y, counts = one.by_dlprim(case, [np.float32(0), mask])
    floats = [
        (table - np.float64(zero)) * np.float64(scale)
        for table, scale, zero in zip(tables, scales, zeros, strict=True)
    ]
    total = floats[0][words] + floats[1][:7] + (floats[2][segments] if has_segments else 0)
    centred = total - total.mean(-1, keepdims=True)
    right = centred / np.sqrt((centred**2).mean(-1, keepdims=True)) * floats[3] + floats[4]
    np.testing.assert_allclose(y, right, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(counts, [7, 4])
