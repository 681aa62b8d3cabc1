"""What `python -m dlprim.train` does with its flags, and its exit status.

Whatever a user can get wrong is refused in one sentence before the first step. The exit status is
0 after a complete run; 1 when it cannot start, diverges or cannot write its result; 2 for a wrong
flag; 130 after Ctrl-C. Without a complete run no result file is written, but where a folder for
checkpoints is given the run can be resumed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np

import dlprim
from dlprim.train import checkpoint
from dlprim.train.checkpoint import CheckpointError
from dlprim.train.config import TrainConfig, configured
from dlprim.train.data import MissingDataError
from dlprim.train.flags import PROGRAM, parser
from dlprim.train.interruption import Interruption
from dlprim.train.loop import DivergenceError, EpochRecord, Trainer
from dlprim.train.models import LanguageModel, build
from dlprim.train.profiling import Profile
from dlprim.train.progress import Progress, quality_text, split_text, warn
from dlprim.train.records import check_writable, write_lines
from dlprim.train.sampling import sample
from dlprim.train.tasks import make_task, seeded

SCHEMA_VERSION = 2
_SAMPLE = 300  # characters


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains as the flags say and returns the exit status.

    Args:
        arguments: the flags; None takes them from the command line. The number of threads stays
            set after the run.

    Raises:
        SystemExit: with code 2 after a wrong flag, with code 0 after --help.
    """
    options = parser()
    flags = options.parse_args(arguments)
    if flags.resume and flags.checkpoint is None:
        options.error("argument --resume: expected --checkpoint DIR too")
    if flags.json is not None:
        try:
            check_writable(flags.json)
        except OSError as error:
            options.error(f"argument --json: {error}")
    if flags.threads is not None:
        try:
            dlprim.set_num_threads(flags.threads)
        except (TypeError, ValueError) as error:
            options.error(f"argument --threads: {error}")
    names = {field.name for field in fields(TrainConfig)}
    given = {name: value for name, value in vars(flags).items() if name in names}
    if "hidden" in given:
        given["hidden"] = tuple(given["hidden"])
    try:
        config = configured(given)
    except ValueError as error:
        options.error(f"argument --data: {error}")
    try:
        return Run(config, flags).run()
    except (MissingDataError, DivergenceError, CheckpointError, MemoryError, OSError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted.", file=sys.stderr)
        return 130


class Run:
    """One run of the program."""

    def __init__(self, config: TrainConfig, flags: argparse.Namespace) -> None:
        self.config, self.flags = config, flags
        self.task = make_task(config)
        model = build(config, self.task.shape, self.task.classes, seeded(config.seed, 1))
        self.trainer = Trainer(model, self.task, config)
        self.history: list[dict[str, Any]] = []
        self.profile = Profile() if flags.profile else None
        self.interruption = Interruption()
        self.environment = {
            "dlprim": dlprim.__version__,
            "isa": dlprim.isa(),
            "threads": dlprim.get_num_threads(),
            "numpy": np.__version__,
        }

    def run(self) -> int:
        """Everything, from the first line to the result file; the exit status."""
        self._print_first_line()
        if self.flags.resume or (self.flags.eval and self.flags.checkpoint is not None):
            self.history = checkpoint.load(self.flags.checkpoint, self.trainer)
            print(f"resumed after step {self.trainer.step} of {self.trainer.total_steps}")
        if self.flags.eval:
            return self._test()
        if self.profile is not None:
            self.trainer.model.context.timer = self.profile.timer
        begin = self.trainer.step
        with self.interruption.listening():
            finished = self._train()
        if self.profile is not None:
            self.trainer.model.context.timer = None
            steps = max(self.trainer.step - begin, 1)
            print("\n".join(self.profile.lines(steps, self.config.dtype)))
            self.history += self.profile.records(steps)
        if not finished:
            print(f"{PROGRAM}: interrupted.", file=sys.stderr)
            return 130
        self._finish()
        return 0

    def _print_first_line(self) -> None:
        values = sum(it.value.size for it in self.trainer.model.parameters())
        where = self.environment
        print(
            f"dlprim {where['dlprim']}, {where['isa']}, threads: {where['threads']}; "
            f"{self.task.describe()}; {self.config.model} of {values} parameters, "
            f"{self.config.dtype}",
            flush=True,
        )

    def _train(self) -> bool:
        """Whether the run came to its end."""
        progress = Progress(self.trainer)

        def after_step(loss: float) -> None:
            progress.after_step(loss)
            if self.interruption.wanted:
                raise _StoppedError

        self.trainer.after_step = after_step
        try:
            for record in self.trainer.run():
                self.history.append(self._epoch_record(record))
                print(progress.epoch_line(record), flush=True)
                self._save()
        except _StoppedError:
            self._save()
            return False
        return True

    def _save(self) -> None:
        folder = self.flags.checkpoint
        if folder is None:
            return
        try:
            checkpoint.save(folder, self.trainer, self.history)
        except OSError as error:
            reason = error.strerror or error
            what = f"no checkpoint could be written to {folder} after step {self.trainer.step}"
            warn(PROGRAM, f"{what}: {reason}; training goes on and the earlier one stays.")

    def _epoch_record(self, record: EpochRecord) -> dict[str, Any]:
        self._latest = record
        return {
            "record": "epoch",
            "epoch": record.epoch,
            "train_loss": record.train_loss,
            self.task.metric: record.quality,
            "samples": record.samples,
            "seconds": record.seconds.total,
            "samples_per_s": record.samples_per_s,
            **{f"{name}_s": value for name, value in asdict(record.seconds).items()},
        }

    def _test(self) -> int:
        quality = self.task.test(self.trainer.model)
        print(f"test: {quality_text(self.task.metric, self.task.percent, quality)}")
        if self.flags.json is not None:
            record = {"record": "test", self.task.metric: quality}
            write_lines(self.flags.json, [record | self._described()])
        return 0

    def _finish(self) -> None:
        epochs = [record for record in self.history if record["record"] == "epoch"]
        samples = sum(record["samples"] for record in epochs)
        seconds = sum(record["seconds"] for record in epochs)
        last = epochs[-1]
        quality = quality_text(self.task.metric, self.task.percent, last[self.task.metric])
        print(f"final: {quality}, {samples / seconds:.0f} {self.task.unit}/s in training")
        if hasattr(self, "_latest"):
            print(f"of the last epoch: {split_text(self._latest)}")
        memory = self.trainer.model.context.buffers.bytes
        print(f"activations and their gradients: {memory / 2**20:.1f} MiB at most", flush=True)
        if isinstance(self.trainer.model, LanguageModel):
            print(sample(self.trainer.model, "def ", _SAMPLE, self.config.seed), flush=True)
        if self.flags.json is not None:
            final = {
                "record": "final",
                "schema_version": SCHEMA_VERSION,
                "train_loss": last["train_loss"],
                self.task.metric: last[self.task.metric],
                "samples": samples,
                "seconds": seconds,
                "samples_per_s": samples / seconds,
                "activation_bytes": memory,
            }
            write_lines(self.flags.json, [*self.history, final | self._described()])

    def _described(self) -> dict[str, Any]:
        return {"config": asdict(self.config), "environment": self.environment}


class _StoppedError(Exception):
    """Raised between two steps to leave the loop."""
