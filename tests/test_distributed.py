"""Data-parallel training: pure rules here, what needs ranks through mpiexec.

The tests of `distributed_cases.py` run on 1, 2 and 3 ranks, whatever the number of cores.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from distributed_model import Weights
from dlprim.distributed.buckets import SMALLEST, plan_buckets
from dlprim.distributed.launcher import launched_rank, launched_size
from mpi_launch import TESTS, launch


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_cases_hold_on_all_ranks(ranks: int) -> None:
    cases = str(TESTS / "distributed_cases.py")
    options = ("-q", "-x", "-p", "no:cacheprovider", "-p", "mpi_session")
    run = launch(ranks, "-m", "pytest", *options, cases)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
    assert run.stdout.count(" passed") == ranks


def parameters(*sizes: int) -> list[Weights]:
    empty = np.zeros(0, np.float32)
    return [Weights(f"p{i}", np.zeros(size, np.float32), empty) for i, size in enumerate(sizes)]


@pytest.mark.parametrize("ranks", [1, 3, 16])
@pytest.mark.parametrize("bucket_bytes", [1, 1 << 20, 25 << 20])
def test_buckets_hold_every_parameter_once_in_reverse_order(bucket_bytes: int, ranks: int) -> None:
    model = parameters(5, 0, 1 << 20, 17, 3 << 20, 1 << 18, 1)
    buckets = plan_buckets(model, bucket_bytes, ranks)
    assert list(itertools.chain(*(bucket.parameters for bucket in buckets))) == model[::-1]
    assert [bucket.index for bucket in buckets] == list(range(len(buckets)))
    for bucket in buckets:
        assert bucket.size == sum(weights.value.size for weights in bucket.parameters)
        assert bucket.size <= bucket.padded < bucket.size + ranks
        assert bucket.padded % ranks == 0
        assert 4 * bucket.size <= bucket_bytes or len(bucket.parameters) == 1


def test_buckets_shrink_towards_the_end_of_the_backward_pass() -> None:
    model = parameters(*[1 << 15] * 400)  # 50 MiB
    sizes = [4 * bucket.size for bucket in plan_buckets(model, 16 << 20, 2)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 16 << 20
    assert sizes[-1] <= SMALLEST


def test_launchers_are_recognised() -> None:
    assert launched_size({}) == 1
    assert launched_size({"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}) == 1  # a batch script
    assert launched_size({"SLURM_STEP_NUM_TASKS": "4"}) == 4
    assert launched_size({"PMI_SIZE": "2"}) == 2
    assert launched_rank({"PMI_SIZE": "2", "PMI_RANK": "1"}) == 1
    assert launched_rank({"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_RANK": "7"}) == 7
    assert launched_rank({"SLURM_PROCID": "3"}) == 0
