"""What a run measures: the options of the command line, with their defaults."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dlprim.bench.tables import path_of


@dataclass(frozen=True)
class Settings:
    """Empty tuples stand for what a workload measures by itself."""

    dtypes: tuple[str, ...] = ()
    threads: int = 1
    isa: str | None = None
    quick: bool = False  # as little as shows that everything runs
    brief: bool = False  # what a run of all subcommands has time for; every quick run is brief
    shapes: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()  # names, or ids, of the rows of a table
    passes: tuple[str, ...] = ()
    layouts: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    batches: tuple[int, ...] = ()
    algorithm: str = "auto"
    plain: bool = False  # functions on plain arrays in place of packed primitives
    prepacked: bool = False
    cache: Path | None = None  # of model files

    def tables(self, command: str, default: str) -> list[Path]:
        """The files that --shapes names.

        Raises
        ------
        TableError
        """
        return [path_of(name, command) for name in self.shapes or (default,)]

    def types(self, *known: str) -> tuple[str, ...]:
        """Those that were asked for, of the ones that a workload has."""
        return tuple(it for it in known if it in self.dtypes) if self.dtypes else known

    def wanted(self, name: object) -> bool:
        return not self.rows or str(name) in self.rows
