"""lstm and gru on plain arrays: layers, directions, lengths, and the forms that operands have."""

from __future__ import annotations

import numpy as np
import pytest

import dlprim
from conftest import RunPython
from rnn_cases import F4, Operands, Rnn
from rnn_stack import BACKWARD, FORMS, FORWARD, Form, Problem, bits_of

cells = pytest.mark.parametrize("cell", ["lstm", "gru"])
both_dtypes = pytest.mark.parametrize("dtype", ["float32", "bfloat16"])


# ---------------------------------------------------------------- values


@cells
@both_dtypes
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_values(form: Form, cell: str, dtype: str) -> None:
    Problem(Rnn(cell, 5, 6, 7, 19), form, dtype).check()


@cells
@pytest.mark.parametrize("shape", [(0, 3, 4, 5), (3, 0, 4, 5), (1, 1, 1, 1)], ids=str)
def test_no_step_and_no_sequence(cell: str, shape: tuple[int, ...]) -> None:
    for form in FORMS:
        Problem(Rnn(cell, *shape), form).check()


@cells
def test_inference_is_the_training_forward_pass(cell: str) -> None:
    problem = Problem(Rnn(cell, 4, 5, 8, 21), Form(2, bidirectional=True))
    results, _ = problem.solve()
    plain = FORWARD[cell](
        problem.x, **problem.parameters(), **problem.states("h_0", "c_0"), **problem.form.keywords
    )
    assert bits_of(plain) == bits_of(results)


@cells
@both_dtypes
def test_one_bias_alone(cell: str, dtype: str) -> None:
    t = Operands(Rnn(cell, 3, 4, 5, 6), dtype)
    zeros = np.zeros_like(t.b_ih)
    for given, full in (({"b_ih": t.b_ih}, (t.b_ih, zeros)), ({"b_hh": t.b_hh}, (zeros, t.b_hh))):
        y, *_ = FORWARD[cell](t.x, t.w_ih, t.w_hh, **given)
        other, *_ = FORWARD[cell](t.x, t.w_ih, t.w_hh, *full)
        assert y.tobytes() == other.tobytes()


@cells
def test_padding_reaches_no_result(cell: str) -> None:
    problem = Problem(Rnn(cell, 5, 6, 7, 19), Form(2, bidirectional=True, lengths=True))
    clean, gradients = problem.solve()
    padding = np.arange(5)[:, None] >= problem.lengths
    problem.x[padding] = problem.diff_y[padding] = np.nan
    again, others = problem.solve()
    assert bits_of(again) == bits_of(clean)
    assert bits_of(others) == bits_of(gradients)


@cells
def test_saved_outlives_the_parameters(cell: str) -> None:
    t = Operands(Rnn(cell, 3, 4, 5, 6))
    *_, saved = FORWARD[cell](t.x, *t.parameters, training=True)
    first = BACKWARD[cell](t.diff_y, saved)
    t.w_ih[...] = t.w_hh[...] = np.nan
    again = BACKWARD[cell](t.diff_y, saved)
    assert bits_of(first) == bits_of(again)


@cells
def test_threads_change_no_bit(cell: str) -> None:
    problem = Problem(Rnn(cell, 4, 9, 30, 70), Form(2, bidirectional=True))
    solved = []
    for threads in (1, 2, 5):
        with dlprim.threads(threads):
            results, gradients = problem.solve()
        solved.append(bits_of((*results, *gradients)))
    assert solved[0] == solved[1] == solved[2]


# ---------------------------------------------------------------- forms of operands


@cells
def test_operands_that_are_not_contiguous_are_copied(cell: str) -> None:
    t = Operands(Rnn(cell, 3, 4, 5, 6))

    def scattered(array: np.ndarray) -> np.ndarray:
        return np.repeat(np.asfortranarray(array), 2, axis=-1)[..., ::2]

    *expected, saved = FORWARD[cell](t.x, *t.parameters, h_0=t.h_0[None], training=True)
    found = FORWARD[cell](
        scattered(t.x), *(scattered(each) for each in t.parameters), h_0=scattered(t.h_0[None])
    )
    assert bits_of(found) == bits_of(expected)
    gradients = BACKWARD[cell](t.diff_y, saved)
    again = BACKWARD[cell](scattered(t.diff_y), saved)
    assert bits_of(again) == bits_of(gradients)


@cells
@pytest.mark.parametrize("form", [Form(), Form(2, bidirectional=True)], ids=str)
def test_bits_of_bfloat16_are_taken_for_bfloat16(cell: str, form: Form) -> None:
    problem = Problem(Rnn(cell, 3, 4, 5, 18), form, "bfloat16")
    results, gradients = problem.solve()
    for each in problem.runs:
        for name in ("x", "w_ih", "w_hh", "h_0", "diff_h_n"):
            setattr(each, name, getattr(each, name).view(np.uint16))
    problem.x, problem.diff_y = problem.x.view(np.uint16), problem.diff_y.view(np.uint16)
    bits, others = problem.solve()
    assert [each.dtype for each in bits] == [np.uint16, np.uint16, F4][: len(bits)]
    assert bits_of(bits) == bits_of(results)
    assert others.diff_src.dtype == others.diff_h_0.dtype == np.uint16
    assert bits_of(others) == bits_of(gradients)


@cells
def test_forms_of_lengths(cell: str) -> None:
    t = Operands(Rnn(cell, 4, 3, 5, 6))
    expected = FORWARD[cell](t.x, t.w_ih, t.w_hh, lengths=np.array([4, 0, 2]))
    for lengths in (
        [4, 0, 2],
        (4, 0, 2),
        np.array([4, 0, 2], "u1"),
        np.array([4, 9, 0, 9, 2])[::2],
    ):
        found = FORWARD[cell](t.x, t.w_ih, t.w_hh, lengths=lengths)
        assert bits_of(found) == bits_of(expected)


@pytest.mark.any_level
@cells
def test_lengths_that_change_keep_no_memory_each(cell: str, run_python: RunPython) -> None:
    """What training saved of one length is used for the others: 350 MB if each kept its own."""
    source = (
        "import resource\n"
        "import numpy as np\n"
        "import dlprim\n"
        f"forward, backward = dlprim.{cell}, dlprim.{cell}_backward\n"
        f"gates = {4 if cell == 'lstm' else 3}\n"
        "w = np.full((gates * 64, 64), 0.01, np.float32)\n"
        "def train(length):\n"
        "    x = np.ones((length, 64, 64), np.float32)\n"
        "    result = forward(x, w, w, training=True)\n"
        "    backward(np.ones_like(result.y), result.saved)\n"
        "train(120)\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10\n"
        "before = peak()\n"
        "for length in range(1, 121, 2):\n"
        "    train(length)\n"
        "print(peak() - before)\n"
    )
    assert int(run_python(source).stdout) < 100
