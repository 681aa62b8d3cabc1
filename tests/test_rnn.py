"""LSTM and GRU, the primitives: values and gradients, what is extreme, the same bits on threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import dlprim
import rnn_reference as reference
from conftest import LEVELS, RunPython, runs
from rnn_cases import F4, Operands, Rnn, doubles, fixed_rnns, random_rnns
from rnn_checker import (
    Variant,
    assert_close,
    check,
    check_nan,
    drawn_variant,
    primitive,
    results,
    states,
    tolerance,
)
from tuning_cases import schedules_of

cells = pytest.mark.parametrize("cell", ["lstm", "gru"])
both_dtypes = pytest.mark.parametrize("dtype", ["float32", "bfloat16"])


# ---------------------------------------------------------------- values


@pytest.mark.every_level
@both_dtypes
@pytest.mark.parametrize("rnn", fixed_rnns(), ids=str)
def test_shape(rnn: Rnn, dtype: str) -> None:
    check(rnn, Variant(dtype))
    check(rnn, Variant(dtype, lengths=True, states=False, edge="begin"), seed=1)


@both_dtypes
@pytest.mark.parametrize("number", range(60))
def test_random_shape(number: int, dtype: str) -> None:
    rnn = random_rnns(60, seed=3)[number]
    check(rnn, drawn_variant(dtype, number), number)


@cells
@both_dtypes
@pytest.mark.parametrize("shape", [(3, 70, 130, 70), (4, 2, 65, 150)], ids=str)
def test_every_schedule_gives_the_right_results(
    shape: tuple[int, ...], cell: str, dtype: str
) -> None:
    rnn = Rnn(cell, *shape)
    layer = primitive(rnn, dtype)
    for which in layer.schedules:
        for schedule in schedules_of(layer, which, 4):
            check(rnn, Variant(dtype, lengths=True), schedule={which: schedule})


@cells
@both_dtypes
@pytest.mark.parametrize("schedule", ["K N3 c g", "k n35 g c", "N14 n7 K c2 g"])
def test_recurrent_sums_in_parts_give_the_right_results(
    schedule: str, cell: str, dtype: str
) -> None:
    for variant in (Variant(dtype, lengths=True), Variant(dtype, states=False)):
        check(Rnn(cell, 3, 70, 130, 150), variant, schedule={"recurrence": schedule})


@pytest.mark.any_level
@pytest.mark.parametrize("level", LEVELS)
def test_level(run_python: RunPython, level: str) -> None:
    """In a process of its own each: a primitive takes the highest level that it is allowed."""
    if level == dlprim.isa() or not runs(level):
        pytest.skip(f"{level} is the level of the other tests, or not usable here")
    source = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import rnn_checker, dlprim\n"
        "rnn_checker.check_on_this_level(20, seed=2)\n"
        "print(dlprim.isa())"
    )
    run = run_python(source, DLPRIM_MAX_ISA=level, timeout=300)
    assert run.returncode == 0, run.stderr
    assert (run.stdout, run.stderr) == (f"{level}\n", "")


@cells
@both_dtypes
def test_reverse_is_the_forward_run_on_reversed_steps(cell: str, dtype: str) -> None:
    rnn = Rnn(cell, 6, 5, 20, 33)
    t = Operands(rnn, dtype)
    ahead = results(rnn, t)
    t.x, t.diff_y = t.x[::-1].copy(), t.diff_y[::-1].copy()
    back = results(rnn._replace(reverse=True), t)
    count = 3 if cell == "lstm" else 2
    for number, (one, other) in enumerate(zip(ahead, back, strict=True)):
        turned = other[::-1] if number in (0, count) else other  # y and diff_src
        assert_close(turned, doubles(one), tolerance(rnn, dtype))


@cells
@both_dtypes
@pytest.mark.parametrize("training", [False, True])
def test_steps_one_by_one_are_the_whole_run(cell: str, dtype: str, training: bool) -> None:
    rnn = Rnn(cell, 5, 3, 24, 40)
    t = Operands(rnn, dtype)
    y = results(rnn, t)[0]
    one = primitive(rnn._replace(T=1), dtype)
    weights = one.pack_weights(*t.parameters)
    state = states(rnn, t.h_0, t.c_0, "h_0", "c_0")
    for step in range(rnn.T):
        found = one.forward(t.x[step : step + 1], weights, **state, training=training)
        state = dict(zip(state, found[1 : 1 + len(state)], strict=True))
        np.testing.assert_allclose(doubles(found[0][0]), doubles(y[step]), rtol=0, atol=2e-2)


# ---------------------------------------------------------------- lengths


@cells
@pytest.mark.parametrize("reverse", [False, True])
@both_dtypes
def test_sequences_of_no_step_keep_their_states(cell: str, reverse: bool, dtype: str) -> None:
    rnn = Rnn(cell, 4, 6, 9, 18, reverse)
    t = Operands(rnn, dtype)
    lengths = np.zeros(rnn.N, np.int64)
    t.x[...] = t.diff_y[...] = np.nan
    y, h_n, *others = results(rnn, t, lengths)
    assert not doubles(y).any()
    assert h_n.tobytes() == t.h_0.tobytes()
    if cell == "lstm":
        assert others.pop(0).tobytes() == t.c_0.tobytes()
    diff_src, diff_h_0, *others = others
    assert not doubles(diff_src).any()
    assert diff_h_0.tobytes() == t.diff_h_n.tobytes()
    if cell == "lstm":
        assert others.pop(0).tobytes() == t.diff_c_n.tobytes()
    assert not any(each.any() for each in others)


@cells
@both_dtypes
def test_full_lengths_are_no_lengths(cell: str, dtype: str) -> None:
    rnn = Rnn(cell, 4, 6, 9, 18)
    t = Operands(rnn, dtype)
    full = results(rnn, t, np.full(rnn.N, rnn.T))
    assert [each.tobytes() for each in full] == [each.tobytes() for each in results(rnn, t)]


# ---------------------------------------------------------------- extremes


@cells
@both_dtypes
@pytest.mark.parametrize("where", ["x", "h_0"])
def test_nan_stays_in_its_sequence(cell: str, dtype: str, where: str) -> None:
    check_nan(cell, dtype, where)


@cells
@both_dtypes
@pytest.mark.parametrize("size", [100.0, 1e4, 1e30])
def test_saturated_gates(cell: str, dtype: str, size: float) -> None:
    rnn = Rnn(cell, 4, 5, 6, 33)
    t = Operands(rnn, dtype)
    t.b_ih[...] = size * np.where(t.random.random(rnn.rows) < 0.5, -1, 1)
    t.b_hh[...] = 0
    exact = reference.forward(cell, doubles(t.x), t.weights, t.start)
    gradients = reference.backward(cell, t.weights, exact, doubles(t.diff_y), t.diff_end)
    found = results(rnn, t)
    expected = [*exact[: 3 if cell == "lstm" else 2], *gradients]
    if cell == "gru":
        del expected[4]  # diff_c_0
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other, tolerance(rnn, dtype))


@cells
def test_infinite_gates_saturate(cell: str) -> None:
    rnn = Rnn(cell, 2, 3, 4, 20)
    t = Operands(rnn)
    t.b_ih[...] = np.where(t.random.random(rnn.rows) < 0.5, -np.inf, np.inf)
    exact = reference.forward(cell, doubles(t.x), t.weights, t.start)
    for one, other in zip(results(rnn, t)[:2], exact[:2], strict=True):
        assert_close(one, other, tolerance(rnn, "float32"))


@cells
@both_dtypes
def test_denormals(cell: str, dtype: str) -> None:
    rnn = Rnn(cell, 4, 5, 17, 20, bias=False)
    t = Operands(rnn, dtype)
    for operand in (t.x, t.h_0, t.c_0, t.diff_y, t.diff_h_n, t.diff_c_n):
        operand[...] = (doubles(operand) * 1e-39).astype(F4).astype(operand.dtype)
    exact = reference.forward(cell, doubles(t.x), t.weights, t.start)
    for one, other in zip(results(rnn, t), exact[:2], strict=False):
        np.testing.assert_allclose(doubles(one), other, rtol=0, atol=1e-37)
    assert all(np.isfinite(doubles(each)).all() for each in results(rnn, t) if each is not None)


# ---------------------------------------------------------------- the same bits


SHARED = [(5, 40, 96, 130), (3, 1, 200, 300), (4, 4, 64, 128), (2, 100, 30, 17)]


@cells
@both_dtypes
@pytest.mark.parametrize("shape", SHARED, ids=str)
def test_same_bits_for_any_number_of_threads(shape: tuple[int, ...], cell: str, dtype: str) -> None:
    rnn = Rnn(cell, *shape)
    t = Operands(rnn, dtype)
    lengths = t.random.integers(0, rnn.T + 1, rnn.N)

    def bits() -> list[bytes]:
        return [each.tobytes() for steps in (None, lengths) for each in results(rnn, t, steps)]

    with dlprim.threads(1):
        expected = bits()
    for threads in range(1, 9):
        with dlprim.threads(threads):
            assert bits() == expected


@cells
def test_one_instance_in_many_threads_at_once(cell: str) -> None:
    rnn = Rnn(cell, 4, 9, 20, 36)
    instance = primitive(rnn, "float32")

    def solve(seed: int) -> list[bytes]:
        t = Operands(rnn, seed=seed)
        weights = instance.pack_weights(*t.parameters)
        *forward, saved = instance.forward(t.x, weights, t.h_0, training=True)
        gradients = instance.backward(t.diff_y, saved, weights)
        return [each.tobytes() for each in (*forward, *gradients)]

    expected = [solve(seed) for seed in range(6)]
    with ThreadPoolExecutor(6) as pool:
        for number, found in enumerate(pool.map(solve, [seed % 6 for seed in range(48)])):
            assert found == expected[number % 6]


@cells
def test_bfloat16_state_of_c_and_bits_of_bfloat16(cell: str) -> None:
    rnn = Rnn(cell, 3, 4, 10, 20)
    t = Operands(rnn, "bfloat16")
    t.c_0 = dlprim.to_float32(dlprim.to_bfloat16(t.c_0))
    expected = results(rnn, t)
    t.c_0 = dlprim.to_bfloat16(t.c_0)
    again = results(rnn, t)
    assert [each.tobytes() for each in again] == [each.tobytes() for each in expected]
