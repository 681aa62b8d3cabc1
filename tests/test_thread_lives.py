"""Threads from begin to end: forks, exits, signals, callers that come and go.

Whatever could hang runs in a process of its own with a time limit.
"""

from __future__ import annotations

import pytest

from conftest import RunPython

# ---------------------------------------------------------------- fork

FORK = """
import os, signal, sys, warnings
import numpy as np
import dlprim

warnings.simplefilter("ignore", DeprecationWarning)  # 3.12: fork in a process with threads
random = np.random.default_rng(0)
x = random.standard_normal((300, 70), np.float32)
w = random.standard_normal((200, 70), np.float32)

def child(expected, generations):
    signal.alarm(20)  # a hang ends in SIGALRM, which the parent sees
    right = dlprim.get_num_threads() == 2
    for _ in range(20):
        right &= np.array_equal(dlprim.linear(x, w), expected)
    with dlprim.threads(3):
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


@pytest.mark.parametrize("before", ["", "dlprim.set_num_threads(1); dlprim.linear(x, w)"])
def test_forked_child_has_threads_of_its_own(run_python: RunPython, before: str) -> None:
    """And so has its own child; the parent keeps its threads."""
    run = run_python(
        FORK
        + before
        + """
dlprim.set_num_threads(2)
expected = dlprim.linear(x, w)
assert fork(expected, 2) == 0
assert dlprim.get_num_threads() == 2
assert np.array_equal(dlprim.linear(x, w), expected)
"""
    )
    assert (run.returncode, run.stderr) == (0, "")


def test_fork_while_other_threads_compute(run_python: RunPython) -> None:
    run = run_python(
        FORK
        + """
import threading
dlprim.set_num_threads(2)
expected = dlprim.linear(x, w)
done = threading.Event()
def call():
    while not done.is_set():
        dlprim.linear(x, w)
callers = [threading.Thread(target=call) for _ in range(3)]
for each in callers: each.start()
for _ in range(20):
    assert fork(expected, 1) == 0
done.set()
for each in callers: each.join()
"""
    )
    assert (run.returncode, run.stderr) == (0, "")


# ---------------------------------------------------------------- ends


def test_exit_while_a_daemon_computes(run_python: RunPython) -> None:
    run = run_python(
        """
import threading, time
import numpy as np
import dlprim
dlprim.set_num_threads(2)
x = np.ones((512, 512), np.float32)
def call():
    while True:
        dlprim.linear(x, x)
for _ in range(3):
    threading.Thread(target=call, daemon=True).start()
time.sleep(0.3)
"""
    )
    assert (run.returncode, run.stderr) == (0, "")


def test_ctrl_c_reaches_python(run_python: RunPython) -> None:
    """Workers take no signals."""
    run = run_python(
        """
import os, signal, threading, time
import numpy as np
import dlprim
dlprim.set_num_threads(3)
x = np.ones((512, 512), np.float32)
dlprim.linear(x, x)
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    while True:
        dlprim.linear(x, x)
except KeyboardInterrupt:
    print("interrupted")
assert np.array_equal(dlprim.linear(x, x), 512 * x)
"""
    )
    assert (run.stdout, run.stderr) == ("interrupted\n", "")


def test_calling_threads_leave_nothing_behind(run_python: RunPython) -> None:
    run = run_python(
        """
import os, threading, time
import numpy as np
import dlprim
dlprim.set_num_threads(2)
x = np.ones((300, 300), np.float32)
dlprim.linear(x, x)
before = len(os.listdir("/proc/self/task"))
for _ in range(25):
    callers = [threading.Thread(target=dlprim.linear, args=(x, x)) for _ in range(4)]
    for each in callers: each.start()
    for each in callers: each.join()
for _ in range(100):  # join() returns while the system still ends a thread
    if len(os.listdir("/proc/self/task")) == before:
        break
    time.sleep(0.05)
else:
    raise SystemExit("threads are left")
"""
    )
    assert (run.returncode, run.stderr) == (0, "")


def test_fewer_threads_where_the_system_refuses_more(run_python: RunPython) -> None:
    run = run_python(
        """
import os, resource
import numpy as np
import dlprim
dlprim.set_num_threads(2)
x = np.ones((300, 300), np.float32)
if os.getuid() == 0:  # who has no limit
    os.setuid(65534)
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
for _ in range(3):
    assert np.array_equal(dlprim.linear(x, x), 300 * x)
"""
    )
    assert run.returncode == 0
    assert run.stderr.count("refuses thread 2") == 1


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
