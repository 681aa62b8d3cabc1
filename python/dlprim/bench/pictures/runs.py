"""Pictures of whole runs: how they scale with threads and ranks, and what training learns."""

from __future__ import annotations

from statistics import median
from typing import Any

from dlprim.bench.measuring.timing import geometric_mean
from dlprim.bench.pictures.style import LABELS, Theme, bars, legend, panels, titled
from dlprim.bench.report import Report

_SAID = ("apart", "thread", "off", "thread-bfloat16", "ddp")  # of the sides of ranks


def scaling(report: Report, theme: Theme) -> Any:
    """Threads of convolutions, efficiency of ranks, and what more ranks are predicted to reach."""
    drawn = [draw for draw, has in (
        (_threads, any(it.threads > 1 for it in report.rows)),
        (_ranks, bool(report.scaling)),
        (_predicted, any(it.get("predicted") for it in report.scaling)),
    ) if has]  # fmt: skip
    if not drawn:
        return None
    figure, axes = panels(theme, 1, len(drawn), 3.6)
    for axis, draw in zip(axes, drawn, strict=True):
        draw(axis, report, theme)
    return figure


def _threads(axis: Any, report: Report, theme: Theme) -> None:
    """Speed-up over one thread of the rows that were measured with several."""
    single = {
        (it.command, it.group, it.name, it.dtype): it for it in report.rows if it.threads == 1
    }
    found: dict[int, list[float]] = {1: [1.0]}
    for row in report.rows:
        one = single.get((row.command, row.group, row.name, row.dtype))
        if row.threads > 1 and one is not None:
            found.setdefault(row.threads, []).append(one.milliseconds / row.milliseconds)
    counts = sorted(found)
    axis.plot(counts, counts, color=theme.faint, linestyle=":", label="ideal")
    axis.plot(counts, [geometric_mean(found[it]) for it in counts], "o-",
              color=theme.of("dlprim"), label="convolutions")  # fmt: skip
    for count in counts[1:]:
        axis.scatter([count] * len(found[count]), found[count], s=9, color=theme.of("direct"))
    axis.set_xticks(counts)
    axis.set_ylim(bottom=0)
    titled(axis, theme, "Threads", "threads", "times as fast as one")
    legend(axis, theme, loc="upper left")


def _ranks(axis: Any, report: Report, theme: Theme) -> None:
    """Throughput of a rank over that of a rank alone, weak scaling."""
    runs = [it for it in report.scaling if it["mode"] == "weak"]
    sides = {side: [_efficiency(run, side) for run in runs] for side in _SAID}
    bars(axis, theme, [f"{it['model']}\n{it['ranks']} ranks" for it in runs],
         {side: heights for side, heights in sides.items() if any(heights)})  # fmt: skip
    axis.axhline(1, color=theme.ink, linewidth=1)
    titled(axis, theme, "Ranks, weak scaling", y="speed of a rank, of one alone")
    axis.set_ylim(0, 1.7)
    legend(axis, theme, loc="upper left")


def _efficiency(run: dict[str, Any], side: str) -> float:
    """The median of rounds; 0 where there is none."""
    own = run["sides"].get(side)
    base = run["sides"].get("torch" if side == "ddp" else "alone")
    if own is None or base is None:
        return 0.0
    return float(median(a / b for a, b in zip(own["rate"], base["rate"], strict=True)))


def _predicted(axis: Any, report: Report, theme: Theme) -> None:
    for place, run in enumerate(it for it in report.scaling if it.get("predicted")):
        color = theme.of(("dlprim", "torch", "onnxruntime", "openvino")[place % 4])
        axis.plot([it["nodes"] for it in run["predicted"]],
                  [it["efficiency"] for it in run["predicted"]], "o-", markersize=3, color=color,
                  label=f"{run['model']}, N = {run['batch']}")  # fmt: skip
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_ylim(0, 1.05)
    titled(axis, theme, "Predicted for more", "ranks", "efficiency")
    legend(axis, theme, loc="lower left")


def training(report: Report, theme: Theme) -> Any:
    """Losses of both sides from the same weights and batches, and how far apart they are."""
    if not report.curves:
        return None
    figure, axes = panels(theme, len(report.curves), 2, 2.9)
    for number, run in enumerate(report.curves):
        losses, apart = axes[2 * number : 2 * number + 2]
        for place, (side, values) in enumerate(run["losses"].items()):
            color, wide = theme.of(side.partition(",")[0]), 1.2 + 2 * (not place)
            losses.plot(values, color=color, linewidth=wide, alpha=1 if place else 0.6,
                        label=LABELS.get(side, side))  # fmt: skip
        ours, theirs = run["losses"]["dlprim"], run["losses"]["torch"]
        relative = [abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True)]
        apart.semilogy([max(it, 1e-9) for it in relative], color=theme.of("dlprim"))
        titled(losses, theme, f"{run['model']}, {run['dtype']}", "step", "loss")
        titled(apart, theme, "difference of the losses", "step", "relative")
        legend(losses, theme, loc="upper right")
    return figure
