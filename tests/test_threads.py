"""Threads: who sets their number, and that calls do not disturb each other."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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


def test_a_block_holds_for_its_own_python_thread() -> None:
    dlprim.set_num_threads(4)
    with dlprim.threads(2), ThreadPoolExecutor(1) as pool:
        assert pool.submit(dlprim.get_num_threads).result() == 4
        assert dlprim.get_num_threads() == 2
        dlprim.set_num_threads(3)
        assert dlprim.get_num_threads() == 3
    assert dlprim.get_num_threads() == 3


@pytest.mark.parametrize(
    ("variables", "n", "reason"),
    [
        ({"OMP_NUM_THREADS": "1"}, 1, "environment variable OMP_NUM_THREADS"),
        ({"OMP_NUM_THREADS": "3,1"}, 3, "environment variable OMP_NUM_THREADS"),
        (
            {"OMP_NUM_THREADS": "1", "DLPRIM_NUM_THREADS": "3"},
            3,
            "environment variable DLPRIM_NUM_THREADS",
        ),
        ({"OMP_NUM_THREADS": "many"}, None, "this process may use"),
    ],
)
def test_environment_variables_set_the_start(
    run_python: RunPython, variables: dict[str, str], n: int | None, reason: str
) -> None:
    run = run_python(
        "import dlprim; from dlprim import _core;"
        "print(dlprim.get_num_threads(), _core.reason_for_num_threads())",
        **variables,
    )
    number, _, why = run.stdout.partition(" ")
    assert run.stderr == ""
    assert n in (None, int(number))
    assert reason in why


@pytest.mark.parametrize("value", ["0", "-1", "two", "1025", "3,1", "1.5"])
def test_wrong_variable_is_refused(run_python: RunPython, value: str) -> None:
    run = run_python("import dlprim; dlprim.get_num_threads()", DLPRIM_NUM_THREADS=value)
    expected = f"ValueError: environment variable DLPRIM_NUM_THREADS: '{value}' is not a number"
    assert expected in run.stderr


NO_NUMBER = {name: None for name in ("OMP_NUM_THREADS", "DLPRIM_NUM_THREADS")}


def test_affinity_is_followed_while_the_process_runs(run_python: RunPython) -> None:
    """To fewer CPUs and back, after the quarter of a second in which it is looked at again."""
    run = run_python(
        """
import os, time
import dlprim
cpus = os.sched_getaffinity(0)
def number():
    time.sleep(0.35)
    return dlprim.get_num_threads()
assert number() == len(cpus)
os.sched_setaffinity(0, {min(cpus)})
assert number() == 1
os.sched_setaffinity(0, cpus)
assert number() == len(cpus)
""",
        **NO_NUMBER,
    )
    assert (run.returncode, run.stderr) == (0, "")


def test_quota_is_followed_while_the_process_runs(run_python: RunPython) -> None:
    """Of a control group that the process comes to, and that changes; CPUs are rounded up."""
    group = Path("/sys/fs/cgroup/cpu") / f"dlprim_test_{os.getpid()}"
    try:
        group.mkdir()
        (group / "cpu.cfs_quota_us").write_text("-1")
    except OSError:
        pytest.skip("control groups of version 1 cannot be made here")
    try:
        run = run_python(
            """
import os, sys, time
from pathlib import Path
import dlprim
group = Path(sys.argv[1])
cpus = len(os.sched_getaffinity(0))
def number():
    time.sleep(0.35)
    return dlprim.get_num_threads()
assert number() == cpus
(group / "cgroup.procs").write_text(str(os.getpid()))
for quota, expected in ((100000, 1), (150000, min(2, cpus)), (-1, cpus), (50000, 1)):
    (group / "cpu.cfs_quota_us").write_text(str(quota))
    assert number() == expected
(group.parent / "cgroup.procs").write_text(str(os.getpid()))
assert number() == cpus
""",
            str(group),
            **NO_NUMBER,
        )
    finally:
        group.rmdir()
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU")
def test_unbound_ranks_share_the_cpus(run_python: RunPython) -> None:
    cpus = len(os.sched_getaffinity(0))
    show = "import dlprim; print(dlprim.get_num_threads())"
    run = run_python(show, MPI_LOCALNRANKS=str(cpus), **NO_NUMBER)
    assert run.stdout == "1\n"
    run = run_python(show, OMPI_COMM_WORLD_LOCAL_SIZE="1", **NO_NUMBER)
    assert run.stdout == f"{cpus}\n"


def test_threadpoolctl_sees_and_limits_it() -> None:
    threadpoolctl = pytest.importorskip("threadpoolctl")
    dlprim.set_num_threads(4)
    seen = [it for it in threadpoolctl.threadpool_info() if it["user_api"] == "dlprim"]
    assert [(it["num_threads"], it["version"]) for it in seen] == [(4, dlprim.__version__)]
    with threadpoolctl.threadpool_limits(limits=1):
        assert dlprim.get_num_threads() == 1
        with dlprim.threads(3):
            assert dlprim.get_num_threads() == 3
            with threadpoolctl.threadpool_limits(limits=2, user_api="dlprim"):
                assert dlprim.get_num_threads() == 2
            assert dlprim.get_num_threads() == 3
        assert dlprim.get_num_threads() == 1
    assert dlprim.get_num_threads() == 4
    dlprim.set_num_threads(2)  # nothing of the limit is left
    assert dlprim.get_num_threads() == 2
    with threadpoolctl.threadpool_limits(limits=1, user_api="blas"):
        assert dlprim.get_num_threads() == 2


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
