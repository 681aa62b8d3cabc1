"""One process of a scaling run; `bench_scaling.py` starts it, alone or under mpiexec.

Rank 0 prints one JSON record at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from datetime import timedelta
from typing import Any

import numpy as np

import dlprim
from dlprim.distributed import Group
from dlprim.distributed.metrics import summarize, timed_step
from dlprim.distributed.placement import complaints, placements
from scaling_case import Case, our_case, torch_case


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--batch", type=int, required=True, help="samples per rank")
    parser.add_argument("--side", choices=("dlprim", "torch"), default="dlprim")
    parser.add_argument("--overlap", default="thread")
    parser.add_argument("--wire", default="float32")
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--apart", action="store_true", help="ranks that do not communicate")
    flags = parser.parse_args()
    world = Group.world(timeout=120)
    group = Group() if flags.apart else world
    record = ours(flags, group) if flags.side == "dlprim" else peers(flags, group)
    record["placements"] = [str(it) for it in placements(world)]
    record["complaints"] = complaints(placements(world))
    rates = world.allgather(record["samples_per_s"])
    record["samples_per_s_of_ranks"] = rates
    world.barrier()
    if world.rank == 0:
        print(json.dumps(record), flush=True)


def ours(flags: Any, group: Group) -> dict[str, Any]:
    case = our_case(flags.model, flags.batch, group, flags.overlap, flags.wire)
    assert case.parallel is not None
    steps, losses = [], []
    for _ in range(flags.warmup + flags.steps):
        result, seconds = timed_step(case.parallel, case.forward, case.backward, case.optimise)
        steps.append(seconds)
        losses.append(result[0])
    summary = summarize(case.parallel, steps[flags.warmup :], flags.batch * group.size)
    overlap = case.parallel.overlap if group.size > 1 else "none"
    extra = {"losses": losses, "overlap": overlap, "wire": flags.wire, "mpi": group.library}
    return summary.record() | extra | {"isa": dlprim.isa()}


def peers(flags: Any, group: Group) -> dict[str, Any]:
    import torch

    torch.set_num_threads(dlprim.get_num_threads())
    if group.size > 1:
        os.environ |= {"MASTER_ADDR": "127.0.0.1"}
        os.environ.setdefault("MASTER_PORT", "29533")
        torch.distributed.init_process_group(
            "gloo", rank=group.rank, world_size=group.size, timeout=timedelta(seconds=120)
        )
    case = torch_case(flags.model, flags.batch, group.rank, group.size)
    seconds = [timed(case) for _ in range(flags.warmup + flags.steps)]
    slowest = np.max(group.allgather(np.array(seconds[flags.warmup :])), axis=0)
    if group.size > 1:
        torch.distributed.destroy_process_group()
    step = float(np.median(slowest))
    return {
        "ranks": group.size,
        "samples_per_step": flags.batch * group.size,
        "steps": flags.steps,
        "step": step,
        "samples_per_s": flags.batch * group.size / step,
    }


def timed(case: Case) -> float:
    started = time.perf_counter()
    case.backward(case.forward())
    case.optimise()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
