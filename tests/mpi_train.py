"""`python -m dlprim.train` with a mishap on its last rank: `mpi_train.py WAY STEP FLAGS...`."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import numpy as np

from dlprim.distributed.launcher import launched_rank, launched_size
from dlprim.train.command_line import main
from dlprim.train.loop import Trainer

WAY, STEP = sys.argv[1], int(sys.argv[2])
run_step = Trainer.run_step


def mishap(trainer: Trainer) -> float:
    if trainer.step == STEP and launched_rank() == launched_size() - 1:
        if WAY == "error":
            raise OSError("the disk is gone")
        if WAY == "bug":
            raise KeyError("forgotten")
        if WAY == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if WAY == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
        if WAY == "terminate":
            os.kill(os.getpid(), signal.SIGTERM)
        if WAY == "stall":
            time.sleep(3600)
        if WAY == "nan":
            batch = trainer.task.batch
            trainer.task.batch = lambda step: poisoned(*batch(step))
    return run_step(trainer)


def poisoned(src: Any, targets: Any) -> Any:
    return np.full_like(src, np.nan), targets


Trainer.run_step = mishap
flags = sys.argv[3:]
if WAY == "flags" and launched_rank() == launched_size() - 1:
    flags += ["--wire", "bfloat16", "--lr", "0.5"][2 * STEP :][:2]
raise SystemExit(main(flags))
