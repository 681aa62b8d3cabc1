"""Tables of shapes: CSV files that are installed with the package, or the user's own.

In a checkout they lie in ``bench/shapes``, of which an installation has a copy beside this file.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

Row = dict[str, str]


class TableError(Exception):
    """No such table, or one of something else; the sentence says what was expected."""


def folder() -> Path:
    """Where the tables are."""
    here = Path(__file__).resolve().parent
    installed = here / "shapes"
    return installed if installed.is_dir() else here.parents[2] / "bench" / "shapes"


def path_of(name: str, command: str) -> Path:
    """A file, or a table by its name: ``resnet50`` is resnet50_conv.csv of the command conv.

    Raises
    ------
    TableError
    """
    if Path(name).suffix or "/" in name:
        if not Path(name).is_file():
            raise TableError(f"--shapes: there is no file {name}")
        return Path(name)
    for stem in (f"{name}_{command}", name):
        if (folder() / f"{stem}.csv").is_file():
            return folder() / f"{stem}.csv"
    known = ", ".join(sorted(it.stem.removesuffix("_conv") for it in folder().glob("*.csv")))
    raise TableError(f"--shapes is {name}, expected a CSV file or one of {known}")


def read(path: Path, columns: Sequence[str]) -> list[Row]:
    """The rows of a table that has these columns; lines that begin with # are comments.

    Raises
    ------
    TableError
    """
    try:
        with path.open(encoding="utf-8") as file:
            rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    except (OSError, UnicodeDecodeError) as error:
        raise TableError(f"--shapes: {path} is no table of shapes: {error}") from error
    if not rows or not set(columns) <= set(rows[0]):
        found = ",".join(map(str, rows[0])) if rows else "nothing"
        raise TableError(f"--shapes: {path} has the columns {found}, expected {','.join(columns)}")
    return rows


def integers(path: Path, columns: Sequence[str]) -> list[dict[str, int]]:
    """As `read`, of the columns alone, whose values are integers.

    Raises
    ------
    TableError
    """
    found = []
    for row in read(path, columns):
        try:
            found.append({name: int(row[name]) for name in columns})
        except (TypeError, ValueError) as error:
            values = ",".join(str(row[name]) for name in columns)
            raise TableError(
                f"--shapes: {path} has a row {values}, expected integers for {','.join(columns)}"
            ) from error
    return found
