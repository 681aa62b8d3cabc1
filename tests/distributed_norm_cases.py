"""Batch normalisation over all ranks: what one rank makes of the whole batch, on every group.

`test_distributed.py` runs this file as it runs distributed_cases.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dlprim
from dlprim import nn, optim
from dlprim.arguments.floats import widened
from dlprim.distributed import DataParallel, Group, synchronize_batch_norm
from dlprim.train.ranks import RankExchange

SAMPLES = 12  # of all ranks
STEPS = 10


def random(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def uneven(group: Group) -> slice:
    """A rank's samples: the first has the fewest, and with three ranks none at all."""
    shift = 1 if group.size < 3 else -1
    ends = [rank * (rank + shift) for rank in range(group.size + 1)]
    begin, end = (SAMPLES * it // ends[-1] for it in ends[group.rank : group.rank + 2])
    return slice(begin, end)


def small_resnet(seed: int) -> nn.Sequential:
    generator = random(seed)

    def conv(
        c: int, k: int, name: str, stride: int = 1, activation: str | None = "relu"
    ) -> nn.ConvBatchNorm:
        size = 3 if name.startswith("conv") else 1
        layer = nn.Conv2d(
            c, k, size, stride, size // 2, bias=False, generator=generator, first=c == 3
        )
        return nn.ConvBatchNorm(
            layer, nn.BatchNorm2d(k, activation=activation), (name, f"bn_{name}")
        )

    first = nn.Residual([conv(16, 16, "conv0"), conv(16, 16, "conv1")])
    shortcut = conv(16, 24, "shortcut", 2, None)
    second = nn.Residual([conv(16, 24, "conv0", 2), conv(24, 24, "conv1")], shortcut)
    layers = {"stem": conv(3, 16, "conv"), "first": first, "second": second}
    layers |= {"pool": nn.GlobalAvgPool2d(), "fc": nn.Linear(24, 5, generator=generator)}
    model = nn.Sequential(layers)
    model.use(nn.Context())
    return model


def test_a_model_is_that_of_rank_0_in_inference_too() -> None:
    """Statistics, and weights that were packed for inference before, are of no rank's own."""
    group = Group.world()
    model, x = small_resnet(group.rank), random(9).standard_normal((2, 3, 8, 8), np.float32)
    for module in model.modules():
        for statistic in module.own_statistics().values():
            statistic[...] = 1 + group.rank
    model.forward(x, training=False)
    with DataParallel(model, group):
        states = group.allgather(model.state_dict())
        logits = group.allgather(np.asarray(model.forward(x, training=False)))
    for name, array in states[0].items():
        np.testing.assert_array_equal(states[group.rank][name], array, name)
    np.testing.assert_array_equal(logits[group.rank], logits[0])


def test_ranks_mean_all_statistics_in_one_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    group, model, exchanged = Group.world(), small_resnet(0), []
    original = Group.allgather
    with DataParallel(model, group) as parallel:
        statistics = [it for module in model.modules() for it in module.own_statistics().values()]
        for place, statistic in enumerate(statistics):
            statistic[...] = place + 2 * group.rank
        monkeypatch.setattr(Group, "allgather", lambda *it: exchanged.append(it) or original(*it))
        RankExchange(parallel, model, None, lambda: 0).before_test()  # type: ignore[arg-type]
    assert len(exchanged) == (group.size > 1)
    for place, statistic in enumerate(statistics):
        others = group.size - 1 if statistic.dtype == np.float32 else 2 * group.rank
        np.testing.assert_array_equal(statistic, place + others)


def trained(
    group: Group, x: NDArray[np.float32], labels: NDArray[np.int64], way: str
) -> tuple[dict[str, NDArray[np.float32]], list[float]]:
    """State and losses after some steps on a rank's samples."""
    model, losses = small_resnet(group.rank), []
    optimizer, criterion = optim.SGD(model.parameters(), 0.05), nn.CrossEntropyLoss()
    step = nn.Step(model, criterion, optimizer)
    with DataParallel(model if way == "by hand" else step, group, 4096) as parallel:
        assert synchronize_batch_norm(model, parallel) == 6
        for _ in range(STEPS):
            if way == "step":
                losses.append(float(step(x, labels)))
                continue
            loss, diff = criterion(model(x), labels)
            model.backward(diff, parallel.ready)
            parallel.finish()
            losses.append(float(np.mean(group.allgather(loss))))
            optimizer.step()
    return model.state_dict(), losses


@pytest.mark.parametrize("way", ["by hand", "step"])
def test_ranks_train_a_resnet_as_one_rank_trains_it(group: Group, way: str) -> None:
    generator = random(4)
    x = generator.standard_normal((SAMPLES, 3, 8, 8), dtype=np.float32)
    labels = generator.integers(0, 5, SAMPLES)
    part = SAMPLES // group.size
    own = slice(part * group.rank, part * (group.rank + 1))
    state, losses = trained(group, x[own], labels[own], way)
    alone, losses_alone = trained(Group(), x, labels, way)
    for others in group.allgather(state):
        for name, array in state.items():
            np.testing.assert_array_equal(others[name], array)
    if group.rank == 0:  # whose weights are the first
        np.testing.assert_allclose(losses, losses_alone, 1e-5)
        for name, array in state.items():
            largest = np.abs(alone[name]).max()
            np.testing.assert_allclose(array, alone[name], 0, 1e-5 * largest, err_msg=name)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("layout", ["blocked", "NHWC"])
@pytest.mark.parametrize(
    "options", [{}, {"activation": "relu"}, {"activation": "relu", "residual": True}], ids=str
)
def test_statistics_of_unequal_parts(
    group: Group, layout: str, dtype: str, options: dict[str, bool]
) -> None:
    """Of a large mean, and of ranks without a sample, on which the gradients of a mean loss over
    all samples agree with those of one rank."""
    generator, own = random(9), uneven(group)
    shape = (SAMPLES, 20, 5, 3)
    src, residual, diff = generator.standard_normal((3, *shape), dtype=np.float32)
    src = 100 + src * np.float32(3) + np.arange(SAMPLES, dtype=np.float32).reshape(-1, 1, 1, 1)
    weight, bias = generator.uniform(0.5, 2, (2, 20)).astype(np.float32)
    share = (own.stop - own.start) / SAMPLES

    def results(part: slice, share: float, group: Group) -> list[NDArray[np.float32]]:
        norm = dlprim.BatchNorm(
            (part.stop - part.start, *shape[1:]), layout=layout, dtype=dtype, **options
        )
        layer = nn.BatchNorm2d(20)
        with DataParallel(layer, group, overlap="off") as parallel:
            synchronize_batch_norm(layer, parallel)
        parallel.share = share
        pack, unpack = norm.activations.pack, norm.activations.unpack
        convert = dlprim.to_bfloat16 if dtype == "bfloat16" else np.ascontiguousarray
        packed = [pack(convert(array[part])) for array in (src, residual, diff / max(share, 1e-9))]
        running = np.zeros((2, 20), np.float32)
        addend = packed[1] if norm.residual else None
        mask = np.empty(norm.relu_mask_shape, np.uint8) if norm.activation else None
        both = {"weights": weight, "bias": bias, "relu_mask": mask, "population": layer.population}
        means = {"running_mean": running[0], "running_var": running[1]}
        dst, saved = norm.forward(packed[0], **both, **means, residual=addend)
        got = norm.backward(packed[2], packed[0], saved, **both)
        found = [unpack(dst), unpack(got.diff_src)]
        found = [dlprim.to_float32(it) if dtype == "bfloat16" else it for it in found]
        return [*found, saved, running, got.diff_weights, got.diff_bias]

    dst, diff_src, *channels, diff_weight, diff_bias = results(own, share, group)
    whole = results(slice(0, SAMPLES), 1.0, Group())
    tolerance = 1e-5 if dtype == "float32" else 2e-2
    for found, expected in zip(channels, whole[2:4], strict=True):
        np.testing.assert_allclose(found, expected, 2e-6)
    np.testing.assert_allclose(dst, whole[0][own], 0, tolerance * np.abs(whole[0]).max())
    largest = np.abs(whole[1]).max()
    np.testing.assert_allclose(diff_src * share, whole[1][own], 0, tolerance * largest)
    for mine, expected in zip((diff_weight, diff_bias), whole[4:], strict=True):
        total = sum(group.allgather(mine * share))
        np.testing.assert_allclose(total, expected, 0, tolerance * np.abs(expected).max() + 1e-5)


def of_whole_batch(
    x: NDArray[Any], residual: NDArray[Any], dy: NDArray[Any], layer: nn.BatchNorm2d
) -> list[NDArray[np.float64]]:
    """y, gradients by x, residual, weight and bias, and running statistics, in float64."""
    axes, count = (0, 2, 3), x.size // x.shape[1]
    weight, bias = (it.value.astype(np.float64)[:, None, None] for it in (layer.weight, layer.bias))
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    scale = 1 / np.sqrt(variance + layer.eps)
    normal = (x - mean) * scale
    y = np.maximum(normal * weight + bias + residual, 0)
    dy = dy * (y > 0)
    by_weight, by_bias = (dy * normal).sum(axes), dy.sum(axes)
    away = (normal * by_weight[:, None, None] + by_bias[:, None, None]) / count
    running = 0.1 * mean.ravel(), 0.9 + 0.1 * variance.ravel() * count / (count - 1)
    return [y, weight * scale * (dy - away), dy, by_weight, by_bias, *running]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("begins", [True, False])
def test_networks_take_statistics_of_unequal_parts(group: Group, dtype: str, begins: bool) -> None:
    """Of a large mean, and of ranks without a sample; also of a layer that ran before."""
    generator, own = random(9), uneven(group)
    x, residual, dy = generator.standard_normal((3, SAMPLES, 20, 5, 3), dtype=np.float32)
    x = 100 + x * np.float32(3) + np.arange(SAMPLES, dtype=np.float32).reshape(-1, 1, 1, 1)
    layer = nn.BatchNorm2d(20, activation="relu")
    layer.use(nn.Context(dtype))
    layer.weight.value, layer.bias.value = generator.uniform(0.5, 2, (2, 20)).astype(np.float32)
    before = layer.state_dict()
    if not begins:
        layer(x, residual)
        layer.load_state_dict(before)
    convert = dlprim.to_bfloat16 if dtype == "bfloat16" else np.copy
    share = (own.stop - own.start) / SAMPLES
    with DataParallel(layer, group, overlap="off") as parallel:
        parallel.share = share
        assert synchronize_batch_norm(layer, parallel) == 1
        for _ in range(2):  # with and without the first compilation
            layer.load_state_dict(before)
            y = layer(convert(x[own]), convert(residual[own]))
            found = [y, *layer.backward(convert(dy[own] / np.float32(max(share, 1e-9))))]
    scales = 1, share, share  # gradients are of the mean loss of a rank
    wide = [np.float64(widened(convert(it))) for it in (x, residual, dy)]
    expected = of_whole_batch(*wide, layer)
    tolerance = 1e-5 if dtype == "float32" else 2e-2
    for array, scale, whole in zip(found, scales, expected[:3], strict=True):
        largest = np.abs(whole).max()
        np.testing.assert_allclose(widened(array) * scale, whole[own], 0, tolerance * largest)
    for parameter, whole in zip(layer.parameters(), expected[3:5], strict=True):
        total = sum(group.allgather(parameter.gradient * share))
        np.testing.assert_allclose(total, whole, 0, tolerance * np.abs(whole).max())
    for array, whole in zip((layer.running_mean, layer.running_var), expected[5:], strict=True):
        np.testing.assert_allclose(array, whole, 5e-6)  # means of about 100 travel as float32
    assert layer.batches == 1
