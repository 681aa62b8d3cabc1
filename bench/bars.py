"""Bars of a benchmark: a panel for each pass and type, up to the peak."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

Record = Mapping[str, Any]


def require_matplotlib() -> Any:
    """matplotlib's figures, drawn into files; stops where it is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SystemExit("--plot needs matplotlib: pip install matplotlib") from None
    return Figure


def plot(records: Iterable[Record], path: Path, panels_by: Sequence[str], label: str) -> None:
    """Write a picture in the format that the name of the file says.

    There is a panel for each combination of what the keys ``panels_by`` hold, and in it bars
    of the sides for each record, named by what the key ``label`` holds.
    """

    def panel_of(record: Record) -> tuple[str, ...]:
        return tuple(record[key] for key in panels_by)

    panels = [
        (panel, list(rows)) for panel, rows in groupby(sorted(records, key=panel_of), key=panel_of)
    ]
    widest = max(len(rows) for _, rows in panels)
    figure = require_matplotlib()(figsize=(max(7, 2 + 0.4 * widest), 2.6 * len(panels)))
    axes = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    for axis, (panel, rows) in zip(axes, panels, strict=True):
        _bars(axis, f"{' '.join(panel)}, {rows[0]['threads']} thread(s)", rows, label)
    figure.tight_layout()
    figure.savefig(path)


def _sides(row: Record) -> Mapping[str, float]:
    """GFLOP/s of the row's sides by name."""
    if "sides" in row:
        return row["sides"]
    theirs = row["torch_gflops"]
    return {"dlprim": row["gflops"]} | ({} if theirs is None else {"PyTorch": theirs})


def _bars(axis: Any, title: str, rows: list[Record], label: str) -> None:
    names = list(dict.fromkeys(name for row in rows for name in _sides(row)))
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        heights = [_sides(row).get(name, 0.0) for row in rows]
        axis.bar([row + number * width for row in range(len(rows))], heights, width, label=name)
    axis.set_ylim(0, max(row["peak_gflops"] for row in rows))
    axis.set_xticks([row + (len(names) - 1) * width / 2 for row in range(len(rows))])
    axis.set_xticklabels([str(row[label]) for row in rows])
    axis.set_ylabel("GFLOP/s, up to the peak")
    axis.set_title(title)
    axis.legend(loc="upper left", bbox_to_anchor=(1, 1))
