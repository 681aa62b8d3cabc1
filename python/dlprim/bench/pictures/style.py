"""Colours and sizes that all pictures share, for a light page and for a dark one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlprim.bench.peers import load
from dlprim.bench.report import Report

WIDTH = 9.0  # inches
LABELS = {
    "dlprim": "dlprim",
    "torch": "PyTorch",
    "compile": "torch.compile",
    "onednn": "oneDNN, packed weights",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "numpy": "NumPy",
    "direct": "dlprim, direct sum",
    "apart": "no exchange",
    "thread": "overlapped",
    "off": "not overlapped",
    "thread-bfloat16": "bfloat16 on the wire",
    "ddp": "PyTorch DDP, gloo",
}


@dataclass(frozen=True)
class Theme:
    """Of a page."""

    name: str
    ink: str
    faint: str
    paper: str
    colors: dict[str, str]  # of sides

    def of(self, side: str) -> str:
        return self.colors.get(side, self.faint)


THEMES = (
    Theme("light", "#1f2328", "#8c959f", "#ffffff", {
        "dlprim": "#0b62d6", "direct": "#7fb2f5", "torch": "#d9480f", "compile": "#a61e4d",
        "onednn": "#f0a35e", "onnxruntime": "#2b8a3e", "openvino": "#7048e8", "numpy": "#868e96",
        "bfloat16": "#c2255c", "int8": "#2b8a3e", "float32": "#0b62d6",
        "apart": "#adb5bd", "thread": "#0b62d6", "off": "#7fb2f5", "thread-bfloat16": "#c2255c",
        "ddp": "#d9480f",
    }),
    Theme("dark", "#e6edf3", "#7d8590", "#0d1117", {
        "dlprim": "#58a6ff", "direct": "#2f5f9e", "torch": "#ff8a50", "compile": "#f783ac",
        "onednn": "#b5703a", "onnxruntime": "#56d364", "openvino": "#b197fc", "numpy": "#adb5bd",
        "bfloat16": "#f783ac", "int8": "#56d364", "float32": "#58a6ff",
        "apart": "#6e7681", "thread": "#58a6ff", "off": "#2f5f9e", "thread-bfloat16": "#f783ac",
        "ddp": "#ff8a50",
    }),
)  # fmt: skip


def panels(theme: Theme, rows: int, columns: int, height: float) -> tuple[Any, list[Any]]:
    """A figure and its axes, one after the other, in the colours of a theme."""
    figure = load("matplotlib.figure").Figure(
        figsize=(WIDTH, height * rows), layout="constrained", facecolor=theme.paper
    )
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis in axes:
        axis.set_facecolor(theme.paper)
        axis.tick_params(colors=theme.ink, which="both", labelsize=9)
        for side, spine in axis.spines.items():
            spine.set_color(theme.faint)
            spine.set_visible(side in ("left", "bottom"))
        axis.grid(axis="y", color=theme.faint, alpha=0.25, linewidth=0.6)
        axis.set_axisbelow(True)
    return figure, axes


def titled(axis: Any, theme: Theme, title: str, x: str = "", y: str = "") -> None:
    axis.set_title(title, color=theme.ink, fontsize=11, loc="left")
    axis.set_xlabel(x, color=theme.ink, fontsize=9)
    axis.set_ylabel(y, color=theme.ink, fontsize=9)


def legend(axis: Any, theme: Theme, **where: Any) -> None:
    found = axis.legend(frameon=False, fontsize=9, labelcolor=theme.ink, **where)
    found.set_in_layout(True)


def shared_legend(figure: Any, axes: Sequence[Any], theme: Theme) -> None:
    """What the panels have, once, above them."""
    found: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    figure.legend(found.values(), found, loc="outside upper right", ncols=len(found),
                  frameon=False, fontsize=9, labelcolor=theme.ink)  # fmt: skip


def bars(axis: Any, theme: Theme, names: Sequence[str], sides: dict[str, list[float]]) -> None:
    """Groups of bars, one for each name, in each a bar of every side."""
    width = 0.84 / max(len(sides), 1)
    for number, (side, heights) in enumerate(sides.items()):
        places = [place + (number - (len(sides) - 1) / 2) * width for place in range(len(names))]
        axis.bar(places, heights, width, color=theme.of(side), label=LABELS.get(side, side))
    axis.set_xticks(range(len(names)))
    axis.set_xticklabels(names)
    axis.set_xlim(-0.6, len(names) - 0.4)


def save(figure: Any, path: Path, report: Report, theme: Theme) -> None:
    """As SVG that is the same from run to run, with what it was measured on below."""
    machine = report.machine
    said = f"{machine.cpu}, {machine.isa}, dlprim {machine.dlprim}, {report.date}"
    figure.supxlabel(said, color=theme.faint, fontsize=8, x=0.01, ha="left")
    matplotlib = load("matplotlib")
    with matplotlib.rc_context({"svg.hashsalt": "dlprim", "svg.fonttype": "path"}):
        figure.savefig(path, format="svg", facecolor=theme.paper, metadata={"Date": None})
