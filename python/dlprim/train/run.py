"""A run of `python -m dlprim.train`, from its first line to its result file.

Here the pieces meet: a trainer, what it prints while it works, the checkpoints it leaves and the
records it ends with. Which run it is has been decided before, by `command_line`.
"""

from __future__ import annotations

import argparse
import resource
import sys
from dataclasses import asdict
from typing import Any

import numpy as np

import dlprim
from dlprim.distributed import Group
from dlprim.distributed.agreement import prepare_together
from dlprim.distributed.metrics import read_summary
from dlprim.distributed.placement import complaints, placements
from dlprim.distributed.prediction import Network, predict, table
from dlprim.train import checkpoint
from dlprim.train.agreement import make_trainer
from dlprim.train.config import LANGUAGE, TrainConfig
from dlprim.train.fit.history import draw
from dlprim.train.flags import BANDWIDTH, LATENCY, PROGRAM
from dlprim.train.folder import FILE
from dlprim.train.interruption import Interruption, Stopped, status_of, word_for
from dlprim.train.loop import EpochRecord
from dlprim.train.profiling import Profile
from dlprim.train.progress import Progress, quality_text, split_text, warn
from dlprim.train.ranks import StepLog
from dlprim.train.sampling import sample

SCHEMA_VERSION = 2
_SAMPLE = 300  # characters


class Run:
    """One run of the program."""

    def __init__(self, config: TrainConfig, flags: argparse.Namespace, group: Group) -> None:
        self.config, self.flags, self.group = config, flags, group
        # Read now: a wrong file is refused before the first step.
        self.baseline = prepare_together(
            group, lambda: flags.baseline and read_summary(flags.baseline)
        )
        self.interruption = Interruption()
        self.trainer, self.exchange = make_trainer(
            config, flags, group, lambda: self.interruption.wanted
        )
        self.task = self.trainer.task
        self.log = StepLog(self.trainer, self.exchange.parallel)
        self.history: list[dict[str, Any]] = []
        self._latest: EpochRecord | None = None
        self.environment = {
            "dlprim": dlprim.__version__,
            "isa": dlprim.isa(),
            "threads": dlprim.get_num_threads(),
            "numpy": np.__version__,
        }
        if group.size > 1:
            self.environment |= {"ranks": group.size, "mpi": group.library}

    def run(self) -> int:
        """Everything, from the first line to the result file; the exit status."""
        self._print_first_line()
        if self.flags.resume or (self.flags.eval and self.flags.checkpoint is not None):
            self._load()
        if self.flags.eval:
            return self._test()
        with self.interruption.listening():
            signal = self._train()
        if self.flags.profile:
            self.history += self._profiled(training=True)
        if signal:
            if self.group.rank == 0:
                print(f"{PROGRAM}: {word_for(signal)}.", file=sys.stderr)
            return status_of(signal)
        self._finish()
        return 0

    def _load(self) -> None:
        trains = not self.flags.eval
        self.history, differences = checkpoint.load(
            self.flags.checkpoint, self.trainer, self.exchange.read, trains
        )
        if self.group.rank == 0:
            for difference in differences:
                warn(PROGRAM, difference)
        print(f"resumed after step {self.trainer.step} of {self.trainer.total_steps}")

    def _print_first_line(self) -> None:
        values = sum(it.value.size for it in self.trainer.model.parameters())
        where = self.environment
        print(
            f"dlprim {where['dlprim']}, {where['isa']}, threads: {where['threads']}; "
            f"{self.task.describe()}; {self.config.model} of {values} parameters, "
            f"{self.config.dtype}",
            flush=True,
        )
        if self.group.size > 1:
            everywhere = placements(self.group)
            overlap = self.exchange.parallel.overlap
            print(
                f"{self.group.size} ranks, {self.environment['mpi']}, overlap {overlap}, "
                f"{self.flags.wire} on the wire, global batch {self.config.batch_size}"
            )
            print("\n".join(map(str, everywhere)), flush=True)
            if self.group.rank == 0:
                for complaint in complaints(everywhere):
                    warn(PROGRAM, complaint)

    def _train(self) -> int:
        """The signal that ended the run before its end, or 0."""
        with Progress(self.trainer) as progress:
            return self._train_with(progress)

    def _train_with(self, progress: Progress) -> int:
        def after_step(loss: float) -> None:
            progress.after_step(loss)
            self.log.after_step()
            if self.exchange.stopped:
                raise Stopped

        self.trainer.after_step = after_step
        try:
            for record in self.trainer.run():
                self.history.append(self._epoch_record(record))
                quality = quality_text(self.task.metric, self.task.percent, record.quality)
                progress.after_epoch(record, f"train loss {record.train_loss:.4f}  {quality}")
                self._save()
        except Stopped:
            self.exchange.before_test()
            self._save()
            return self.exchange.stopped
        return 0

    def _save(self) -> None:
        folder = self.flags.checkpoint
        if folder is None:
            return
        try:
            checkpoint.save(folder, self.trainer, self.history)
        except OSError as error:
            reason = error.strerror or error
            what = f"no checkpoint could be written to {folder} after step {self.trainer.step}"
            then = "the run ends" if self.exchange.stopped else "training goes on"
            earlier = "the earlier one stays" if (folder / FILE).exists() else "there is none yet"
            warn(PROGRAM, f"{what}: {reason}; {then} and {earlier}.")

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
        quality = self.exchange.mean(self.task.test(self.trainer.model), self.task.tested)
        found: dict[str, Any] = {}
        if self.flags.checkpoint is not None:  # untrained weights have times, but no quality
            found[self.task.metric] = quality
            print(f"test: {quality_text(self.task.metric, self.task.percent, quality)}")
        profiled = self._profiled(training=False) if self.flags.profile else []
        if self.flags.json is not None and self.group.rank == 0:
            record = {"record": "test", **found}
            self.flags.json.write([*profiled, record | self._described()])
        return 0

    def _profiled(self, training: bool) -> list[dict[str, Any]]:
        """Prints where the time of a step goes, and returns it for the result file."""
        src, _ = self.task.batch(self.trainer.step)
        found = Profile(self.trainer.model, src, training)
        print("\n".join(found.lines(self.config.dtype)))
        return found.records()

    def _finish(self) -> None:
        epochs = [record for record in self.history if record["record"] == "epoch"]
        samples = sum(record["samples"] for record in epochs)
        seconds = sum(record["seconds"] for record in epochs)
        last = epochs[-1]
        quality = quality_text(self.task.metric, self.task.percent, last[self.task.metric])
        print(f"final: {quality}, {samples / seconds:.0f} {self.task.unit}/s in training")
        if self._latest is not None:
            print(f"of the last epoch: {split_text(self._latest)}")
        scaling = self._scaling()
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(f"memory at most: {resident / 2**20:.0f} MiB resident", flush=True)
        if self.config.model in LANGUAGE:
            print(sample(self.trainer.model, "def ", _SAMPLE, self.config.seed), flush=True)
        if self.flags.json is not None and self.group.rank == 0:
            final = {
                "record": "final",
                "schema_version": SCHEMA_VERSION,
                "train_loss": last["train_loss"],
                self.task.metric: last[self.task.metric],
                "samples": samples,
                "seconds": seconds,
                "samples_per_s": samples / seconds,
                "resident_bytes": resident,
            }
            self.flags.json.write([*self.history, final | scaling | self._described()])
        if self.flags.plot is not None and self.group.rank == 0:
            names = ("train_loss", self.task.metric)
            draw({name: [it[name] for it in epochs] for name in names}, self.flags.plot)

    def _scaling(self) -> dict[str, Any]:
        """Prints where the time of steps went, over all ranks, and returns it for the record."""
        summary = self.log.summary()
        if summary is None:
            return {}
        if self.group.size > 1 or self.baseline is not None:
            print("\n".join(summary.lines(self.baseline)))
        if self.flags.predict_scaling:
            bandwidth = self.flags.bandwidth or BANDWIDTH
            network = Network(1e9 * bandwidth, 1e-6 * (self.flags.latency or LATENCY))
            print("\n".join(table(predict(summary.profile(), network))))
        record = summary.record()
        if self.baseline is not None:
            record["efficiency"] = summary.efficiency(self.baseline)
        return {"scaling": record}

    def _described(self) -> dict[str, Any]:
        return {"config": asdict(self.config), "environment": self.environment}
