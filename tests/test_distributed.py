"""Data-parallel training: pure rules here, what needs ranks through mpiexec.

The tests of `distributed_cases.py` run on 1, 2 and 3 ranks, whatever the number of cores.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from distributed_model import Weights
from dlprim.distributed import Group, LauncherError
from dlprim.distributed.buckets import SMALLEST, plan_buckets
from dlprim.distributed.ceiling import measure_ceiling
from dlprim.distributed.launcher import launched_rank, launched_size
from dlprim.distributed.metrics import Summary, read_summary
from dlprim.distributed.placement import Placement, complaints
from dlprim.distributed.prediction import Network, StepProfile, predict, table
from mpi_launch import TESTS, launch

pytestmark = [pytest.mark.any_level, pytest.mark.slow]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_cases_hold_on_all_ranks(ranks: int) -> None:
    names = ("cases", "network_cases", "norm_cases", "wire_cases")
    cases = [str(TESTS / f"distributed_{name}.py") for name in names]
    options = ("-q", "-x", "-p", "no:cacheprovider", "-p", "mpi_session")
    options += ("-p", "no:randomly")  # ranks take the same steps
    run = launch(ranks, "-m", "pytest", *options, *cases)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
    assert run.stdout.count(" passed") == ranks


@pytest.mark.parametrize(
    "text",
    [b"", b"\xff", b"[]", b"3", b'{"scaling": 3}', b'{"scaling": {"ranks": 2}}', b"{}\n{"],
)
def test_file_without_a_summary_is_refused_by_name(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=r"run\.jsonl holds no record of a run"):
        read_summary(path)


@pytest.mark.parametrize("buckets", [3, [3], [[1]], [["x", 1.0]]])
def test_summary_with_other_buckets_is_refused(tmp_path: Path, buckets: object) -> None:
    path = tmp_path / "run.jsonl"
    numbers = dict.fromkeys(Summary.__dataclass_fields__, 1)
    path.write_text(json.dumps(numbers | {"buckets": [[8, 0.5]]}))
    assert read_summary(path).buckets == ((8, 0.5),)
    path.write_text(json.dumps(numbers | {"buckets": buckets}))
    with pytest.raises(ValueError, match=r"run\.jsonl holds no record of a run"):
        read_summary(path)


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
        assert bucket.padded % (16 * ranks) == 0
        ends = [*bucket.begins[1:], bucket.padded]
        for weights, begin, end in zip(bucket.parameters, bucket.begins, ends, strict=True):
            assert begin % 16 == 0
            assert begin + weights.value.size <= end
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


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ("error", "job: rank 1 of 2 on .*: The training loss is nan in step 3."),
        ("uncaught", "KeyError: 'uncaught'"),
        ("stop", "job: rank 0 of 2 on .*: waited 1 seconds for the other ranks in the reduction"),
        ("code", "job: The ranks run different code: rank 0 on .*"),
        ("thread", "KeyError: 'in a thread'"),
        ("wire", "job: The ranks have different settings: rank 0 on .* has wire 'float32', rank 1"),
        ("buckets", "job: The ranks have different settings: .* bucket_bytes 64, rank 1 .* 128"),
        ("kill", ""),  # whose message is the launcher's
    ],
)
def test_one_rank_ends_the_job(way: str, message: str) -> None:
    run = launch(2, str(TESTS / "mpi_failures.py"), way)
    assert run.returncode != 0
    assert re.search(message, run.stderr)
    assert run.stderr.count("job: ") == message.count("job: ")
    assert "MPI_Finalize" not in run.stderr


def test_a_thread_that_exits_ends_no_job() -> None:
    run = launch(2, str(TESTS / "mpi_failures.py"), "quiet thread")
    assert run.returncode == 0, run.stderr


def test_missing_mpi4py_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", None)
    with pytest.raises(LauncherError, match=r"one of 2, but mpi4py .* pip install \"dlprim\[mpi\]"):
        Group.world()


def test_launcher_of_another_mpi_is_noticed() -> None:
    """Without its own launcher MPI sees one process, and all would train alone."""
    code = "from dlprim.distributed import Group; Group.world()"
    launch(1, "-c", code)
    command = [sys.executable, "-c", code]
    environment = os.environ | {"OMPI_COMM_WORLD_SIZE": "2"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "The launcher started 2 processes, but MPI" in run.stderr


def test_alone_nothing_imports_mpi4py() -> None:
    code = (
        "import sys; from dlprim.distributed import Group; assert Group.world().size == 1;"
        "assert not any(name.startswith('mpi4py') for name in sys.modules)"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PMI", "OMPI"))}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


# ---------------------------------------------------------------- placement and prediction


def placement(rank: int, threads: int, *cores: int, host: str = "a") -> Placement:
    return Placement(rank, host, threads, cores)


def test_placement_complains_about_missing_cores() -> None:
    assert complaints([placement(0, 2, 0, 1), placement(1, 2, 2, 3)]) == []
    (one,) = complaints([placement(0, 2, 0), placement(1, 2, 2, 3)])
    assert one.startswith("rank 0 on a has 2 threads for 1 core: ")
    shared = [placement(0, 2, 0, 1), placement(1, 2, 0, 1), placement(2, 2, 0, 1, host="b")]
    (both,) = complaints(shared)
    assert both.startswith("the 2 ranks on a have 4 threads for 2 cores: ")
    assert str(placement(0, 1, 0, 1, 2, 5)) == "rank 0 on a: 1 thread, 4 cores (0-2,5)"


def test_prediction_replays_buckets() -> None:
    profile = StepProfile(computing=1.0, buckets=((1000, 0.5), (1000, 0.1), (100, 0.0)))
    network = Network(bandwidth=1e4, latency=0.0, memory_bandwidth=1e12)
    (hidden,) = predict(profile, network, [2])
    assert hidden.communication == pytest.approx(0.21, rel=1e-3)
    assert hidden.exposed == pytest.approx(0.01, rel=1e-3)
    assert hidden.efficiency == pytest.approx(1 / 1.01, rel=1e-3)
    (shown,) = predict(profile, network, [2], overlap=False)
    assert shown.exposed == pytest.approx(0.21, rel=1e-3)
    (working,) = predict(profile, Network(1e9, 0.0, memory_bandwidth=1e5), [2])
    assert working.exposed == pytest.approx(6 * 2100 / 1e5, rel=1e-3)
    (alone,) = predict(profile, network, [1])
    assert alone.efficiency == 1
    slow = predict(profile, Network(1e4, 1e-3))
    assert [it.nodes for it in slow] == [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
    steps = [it.step for it in slow]
    assert steps == sorted(steps)
    assert len(table(slow)) == 11


@pytest.mark.parametrize("ranks", [2, 3])
def test_ceiling_is_measured(ranks: int) -> None:
    code = (
        "from dlprim.distributed import Group; from dlprim.distributed.ceiling import *;"
        "print(measure_ceiling(Group.world(), 1000003, rounds=3))"
    )
    run = launch(ranks, "-c", code)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith(f"allreduce of 1000004 bytes on {ranks} ranks: ")
    with pytest.raises(ValueError, match="start two or more with mpiexec"):
        measure_ceiling(Group(), 4)
