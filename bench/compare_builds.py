"""Two builds of dlprim against each other: the same calls, in turns, within the same minutes.

Each build lies in an environment of its own and is named by its Python. This program starts itself
in both, on one core, and lets one work at a time: a stretch of a row before, the same after, and so
on. A figure is the median over rounds of the time before over the time after, so above 1 the
second build is faster; the median of the runs is printed, and the geometric mean of each group.

    python bench/compare_builds.py --before old/bin/python --after new/bin/python --groups conv
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import checkout  # noqa: F401

# isort: split
from dlprim.bench.measuring import timing

_WORST = 0.95  # rows below are printed
_REST = 0.04  # seconds in which the other side's threads stop looking for work


class Side:
    """A process that imports one of the builds."""

    def __init__(self, python: str, threads: int) -> None:
        command = [python, str(Path(__file__)), "--serve", str(threads)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, **question: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(question), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"{self._process.args} ended at {question}")
        return json.loads(answer)


def serve(threads: int) -> None:
    """Answers questions on stdin: which rows there are, and seconds of a call."""
    import dlprim
    from compare_rows import rows

    if threads == 1:
        timing.place([0], 1)
    dlprim.set_num_threads(threads)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed is no answer
    known = {f"{group}|{name}": make for group, name, make in rows()}
    call: Any = None
    for line in sys.stdin:
        question = json.loads(line)
        answer: Any = None
        if question["do"] == "list":
            answer = {"rows": list(known), "build": [dlprim.__file__, dlprim.isa()]}
        elif question["do"] == "make":
            call = None  # before the next one takes its memory
            call = known[question["row"]]()
            answer = timing.repeats_for(call, question["seconds"])
        else:
            if threads > 1:
                time.sleep(_REST)
                call()
            answer = timing.seconds_per_call(call, question["repeats"])
        print(json.dumps(answer), file=answers, flush=True)


def ratio_of(before: Side, after: Side, row: str, options: argparse.Namespace) -> float:
    made = [side.ask(do="make", row=row, seconds=options.seconds) for side in (before, after)]
    repeats = max(made)
    series: tuple[list[float], list[float]] = ([], [])
    for _ in range(options.rounds):
        for side, values in zip((before, after), series, strict=True):
            values.append(side.ask(do="time", repeats=repeats))
    return 1 / timing.median_ratio(series[1], series[0])


def report(found: dict[str, list[float]], rows: list[str]) -> None:
    groups: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        groups[row.partition("|")[0]].append(median(found[row]))
    print(f"{'group':36s} {'rows':>5s} {'mean':>6s} {'worst':>6s}")
    for group, values in groups.items():
        mean = timing.geometric_mean(values)
        print(f"{group:36s} {len(values):5d} {mean:6.3f} {min(values):6.3f}")
    for row in rows:
        if median(found[row]) < _WORST:
            print(f"below {_WORST}: {row} {[round(value, 3) for value in found[row]]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", help="Python of the older build's environment")
    parser.add_argument("--after", default=sys.executable)
    parser.add_argument("--groups", nargs="*", default=[""], help="beginnings of their names")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.005, help="of a stretch")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where the ratios of all rows go")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        return serve(options.serve)
    if options.before is None:
        parser.error("--before is missing: the Python whose dlprim is the older one")
    before, after = Side(options.before, options.threads), Side(options.after, options.threads)
    lists = [side.ask(do="list") for side in (before, after)]
    for name, each in zip(("before", "after"), lists, strict=True):
        print(name, *each["build"])
    rows = [row for row in lists[0]["rows"] if row.startswith(tuple(options.groups))]
    found: dict[str, list[float]] = defaultdict(list)
    for _ in range(options.runs):
        for row in rows:
            found[row].append(ratio_of(before, after, row, options))
    report(found, rows)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
