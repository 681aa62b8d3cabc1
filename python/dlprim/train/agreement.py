"""Trainers of all ranks of a group, and the proof that together they are one trainer."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator

import numpy as np

from dlprim.distributed import (
    CollectiveError,
    DataParallel,
    Group,
    prepare_together,
    synchronize_batch_norm,
)
from dlprim.distributed.agreement import require_same_settings
from dlprim.train.config import TrainConfig
from dlprim.train.loop import Trainer
from dlprim.train.models import build
from dlprim.train.ranks import RankExchange
from dlprim.train.tasks import Shard, make_task, seeded

_STEPS = 10
# Sums in another order differ in their last bits, which ten steps may enlarge a little.
_TOLERANCE = {"float32": 1e-5, "bfloat16": 3e-2}


@contextlib.contextmanager
def only_rank_0_prints(group: Group) -> Iterator[None]:
    """What the others print on stdout goes nowhere."""
    if group.rank == 0:
        yield
        return
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def make_trainer(
    config: TrainConfig,
    flags: argparse.Namespace,
    group: Group,
    wants_stop: Callable[[], int] = int,
) -> tuple[Trainer, RankExchange]:
    """A rank's trainer, which averages gradients over the group as the flags say."""
    shard = Shard(group.rank, group.size)
    task = prepare_together(group, lambda: make_task(config, shard))
    require_same_settings(group, {"data with the digest": task.digest})
    model = build(config, task.shape, task.classes, seeded(config.seed, 1))
    parallel = DataParallel(
        model, group, max(int(flags.bucket_mb * 2**20), 1), flags.overlap, flags.wire
    )
    if flags.sync_bn and synchronize_batch_norm(model, parallel) == 0:
        raise CollectiveError(f"--sync-bn: the model {config.model} has no batch normalisation")
    exchange = RankExchange(parallel, model, task, wants_stop)
    exchange.describe(flags.wire, flags.sync_bn)
    exchange.is_timed = flags.predict_scaling
    return Trainer(model, task, config, exchange), exchange


def check(config: TrainConfig, flags: argparse.Namespace, group: Group) -> int:
    """Trains some steps, compares the parameters among ranks and with one rank's; the status.

    Raises
    ------
    CollectiveError
        They differ.
    """
    trainer, _ = make_trainer(config, flags, group)
    steps = min(_STEPS, trainer.total_steps)
    for _ in range(steps):
        trainer.run_step()
    digest = hashlib.sha256()
    for parameter in trainer.model.parameters():
        digest.update(parameter.value.tobytes())
    if len(set(group.allgather(digest.digest()))) > 1:
        raise CollectiveError(f"The parameters of the ranks differ after {steps} steps")
    print(f"after {steps} steps the parameters are the same bits on {group.size} rank(s)")
    normalizes = any(module.own_statistics() for module in trainer.model.modules())
    if normalizes and not flags.sync_bn:
        print(
            "no comparison with one rank: each rank normalises its own part of a batch, "
            "but for --sync-bn"
        )
        return 0
    difference = _difference_to_one_rank(trainer, config, flags) if group.rank == 0 else None
    difference = group.allgather(difference)[0]
    limit = _TOLERANCE["bfloat16" if flags.wire == "bfloat16" else config.dtype]
    text = f"from those of one rank with the same global batch they differ by {difference:.1e}"
    if not difference <= limit:
        raise CollectiveError(f"{text}, relative to the largest of each array; allowed: {limit:g}")
    print(f"{text}, relative to the largest of each array")
    return 0


def _difference_to_one_rank(
    trainer: Trainer, config: TrainConfig, flags: argparse.Namespace
) -> float:
    alone, _ = make_trainer(config, flags, Group())
    for _ in range(trainer.step):
        alone.run_step()
    pairs = zip(trainer.model.parameters(), alone.model.parameters(), strict=True)
    return max(
        float(np.abs(ours.value - theirs.value).max() / max(np.abs(theirs.value).max(), 1e-30))
        for ours, theirs in pairs
    )
