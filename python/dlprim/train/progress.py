"""The lines a run prints: one per epoch, and one every few seconds where epochs are long."""

from __future__ import annotations

import sys
import time

from dlprim.train.loop import EpochRecord, Trainer

_SECONDS = 10.0  # between the lines inside an epoch


class Progress:
    """Prints lines of a run with the time that is left, by the speed since it began."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._first_step = trainer.step
        self._begin = self._latest = time.monotonic()

    def after_step(self, loss: float) -> None:
        """Prints a line if the last one is some seconds old."""
        now = time.monotonic()
        trainer = self._trainer
        steps = trainer.task.steps
        place = trainer.step % steps
        if now - self._latest < _SECONDS or place == 0:
            return
        self._latest = now
        rate = trainer.samples / trainer.seconds.total
        print(
            f"  step {place}/{steps}  loss {loss:.4f}  {rate:.0f} {trainer.task.unit}/s  "
            f"{self._left()}",
            flush=True,
        )

    def epoch_line(self, record: EpochRecord) -> str:
        """What an epoch achieved."""
        self._latest = time.monotonic()
        epochs, task = self._trainer.config.epochs, self._trainer.task
        digits = len(str(epochs))
        return (
            f"epoch {record.epoch:{digits}d}/{epochs}  "
            f"train loss {record.train_loss:.4f}  "
            f"{quality_text(task.metric, task.percent, record.quality)}  "
            f"{record.samples_per_s:8.0f} {task.unit}/s  {self._left()}"
        ).rstrip()

    def _left(self) -> str:
        done = self._trainer.step - self._first_step
        left = self._trainer.total_steps - self._trainer.step
        if done == 0 or left == 0:
            return ""
        seconds = (time.monotonic() - self._begin) / done * left
        return f"ETA {duration(seconds)}"


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
