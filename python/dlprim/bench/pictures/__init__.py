"""Pictures of a report: SVG files, each for a light page and for a dark one.

What a report has no rows for is not drawn. Below every picture stand the CPU, its ISA level, the
version and the day, so that it means something wherever it is copied to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dlprim.bench.pictures import layers, runs, style
from dlprim.bench.report import Report

PICTURES: dict[str, Callable[[Report, style.Theme], Any]] = {
    "roofline": layers.roofline,
    "convolutions": layers.convolutions,
    "winograd": layers.winograd,
    "networks": layers.networks,
    "scaling": runs.scaling,
    "training": runs.training,
}


def draw_all(report: Report, folder: Path) -> Iterator[Path]:
    """The files that were written."""
    for name, draw in PICTURES.items():
        for theme in style.THEMES:
            figure = draw(report, theme)
            if figure is not None:
                path = folder / f"{name}-{theme.name}.svg"
                style.save(figure, path, report, theme)
                yield path
