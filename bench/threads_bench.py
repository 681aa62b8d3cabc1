"""What the rows of `bench_threads.py` share: sides, rounds in which they take turns, figures."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from threads_sides import MissingError, Side, Worker, working

Result = TypeVar("Result")
Workers = list[Worker]


class Figure(NamedTuple):
    """What was measured, and what is wanted of it; without a bar it stands for comparison."""

    row: str
    what: str
    value: float
    bar: str = ""  # such as "at most 1.15"
    reached: bool = True
    note: str = ""

    def line(self) -> str:
        verdict = "" if not self.bar else "ok" if self.reached else "SHORT"
        return (
            f"{self.row:14s} {self.what:46s} {self.value:7.3f}  {self.bar:14s} {verdict:6s}"
            f"{self.note}"
        ).rstrip()


class Bench:
    """One run: its settings, and the figures so far, printed as they come."""

    def __init__(
        self, sides: dict[str, Side], paths: dict[str, Path], threads: int, cores: list[int],
        seconds: float, rounds: int, groups: list[str],
    ) -> None:  # fmt: skip
        self.sides, self.paths, self.threads, self.cores = sides, paths, threads, cores
        self.seconds, self.rounds, self.groups = seconds, rounds, groups
        self.figures: list[Figure] = []

    def write(self, path: Path, **head: Any) -> None:
        figures = [figure._asdict() for figure in self.figures]
        path.write_text(json.dumps(head | {"figures": figures}, indent=1) + "\n")

    def _add(self, figure: Figure) -> None:
        self.figures.append(figure)
        print(figure.line(), flush=True)

    def say(self, row: str, what: str, value: float, note: str = "") -> None:
        """A figure that has no bar."""
        self._add(Figure(row, what, value, note=note))

    def at_most(
        self, row: str, what: str, value: float, bar: float, note: str = "", besides: bool = False
    ) -> None:
        """``besides``: it is reached for another reason."""
        reached = besides or value <= bar
        self._add(Figure(row, what, value, f"at most {bar:g}", reached, note))

    def at_least(self, row: str, what: str, value: float, bar: float, note: str = "") -> None:
        self._add(Figure(row, what, value, f"at least {bar:g}", value >= bar, note))

    def chosen(self, *models: str) -> dict[str, Path]:
        """Those of the models that were asked for."""
        return {name: self.paths[name] for name in models if name in self.paths}

    def builds(self) -> dict[str, Side]:
        """The sides that are dlprim."""
        return {name: it for name, it in self.sides.items() if it.library == "dlprim"}

    def peer_of(self, rates: dict[str, float]) -> tuple[str, float] | None:
        """The fastest side that is not dlprim."""
        peers = {name: rates[name] for name in rates if name not in self.builds()}
        best = max(peers, key=peers.__getitem__, default=None)
        return None if best is None else (best, peers[best])

    @contextlib.contextmanager
    def processes(
        self, sides: dict[str, Side], count: int = 1, **made: Any
    ) -> Iterator[dict[str, Workers]]:
        """So many processes of each side; a side that has no such thing is left out, and said."""
        with contextlib.ExitStack() as stack:
            found: dict[str, Workers] = {}
            for name, side in sides.items():
                try:
                    made_by = working(side, self.threads, count, **made)
                    found[name] = stack.enter_context(made_by)
                except MissingError as missing:
                    print(f"left out: {missing}", flush=True)
            yield found

    def in_turns(self, turns: dict[str, Callable[[], Result]]) -> dict[str, list[Result]]:
        """What each side gave in each round, each round in another order."""
        found: dict[str, list[Result]] = {name: [] for name in turns}
        drawn, order = random.Random(0), list(turns)
        for _ in range(self.rounds):
            drawn.shuffle(order)
            for name in order:
                found[name].append(turns[name]())
        return found
