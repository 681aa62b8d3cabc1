"""What holds on every group: alone without MPI, on COMM_SELF, and on all ranks of COMM_WORLD.

`test_distributed.py` runs this file under mpiexec with 1, 2 and 3 ranks; every rank runs all of it.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from numpy.typing import NDArray

import dlprim
from distributed_model import Network, Weights
from dlprim.distributed import CollectiveError, DataParallel, Group
from dlprim.distributed.agreement import prepare_together, require_same_code
from dlprim.distributed.overlap import OVERLAPS
from dlprim.distributed.waiting import wait

WIDTHS = (7, 33, 64, 5, 1)


def random(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


class Loose:
    """Parameters without a network, of shapes that fill no bucket evenly."""

    def __init__(self, shapes: list[tuple[int, ...]]) -> None:
        self.weights = [
            Weights(f"p{i}", np.zeros(shape, np.float32), np.zeros(shape, np.float32))
            for i, shape in enumerate(shapes)
        ]

    def parameters(self) -> list[Weights]:
        return self.weights


SHAPES = [(3, 5), (), (1,), (0, 4), (1000,), (17, 31), (2,), (30001,)]


def gradients_of(rank: int, step: int = 0) -> list[NDArray[np.float32]]:
    generator = random(1000 * step + rank)
    return [np.asarray(generator.standard_normal(shape, dtype=np.float32)) for shape in SHAPES]


def reduced(parallel: DataParallel, module: Loose, rank: int, step: int = 0) -> list[Any]:
    for weights, gradient in zip(module.weights, gradients_of(rank, step), strict=True):
        weights.gradient[...] = gradient
    for weights in reversed(module.weights):
        parallel.ready(weights)
    parallel.finish()
    return [weights.gradient.copy() for weights in module.weights]


# ---------------------------------------------------------------- the group


def test_group_knows_its_ranks(group: Group) -> None:
    assert 0 <= group.rank < group.size
    assert 0 <= group.local_rank < group.local_size <= group.size
    assert group.allgather(("rank", group.rank)) == [("rank", rank) for rank in range(group.size)]


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
@pytest.mark.parametrize("shape", [(), (0,), (3, 4)])
def test_broadcast_overwrites(group: Group, dtype: type, shape: tuple[int, ...]) -> None:
    array = np.full(shape, group.rank + 5, dtype)
    group.broadcast(array)
    np.testing.assert_array_equal(array, np.full(shape, 5, dtype))
    group.barrier()


def test_the_same_code_runs_everywhere(group: Group) -> None:
    require_same_code(group)


# ---------------------------------------------------------------- the reduction


@pytest.mark.parametrize("bucket_bytes", [1, 2048, 25 << 20])
@pytest.mark.parametrize("overlap", OVERLAPS)
def test_sum_has_the_bits_of_a_sum_in_the_order_of_ranks(
    group: Group, overlap: str, bucket_bytes: int
) -> None:
    """So they depend neither on the buckets nor on the overlap nor on MPI."""
    module = Loose(SHAPES)
    with DataParallel(module, group, bucket_bytes, overlap) as parallel:
        assert parallel.overlap == overlap
        for step in range(2):
            results = reduced(parallel, module, group.rank, step)
            scale = np.float32(1 / group.size)
            everywhere = [gradients_of(rank, step) for rank in range(group.size)]
            for index, result in enumerate(results):
                expected = np.zeros(SHAPES[index], np.float32)
                for rank in range(group.size):
                    expected = expected + everywhere[rank][index]
                np.testing.assert_array_equal(result, expected * scale)


def test_gradient_in_another_array_is_taken_in(group: Group) -> None:
    module = Loose(SHAPES)
    with DataParallel(module, group) as parallel:
        for weights in module.weights:
            weights.gradient = np.full_like(weights.value, group.rank)
            parallel.ready(weights)
        parallel.finish()
    for weights in module.weights:
        np.testing.assert_allclose(weights.gradient, (group.size - 1) / 2)


def test_share_weighs_batches_of_different_sizes(group: Group) -> None:
    module = Loose(SHAPES)
    with DataParallel(module, group) as parallel:
        parallel.share = (group.rank + 1) / sum(range(1, group.size + 1))
        results = reduced(parallel, module, group.rank)
    everywhere = [gradients_of(rank) for rank in range(group.size)]
    for index, result in enumerate(results):
        weighted = [(rank + 1) * everywhere[rank][index] for rank in range(group.size)]
        expected = sum(weighted) / sum(range(1, group.size + 1))
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_traffic_counts_bytes_and_seconds(group: Group) -> None:
    module = Loose(SHAPES)
    elements = sum(weights.value.size for weights in module.weights)
    for wire, size in (("float32", 4), ("bfloat16", 2)):
        with DataParallel(module, group, wire=wire, overlap="off") as parallel:
            reduced(parallel, module, group.rank)
            traffic = parallel.traffic
        assert traffic.bytes == size * elements
        assert all(lead >= 0 for _, lead in traffic.buckets)
        assert 0 <= traffic.seconds <= traffic.exposed
        assert (traffic.bus_bandwidth(group.size) > 0) == (group.size > 1)


# ---------------------------------------------------------------- training


def trained(group: Group, x: NDArray[np.float32], overlap: str) -> tuple[Network, float]:
    network = Network(WIDTHS, seed=group.rank)  # rank 0's is what counts
    with DataParallel(network, group, 256, overlap) as parallel:
        for _ in range(10):
            y = network.forward(x)
            network.backward((y - 0.5) / np.float32(len(x)), parallel.ready)
            parallel.finish()
            for layer in network.parameters():
                layer.value -= np.float32(0.1) * layer.gradient
    return network, float(np.mean((network.forward(x) - 0.5) ** 2))


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_ranks_train_what_one_rank_trains_on_the_whole_batch(group: Group, overlap: str) -> None:
    x = random(3).standard_normal((6, 4 * group.size, WIDTHS[0]), dtype=np.float32)[0]
    network, _ = trained(group, x[4 * group.rank : 4 * group.rank + 4], overlap)
    alone, _ = trained(Group(), x, "off")
    values = [layer.value for layer in network.parameters()]
    for others in group.allgather(values):
        for mine, other in zip(values, others, strict=True):
            np.testing.assert_array_equal(mine, other)
    if group.rank == 0:
        for mine, layer in zip(values, alone.parameters(), strict=True):
            np.testing.assert_allclose(mine, layer.value, rtol=1e-5, atol=1e-6)


# ---------------------------------------------------------------- refusals


def test_every_gradient_is_ready_once(group: Group) -> None:
    network = Network(WIDTHS)
    parallel = DataParallel(network, group, overlap="off")
    first, *others = network.parameters()
    parallel.ready(others[-1])
    with pytest.raises(ValueError, match=r"layer3.weights is ready for the second time"):
        parallel.ready(others[-1])
    with pytest.raises(ValueError, match=r"no gradient was ready for the parameters .*layer0"):
        parallel.finish()
    with pytest.raises(ValueError, match="not one of this module's"):
        parallel.ready(Weights("stranger", first.value, first.gradient))


def test_wrong_arguments_are_refused(group: Group) -> None:
    network = Network(WIDTHS)
    with pytest.raises(ValueError, match="overlap is 'maybe', expected one of 'thread'"):
        DataParallel(network, group, overlap="maybe")
    with pytest.raises(ValueError, match="wire is 'int8'"):
        DataParallel(network, group, wire="int8")
    with pytest.raises(ValueError, match="bucket_bytes is 0"):
        DataParallel(network, group, bucket_bytes=0)
    with pytest.raises(ValueError, match="timeout is 0"):
        Group(timeout=0)
    network.layers[1].value = network.layers[1].value.astype(np.float64)  # type: ignore[assignment]
    with pytest.raises(TypeError, match=r"layer1.weights has dtype float64"):
        DataParallel(network, group)


def test_different_models_are_refused_on_every_rank(group: Group) -> None:
    if group.size == 1:
        return
    widths = (7, 33, 64 + (group.rank == 1), 5, 1)
    with pytest.raises(CollectiveError, match=r"rank 0 has layer1.weights of shape \(64, 33\), "):
        DataParallel(Network(widths), group)
    with pytest.raises(CollectiveError, match="rank 0 has 4 parameters, rank 1 has 3"):
        DataParallel(Network(WIDTHS[: 5 - (group.rank == 1)]), group)


def test_different_code_is_refused_on_every_rank(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    if group.size == 1:
        return
    if group.rank == 1:
        monkeypatch.setattr(dlprim, "__version__", "0.0.9")
    with pytest.raises(CollectiveError, match=r"different code: .* rank 1 on .* has dlprim 0.0.9"):
        require_same_code(group)


def test_what_one_rank_cannot_prepare_is_known_to_all(group: Group) -> None:
    last = group.size - 1

    def open_file() -> int:
        if group.rank == last:
            raise OSError("the file is gone")
        return group.rank

    with pytest.raises((OSError, CollectiveError), match="the file is gone") as caught:
        prepare_together(group, open_file)
    assert (f"rank {last} of {group.size}" in str(caught.value)) == (group.size > 1)
    assert prepare_together(group, lambda: group.rank) == group.rank


def test_less_than_full_thread_support_is_said_aloud(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MPI, "Query_thread", lambda: MPI.THREAD_FUNNELED)
    if group.size == 1:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            DataParallel(Network(WIDTHS), group).close()
        return
    with pytest.warns(RuntimeWarning, match="thread level funneled, a communication thread needs"):
        parallel = DataParallel(Network(WIDTHS), group, overlap="thread")
    assert parallel.overlap == "off"


def test_a_rank_that_does_not_come_is_noticed(group: Group) -> None:
    if group.size == 1:
        return
    if group.rank == 0:
        request = group.communicator.Ibarrier()
        with pytest.raises(TimeoutError, match=r"waited 0\.05 seconds for the other ranks in vain"):
            wait(request, "vain", 0.05)
        group.communicator.send("come", 1)
        wait(request, "a barrier", 60)
    else:
        if group.rank == 1:
            group.communicator.recv(source=0)
        group.barrier()
