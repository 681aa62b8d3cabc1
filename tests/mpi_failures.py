"""A job that fails in the way its argument says; `test_distributed.py` runs it on two ranks.

It writes a checkpoint-like file once, so that a test sees that failing leaves it alone.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import numpy as np

import dlprim
from distributed_model import Network
from dlprim.distributed import DataParallel, Group, end_job, require_same_code


class Exploding(Network):
    """Raises in the backward pass of one rank, while its first bucket is on its way."""

    def backward(self, dy: np.ndarray, ready: object = None) -> None:
        super().backward(dy, ready)
        raise ArithmeticError("The training loss is nan in step 3.")


def fail() -> None:
    raise KeyError("in a thread")


def train(group: Group, way: str) -> None:
    if way == "code" and group.rank == 1:
        dlprim.__version__ = "0.0.9"
    require_same_code(group)
    chosen = group.rank == group.size - 1
    network = (Exploding if way in ("error", "bug") and chosen else Network)((8, 8, 4))
    wire = "bfloat16" if way == "wire" and chosen else "float32"
    bucket_bytes = 128 if way == "buckets" and chosen else 64
    parallel = DataParallel(network, group, bucket_bytes, wire=wire)
    for step in range(1000):
        y = network.forward(np.ones((2, 8), np.float32))
        if step == 3 and chosen and way == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if step == 3 and chosen and way == "stop":
            time.sleep(3600)
        if step == 3 and chosen and way == "uncaught":
            raise KeyError("uncaught")
        if step == 3 and chosen and way == "thread":
            threading.Thread(target=fail).start()
            time.sleep(3600)
        if step == 3 and way == "quiet thread":
            threading.Thread(target=sys.exit, args=(3,)).start()
            return
        network.backward(y, parallel.ready)
        parallel.finish()
        if group.rank == 0 and step == 2:
            print("three steps done", flush=True)


def main() -> int:
    way = sys.argv[1]
    group = Group.world(timeout=1.0 if way == "stop" else 60.0)
    if way == "uncaught":
        train(group, way)
    try:
        train(group, way)
    except Exception as error:
        return end_job(group, "job", error)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
