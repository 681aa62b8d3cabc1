"""Weak and strong scaling of data-parallel training over ranks, beside PyTorch's DDP with gloo.

It verifies that ranks train what one rank trains, then runs every model on every number of ranks:
ours with and without overlap, ranks that do not communicate (what the shared memory and clock of
the machine leave), and the peer. Efficiency is throughput per rank against one rank alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bars import require_matplotlib
from dlprim.train.records import write_lines
from scaling_case import MODELS

WORKER = Path(__file__).parent / "scaling_worker.py"
BATCHES = {"resnet50": 8, "lstm": 32, "mlp": 256}  # samples of a rank, or of one in strong scaling
LAUNCHER = "{folder}/mpiexec -n {ranks} -bind-to core:{threads}"  # MPICH's
Record = dict[str, Any]


def main() -> None:
    flags = _flags()
    if flags.plot is not None:
        require_matplotlib()
    verify(flags)
    records: list[Record] = []
    for model in flags.models:
        for mode in flags.modes:
            print(f"\n{model}, {mode} scaling, {flags.threads} thread(s) per rank")
            print(f"{'':24}ranks   samples/s    per rank  efficiency  step ms  exposed")
            for record in measured(flags, model, mode):
                print(line(record), flush=True)
                records.append(record)
    if flags.json is not None:
        write_lines(flags.json, records)
    if flags.plot is not None:
        plot(records, flags.plot)


def verify(flags: argparse.Namespace) -> None:
    """Stop unless ranks and one rank train the same."""
    program = ["-m", "dlprim.train", "--check", "--data", "synthetic", "--image-size", "8"]
    program += ["--global-batch", "32", "--hidden", "64"]
    run = launched(flags, max(flags.ranks), program)
    print(run.strip())


def measured(flags: argparse.Namespace, model: str, mode: str) -> Iterator[Record]:
    """Records of one model; the first of each side is the baseline of those that follow."""
    alone: dict[str, float] = {}
    for ranks in [1, *(count for count in flags.ranks if count > 1)]:
        whole = flags.batch or BATCHES[model]
        batch = whole if mode == "weak" else max(whole // ranks, 1)
        for name, options in sides(flags, ranks).items():
            words = ["--model", model, "--batch", str(batch), *options]
            words += ["--steps", str(flags.steps), "--warmup", str(flags.warmup)]
            record = json.loads(launched(flags, ranks, [str(WORKER), *words]).splitlines()[-1])
            rate = record["samples_per_s"]
            if "--apart" in options:
                rate = sum(record["samples_per_s_of_ranks"])
            base = "PyTorch" if name.startswith("PyTorch") else "dlprim"
            alone.setdefault(base, rate)
            record |= {"model": model, "mode": mode, "side": name, "ranks": ranks}
            record |= {"samples_per_s": rate, "efficiency": rate / ranks / alone[base]}
            yield record


def sides(flags: argparse.Namespace, ranks: int) -> dict[str, list[str]]:
    """What is run on so many ranks, by name, and the worker's flags for it."""
    if ranks == 1:
        found = {"dlprim": []}
    else:
        found = {f"dlprim, {name}": ["--overlap", name] for name in flags.overlaps}
        found["dlprim, apart"] = ["--apart"]
    if flags.torch:
        found["PyTorch" if ranks == 1 else "PyTorch DDP, gloo"] = ["--side", "torch"]
    return found


def launched(flags: argparse.Namespace, ranks: int, program: list[str]) -> str:
    """Standard output of a program on so many ranks."""
    folder = Path(sys.executable).parent
    values = {"folder": folder, "ranks": ranks, "threads": flags.threads}
    command = shlex.split(flags.launcher.format(**values))
    environment = os.environ | {"OMP_NUM_THREADS": str(flags.threads)}
    run = subprocess.run(
        [*command, sys.executable, *program], env=environment, stdout=subprocess.PIPE, check=False
    )
    if run.returncode != 0:
        raise SystemExit(f"{' '.join(program)} on {ranks} rank(s) ended with {run.returncode}")
    return run.stdout.decode()


def line(record: Record) -> str:
    rate, ranks = record["samples_per_s"], record["ranks"]
    exposed = record.get("exposed")
    share = "" if exposed is None else f"{100 * exposed / record['step']:6.1f} %"
    return (
        f"  {record['side']:22}{ranks:5d}{rate:12.1f}{rate / ranks:12.1f}"
        f"{record['efficiency']:12.3f}{1e3 * record['step']:9.1f} {share}"
    )


def plot(records: list[Record], path: Path) -> None:
    """Throughput over ranks, a panel for each model and mode."""
    panels = sorted({(record["model"], record["mode"]) for record in records})
    figure = require_matplotlib()(figsize=(6, 3 * len(panels)))
    axes = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    for axis, panel in zip(axes, panels, strict=True):
        rows = [record for record in records if (record["model"], record["mode"]) == panel]
        for side in dict.fromkeys(record["side"] for record in rows):
            own = [record for record in rows if record["side"] == side]
            ranks = [record["ranks"] for record in own]
            axis.plot(ranks, [record["samples_per_s"] for record in own], "o-", label=side)
        axis.set_ylim(bottom=0)
        axis.set_xlabel("ranks")
        axis.set_ylabel("samples/s")
        axis.set_title(f"{panel[0]}, {panel[1]} scaling")
        axis.legend()
    figure.tight_layout()
    figure.savefig(path)


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--modes", nargs="+", choices=("weak", "strong"), default=["weak"])
    overlaps = ("thread", "poll", "off")
    parser.add_argument("--overlaps", nargs="+", choices=overlaps, default=["thread", "off"])
    parser.add_argument("--batch", type=int, help=f"samples (default: {BATCHES})")
    parser.add_argument("--threads", type=int, default=1, help="of each rank")
    parser.add_argument("--warmup", type=int, default=2, help="steps")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--no-torch", dest="torch", action="store_false")
    parser.add_argument("--launcher", default=LAUNCHER, help="(default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="a line for each row")
    parser.add_argument("--plot", type=Path, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
