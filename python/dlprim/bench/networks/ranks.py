"""The subcommand ``mpi``: on all ranks of a launcher, of which the first one writes the report."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import dlprim
from dlprim.bench import peers, report
from dlprim.bench.measuring.case import Record
from dlprim.bench.measuring.verification import WrongResultError
from dlprim.bench.networks import scaling
from dlprim.bench.networks.scaling import BATCHES, Plan
from dlprim.bench.networks.sides import Setting
from dlprim.distributed import Group
from dlprim.train.agreement import only_rank_0_prints
from dlprim.train.command_line import main as train

_TIMEOUT = 200
_CHECK = "--check --data synthetic --image-size 8 --global-batch 32 --hidden 64"
_QUICK: dict[str, Any] = {"size": 64, "hidden": 64}


def run(options: argparse.Namespace, found: report.Report) -> bool:
    """Measures what the options say; whether this is the rank that reports.

    Raises
    ------
    LauncherError
        Several processes were started and MPI cannot be used.
    WrongResultError
        Ranks do not train what one rank trains.
    """
    world = Group.world(timeout=_TIMEOUT)
    dlprim.set_num_threads(options.threads)
    missing = peers.missing(["torch"])
    absent = {"torch", "ddp"} if missing else {"ddp"} if world.size == 1 else set()
    sides = [it for it in options.sides if it not in absent]
    with only_rank_0_prints(world):
        said = scaling.setting_up(world, sides)
        said += [f"torch is left out: {it}" for it in missing.values()]
        print("\n".join([*found.machine.lines(), *said]), flush=True)
        if world.size > 1 and train([*_CHECK.split(), "--threads", str(options.threads)]):
            raise WrongResultError("ranks do not train what one rank trains")
        for plan in _plans(options, world.size, sides):
            figures, rows = scaling.measured(plan, world)
            found.scaling.append(figures)
            found.rows += rows
            print("\n" + "\n".join(lines(figures, rows)), flush=True)
    return world.rank == 0


def _plans(options: argparse.Namespace, size: int, sides: list[str]) -> Iterator[Plan]:
    counts = options.ranks or sorted({*(2**it for it in range(1, size.bit_length())), size} - {1})
    for model in options.models:
        for mode in options.modes:
            for ranks in [it for it in counts if it <= size] or [1]:
                whole = (options.batch or BATCHES[model]) if not options.quick else 2 * ranks
                batch = whole if mode == "weak" else max(whole // ranks, 1)
                setting = Setting(model, options.dtype, batch)
                if options.quick:
                    setting = replace(setting, **_QUICK)
                yield Plan(
                    setting, mode, ranks, whole, options.rounds, options.steps, options.threads,
                    sides,
                )  # fmt: skip


def lines(figures: dict[str, Any], rows: list[Record]) -> list[str]:
    """For people: the sides, the network, the exchange alone and predictions."""
    title = f"{figures['model']}, {figures['mode']} scaling, {figures['ranks']} ranks, "
    found = [f"{title}{figures['batch']} samples each, {figures['threads']} thread(s) each"]
    for row in rows:
        ratio = "".join(f"  {it:.3f} of {name}" for name, it in row.ratios.items())
        found.append(f"  {row.name:28s} {row.milliseconds:9.2f} ms{ratio}  "
                     f"{'  '.join(row.notes.values())}")  # fmt: skip
    found.append(f"  exchange alone {1e3 * figures['exchange_seconds']:.2f} ms")
    if "network" in figures:
        network = figures["network"]
        found.append(
            f"  network: {network['bandwidth'] / 1e9:.3f} GB/s each way, "
            f"{1e6 * network['latency']:.0f} us"
        )
    for it in figures.get("predicted", ()):
        found.append(
            f"  predicted on {it['nodes']:4d}: step {1e3 * it['step']:.1f} ms, exposed "
            f"{1e3 * it['exposed']:.1f} ms, efficiency {it['efficiency']:.3f}"
        )
    return found
