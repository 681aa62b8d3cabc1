"""Data-parallel training over the ranks of a launcher: weak and strong scaling, and what limits it.

All sides live in the same processes and take turns in short blocks, in the opposite order every
other round, so that what else the machine does falls on all of them alike; of the rounds only that
half counts in which others took the least of the machine. ``alone`` is one rank at a time while
the others sleep, ``apart`` ranks that do not communicate (what shared memory and clocks leave),
``thread`` and ``off`` ranks that do, with and without overlap, ``ddp`` PyTorch's over gloo beside
``torch`` alone. The exchange is also measured by itself, and more ranks are predicted from a rank's
step and the network's measured speed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import dlprim
from dlprim.bench import peers
from dlprim.bench.measuring.case import Record
from dlprim.bench.measuring.timing import noise
from dlprim.bench.networks.sides import Ours, Setting, Theirs, batch_of
from dlprim.distributed import DataParallel, Group
from dlprim.distributed.placement import complaints, placements
from dlprim.distributed.prediction import Network, StepProfile, predict

SIDES = ("alone", "apart", "thread", "off", "thread-bfloat16", "torch", "ddp")
DEFAULT_SIDES = ("alone", "apart", "thread", "off", "torch", "ddp")
MODES = ("weak", "strong")
BATCHES = {"resnet50": 8, "lstm": 32, "gru": 32, "mlp": 256}  # of a rank, or in all
_ALONE = ("alone", "torch")  # one rank at a time
_SMALL, _LARGE = 8, 1 << 23  # bytes of messages that tell latency and bandwidth
_MESSAGES = 12
_EXCHANGES = 5
_TIMEOUT = 200
_PORT = "29533"


@dataclass(frozen=True)
class Step:
    """What a step took on one rank; PyTorch tells the whole only."""

    seconds: float
    exposed: float = 0.0
    communication: float = 0.0
    buckets: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Plan:
    """What is measured on so many ranks."""

    setting: Setting  # with the samples of a rank
    mode: str
    ranks: int
    whole: int  # samples of a rank alone
    rounds: int
    steps: int  # of a block
    threads: int
    sides: Sequence[str]

    def batch(self, side: str) -> int:
        return self.whole if side in _ALONE else self.setting.batch


def measured(plan: Plan, world: Group) -> tuple[dict[str, Any], list[Record]]:
    """Figures of one plan, by side, for the report and as rows whose ratios are efficiencies.

    Called on all ranks, of which the first ``plan.ranks`` work; what they return is the same.
    """
    group = _first(world, plan.ranks)
    joined = _joined(plan)
    cases = {name: _step_of(name, plan, group, joined) for name in plan.sides} if group else {}
    blocks: dict[str, list[list[list[Step]]]] = {name: [] for name in plan.sides}
    others: list[float] = []
    for turn in range(plan.rounds + 1):
        load = _Load(world)
        for name in plan.sides if turn % 2 else plan.sides[::-1]:
            own = _block(cases.get(name), name, world, plan.steps)
            blocks[name].append(world.allgather(own)[: plan.ranks])
            load.lap()
        others.append(load.most)
    # The first round generates code and touches memory.
    quietest = sorted(range(1, plan.rounds + 1), key=lambda turn: others[turn])
    kept = quietest[: (plan.rounds + 1) // 2]
    blocks = {name: [rounds[turn] for turn in kept] for name, rounds in blocks.items()}
    exchange = world.allgather(_exchange(plan, group) if group else 0.0)
    found: dict[str, Any] = {
        "model": plan.setting.model, "mode": plan.mode, "ranks": plan.ranks,
        "batch": plan.setting.batch, "threads": plan.threads, "exchange_seconds": max(exchange),
        "others": [others[turn] for turn in kept],
        "sides": {name: _summary(blocks[name], name, plan) for name in plan.sides},
    }  # fmt: skip
    network = _network(world)
    if network is not None:
        found |= {"network": asdict(network), "predicted": _predictions(blocks, plan, network)}
    return found, list(_records(found, plan))


def setting_up(world: Group, sides: Sequence[str]) -> list[str]:
    """Join PyTorch's processes if they are a side; sentences on how the ranks lie."""
    if "ddp" in sides:
        torch = peers.load("torch")
        hosts = world.allgather(world.host)
        os.environ.setdefault("MASTER_ADDR", hosts[0] if len(set(hosts)) > 1 else "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", _PORT)
        torch.distributed.init_process_group(
            "gloo", rank=world.rank, world_size=world.size, timeout=timedelta(seconds=_TIMEOUT)
        )
    found = placements(world)
    return [f"MPI: {world.library}", *map(str, found), *complaints(found)]


def _first(world: Group, ranks: int) -> Group | None:
    """The first ranks as a group of their own; None on the others."""
    if ranks == world.size:
        return world
    inside = world.rank < ranks
    communicator = world.communicator.Split(int(not inside), world.rank)
    return Group(communicator, world.timeout) if inside else None


def _joined(plan: Plan) -> Any:
    """PyTorch's processes of the first ranks, which all ranks have to make."""
    if "ddp" not in plan.sides:
        return None
    return peers.torch(plan.threads).distributed.new_group(list(range(plan.ranks)))


def _step_of(side: str, plan: Plan, group: Group, joined: Any) -> Callable[[], Step]:
    setting = replace(plan.setting, batch=plan.batch(side))
    src, targets = batch_of(setting, group.rank)
    if side in ("torch", "ddp"):
        return _torch_step(joined if side == "ddp" else None, setting, plan, (src, targets))
    ours = Ours(setting)
    overlap, _, wire = side.partition("-")
    communicates = side not in (*_ALONE, "apart")
    parallel = DataParallel(
        ours.model, group if communicates else Group(), overlap=overlap if communicates else "off",
        wire=wire or "float32",
    )  # fmt: skip
    parameters = ours.model.parameters()

    def step() -> Step:
        begin = time.perf_counter()
        y = ours.model.forward(src)
        _, diff = dlprim.softmax_cross_entropy(y, targets)
        ours.model.backward(diff, parallel.ready)
        parallel.finish()
        ours.optimizer.step([it.gradient for it in parameters])
        traffic = parallel.traffic
        seconds = time.perf_counter() - begin
        return Step(seconds, traffic.exposed, traffic.seconds, traffic.buckets)

    return step


def _torch_step(joined: Any, setting: Setting, plan: Plan, batch: Any) -> Callable[[], Step]:
    torch = peers.torch(plan.threads)
    theirs = Theirs(torch, setting)
    if joined is not None:
        parallel = torch.nn.parallel.DistributedDataParallel
        theirs.model = parallel(theirs.model, process_group=joined)

    def step() -> Step:
        begin = time.perf_counter()
        theirs.train(*batch)
        return Step(time.perf_counter() - begin)

    return step


def _block(case: Callable[[], Step] | None, name: str, world: Group, steps: int) -> list[Step]:
    """This rank's steps; those alone come one after the other."""
    world.barrier()
    found: list[Step] = []
    for rank in range(world.size) if name in _ALONE else (world.rank,):
        if rank == world.rank and case is not None:
            found = [case() for _ in range(steps)]
        if name in _ALONE:
            world.barrier()
    return found


class _Load:
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
        return self._world.allgather(time.perf_counter())[0], reports[0][1], own


def _exchange(plan: Plan, group: Group) -> float:
    """Seconds to average all gradients while nothing computes, a median."""
    model = Ours(plan.setting).model
    parallel = DataParallel(model, group, overlap="off")
    seconds = []
    for _ in range(_EXCHANGES):
        group.barrier()
        begin = time.perf_counter()
        for parameter in reversed(model.parameters()):
            parallel.ready(parameter)
        parallel.finish()
        seconds.append(time.perf_counter() - begin)
    return median(seconds)


def _summary(rounds: list[list[list[Step]]], name: str, plan: Plan) -> dict[str, list[float]]:
    """Of a side: figures of each round. Rates are samples per second and rank."""
    batch, apart = plan.batch(name), name in (*_ALONE, "apart")
    found: dict[str, list[float]] = {"rate": [], "step": [], "exposed": [], "communication": []}
    for block in rounds:
        seconds = np.array([[step.seconds for step in steps] for steps in block])
        slowest = float(seconds.max(axis=0).mean())
        rate = (batch / seconds.mean(axis=1)).mean() if apart else batch / slowest
        found["rate"].append(float(rate))
        found["step"].append(slowest)
        for part in ("exposed", "communication"):
            parts = np.array([[getattr(step, part) for step in steps] for steps in block])
            found[part].append(float(parts.max(axis=0).mean()))
    return found


def _records(found: dict[str, Any], plan: Plan) -> Any:
    for name, side in found["sides"].items():
        base = found["sides"].get("torch" if name in ("torch", "ddp") else "alone")
        ratios, errors = {}, {}
        if base is not None and name not in _ALONE:
            label = "torch alone" if name == "ddp" else "alone"
            pairs = [a / b for a, b in zip(side["rate"], base["rate"], strict=True)]
            ratios, errors = {label: median(pairs)}, {label: noise(pairs)}
        yield Record(
            "mpi", f"{plan.mode} {plan.setting.model}", f"{plan.ranks} ranks, {name}",
            plan.setting.dtype, plan.threads, 1, len(side["rate"]), 1e3 * median(side["step"]),
            ratios=ratios, noise=errors,
            notes={"rate": f"{median(side['rate']):.4g} samples/s of a rank",
                   "exposed": f"{1e3 * median(side['exposed']):.2f} ms exposed"},
        )  # fmt: skip


def _network(world: Group) -> Network | None:
    """Latency and bandwidth between the first two ranks, both sending at once."""
    if world.size == 1:
        return None
    fastest = {}
    other = (1, 0)[world.rank] if world.rank < 2 else None
    for size in (_SMALL, _LARGE):
        out, into, seconds = np.zeros(size, np.uint8), np.zeros(size, np.uint8), []
        for _ in range(_MESSAGES):
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


def _predictions(
    blocks: dict[str, list[list[list[Step]]]], plan: Plan, network: Network
) -> list[dict[str, float]]:
    """Of weak scaling to more ranks, from what a rank did without communication."""
    source = next((it for it in ("apart", "alone") if it in blocks), None)
    if source is None or plan.mode != "weak":
        return []
    steps = [step for block in blocks[source] for some in block for step in some]
    computing = float(np.median([step.seconds for step in steps]))
    typical = min(steps, key=lambda step: abs(step.seconds - computing))
    overlap = partial(predict, StepProfile(computing, typical.buckets), network)
    return [asdict(it) for it in overlap()]
