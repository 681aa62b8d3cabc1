"""Models that are networks, on all ranks: what one rank makes of the whole batch, on every group.

`test_distributed.py` runs this file as it runs distributed_cases.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dlprim import nn, optim
from dlprim.distributed import DataParallel, Group
from dlprim.tracing import steps

V, LENGTH, SAMPLES, STEPS = 29, 12, 6, 5
WAYS = ("by hand", "step", "clipped", "accumulated")


def batches(count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    generator = np.random.Generator(np.random.PCG64(5))
    drawn = generator.integers(0, V, (2, count, SAMPLES, LENGTH))
    return drawn[0], drawn[1]


def part(group: Group) -> slice:
    """A rank's samples: the first rank has the fewest."""
    ends = [SAMPLES * it * (it + 1) // (group.size * (group.size + 1)) for it in (0, 1, 2, 3)]
    return slice(ends[group.rank], ends[group.rank + 1])


def model_of(seed: int) -> nn.Module:
    nn.seed(seed)
    return nn.gpt(V, LENGTH, C=32, heads=2, layers=2)


def trained(
    group: Group, way: str, wire: str = "float32", overlap: str = "thread"
) -> tuple[dict[str, Any], list[float]]:
    """State and mean losses after some updates on a rank's samples."""
    model = model_of(group.rank)
    optimizer, criterion = optim.SGD(model.parameters(), 0.1, momentum=0.9), nn.CrossEntropyLoss()
    turns = 2 if way == "accumulated" else 1
    limit = 0.5 if way == "clipped" else None
    step = nn.Step(model, criterion, optimizer, clip_norm=limit, accumulate=turns)
    x, y = (it[:, part(group)] for it in batches(STEPS * turns))
    share = x.shape[1] / SAMPLES
    by_hand = way == "by hand"
    losses = []
    with DataParallel(model if by_hand else step, group, 1 << 14, overlap, wire) as parallel:
        parallel.share = share
        for inputs, labels in zip(x, y, strict=True):
            if by_hand:
                loss, dy = criterion(model(inputs), labels)
                model.backward(dy, parallel.ready)
                parallel.finish()
                optimizer.step()
                losses.append(parallel.mean(loss))
            else:
                losses.append(float(step(inputs, labels)))
        if group.size > 1:
            assert len(parallel.traffic.buckets) > 2
    if limit is not None:
        assert (step.norm or 0) > limit
    return model.state_dict(), losses


@pytest.mark.parametrize("way", WAYS)
def test_ranks_learn_what_one_learns_of_the_whole_batch(group: Group, way: str) -> None:
    state, losses = trained(group, way)
    others = group.allgather(state)
    alone, expected = trained(Group(), way)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for name, array in state.items():
        np.testing.assert_array_equal(array, others[0][name], name)
        np.testing.assert_allclose(array, alone[name], rtol=1e-4, atol=2e-6, err_msg=name)


def test_the_wire_may_be_bfloat16(group: Group) -> None:
    state, losses = trained(group, "step", "bfloat16")
    others = group.allgather(state)
    _, expected = trained(Group(), "step")
    np.testing.assert_allclose(losses, expected, rtol=5e-3)
    for name, array in state.items():
        np.testing.assert_array_equal(array, others[0][name], name)


def test_a_step_and_the_loop_by_hand_have_the_same_bits(group: Group) -> None:
    for name, array in trained(group, "step")[0].items():
        np.testing.assert_array_equal(array, trained(group, "by hand")[0][name], name)


def test_a_step_without_overlap_tells_nobody_and_has_the_same_bits(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, losses = trained(group, "step")
    monkeypatch.setattr(steps, "run_telling", None)  # which would start a thread
    state, found = trained(group, "step", overlap="off")
    assert found == losses
    for name, array in state.items():
        np.testing.assert_array_equal(array, expected[name], name)


def test_what_the_optimiser_does_not_have_stays_and_is_that_of_rank_0(group: Group) -> None:
    model, x, y = model_of(group.rank), *(it[0, part(group)] for it in batches(1))
    head = model.parameters()[-2:]
    step = nn.Step(model, nn.CrossEntropyLoss(), optim.SGD(head, 0.1))
    with DataParallel(step, group) as parallel:
        parallel.share = len(x) / SAMPLES
        before = model.state_dict()
        step(x, y)
    after = model.state_dict()
    changed = {it for it in after if not np.array_equal(after[it], before[it])}
    assert changed == {"norm.weight", "norm.bias"}
    others = group.allgather(after)
    for name, array in after.items():
        np.testing.assert_array_equal(array, others[0][name], name)


def test_a_parameter_of_another_model_is_refused(group: Group) -> None:
    step = nn.Step(model_of(0), nn.CrossEntropyLoss(), optim.SGD(model_of(1).parameters(), 0.1))
    with pytest.raises(ValueError, match="updates an array that is none of the model"):
        DataParallel(step, group)


def test_a_step_that_is_refused_leaves_all_as_it_was(group: Group) -> None:
    """Of all ranks, so that nobody waits for what does not come."""
    model = model_of(0)
    step = nn.Step(model, nn.CrossEntropyLoss(), optim.SGD(model.parameters(), 0.1))
    x, y = (it[0] for it in batches(1))
    with DataParallel(step, group):
        before = model.state_dict()
        with pytest.raises(ValueError, match="shape"):
            step(x[:, :, None, None], y)
        for name, array in model.state_dict().items():
            np.testing.assert_array_equal(array, before[name], name)
        step(x, y)
