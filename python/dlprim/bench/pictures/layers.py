"""Pictures of rows: under the roofline, layer by layer, above the roof, network by network."""

from __future__ import annotations

from statistics import median
from typing import Any

from dlprim.bench.measuring.case import Record
from dlprim.bench.pictures.style import LABELS, Theme, bars, legend, panels, shared_legend, titled
from dlprim.bench.report import Report

_DTYPES = ("float32", "bfloat16", "int8")
_FORWARD = "forward blocked"
_MARKS = {"conv": "o", "linear": "s", "rnn": "^", "layers": "D", "train": "P"}


def roofline(report: Report, theme: Theme) -> Any:
    """Every row that has operations and bytes, below the roofs of its type."""
    rows = [it for it in report.rows if it.intensity and it.gflops and it.command in _MARKS]
    dtypes = [it for it in _DTYPES if any(row.dtype == it for row in rows)]
    if not rows:
        return None
    figure, (axis,) = panels(theme, 1, 1, 5.2)
    span = [min(it.intensity or 1 for it in rows) / 2, max(it.intensity or 1 for it in rows) * 2]
    for dtype in dtypes:
        some = [it for it in rows if it.dtype == dtype]
        peak = max(it.peak_gflops or 0 for it in some)
        for level, rate in report.machine.bandwidths.items():
            axis.plot([span[0], peak / rate], [span[0] * rate, peak], color=theme.faint,
                      linewidth=0.8, linestyle={"memory": "-"}.get(level, ":"))  # fmt: skip
        axis.plot([peak / max(report.machine.bandwidths.values()), span[1]], [peak, peak],
                  color=theme.of(dtype), linewidth=1.6)  # fmt: skip
        axis.text(span[1] * 0.97, peak * 1.1, f"{dtype} peak, {peak:.0f}", color=theme.of(dtype),
                  ha="right", va="bottom", fontsize=9)  # fmt: skip
        for command, mark in _MARKS.items():
            of = [it for it in some if it.command == command]
            axis.scatter([it.intensity for it in of], [it.gflops for it in of], s=22, marker=mark,
                         color=theme.of(dtype), alpha=0.75, linewidths=0)  # fmt: skip
    for command, mark in _MARKS.items():
        if any(it.command == command for it in rows):
            axis.scatter([], [], marker=mark, color=theme.faint, label=command)
    for level, rate in report.machine.bandwidths.items():
        axis.text(span[0] * 1.7, span[0] * rate * 1.45, f"{level} {rate:.0f} GB/s", fontsize=8,
                  color=theme.ink, va="top")  # fmt: skip
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlim(*span)
    axis.set_ylim(top=2 * max(it.peak_gflops or 0 for it in rows))
    titled(axis, theme, "Roofline: every layer, one core", "operations per byte", "GFLOP/s")
    legend(axis, theme, loc="lower right")
    return figure


def convolutions(report: Report, theme: Theme) -> Any:
    """Forward passes without Winograd, up to the peak, each peer beside it."""
    rows = [it for it in _single(report, "conv") if it.group.endswith(_FORWARD)]
    dtypes = [it for it in _DTYPES if any(row.dtype == it for row in rows)]
    if not rows:
        return None
    figure, axes = panels(theme, len(dtypes), 1, 3.2)
    for axis, dtype in zip(axes, dtypes, strict=True):
        some = [it for it in rows if it.dtype == dtype]
        peak = median(it.peak_gflops or 0 for it in some)
        sides: dict[str, list[float]] = {"dlprim": [_direct(it) for it in some]}
        for peer in ("torch", "onednn"):
            heights = [(it.gflops or 0) / it.ratios.get(peer, float("inf")) for it in some]
            if any(heights):
                sides[peer] = heights
        bars(axis, theme, [it.name.split()[0] for it in some], sides)
        axis.set_ylim(0, max(peak, *(max(heights) for heights in sides.values())))
        axis.axhline(peak, color=theme.ink, linewidth=1)
        title = f"ResNet-50, forward, {dtype}: up to the peak of one core, {peak:.0f}"
        titled(axis, theme, title, "layer", "GFLOP/s")
    shared_legend(figure, axes, theme)
    return figure


def _single(report: Report, command: str) -> list[Record]:
    """The rows of a command on one thread."""
    return [it for it in report.rows if it.command == command and it.threads == 1]


def _direct(row: Record) -> float:
    return (row.gflops or 0) / row.ratios.get("direct", 1)


def winograd(report: Report, theme: Theme) -> Any:
    """Passes that Winograd runs: of the peak, counting the operations of the direct sum."""
    rows = [it for it in _single(report, "conv") if "direct" in it.ratios and it.of_peak]
    groups = list(dict.fromkeys(it.group for it in rows))
    if not rows:
        return None
    figure, axes = panels(theme, 1, len(groups), 3.6)
    for axis, group in zip(axes, groups, strict=True):
        some = [it for it in rows if it.group == group and it.dtype == rows[0].dtype]
        own = [it.of_peak or 0 for it in some]
        sides = {
            "dlprim": own,
            "direct": [it / row.ratios["direct"] for it, row in zip(own, some, strict=True)],
            "torch": [it / row.ratios.get("torch", float("inf"))
                      for it, row in zip(own, some, strict=True)],
        }  # fmt: skip
        names = ["\n".join(it.name.split()[1:3]) for it in some]
        bars(axis, theme, names, sides)
        axis.axhline(1, color=theme.ink, linewidth=1)
        which = group.split()[1].replace("_", " ")
        titled(axis, theme, which, y="of what a direct sum can reach" if axis is axes[0] else "")
        axis.tick_params(axis="x", labelsize=8)
    top = max(axis.get_ylim()[1] for axis in axes)
    for axis in axes:
        axis.set_ylim(0, top)
    figure.suptitle(f"3x3 layers by Winograd, {rows[0].dtype}, one core", color=theme.ink,
                    fontsize=11, x=0.01, ha="left")  # fmt: skip
    shared_legend(figure, axes, theme)
    return figure


def networks(report: Report, theme: Theme) -> Any:
    """How many times as fast as each peer: a dot for each, right of 1 dlprim is faster."""
    rows = [it for it in _single(report, "graph") if it.ratios]
    dtypes = [it for it in _DTYPES if any(row.dtype == it for row in rows)]
    if not rows:
        return None
    most = max(sum(it.dtype == dtype for it in rows) for dtype in dtypes)
    figure, axes = panels(theme, 1, len(dtypes), 1.6 + 0.3 * most)
    for axis, dtype in zip(axes, dtypes, strict=True):
        some = [it for it in rows if it.dtype == dtype][::-1]
        for peer in ("torch", "compile", "onnxruntime", "openvino"):
            places = [(it.ratios[peer], at) for at, it in enumerate(some) if peer in it.ratios]
            if places:
                axis.scatter(*zip(*places, strict=True), s=38, color=theme.of(peer),
                             label=LABELS[peer], zorder=3)  # fmt: skip
        axis.axvline(1, color=theme.ink, linewidth=1)
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_yticks(range(len(some)))
        axis.set_yticklabels([it.name for it in some] if axis is axes[0] else [])
        axis.set_ylim(-0.6, most - 0.4)
        titled(axis, theme, dtype, "times as fast as the peer")
    shared_legend(figure, axes, theme)
    return figure
