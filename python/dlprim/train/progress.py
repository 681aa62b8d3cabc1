"""The lines a run prints: one per epoch, and one every few seconds where epochs are long.

On a terminal and in a notebook, where tqdm is installed, its bar takes the place of the latter.
"""

from __future__ import annotations

import importlib
import sys
import time
from types import TracebackType
from typing import Any

from dlprim.train.loop import UNKNOWN, EpochRecord, Loop

_SECONDS = 10.0  # between the lines inside an epoch


class Progress:
    """Prints lines of a run with the time that is left, by the speed since it began.

    A context manager: behind it the bar is gone.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._first_step = loop.step
        self._begin = self._latest = time.monotonic()
        self._bar = _bar(loop)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def after_step(self, loss: float) -> None:
        """Moves the bar, or prints a line if the last one is some seconds old."""
        if self._bar is not None:
            self._bar.set_postfix_str(f"loss {loss:.4f}", refresh=False)
            self._bar.update()
            return
        now = time.monotonic()
        loop = self._loop
        place = loop.step % loop.steps
        if now - self._latest < _SECONDS or place == 0:
            return
        self._latest = now
        rate = loop.samples / loop.seconds.total
        steps = "" if loop.steps == UNKNOWN else f"/{loop.steps}"
        print(
            f"  step {place}{steps}  loss {loss:.4f}  {rate:.0f} {loop.unit}/s  {self._left()}",
            flush=True,
        )

    def after_epoch(self, record: EpochRecord, achieved: str) -> None:
        """Prints what it achieved."""
        self._latest = time.monotonic()
        epochs, unit = self._loop.epochs, self._loop.unit
        rate = f"{record.samples_per_s:8.0f} {unit}/s"
        number = f"{record.epoch:{len(str(epochs))}d}/{epochs}"
        line = f"epoch {number}  {achieved}  {rate}  {self._left()}".rstrip()
        if self._bar is not None:
            self._bar.write(line, file=sys.stdout)
        else:
            print(line, flush=True)

    def _left(self) -> str:
        done = self._loop.step - self._first_step
        left = self._loop.total_steps - self._loop.step
        if done == 0 or left == 0 or self._loop.steps == UNKNOWN:
            return ""
        seconds = (time.monotonic() - self._begin) / done * left
        return f"ETA {duration(seconds)}"


def _bar(loop: Loop) -> Any:
    """Of the steps of a run; None where nobody watches, or without tqdm."""
    if not (sys.stdout.isatty() or _is_notebook()):
        return None
    try:
        tqdm: Any = importlib.import_module("tqdm")
    except ImportError:
        return None
    return tqdm.tqdm(
        total=None if loop.steps == UNKNOWN else loop.total_steps,
        initial=loop.step,
        unit="step",
        file=sys.stdout,
        leave=False,
        dynamic_ncols=True,
    )


def _is_notebook() -> bool:
    """Whether a kernel of Jupyter runs this, whose output replaces lines as a terminal does."""
    shell: Any = sys.modules.get("IPython")
    return shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"


def quality_text(metric: str, percent: bool, value: float) -> str:
    """A measure of quality in words."""
    name = metric.replace("_", " ")
    return f"{name} {100 * value:6.2f} %" if percent else f"{name} {value:.3f}"


def split_text(record: EpochRecord) -> str:
    """How the time of the steps was spent."""
    seconds = record.seconds
    parts = {
        "forward": seconds.forward,
        "backward": seconds.backward,
        "exposed exchange": seconds.exchange,
        "optimiser": seconds.optimizer,
        "input": seconds.input,
    }
    return ", ".join(f"{name} {100 * it / seconds.total:.0f} %" for name, it in parts.items())


def duration(seconds: float) -> str:
    """A time that people read."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def warn(program: str, text: str) -> None:
    """A line for what goes wrong without ending the run."""
    print(f"{program}: warning: {text}", file=sys.stderr, flush=True)
