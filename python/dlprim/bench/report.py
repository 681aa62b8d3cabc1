"""What a run found: lines for people, and one JSON document that `compare` and pictures read.

A line is a row; the summary has a line for each group of rows and type: geometric means of the
fractions of the peak and of the roofline's bound, and of the ratios to each peer, with its worst
row; of a network also the ratio of the whole, in which every layer counts its time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from dlprim.bench.machine import Machine
from dlprim.bench.measuring.case import Record
from dlprim.bench.measuring.timing import geometric_mean
from dlprim.files import replaced

FORMAT = "dlprim.bench 1"
_WIDTH = 9  # of a column, at least


class ReportError(Exception):
    """A file is no report of this benchmark; the sentence says what it is."""


@dataclass
class Report:
    """Of one run."""

    machine: Machine
    command: str
    date: str
    rows: list[Record] = field(default_factory=list)
    facts: dict[str, float] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    curves: list[dict[str, Any]] = field(default_factory=list)  # losses, by side
    scaling: list[dict[str, Any]] = field(default_factory=list)  # of ranks

    def write(self, path: Path) -> None:
        """The document, whole or not at all; a row is a line.

        Raises
        ------
        OSError
        """
        head = {
            "format": FORMAT, "command": self.command, "date": self.date,
            "machine": self.machine.as_json(), "facts": self.facts, "left_out": self.left_out,
            "curves": self.curves, "scaling": self.scaling,
        }  # fmt: skip
        rows = ",\n".join(json.dumps(row.as_json()) for row in self.rows)
        text = json.dumps(head, indent=1)[:-2] + f',\n "rows": [\n{rows}\n]\n}}\n'
        with replaced(path) as file:
            file.write(text.encode())

    def summary(self) -> list[str]:
        """Lines for people."""
        found = [f"{name}: {value:.4g}" for name, value in self.facts.items()]
        for (command, group, dtype, threads), rows in grouped(self.rows):
            found += _summary(f"{command} {group} {dtype}, {_threads(threads)}", rows)
        return found + self.left_out


def read(path: Path) -> Report:
    """A report that was written before.

    Raises
    ------
    ReportError
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReportError(f"{path} cannot be read as a report: {error}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ReportError(f"{path} is no report, expected a file that --json has written")
    try:
        rows = [Record(**row) for row in document["rows"]]
        others = {name: document[name] for name in ("command", "date", *_OTHERS)}
        return Report(Machine(**document["machine"]), rows=rows, **others)
    except (KeyError, TypeError) as error:
        raise ReportError(f"{path} is a report that lacks something: {error}") from error


_OTHERS = ("facts", "left_out", "curves", "scaling")


def grouped(rows: Iterable[Record]) -> list[tuple[tuple[str, str, str, int], list[Record]]]:
    """Rows by command, group, type and threads, in the order in which these first came."""

    def key(row: Record) -> tuple[str, str, str, int]:
        return row.command, row.group, row.dtype, row.threads

    rows = list(rows)
    order = {it: place for place, it in enumerate(dict.fromkeys(map(key, rows)))}
    ordered = sorted(rows, key=lambda row: order[key(row)])
    return [(it, list(some)) for it, some in groupby(ordered, key)]


def header(title: str, peers: Sequence[str]) -> str:
    """Above the rows of a group."""
    names = ["time", "GFLOP/s", "of peak", "of bound"]
    ratios = "".join(f"  x {it}".rjust(_WIDTH) for it in peers)
    return f"\n{title}\n{'':34s}" + "".join(f"{it:>{_WIDTH}s}" for it in names) + ratios


def line(row: Record, peers: Sequence[str]) -> str:
    """A row below `header`, with what it has besides at the end."""
    values = [(row.gflops, 1), (row.of_peak, 3), (row.of_bound, 3)]
    cells = "".join(f"{_cell(value, digits):>{_WIDTH}s}" for value, digits in values)
    cells += "".join(_cell(row.ratios.get(it), 2).rjust(max(_WIDTH, len(it) + 4)) for it in peers)
    others = [f"x {name} {it:.2f}" for name, it in row.ratios.items() if name not in peers]
    notes = "  ".join(others + [it for name, it in row.notes.items() if name != "schedule"])
    return f"{row.name[:33]:34s}{_time(row.milliseconds):>{_WIDTH}s}{cells}  {notes}".rstrip()


def title(row: Record) -> str:
    return f"{row.command} {row.group}, {row.dtype}, {_threads(row.threads)}"


def _cell(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _time(milliseconds: float) -> str:
    for unit, size in (("s", 1e3), ("ms", 1.0), ("us", 1e-3)):
        if milliseconds >= size:
            return f"{milliseconds / size:.4g} {unit}"
    return f"{milliseconds * 1e6:.3g} ns"


def _threads(threads: int) -> str:
    return f"{threads} thread{'s' * (threads != 1)}"


def _summary(name: str, rows: list[Record]) -> list[str]:
    parts = []
    for what, values in (
        ("peak", [it.of_peak for it in rows]),
        ("bound", [it.of_bound for it in rows]),
    ):
        known = [value for value in values if value is not None]
        if known:
            parts.append(f"{geometric_mean(known):.3f} of {what}")
    for peer in dict.fromkeys(peer for row in rows for peer in row.ratios):
        known_rows = [row for row in rows if peer in row.ratios]
        worst = min(known_rows, key=lambda row: row.ratios[peer])
        text = f"{geometric_mean(row.ratios[peer] for row in known_rows):.2f} x {peer}"
        if len(known_rows) > 1:
            text += f" (worst {worst.ratios[peer]:.2f}: {worst.name})"
        parts.append(text + _whole(known_rows, peer))
    return [f"{name}, {len(rows)} row{'s' * (len(rows) != 1)}: {'; '.join(parts)}"]


def _whole(rows: list[Record], peer: str) -> str:
    """Of all layers of a network, as often as they occur in it."""
    if all(row.count == 1 for row in rows):
        return ""
    ours = sum(row.count * row.milliseconds for row in rows)
    theirs = sum(row.count * row.milliseconds * row.ratios[peer] for row in rows)
    return f", all layers {theirs / ours:.2f}"
