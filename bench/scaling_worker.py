"""One process of a scaling run; `bench_scaling.py` starts it on every rank.

All sides live in the same processes and take turns in short blocks, in the opposite order every
other round, so that what else the machine does falls on all of them alike; and because it falls on
ranks together but hardly on one rank alone, beside idle cores, only that half of the rounds counts
in which others took the least of the machine. Alone, the ranks work one after the other while the
others sleep. Rank 0 prints one JSON record at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

import dlprim
from dlprim.distributed import Group
from dlprim.distributed.placement import complaints, placements
from dlprim.distributed.prediction import Network, StepProfile, predict
from scaling_case import Case, Step, our_case, torch_case

ALONE = ("alone", "torch")  # one rank at a time, the first side of each is what others compare with
PEERS = ("torch", "ddp")
COMMUNICATING = ("thread", "off")
_SMALL, _LARGE = 8, 1 << 23  # bytes of messages that tell latency and bandwidth


def main() -> None:
    flags = _flags()
    world = Group.world(timeout=200)
    _reach_peers(flags, world)
    network = measured_network(world)
    cases = make_cases(flags, world)
    blocks: dict[str, list[list[list[Step]]]] = {name: [] for name in flags.sides}
    others: list[float] = []
    for turn in range(flags.rounds + 1):
        load = Load(world)
        for name in flags.sides if turn % 2 else flags.sides[::-1]:
            blocks[name].append(world.allgather(run_block(cases[name], name, world, flags.steps)))
            load.lap()
        others.append(load.most)
    # The first round generates code and touches memory.
    quietest = sorted(range(1, flags.rounds + 1), key=lambda turn: others[turn])
    kept = quietest[: (flags.rounds + 1) // 2]
    blocks = {name: [rounds[turn] for turn in kept] for name, rounds in blocks.items()}
    record = {name: summary(blocks[name], name, flags) for name in flags.sides}
    found: dict[str, Any] = {"ranks": world.size, "model": flags.model, "sides": record}
    found |= {"rounds": flags.rounds, "others": [others[turn] for turn in kept]}
    if network is not None:
        found["network"] = vars(network)
        found["predicted"] = predictions(blocks, flags, network, world.size)
    found |= {"placements": [str(it) for it in placements(world)], "isa": dlprim.isa()}
    found |= {"complaints": complaints(placements(world)), "mpi": world.library}
    if world.rank == 0:
        print(json.dumps(found), flush=True)


def make_cases(flags: argparse.Namespace, world: Group) -> dict[str, Case]:
    cases: dict[str, Case] = {}
    for name in flags.sides:
        batch = flags.batch_alone if name in ALONE else flags.batch
        group = world if name.split("-")[0] in COMMUNICATING else Group()
        if name in PEERS:
            dlprim_threads = dlprim.get_num_threads()
            cases[name] = torch_case(flags.model, batch, world, name == "ddp", dlprim_threads)
        elif name == "apart" and batch == flags.batch_alone and "alone" in cases:
            cases[name] = cases["alone"]
        else:
            overlap, _, option = (name if group is world else "off").partition("-")
            cases[name] = our_case(flags.model, batch, group, overlap, option)
    return cases


class Load:
    """What the host of rank 0 does besides the ranks, at most in a block, in cores."""

    def __init__(self, world: Group) -> None:
        self.most = 0.0
        self._world = world
        self._before = self._now()

    def lap(self) -> None:
        """Ends a block."""
        now = self._now()
        clock, busy, own = (new - old for new, old in zip(now, self._before, strict=True))
        self.most, self._before = max(self.most, (busy - own) / clock), now

    def _now(self) -> tuple[float, float, float]:
        """Seconds of the clock, of busy cores, and of the ranks; the same on all."""
        fields = Path("/proc/stat").read_text().split(maxsplit=9)[1:9]
        user, nice, system, _, _, irq, softirq, steal = map(int, fields)
        busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
        reports = self._world.allgather((self._world.host, busy, time.process_time()))
        own = sum(seconds for host, _, seconds in reports if host == reports[0][0])
        clock = self._world.allgather(time.perf_counter())[0]
        return clock, reports[0][1], own


def run_block(case: Case, name: str, world: Group, steps: int) -> list[Step]:
    """This rank's steps."""
    world.barrier()
    if name not in ALONE:
        return [case.step() for _ in range(steps)]
    found: list[Step] = []
    for rank in range(world.size):
        if rank == world.rank:
            found = [case.step() for _ in range(steps)]
        world.barrier()
    return found


def summary(rounds: list[list[list[Step]]], name: str, flags: argparse.Namespace) -> dict[str, Any]:
    """Of a side: figures of each round. Rates are samples per second and rank."""
    batch = flags.batch_alone if name in ALONE else flags.batch
    apart = name in (*ALONE, "apart")
    found: dict[str, list[float]] = {"rate": [], "step": [], "exposed": [], "communication": []}
    for block in rounds:
        seconds = np.array([[step.seconds for step in steps] for steps in block])
        slowest = seconds.max(axis=0).mean()
        found["rate"].append(
            float((batch / seconds.mean(axis=1)).mean() if apart else batch / slowest)
        )
        found["step"].append(float(slowest))
        for part in ("exposed", "communication"):
            parts = np.array([[getattr(step, part) for step in steps] for steps in block])
            found[part].append(float(parts.max(axis=0).mean()))
    return found


def measured_network(world: Group) -> Network | None:
    """Latency and bandwidth between the first two ranks, both sending at once."""
    if world.size == 1:
        return None
    fastest = {}
    other = (1, 0)[world.rank] if world.rank < 2 else None
    for size in (_SMALL, _LARGE):
        out, into, seconds = np.zeros(size, np.uint8), np.zeros(size, np.uint8), []
        for _ in range(12):
            world.barrier()
            begin = time.perf_counter()
            if other is not None:
                request = world.communicator.Irecv(into, other)
                world.communicator.Isend(out, other).Wait()
                request.Wait()
                seconds.append(time.perf_counter() - begin)
        fastest[size] = float(np.median(seconds[2:])) if seconds else 0.0
    latency, long = world.allgather((fastest[_SMALL], fastest[_LARGE]))[0]
    return Network((_LARGE - _SMALL) / max(long - latency, 1e-9), latency)


def predictions(
    blocks: dict[str, list[list[list[Step]]]],
    flags: argparse.Namespace,
    network: Network,
    ranks: int,
) -> dict[str, float]:
    """Seconds of a step with and without overlap, of what a rank did without communication."""
    source = "apart" if "apart" in blocks else "alone"
    if source not in blocks or flags.batch != flags.batch_alone:
        return {}
    steps = [step for block in blocks[source] for steps in block for step in steps]
    computing = float(np.median([step.seconds for step in steps]))
    typical = min(steps, key=lambda step: abs(step.seconds - computing))
    profile = StepProfile(computing, typical.buckets)
    return {
        name: predict(profile, network, [ranks], overlap=name == "thread")[0].step
        for name in ("thread", "off")
    }


def _reach_peers(flags: argparse.Namespace, world: Group) -> None:
    if "ddp" not in flags.sides:
        return
    import torch

    os.environ |= {"MASTER_ADDR": world.allgather(flags.address)[0]}
    os.environ.setdefault("MASTER_PORT", "29533")
    torch.distributed.init_process_group(
        "gloo", rank=world.rank, world_size=world.size, timeout=timedelta(seconds=200)
    )


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--batch", type=int, required=True, help="samples per rank")
    parser.add_argument("--batch-alone", type=int, required=True, help="of a rank alone")
    parser.add_argument("--sides", nargs="+", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2, help="of a block")
    parser.add_argument("--address", default="127.0.0.1", help="of rank 0, for gloo")
    return parser.parse_args()


if __name__ == "__main__":
    main()
