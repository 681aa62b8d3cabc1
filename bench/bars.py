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

    There is a panel for each combination of what the keys ``panels_by`` hold, and in it a pair of
    bars for each record, named by what the key ``label`` holds.
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


def _bars(axis: Any, title: str, rows: list[Record], label: str) -> None:
    positions = range(len(rows))
    compared = rows[0]["torch_gflops"] is not None
    width = 0.4 if compared else 0.8
    axis.bar(positions, [row["gflops"] for row in rows], width, label="dlprim")
    if compared:
        shifted = [position + width for position in positions]
        axis.bar(shifted, [row["torch_gflops"] for row in rows], width, label="PyTorch")
    axis.set_ylim(0, max(row["peak_gflops"] for row in rows))
    axis.set_xticks([position + (width / 2 if compared else 0) for position in positions])
    axis.set_xticklabels([str(row[label]) for row in rows])
    axis.set_ylabel("GFLOP/s, up to the peak")
    axis.set_title(title)
    axis.legend(loc="upper left", bbox_to_anchor=(1, 1))
