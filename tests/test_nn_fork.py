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

inside, done = threading.Event(), threading.Event()
parent = os.getpid()

class Held(nn.Module):
    holds = False

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        if self.holds and os.getpid() == parent:
            inside.set()
            done.wait()
        return self.fc(x)

model, x = Held(), np.ones((2, 4), np.float32)
expected = model.forward(x, training=TRAINING)
model.changed()
Held.holds = True
thread = threading.Thread(target=lambda: model.forward(x, training=TRAINING))
thread.start()
inside.wait()
child = os.fork()
if child == 0:
    signal.alarm(10)
    os._exit(0 if np.array_equal(model.forward(x, training=TRAINING), expected) else 1)
status = os.waitpid(child, 0)[1]
done.set()
thread.join()
raise SystemExit(status != 0)
"""


@pytest.mark.parametrize("training", ["False", "True"])
def test_a_forked_process_does_not_wait_for_a_thread_that_it_has_not(training: str) -> None:
    program = PROGRAM.replace("TRAINING", training)
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", program], timeout=60, check=False)
    assert run.returncode == 0
