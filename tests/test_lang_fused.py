"""Statements that are one program of rows: normalisations as formulas, and results given as out."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import dlprim
from drawing import RNG

LAYERS = dlprim.define("""
def softmax(float(N,D) x) -> (y) {
    highest(n) max=! x(n,d)
    power(n,d) = exp(x(n,d) - highest(n))
    total(n) +=! power(n,d)
    y(n,d) = power(n,d) / total(n)
}
def layer_norm(float(N,D) x, float(D) w, float(D) b) -> (y) {
    mean(i) +=! x(i,k)
    mean(i) = mean(i) / D
    squares(i) +=! (x(i,k) - mean(i)) * (x(i,k) - mean(i))
    y(i,j) = (x(i,j) - mean(i)) * rsqrt(squares(i) / D + 1e-5) * w(j) + b(j)
}
def rms_norm(float(N,D) x, float(D) w) -> (y) {
    squares(n) +=! x(n,d) * x(n,d)
    y(n,d) = x(n,d) * rsqrt(squares(n) / D + 1e-5) * w(d)
}
def softmax_backward(float(N,D) dy, float(N,D) y) -> (dx) {
    sum(n) +=! dy(n,d) * y(n,d)
    dx(n,d) = y(n,d) * (dy(n,d) - sum(n))
}
def moments(float(N,D) x) -> (mean, y, deviation) {
    mean(n) +=! x(n,d)
    mean(n) = mean(n) / D
    y(n,d) = x(n,d) - mean(n)
    deviation(n) +=! y(n,d) * y(n,d)
    deviation(n) = sqrt(deviation(n) / D)
}
""")
ROWS = [(1, 2), (3, 5), (64, 64), (7, 1000), (300, 64)]


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def is_one_program(layer: dlprim.lang.Definition, *arrays: Any) -> bool:
    text = layer.compile(*(it.shape for it in arrays), dtype=arrays[0].dtype).explain()
    return text.startswith("statements 1 ") and len(re.findall("^statement", text, re.M)) == 1


@pytest.mark.parametrize("shape", ROWS, ids=str)
def test_layers_on_rows_are_one_program_and_what_the_functions_are(shape: tuple[int, int]) -> None:
    x, dy, w, b = normal(*shape), normal(*shape), normal(shape[1]), normal(shape[1])
    y = dlprim.softmax(x)
    for layer, arrays, expected in (
        (LAYERS.softmax, (x,), y),
        (LAYERS.layer_norm, (x, w, b), dlprim.layer_norm(x, w, b)),
        (LAYERS.rms_norm, (x, w), dlprim.rms_norm(x, w)),
        (LAYERS.softmax_backward, (dy, y), dlprim.softmax_backward(dy, y)),
    ):
        assert is_one_program(layer, *arrays)
        np.testing.assert_allclose(layer(*arrays), expected, 2e-5, 2e-6)


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "rms_norm"])
def test_bfloat16_is_rounded_between_statements(name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    arrays = [normal(40, 96), normal(96), normal(96)][: 3 if name == "layer_norm" else 2]
    arrays = [it.astype(ml_dtypes.bfloat16) for it in arrays[: 1 if name == "softmax" else None]]
    layer = getattr(LAYERS, name)
    assert is_one_program(layer, *arrays)
    expected = getattr(dlprim, name)(*(it.astype(np.float32) for it in arrays))
    found = layer(*arrays).astype(np.float32)
    np.testing.assert_allclose(found, expected, 0.03, 0.03)


def test_results_between_statements_are_stored_where_they_are_returned() -> None:
    x = normal(30, 50)
    assert is_one_program(LAYERS.moments, x)
    mean, y, deviation = LAYERS.moments(x)
    np.testing.assert_allclose(mean, x.mean(1), 1e-5, 1e-6)
    np.testing.assert_allclose(y, x - x.mean(1, keepdims=True), 1e-5, 1e-6)
    np.testing.assert_allclose(deviation, x.std(1), 1e-5, 1e-6)


def test_a_row_with_a_nan_is_nan_and_no_other() -> None:
    x = normal(20, 33)
    x[4, 32] = np.nan
    found = LAYERS.softmax(x)
    assert np.isnan(found[4]).all()
    assert np.isfinite(np.delete(found, 4, 0)).all()


def test_the_gradient_of_one_program_is_right() -> None:
    x, dy = normal(9, 21), normal(9, 21)
    y = dlprim.softmax(x)
    found = LAYERS.softmax.gradient("x")(x, dy)
    np.testing.assert_allclose(found, dlprim.softmax_backward(dy, y), 1e-4, 1e-5)


def test_out_takes_the_result_and_what_does_not_fit_is_refused_after_a_call_as_before() -> None:
    x, w = normal(12, 30), normal(30)
    expected = LAYERS.rms_norm(x, w)
    out = np.empty_like(expected)
    for call in (LAYERS.rms_norm, LAYERS.rms_norm.compile(x.shape, w.shape)):
        for _ in range(2):
            out[:] = -1
            assert call(x, w, out=out) is out
            np.testing.assert_array_equal(out, expected)
        whole = np.zeros((24, 30), np.float32)
        whole[:12] = x
        with pytest.raises(ValueError, match="out shares memory with x"):
            call(whole[:12], w, out=whole[6:18])
        with pytest.raises(ValueError, match="out has strides"):
            call(x, w, out=np.empty((30, 12), np.float32).T)
        with pytest.raises(ValueError, match="out has shape"):
            call(x, w, out=np.empty((12, 31), np.float32))
        with pytest.raises(TypeError, match="out has dtype float64"):
            call(x, w, out=np.empty((12, 30)))
        read_only = np.empty_like(expected)
        read_only.flags.writeable = False
        with pytest.raises(ValueError, match="out is read-only"):
            call(x, w, out=read_only)
        np.testing.assert_array_equal(whole[:12], x)


def test_out_beside_an_operand_of_the_same_memory_is_taken() -> None:
    memory = np.zeros((2, 12, 30), np.float32)
    memory[0] = normal(12, 30)
    w = normal(30)
    expected = LAYERS.rms_norm(memory[0].copy(), w)
    LAYERS.rms_norm(memory[0], w, out=memory[1])
    np.testing.assert_array_equal(memory[1], expected)
    square = np.zeros((2, 6, 6), np.float32)
    square[0] = normal(6, 6)
    for _ in range(2):
        dlprim.einsum("ij,jk->ik", square[0], square[0], out=square[1])
        np.testing.assert_allclose(square[1], square[0] @ square[0], 1e-5, 1e-5)


def test_a_row_is_overwritten_when_all_sums_have_read_it() -> None:
    layer = dlprim.define("""
    def f(float(N,D) v) -> (x, s, q) {
        s(n) +=! x(n,d) * v(n,d)
        q(n) +=! fmax(x(n,d), s(n))
        x(n,d) = pow(s(n), 0) * x(n,d) * 2 + v(n,d)
    }
    """).f
    x, v = normal(6, 40), normal(6, 40)
    s = (x.astype(np.float64) * v).sum(1)
    q = np.maximum(x, s[:, None]).sum(1)
    outs = (x.copy(), np.empty(6, np.float32), np.empty(6, np.float32))
    layer(v, out=outs)
    np.testing.assert_allclose(outs[0], x * 2 + v, 1e-5, 1e-5)
    np.testing.assert_allclose(outs[1], s, 1e-5, 1e-5)
    np.testing.assert_allclose(outs[2], q, 1e-5, 1e-4)


def test_sums_beyond_the_registers_are_programs_of_their_own() -> None:
    count = 24
    names = [f"s{i}" for i in range(count)]
    sums = " ".join(f"{name}(n) +=! (x(n,d) + {i}) * x(n,d)" for i, name in enumerate(names))
    layer = dlprim.define(f"def f(float(N,D) x) -> ({', '.join(names)}) {{ {sums} }}").f
    x = normal(5, 60)
    for i, found in enumerate(layer(x)):
        np.testing.assert_allclose(found, ((x.astype(np.float64) + i) * x).sum(1), 1e-5, 1e-4)


SUMS = dlprim.define("""
def with_sum(float(N,D) x, float(N,D) g) -> (y, s) {
    y(n,d) = g(n,d) * (x(n,d) > 0 ? 1.0 : 0.0)
    s(d) +=! y(n,d)
}
def alone(float(N,D) x, float(N,D) g, float(D) w) -> (s, t) {
    y(n,d) = g(n,d) * x(n,d)
    s(d) +=! y(n,d)
    t(d) +=! y(n,d) * w(d)
}
def waits(float(N,D) x) -> (y, s) {
    s(d) +=! x(n,d)
    y(n,d) = x(n,d) - s(d)
}
""")


@pytest.mark.parametrize("shape", [(2, 3), (65, 5), (64, 64), (1000, 70), (20_000, 9)], ids=str)
def test_sums_over_rows_come_on_the_way(shape: tuple[int, int]) -> None:
    x, g, w = normal(*shape), normal(*shape), normal(shape[1])
    # Of many narrow rows all elements are computed as one row, and then summed.
    assert is_one_program(SUMS.with_sum, x, g) or shape[1] < 16
    y, s = SUMS.with_sum(x, g)
    np.testing.assert_array_equal(y, np.where(x > 0, g, 0))
    np.testing.assert_allclose(s, np.float64(y).sum(0), 1e-4, 1e-5 * shape[0] ** 0.5)
    for name, arrays in (("alone", (x, g, w)), ("waits", (x,))):
        exact = np.float64(x * g) if name == "alone" else np.float64(x)
        found = getattr(SUMS, name)(*arrays)[0 if name == "alone" else 1]
        np.testing.assert_allclose(found, exact.sum(0), 1e-4, 1e-4 * shape[0] ** 0.5)


def test_sums_over_rows_are_the_same_bits_for_any_number_of_threads() -> None:
    x, g = normal(3000, 130), normal(3000, 130)
    found = []
    for count in (1, 2, 3):
        with dlprim.threads(count):
            found.append(SUMS.with_sum(x, g)[1].tobytes())
    assert found[0] == found[1] == found[2]
