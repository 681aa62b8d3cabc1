"""Weak and strong scaling of data-parallel training over ranks, beside PyTorch's DDP with gloo.

It verifies that ranks train what one rank trains. Then, for every model, one rank alone with the
other cores idle, ranks that do not communicate (what the shared memory and clock of the machine
leave), ranks that do, and the peer take turns in short blocks (`scaling_worker.py`). Efficiency is
throughput per rank against one rank alone in the same round; figures are medians of the quieter
half of the rounds, with the least and the largest.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

# Before NumPy: ranks inherit what --isa says.
import held_isa

# isort: split

from bars import require_matplotlib
from dlprim.train.records import write_lines
from limited_wire import ADDRESS, ENVIRONMENT, limited_wire
from scaling_case import MODELS

WORKER = Path(__file__).parent / "scaling_worker.py"
BATCHES = {"resnet50": 8, "lstm": 32, "mlp": 256}  # samples of a rank, or of one in strong scaling
LAUNCHER = "{mpiexec} -n {ranks} -bind-to core:{threads}"  # MPICH's
SIDES = (
    "alone",
    "apart",
    "thread",
    "off",
    "thread-bfloat16",
    "thread-sync-bn",
    "torch",
    "ddp",
)
Record = dict[str, Any]


def main() -> None:
    flags = _flags()
    if flags.plot is not None:
        require_matplotlib()
    with contextlib.ExitStack() as stack:
        if flags.limit_rate is not None:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the network goes in any case
            flags.launcher = stack.enter_context(limited_wire(flags.limit_rate))
            flags.ranks = [2]
        records = run(flags)
    if flags.json is not None:
        write_lines(flags.json, records)
    if flags.plot is not None:
        plot(records, flags.plot)


def run(flags: argparse.Namespace) -> list[Record]:
    """Prints a table for each model, mode and number of ranks, and returns a record of each."""
    if flags.verify:
        verify(flags)
    records: list[Record] = []
    for model in flags.models:
        for mode in flags.modes:
            for ranks in flags.ranks:
                record = measured(flags, model, mode, ranks)
                records.append(record)
                title = f"{model}, {mode} scaling, {ranks} ranks, {flags.threads} thread(s) each"
                print(f"\n{title}\n" + "\n".join(lines(record)), flush=True)
    return records


def verify(flags: argparse.Namespace) -> None:
    """Stop unless ranks and one rank train the same."""
    program = ["-m", "dlprim.train", "--check", "--data", "synthetic", "--image-size", "8"]
    program += ["--global-batch", "32", "--hidden", "64"]
    print(launched(flags, max(flags.ranks), program).strip())


def measured(flags: argparse.Namespace, model: str, mode: str, ranks: int) -> Record:
    """What the worker found out about one model."""
    whole = flags.batch or BATCHES[model]
    batch = whole if mode == "weak" else max(whole // ranks, 1)
    words = ["--model", model, "--batch", str(batch), "--batch-alone", str(whole)]
    words += ["--rounds", str(flags.rounds), "--steps", str(flags.steps)]
    words += ["--sides", *flags.sides]
    if flags.limit_rate is not None:
        words += ["--address", ADDRESS]
    record = json.loads(launched(flags, ranks, [str(WORKER), *words]).splitlines()[-1])
    for name, side in record["sides"].items():
        base = record["sides"].get("torch" if name in ("torch", "ddp") else "alone")
        if base is not None:
            pairs = zip(side["rate"], base["rate"], strict=True)
            side["efficiency"] = [rate / alone for rate, alone in pairs]
    return record | {"mode": mode, "batch": batch, "limit": flags.limit_rate}


def launched(flags: argparse.Namespace, ranks: int, program: list[str]) -> str:
    """Standard output of a program on so many ranks."""
    beside = Path(sys.executable).parent / "mpiexec"
    mpiexec = beside if beside.exists() else shutil.which("mpiexec")
    values = {"mpiexec": mpiexec, "ranks": ranks, "threads": flags.threads}
    command = shlex.split(flags.launcher.format(**values))
    environment = os.environ | {"OMP_NUM_THREADS": str(flags.threads)}
    if flags.limit_rate is not None:
        environment |= ENVIRONMENT
    run = subprocess.run(
        [*command, sys.executable, *program], env=environment, stdout=subprocess.PIPE, check=False
    )
    if run.returncode != 0:
        raise SystemExit(f"{' '.join(program)} on {ranks} rank(s) ended with {run.returncode}")
    return run.stdout.decode()


def lines(record: Record) -> list[str]:
    """A row for each side."""
    found = []
    if "network" in record:
        network = record["network"]
        found.append(
            f"  network: {network['bandwidth'] / 1e9:.3f} GB/s each way, "
            f"{1e6 * network['latency']:.0f} us"
        )
    others = record["others"]
    found.append(
        f"  {len(others)} of {record['rounds']} rounds, in which others kept up to "
        f"{max(others):.2f} cores busy"
    )
    found.append(
        f"  {'':16}samples/s of a rank      efficiency              step ms  predicted  exposed"
    )
    for name, side in record["sides"].items():
        efficiency = spread(side["efficiency"], 3) if "efficiency" in side else ""
        expected = record.get("predicted", {}).get(name)
        expected = "" if expected is None else f"{1e3 * expected:.1f}"
        exposed = ""
        if median(side["communication"]) > 0:
            pairs = zip(side["exposed"], side["step"], strict=True)
            exposed = f"{spread([100 * part / whole for part, whole in pairs], 1)} %"
        found.append(
            f"  {name:16}{spread(side['rate'], 2):24} {efficiency:23}"
            f"{1e3 * median(side['step']):8.1f} {expected:>10}  {exposed}"
        )
    return found


def spread(values: list[float], digits: int) -> str:
    """Median, least and largest."""
    return f"{median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def plot(records: list[Record], path: Path) -> None:
    """Efficiency over ranks, a panel for each model and mode."""
    panels = sorted({(record["model"], record["mode"]) for record in records})
    figure = require_matplotlib()(figsize=(6, 3 * len(panels)))
    axes = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    for axis, panel in zip(axes, panels, strict=True):
        rows = [record for record in records if (record["model"], record["mode"]) == panel]
        for name in rows[0]["sides"]:
            values = [median(row["sides"][name]["efficiency"]) for row in rows]
            axis.plot([row["ranks"] for row in rows], values, "o-", label=name)
        axis.set_ylim(bottom=0)
        axis.set_xlabel("ranks")
        axis.set_ylabel("efficiency")
        axis.set_title(f"{panel[0]}, {panel[1]} scaling")
        axis.legend()
    figure.tight_layout()
    figure.savefig(path)


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--ranks", type=int, nargs="+", default=[2])
    parser.add_argument("--modes", nargs="+", choices=("weak", "strong"), default=["weak"])
    default = ["alone", "apart", "thread", "off", "torch", "ddp"]
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=default)
    parser.add_argument("--batch", type=int, help=f"samples (default: {BATCHES})")
    parser.add_argument("--threads", type=int, default=1, help="of each rank")
    held_isa.add_to(parser)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2, help="of a block")
    parser.add_argument("--no-verify", dest="verify", action="store_false")
    parser.add_argument("--launcher", default=LAUNCHER, help="(default: %(default)s)")
    text = "join two ranks by a wire no faster than that, such as 1gbit (needs root and iproute2)"
    parser.add_argument("--limit-rate", metavar="RATE", help=text)
    parser.add_argument("--json", type=Path, metavar="FILE", help="a line for each table")
    parser.add_argument("--plot", type=Path, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
