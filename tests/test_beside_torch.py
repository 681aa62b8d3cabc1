"""dlprim and PyTorch in one process: threads, results and runtimes, whichever is imported first.

It needs pytest, NumPy and PyTorch alone, so that `.ci/wheel` runs it on an installed wheel.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is what it is beside")

PROGRAM = """
import os
import re
import sys

first, cpus = sys.argv[1], len(os.sched_getaffinity(0))
if first == "dlprim":
    import dlprim
import numpy as np
import torch
import dlprim

x, w = np.ones((64, 300), np.float32), np.ones((200, 300), np.float32)
if sys.argv[2] == "dlprim":
    dlprim.linear(x, w)  # threads are made before PyTorch's are
for _ in range(20):  # in turns
    np.testing.assert_array_equal(dlprim.linear(x, w), 300)
    assert (torch.from_numpy(x) @ torch.from_numpy(w).T == 300).all()
    torch.ones(1 << 18).sin_()  # in parallel
maps = open("/proc/self/maps").read()
runtimes = set(re.findall(r"\\S*/lib(?:gomp|iomp5|omp)[-.]\\S*", maps))
assert len(runtimes) <= 1, runtimes
print(torch.get_num_threads(), dlprim.get_num_threads(), len(os.sched_getaffinity(0)), cpus)
"""


def in_turns(first: str, calls: str, **variables: str) -> list[int]:
    """Threads of PyTorch, threads of dlprim, CPUs of the main thread, CPUs of the process."""
    unset = ("OMP_NUM_THREADS", "DLPRIM_NUM_THREADS", "OMP_PROC_BIND")
    inherited = {name: it for name, it in os.environ.items() if name not in unset}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, first, calls],
        env=inherited | variables,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    return [int(it) for it in run.stdout.split()]


@pytest.mark.parametrize(
    ("first", "calls"), [("torch", "torch"), ("dlprim", "torch"), ("dlprim", "dlprim")]
)
def test_both_use_all_cpus_and_one_openmp_runtime(first: str, calls: str) -> None:
    theirs, ours, main, cpus = in_turns(first, calls)
    assert theirs >= min(cpus, 2)  # PyTorch takes a thread for each core
    assert 1 <= ours <= cpus
    assert main == cpus


def test_threads_that_the_user_sets_count_for_both() -> None:
    assert in_turns("dlprim", "dlprim", OMP_NUM_THREADS="1")[:2] == [1, 1]


def test_bound_threads_of_openmp_compute_the_same() -> None:
    """The CPUs of the main thread are PyTorch's choice then, and so dlprim's."""
    theirs, ours, main, _ = in_turns("dlprim", "dlprim", OMP_PROC_BIND="true")
    assert theirs >= 1
    assert 1 <= ours <= max(main, 1)
