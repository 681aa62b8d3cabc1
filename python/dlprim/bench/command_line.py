"""What ``python -m dlprim.bench`` does with its options, and its exit status.

0 after a complete run, also where `compare` finds that something became worse; 1 where a result is
wrong or a file cannot be read or written; 2 for a wrong option; 130 after Ctrl-C. Nothing is
written before everything was measured.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import dlprim
from dlprim.bench import compare, flags, machine, peers, report
from dlprim.bench.commands import COMMANDS
from dlprim.bench.measuring import timing
from dlprim.bench.measuring.case import Row, UnavailableError
from dlprim.bench.measuring.runner import Turns, measure
from dlprim.bench.measuring.verification import WrongResultError
from dlprim.bench.networks import ranks
from dlprim.bench.networks.train import curves, setting_of
from dlprim.bench.progress import Progress
from dlprim.bench.settings import Settings
from dlprim.bench.tables import TableError
from dlprim.distributed import LauncherError
from dlprim.files import check_writable

PROGRAM = "python -m dlprim.bench"
_SHARE = 0.7  # of the time of a row that goes into its turns; the rest makes and verifies it
_RANKS = 4  # at most, of the part mpi of a run of everything
_STEPS = 60  # of a training curve
_THREADED = ("3", "5", "8", "13", "18")  # layers that all cores compute, too
_LEAST = 0.02  # seconds of turns

Plan = list[tuple[str, Row, Settings]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, or compares, as the options say, and returns the exit status.

    Raises
    ------
    SystemExit
        With code 2 after a wrong option, with code 0 after --help.
    """
    parser = flags.parser(PROGRAM)
    options = parser.parse_args(arguments)
    try:
        if options.command == "compare":
            return _compare(options)
        _check(parser, options)
        if options.command == "mpi":
            found = _begun(options)
            return _keep(found, options) if ranks.run(options, found) else 0
        return _measure(parser, options)
    except (LauncherError, report.ReportError, WrongResultError, OSError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _compare(options: argparse.Namespace) -> int:
    before, after = report.read(options.before), report.read(options.after)
    print("\n".join(compare.lines(before, after, options.least)))
    return 0


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuse before the first row what would fail behind the last."""
    if dlprim.isa() == "scalar":
        parser.error("no vector ISA level is usable here: there is nothing to measure")
    if options.isa is not None and options.isa not in machine.usable_levels():
        known = ", ".join(machine.usable_levels())
        parser.error(f"argument --isa: {options.isa} is not usable here, expected one of {known}")
    if options.command != "mpi" and options.cpu_time and options.threads != 1:
        parser.error("argument --cpu-time: it is the time of one thread")
    if options.json is not None:
        try:
            check_writable(options.json)
        except OSError as error:
            parser.error(f"argument --json: {error}")
    if options.plot is not None:
        try:
            options.plot.mkdir(parents=True, exist_ok=True)
            check_writable(options.plot / "roofline-light.svg")
            peers.load("matplotlib")
        except (OSError, UnavailableError) as error:
            parser.error(f"argument --plot: {error}")


def _begun(options: argparse.Namespace) -> report.Report:
    """A report that knows its machine."""
    today = time.strftime("%Y-%m-%d")
    return report.Report(machine.described(options.quick), options.command, today)


def _measure(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    cores = sorted(os.sched_getaffinity(0))
    names = list(COMMANDS) if options.command == "all" else [options.command]
    wanted = [it for it in options.peers if any(it in COMMANDS[name].peers for name in names)]
    missing = peers.missing(wanted)
    for name, reason in missing.items():
        print(f"{name} is left out: {reason}")
    plan: Plan = []
    for name in names:
        try:
            settings = flags.settings_of(options, name)
            plan += [(name, row, settings) for row in COMMANDS[name].rows(settings)]
        except TableError as error:
            parser.error(str(error))
        except UnavailableError as error:
            if options.command != "all":
                parser.error(f"{name} cannot be measured: {error}")
            print(f"{name} is left out: {error}")
    if options.command == "all" and options.threads == 1 and len(cores) > 1:
        plan += _on_all_cores(options, len(cores))
    if not plan:
        parser.error("expected at least one row, the options leave none")
    found = _begun(options)
    print("\n".join(found.machine.lines()), flush=True)
    available = [name for name in wanted if name not in missing]
    _run(plan, found, available, options)
    for name in names if not options.rows else ():
        found.facts |= COMMANDS[name].facts()
    os.sched_setaffinity(0, cores)
    if options.command == "all":
        _ranks(options, found, min(len(cores), _RANKS))
    if "train" in names and "torch" in available:
        found.curves = [
            curves(setting_of(flags.settings_of(options, "train"), "lstm", dtype), options.threads,
                   _STEPS)
            for dtype in ("float32", "bfloat16")
        ]  # fmt: skip
    print("\n" + "\n".join(found.summary()))
    return _keep(found, options)


def _run(
    plan: Plan, found: report.Report, available: list[str], options: argparse.Namespace
) -> None:
    """Measures row after row, and prints each."""
    deadline = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    cores = os.sched_getaffinity(0)
    titled, shown = "", list[str]()
    with Progress(len(plan)) as progress:
        for place, (command, row, settings) in enumerate(plan):
            timing.place(cores, settings.threads, options.core)
            dlprim.set_num_threads(settings.threads)
            progress.before(f"{command} {row.group}, {row.name}, {row.dtype}")
            seconds = options.seconds
            if deadline is not None:
                seconds = _SHARE * (deadline - time.monotonic()) / (len(plan) - place)
            turns = Turns(settings.threads, options.rounds, max(seconds, _LEAST), options.cpu_time)
            columns = [it for it in COMMANDS[command].peers if it in available]
            record = measure(command, row, turns, columns, found.left_out)
            progress.clear()
            if report.title(record) != titled:
                titled, shown = report.title(record), list(record.ratios)
                print(report.header(titled, shown))
            print(report.line(record, shown), flush=True)
            found.rows.append(record)


def _on_all_cores(options: argparse.Namespace, cores: int) -> Plan:
    """Some convolutions again, for what threads make of them."""
    settings = replace(
        flags.settings_of(options, "conv"), threads=cores, dtypes=("float32",),
        passes=("forward",), rows=() if options.quick else _THREADED,
    )  # fmt: skip
    return [("conv", row, settings) for row in COMMANDS["conv"].rows(settings)]


def _ranks(options: argparse.Namespace, found: report.Report, ranks: int) -> None:
    """`mpi` in processes of its own, where there is a launcher."""
    mpiexec = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}"
                                           f"{os.environ.get('PATH', '')}")  # fmt: skip
    if mpiexec is None or ranks < 2:
        found.left_out.append("mpi is left out: it needs two cores, and the mpiexec of an MPI")
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        command = [mpiexec, "-n", str(ranks), sys.executable, "-m", "dlprim.bench", "mpi"]
        command += ["--quick", "--rounds", "3"] if options.quick else ["--modes", "weak"]
        done = subprocess.run([*command, "--json", str(path)], check=False)
        if done.returncode:
            found.left_out.append(f"mpi is left out: it ended with {done.returncode}")
            return
        other = report.read(path)
    found.rows += other.rows
    found.scaling += other.scaling


def _keep(found: report.Report, options: argparse.Namespace) -> int:
    if options.json is not None:
        found.write(options.json)
    if options.plot is not None:
        from dlprim.bench.pictures import draw_all

        drawn = list(draw_all(found, options.plot))
        print("\n".join(map(str, drawn)) or "There is no picture of these rows, nothing is drawn.")
    return 0
