"""Smoke tests of the recurrent primitives: every output and gradient against float64 equations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import dlprim

Arrays = dict[str, NDArray]


def sigmoid(x: NDArray) -> NDArray:
    return 1 / (1 + np.exp(-x))


class Layer:
    """One layer in float64, written from the equations; backward keeps what forward computed."""

    def __init__(self, cell: str, w: Arrays, lengths: NDArray | None, reverse: bool) -> None:
        self.cell, self.w, self.lengths, self.reverse = cell, w, lengths, reverse

    def forward(self, x: NDArray, h: NDArray, c: NDArray) -> tuple[NDArray, NDArray, NDArray]:
        steps, n, _ = x.shape
        self.x, self.y = x, np.zeros((steps, n, h.shape[1]))
        self.steps = []
        for t in reversed(range(steps)) if self.reverse else range(steps):
            valid = np.ones(n, bool) if self.lengths is None else t < self.lengths
            kept = self.step(np.where(valid[:, None], x[t], 0), h, c)
            self.steps.append((t, valid, h, c, kept))
            h = np.where(valid[:, None], kept["h"], h)
            c = np.where(valid[:, None], kept["c"], c)
            self.y[t] = np.where(valid[:, None], h, 0)
        return self.y, h, c

    def step(self, x: NDArray, h: NDArray, c: NDArray) -> Arrays:
        a = np.split(x @ self.w["w_ih"].T + self.w["b_ih"], 4 if self.cell == "lstm" else 3, 1)
        b = np.split(h @ self.w["w_hh"].T + self.w["b_hh"], 4 if self.cell == "lstm" else 3, 1)
        if self.cell == "lstm":
            i, f, o = (sigmoid(a[g] + b[g]) for g in (0, 1, 3))
            g = np.tanh(a[2] + b[2])
            c = f * c + i * g
            return {"i": i, "f": f, "g": g, "o": o, "c": c, "h": o * np.tanh(c)}
        r, z = sigmoid(a[0] + b[0]), sigmoid(a[1] + b[1])
        n = np.tanh(a[2] + r * b[2])
        return {"r": r, "z": z, "n": n, "m": b[2], "c": c, "h": (1 - z) * n + z * h}

    def backward(self, dy: NDArray, dh: NDArray, dc: NDArray) -> Arrays:
        grads = {f"diff_{name}": np.zeros_like(value) for name, value in self.w.items()}
        grads["diff_src"] = np.zeros_like(self.x)
        for t, valid, h, c, kept in reversed(self.steps):
            mask = valid[:, None]
            total = np.where(mask, dh + dy[t], 0)
            da, db, to_h, to_c = self.deltas(kept, h, c, total, np.where(mask, dc, 0))
            grads["diff_w_ih"] += da.T @ np.where(mask, self.x[t], 0)
            grads["diff_w_hh"] += db.T @ h
            grads["diff_b_ih"] += da.sum(0)
            grads["diff_b_hh"] += db.sum(0)
            grads["diff_src"][t] = da @ self.w["w_ih"]
            dh = np.where(mask, db @ self.w["w_hh"] + to_h, dh)
            dc = np.where(mask, to_c, dc)
        return {**grads, "diff_h_0": dh, "diff_c_0": dc}

    def deltas(
        self, kept: Arrays, h: NDArray, c: NDArray, dh: NDArray, dc: NDArray
    ) -> tuple[NDArray, NDArray, NDArray, NDArray]:
        if self.cell == "lstm":
            i, f, g, o = (kept[name] for name in "ifgo")
            tanh_c = np.tanh(kept["c"])
            dc = dc + dh * o * (1 - tanh_c**2)
            parts = [dc * g * i * (1 - i), dc * c * f * (1 - f), dc * i * (1 - g * g)]
            da = np.concatenate([*parts, dh * tanh_c * o * (1 - o)], 1)
            return da, da, np.zeros_like(dh), dc * f
        r, z, n, m = (kept[name] for name in "rznm")
        dn = dh * (1 - z) * (1 - n * n)
        shared = [dn * m * r * (1 - r), dh * (h - n) * z * (1 - z)]
        da, db = np.concatenate([*shared, dn], 1), np.concatenate([*shared, dn * r], 1)
        return da, db, dh * z, np.zeros_like(dh)


def operands(cell: str, extents: tuple[int, int, int, int], dtype: str) -> Arrays:
    t, n, c, k = extents
    random = np.random.default_rng(t + 10 * n + 100 * c + 1000 * k)
    gates = 4 if cell == "lstm" else 3
    shapes = {
        "x": (t, n, c), "w_ih": (gates * k, c), "w_hh": (gates * k, k), "b_ih": (gates * k,),
        "b_hh": (gates * k,), "h_0": (n, k), "c_0": (n, k), "dy": (t, n, k), "dh": (n, k),
        "dc": (n, k),
    }  # fmt: skip
    made = {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    for name in ("w_ih", "w_hh"):
        made[name] *= np.float32(1 / np.sqrt(k))
    if dtype == "bfloat16":
        for name in ("x", "w_ih", "w_hh", "h_0", "dy", "dh"):
            made[name] = dlprim.to_bfloat16(made[name])
    return made


def widened(array: NDArray) -> NDArray:
    return (array if array.dtype == np.float32 else dlprim.to_float32(array)).astype(np.float64)


def compare(name: str, result: NDArray, exact: NDArray, tolerance: float) -> None:
    error = np.abs(widened(result) - exact)
    scale = max(1.0, float(np.abs(exact).max(initial=0)))
    assert error.max(initial=0) <= tolerance * scale, name


EXTENTS = [(1, 1, 1, 1), (3, 2, 5, 17), (4, 7, 64, 64), (5, 3, 70, 100), (0, 3, 4, 5), (3, 0, 4, 5)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("with_lengths", [False, True])
@pytest.mark.parametrize("extents", EXTENTS, ids=str)
def test_every_output_and_gradient(
    cell: str, extents: tuple[int, int, int, int], reverse: bool, with_lengths: bool, dtype: str
) -> None:
    t, n, c, k = extents
    made = operands(cell, extents, dtype)
    lengths = np.random.default_rng(n).integers(0, t + 1, n) if with_lengths else None
    exact = {name: widened(value) for name, value in made.items()}
    layer = Layer(
        cell, {name: exact[name] for name in ("w_ih", "w_hh", "b_ih", "b_hh")}, lengths, reverse
    )
    y, h_n, c_n = layer.forward(exact["x"], exact["h_0"], exact["c_0"])
    gradients = layer.backward(exact["dy"], exact["dh"], exact["dc"])
    if with_lengths:  # whatever stands in padding
        padding = np.arange(t)[:, None] >= lengths
        made["x"][padding] = np.nan
        made["dy"][padding] = np.nan

    is_lstm = cell == "lstm"
    primitive = (dlprim.LSTM if is_lstm else dlprim.GRU)((t, n, c), k, dtype=dtype, reverse=reverse)
    weights = primitive.pack_weights(made["w_ih"], made["w_hh"], made["b_ih"], made["b_hh"])
    states = (made["h_0"], made["c_0"]) if is_lstm else (made["h_0"],)
    results = primitive.forward(made["x"], weights, *states, lengths=lengths, training=True)
    plain = primitive.forward(made["x"], weights, *states, lengths=lengths)
    tolerance = 2e-5 if dtype == "float32" else 4e-2
    names = ("y", "h_n", "c_n") if is_lstm else ("y", "h_n")
    for name, result, other, expected in zip(names, results, plain, (y, h_n, c_n), strict=False):
        compare(name, result, expected, tolerance)
        assert np.array_equal(result, other)
    last = {"diff_h_n": made["dh"]} | ({"diff_c_n": made["dc"]} if is_lstm else {})
    found = primitive.backward(made["dy"], results[-1], weights, **last)
    for name, result in found._asdict().items():
        compare(name, result, gradients[name], tolerance * max(1, (t * n) ** 0.5))


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_nan_stays_in_its_sequence(cell: str) -> None:
    made = operands(cell, (4, 5, 20, 33), "float32")
    primitive = (dlprim.LSTM if cell == "lstm" else dlprim.GRU)((4, 5, 20), 33)
    weights = primitive.pack_weights(made["w_ih"], made["w_hh"], made["b_ih"], made["b_hh"])
    clean = primitive.forward(made["x"], weights, made["h_0"], training=True)
    gradients = primitive.backward(made["dy"], clean[-1], weights)
    made["x"][1, 3] = np.nan
    dirty = primitive.forward(made["x"], weights, made["h_0"], training=True)
    others = [0, 1, 2, 4]
    assert np.array_equal(dirty[0][:, others], clean[0][:, others])
    assert np.isnan(dirty[0][1:, 3]).all()
    found = primitive.backward(made["dy"], dirty[-1], weights)
    assert np.array_equal(found.diff_src[:, others], gradients.diff_src[:, others])
    assert np.array_equal(found.diff_h_0[others], gradients.diff_h_0[others])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_same_bits_for_any_number_of_threads(cell: str, dtype: str) -> None:
    made = operands(cell, (3, 9, 70, 130), dtype)
    primitive = (dlprim.LSTM if cell == "lstm" else dlprim.GRU)((3, 9, 70), 130, dtype=dtype)
    weights = primitive.pack_weights(made["w_ih"], made["w_hh"], made["b_ih"], made["b_hh"])
    results = []
    for count in range(1, 9):
        with dlprim.threads(count):
            y, *_, saved = primitive.forward(made["x"], weights, training=True)
            results.append((y, *primitive.backward(made["dy"], saved, weights)))
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            assert one.tobytes() == two.tobytes()


def test_saturated_gates_reach_their_limits() -> None:
    lstm = dlprim.LSTM((1, 2, 1), 1)
    weights = lstm.pack_weights(np.ones((4, 1), np.float32), np.zeros((4, 1), np.float32))
    x = np.array([[[100], [-100]]], np.float32)
    _, _, _, saved = lstm.forward(x, weights, training=True)
    assert np.allclose(saved.gates[0], [[1, 1, 1, 1], [0, 0, -1, 0]], rtol=2e-7, atol=1e-30)


@pytest.mark.parametrize("low", [-np.inf, -1e30, -90.0])
def test_sigmoid_is_exact_to_its_ends(low: float) -> None:
    lstm = dlprim.LSTM((1, 7, 1), 1)
    weights = lstm.pack_weights(np.ones((4, 1), np.float32), np.zeros((4, 1), np.float32))
    x = np.array([[[low], [np.nan], [-86.9], [-84], [-80], [-40], [-low]]], np.float32)
    *_, saved = lstm.forward(x, weights, training=True)
    sigmoids = saved.gates[0][:, [0, 1, 3]]
    expected = sigmoid(np.clip(x[0].astype(np.float64), -700, None)).astype(np.float32)
    assert np.allclose(sigmoids, expected, rtol=1e-6, atol=0, equal_nan=True)


def test_saved_lengths_are_a_copy() -> None:
    lengths = np.array([2, 1, 0])
    zeros = np.zeros
    gru = dlprim.GRU((2, 3, 4), 5)
    weights = gru.pack_weights(zeros((15, 4), np.float32), zeros((15, 5), np.float32))
    *_, saved = gru.forward(zeros((2, 3, 4), np.float32), weights, lengths=lengths, training=True)
    lengths[:] = -1
    assert saved.lengths is not None
    assert saved.lengths.base is None
    assert saved.lengths.tolist() == [2, 1, 0]


def test_wrong_operands_are_refused_by_name() -> None:
    lstm = dlprim.LSTM((2, 3, 4), 5)
    zeros = np.zeros
    with pytest.raises(ValueError, match=r"w_ih has shape \(15, 4\).*expected.*\(20, 4\)"):
        lstm.pack_weights(zeros((15, 4), np.float32), zeros((20, 5), np.float32))
    weights = lstm.pack_weights(zeros((20, 4), np.float32), zeros((20, 5), np.float32))
    x = zeros((2, 3, 4), np.float32)
    with pytest.raises(ValueError, match=r"lengths\[1\] is 3, expected an integer from 0 to T = 2"):
        lstm.forward(x, weights, lengths=[0, 3, 1])
    with pytest.raises(TypeError, match=r"lengths has dtype float64"):
        lstm.forward(x, weights, lengths=[0.0, 1.0, 2.0])
    with pytest.raises(TypeError, match=r"saved is of type NoneType, expected LSTMSaved"):
        lstm.backward(zeros((2, 3, 5), np.float32), None, weights)  # type: ignore[arg-type]
    *_, saved = lstm.forward(x, weights, training=True)
    wrong = saved._replace(gates=zeros((2, 3, 15), np.float32))
    with pytest.raises(ValueError, match=r"^saved\.gates has shape \(2, 3, 15\)"):
        lstm.backward(zeros((2, 3, 5), np.float32), wrong, weights)
    square = dlprim.LSTM((2, 3, 5), 5)
    x5 = zeros((2, 3, 5), np.float32)
    w5 = square.pack_weights(zeros((20, 5), np.float32), zeros((20, 5), np.float32))
    with pytest.raises(ValueError, match=r"^out shares memory"):
        square.forward(x5, w5, out=x5)


@pytest.mark.large
@pytest.mark.parametrize("make", [dlprim.LSTM, dlprim.GRU])
def test_tune_sets_and_stores_schedules(
    make: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLPRIM_TUNE_DIR", str(tmp_path))
    layer = make((4, 40, 70), 130)
    gains = dlprim.tune(layer, 2.0, passes=["recurrence", "diff_w_ih"], progress=None)
    assert set(gains) == {"recurrence", "diff_w_ih"}
    assert all(gain >= 1 for gain in gains.values())
    assert make((4, 40, 70), 130).schedules == layer.schedules
