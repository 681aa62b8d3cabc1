"""Threads: who sets their number, that calls do not disturb each other, and what a fork leaves.

Whatever could hang runs in a process of its own with a time limit.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import dlprim
from conftest import RunPython
from reference import assert_close, linear

# ---------------------------------------------------------------- the number


def test_set_and_get() -> None:
    for n in (3, 1, np.int64(2), 1024):
        dlprim.set_num_threads(n)
        assert dlprim.get_num_threads() == n
        assert type(dlprim.get_num_threads()) is int


@pytest.mark.parametrize(
    "set_it", [dlprim.set_num_threads, lambda n: dlprim.threads(n).__enter__()]
)
@pytest.mark.parametrize(
    ("n", "error", "match"),
    [
        (0, ValueError, r"^n is 0, expected 1 to 1024"),
        (-2, ValueError, r"^n is -2"),
        (1025, ValueError, r"^n is 1025"),
        (2**70, ValueError, r"^n is 1180591620717411303424"),
        (2.0, TypeError, r"^n is of type float, expected an integer"),
        ("2", TypeError, r"^n is of type str"),
        (None, TypeError, r"^n is of type NoneType"),
    ],
)
def test_wrong_number_is_refused(
    set_it: object, n: object, error: type[Exception], match: str
) -> None:
    dlprim.set_num_threads(3)
    with pytest.raises(error, match=match):
        set_it(n)
    assert dlprim.get_num_threads() == 3


def test_context_manager_restores_also_after_an_exception() -> None:
    dlprim.set_num_threads(3)
    with dlprim.threads(2):
        assert dlprim.get_num_threads() == 2
        with dlprim.threads(5):
            assert dlprim.get_num_threads() == 5
        assert dlprim.get_num_threads() == 2
    assert dlprim.get_num_threads() == 3
    with pytest.raises(KeyError), dlprim.threads(2):
        raise KeyError
    assert dlprim.get_num_threads() == 3


def test_setting_holds_for_other_python_threads() -> None:
    """For those that run already as well as for new ones."""
    step, seen = threading.Barrier(2, timeout=30), []

    def watch() -> None:
        for _ in range(2):
            step.wait()
            seen.append(dlprim.get_num_threads())
            step.wait()

    watcher = threading.Thread(target=watch)
    watcher.start()
    for n in (3, 5):
        dlprim.set_num_threads(n)
        step.wait()
        step.wait()
    watcher.join()
    assert seen == [3, 5]
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(dlprim.get_num_threads).result() == 5


@pytest.mark.parametrize("n", ["1", "3"])
def test_environment_variable_sets_the_start(run_python: RunPython, n: str) -> None:
    run = run_python("import dlprim; print(dlprim.get_num_threads())", OMP_NUM_THREADS=n)
    assert (run.stdout, run.stderr) == (f"{n}\n", "")


def test_threadpoolctl_limits_it() -> None:
    threadpoolctl = pytest.importorskip("threadpoolctl")
    dlprim.set_num_threads(4)
    with threadpoolctl.threadpool_limits(limits=1):
        assert dlprim.get_num_threads() == 1
        with dlprim.threads(3):
            assert dlprim.get_num_threads() == 3
            with threadpoolctl.threadpool_limits(limits=2, user_api="openmp"):
                assert dlprim.get_num_threads() == 2
            assert dlprim.get_num_threads() == 3
        assert dlprim.get_num_threads() == 1
    assert dlprim.get_num_threads() == 4


# ---------------------------------------------------------------- many callers


def test_python_threads_call_at_once(random: np.random.Generator) -> None:
    """Each with a problem of its own, while the number of threads changes."""
    problems = []
    for i in range(8):
        x = random.standard_normal((64 + i, 70), np.float32)
        w = random.standard_normal((130 + i, 70), np.float32)
        problems.append((x, w, linear(x, w)))

    def solve(i: int) -> None:
        x, w, expected = problems[i % len(problems)]
        if i % 5 == 0:
            dlprim.set_num_threads(1 + i % 3)
        assert_close(dlprim.linear(x, w), expected)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(solve, range(120)))


# ---------------------------------------------------------------- fork

FORK = """
import os, signal, sys, warnings
import numpy as np
import dlprim

warnings.simplefilter("ignore", DeprecationWarning)  # 3.12: fork in a process with threads
random = np.random.default_rng(0)
x = random.standard_normal((300, 70), np.float32)
w = random.standard_normal((200, 70), np.float32)

def fails(n):
    try:
        dlprim.set_num_threads(n)
    except RuntimeError as error:
        return "forked" in str(error)
    return False

def child(expected, generations):
    signal.alarm(20)  # a hang ends in SIGALRM, which the parent sees
    right = dlprim.get_num_threads() == 1
    right &= np.array_equal(dlprim.linear(x, w), expected)
    right &= fails(2)
    dlprim.set_num_threads(1)
    with dlprim.threads(1):
        right &= np.allclose(dlprim.linear(x, w[:150]), expected[:, :150], rtol=0, atol=1e-4)
    if generations > 1:
        right &= fork(expected, generations - 1) == 0
    return 0 if right else 1

def fork(expected, generations):
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(child(expected, generations))
        finally:
            os._exit(2)
    return os.waitpid(pid, 0)[1]
"""


def test_forked_child_computes_serially(run_python: RunPython) -> None:
    """And so does its own child; the parent keeps its threads."""
    run = run_python(
        FORK
        + """
dlprim.set_num_threads(2)
expected = dlprim.linear(x, w)
assert fork(expected, 2) == 0
assert dlprim.get_num_threads() == 2
assert np.array_equal(dlprim.linear(x, w), expected)
"""
    )
    assert (run.returncode, run.stderr) == (0, "")


def test_child_of_a_serial_process_may_use_threads(run_python: RunPython) -> None:
    run = run_python(
        FORK
        + """
dlprim.set_num_threads(1)
expected = dlprim.linear(x, w)
pid = os.fork()
if pid == 0:
    signal.alarm(20)
    dlprim.set_num_threads(2)
    right = dlprim.get_num_threads() == 2 and np.array_equal(dlprim.linear(x, w), expected)
    os._exit(0 if right else 1)
assert os.waitpid(pid, 0)[1] == 0
"""
    )
    assert (run.returncode, run.stderr) == (0, "")


def test_multiprocessing_with_fork(run_python: RunPython) -> None:
    run = run_python(
        FORK
        + """
import multiprocessing
dlprim.set_num_threads(2)
slices = [(x, w[i : i + 50]) for i in range(0, 200, 50)]
expected = [dlprim.linear(*each) for each in slices]
with multiprocessing.get_context("fork").Pool(2) as pool:
    parts = pool.starmap(dlprim.linear, slices)
assert np.array_equal(np.hstack(parts), np.hstack(expected))
"""
    )
    assert (run.returncode, run.stderr) == (0, "")


def test_what_runs_behind_the_call_is_no_function_to_decorate() -> None:
    def generator() -> Iterator[int]:
        yield dlprim.get_num_threads()

    async def coroutine() -> None:
        pass

    async def both() -> AsyncIterator[int]:
        yield 1

    for function in (generator, coroutine, both):
        with pytest.raises(TypeError, match=r"func is an? .* function, .* `with dlprim\.threads"):
            dlprim.threads(2)(function)
