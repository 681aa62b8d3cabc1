"""Which configuration a run has: its flags, then its checkpoint, then the model's defaults."""

from __future__ import annotations

import argparse
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from dlprim.distributed import Group
from dlprim.distributed.agreement import prepare_together
from dlprim.files import check_writable
from dlprim.train import checkpoint
from dlprim.train.config import DATA, TrainConfig, configured, without_effect
from dlprim.train.flags import PROGRAM
from dlprim.train.folder import FILE
from dlprim.train.progress import warn


def settled(
    options: argparse.ArgumentParser, flags: argparse.Namespace, group: Group
) -> TrainConfig:
    """The configuration, whose batch is that of all ranks together.

    Raises
    ------
    SystemExit
        With code 2, after a flag that does not fit the others.
    CheckpointError
        There is no checkpoint to go on from, or a flag contradicts it; in a group of several, a
        CollectiveError on all ranks.
    """
    names = {field.name for field in fields(TrainConfig)}
    given = {name: value for name, value in vars(flags).items() if name in names}
    if "hidden" in given:
        given["hidden"] = tuple(given["hidden"])
    together = flags.global_batch or given.pop("batch_size", 0) * group.size
    if together:
        given["batch_size"] = together
    goes_on = flags.resume or flags.eval or flags.predict is not None
    if goes_on and flags.checkpoint is not None:
        config = _continued(given, flags, group)
    else:
        try:
            config = configured(given)
        except ValueError as error:
            options.error(f"argument --data: {error}")
        if not together:
            config = replace(config, batch_size=config.batch_size * group.size)
    if config.batch_size < group.size:
        options.error(f"argument --global-batch: expected {group.size}, one sample per rank")
    if (
        flags.json is not None
        and config.data not in DATA
        and flags.json.replaces(Path(config.data))
    ):
        options.error("argument --json: expected another file than that of the data")
    for name, reason in without_effect(given, config).items():
        options.error(f"argument --{name.replace('_', '-')}: {reason}")
    return config


def require_company(
    options: argparse.ArgumentParser, flags: argparse.Namespace, group: Group
) -> None:
    """Refuses flags that do nothing without another one.

    What a job's script sets for any number of ranks is warned of on one.

    Raises
    ------
    SystemExit
        With code 2.
    """
    if flags.resume and flags.checkpoint is None:
        options.error("argument --resume: expected --checkpoint DIR too")
    if flags.eval and flags.checkpoint is None and not flags.profile:
        options.error(
            "argument --eval: expected --checkpoint DIR too, whose weights are tested (or "
            "--profile, for the times of untrained weights)"
        )
    _require_prediction(options, flags, group)
    _require_effect(options, flags)
    for name in ("bandwidth", "latency"):
        if getattr(flags, name) is not None and not flags.predict_scaling:
            options.error(
                f"argument --{name}: expected --predict-scaling too, as it describes the network "
                "that is predicted"
            )
    if flags.wire != "float32" and group.size == 1 and not flags.predict_scaling:
        warn(PROGRAM, f"--wire {flags.wire} changes nothing on one rank, which sends no gradients")


def _require_prediction(
    options: argparse.ArgumentParser, flags: argparse.Namespace, group: Group
) -> None:
    """Refuses --output without --predict, and what --predict does not do."""
    if flags.predict is None:
        if flags.output is not None:
            options.error("argument --output: expected --predict FILE too")
        return
    if flags.checkpoint is None:
        options.error("argument --predict: expected --checkpoint DIR too, whose weights predict")
    if group.size > 1:
        options.error(f"argument --predict: expected one rank, not {group.size}")
    if "data" in flags:
        options.error("argument --data: expected without --predict, whose FILE has the images")
    if flags.output is not None:
        try:
            check_writable(flags.output)
        except OSError as error:
            options.error(f"argument --output: {error}")
        if flags.output.resolve() == flags.predict.resolve():
            options.error("argument --output: expected another file than --predict's")


_RESULTS = ("json", "plot", "baseline", "predict_scaling", "profile")
_WITHOUT = {  # what each of these modes does not do
    "predict": ("allreduce_only", "check", "eval", "resume", *_RESULTS),
    "allreduce_only": ("check", "eval", "resume", "checkpoint", *_RESULTS),
    "check": ("eval", "resume", "checkpoint", *_RESULTS),
    "eval": ("resume", "plot", "baseline", "predict_scaling"),
}


def _require_effect(options: argparse.ArgumentParser, flags: argparse.Namespace) -> None:
    """Refuses flags that a mode which does not train would pass over."""
    for mode, without in _WITHOUT.items():
        if not getattr(flags, mode):
            continue
        for name in without:
            if getattr(flags, name):
                first, second = (it.replace("_", "-") for it in (mode, name))
                options.error(f"argument --{first}: expected without --{second}")


def _continued(given: dict[str, Any], flags: argparse.Namespace, group: Group) -> TrainConfig:
    """That of the checkpoint, which rank 0 reads: others may not see its disk."""
    path = flags.checkpoint / FILE

    def stored() -> Any:
        return checkpoint.read_description(path) if group.rank == 0 else None

    found = group.allgather(prepare_together(group, stored))[0]
    trains = flags.resume and not flags.eval
    prepare_together(group, lambda: checkpoint.require_same(path, found["config"], given, trains))
    return replace(checkpoint.stored_config(found), **given)
