"""A process that is forked in the middle of another thread's pass computes on."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.any_level

PROGRAM = """
import os, signal, threading
import numpy as np
from dlprim import nn

model, x = nn.Sequential(nn.Linear(4, 4)), np.ones((2, 4), np.float32)
expected, inside, done = model.forward(x, False), threading.Event(), threading.Event()

def hold():
    model.context.observer = lambda *_: (inside.set(), done.wait())
    model.forward(x, False)

thread = threading.Thread(target=hold)
thread.start()
inside.wait()
child = os.fork()
if child == 0:
    signal.alarm(10)
    model.context.observer = None
    os._exit(0 if np.array_equal(model.forward(x, False), expected) else 1)
status = os.waitpid(child, 0)[1]
done.set()
thread.join()
raise SystemExit(status != 0)
"""


def test_a_forked_process_does_not_wait_for_a_thread_that_it_has_not() -> None:
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], timeout=60, check=False)
    assert run.returncode == 0
