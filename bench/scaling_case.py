"""The models that scaling is measured with, on synthetic batches: ours and PyTorch's.

Every rank draws a batch of its own; the models start alike on all ranks.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

import dlprim
from dlprim import nn
from dlprim.distributed import DataParallel, Group, synchronize_batch_norm
from dlprim.distributed.metrics import timed_step
from dlprim.optim import SGD

MODELS = ("resnet50", "lstm", "mlp")
VOCABULARY, EMBEDDED, HIDDEN, LAYERS, LENGTH = 128, 256, 512, 2, 64
WIDTHS = (1024, 2048, 2048, 2048, 1000)


@dataclass(frozen=True)
class Step:
    """What a step took on one rank; the peer tells the whole only."""

    seconds: float
    exposed: float = 0.0
    communication: float = 0.0
    buckets: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Case:
    """One side of a model."""

    step: Callable[[], Step]


def batch_of(model: str, batch: int, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Synthetic samples and labels of one rank."""
    random = np.random.Generator(np.random.PCG64([17, rank]))
    if model == "resnet50":
        x = random.standard_normal((batch, 3, 224, 224), dtype=np.float32)
        return x, random.integers(0, 1000, batch)
    if model == "lstm":
        text = random.integers(0, VOCABULARY, (LENGTH + 1, batch))
        return text[:-1], text[1:].reshape(-1)
    x = random.standard_normal((batch, WIDTHS[0]), dtype=np.float32)
    return x, random.integers(0, WIDTHS[-1], batch)


_CONTEXT = nn.Context()  # of all cases of a process, so that they share the memory of activations


def make_model(model: str) -> nn.Module:
    random = np.random.Generator(np.random.PCG64(5))
    if model == "resnet50":
        return nn.resnet50(generator=random, context=_CONTEXT)
    layers: dict[str, nn.Module] = {}
    if model == "lstm":
        layers["encoder"] = nn.Embedding(VOCABULARY, EMBEDDED, generator=random, scale=0.1)
        layers["rnn"] = nn.Recurrent("lstm", EMBEDDED, HIDDEN, LAYERS, generator=random)
        layers["decoder"] = nn.Linear(
            HIDDEN, VOCABULARY, generator=random, scale=1 / math.sqrt(HIDDEN)
        )
    else:
        for i, (c, k) in enumerate(pairwise(WIDTHS)):
            activation = "relu" if i < len(WIDTHS) - 2 else None
            layers[f"linear{i}"] = nn.Linear(c, k, activation=activation, generator=random)
    sequential = nn.Sequential(layers)
    sequential.use(_CONTEXT)
    return sequential


def our_case(model: str, batch: int, group: Group, overlap: str, option: str = "") -> Case:
    """With the option "bfloat16" on the wire or "sync-bn", or neither."""
    network = make_model(model)
    wire = "bfloat16" if option == "bfloat16" else "float32"
    parallel = DataParallel(network, group, overlap=overlap, wire=wire)
    if option == "sync-bn":
        synchronize_batch_norm(network, parallel)
    x, labels = batch_of(model, batch, group.rank)
    parameters = network.parameters()
    optimiser = SGD(parameters, 0.01, 0.9)

    def forward() -> Any:
        y = network.forward(x, training=True)
        flat = y.reshape(-1, y.shape[-1])
        loss, diff = dlprim.softmax_cross_entropy(flat, labels)
        return loss, diff.reshape(y.shape)

    def backward(result: Any) -> None:
        network.backward(result[1], parallel.ready)

    def optimise() -> None:
        optimiser.step([p.gradient for p in parameters])

    def step() -> Step:
        _, seconds = timed_step(parallel, forward, backward, optimise)
        buckets = parallel.traffic.buckets
        return Step(seconds.step, seconds.exposed, seconds.communication, buckets)

    return Case(step)


def torch_case(model: str, batch: int, world: Group, is_parallel: bool, threads: int) -> Case:
    """PyTorch with its DistributedDataParallel over gloo; or without either."""
    import torch

    from torch_models import LanguageModel, ResNet

    torch.set_num_threads(threads)
    x, labels = (torch.from_numpy(array) for array in batch_of(model, batch, world.rank))
    torch.manual_seed(5)
    if model == "resnet50":
        network = ResNet((3, 4, 6, 3), 64, 1000).to(memory_format=torch.channels_last)
        x = x.contiguous(memory_format=torch.channels_last)
    elif model == "lstm":
        network = LanguageModel("lstm", VOCABULARY, EMBEDDED, HIDDEN, LAYERS)
    else:
        layers: list[Any] = []
        for c, k in pairwise(WIDTHS):
            layers += [torch.nn.Linear(c, k), torch.nn.ReLU()]
        network = torch.nn.Sequential(*layers[:-1])
    if is_parallel:
        network = torch.nn.parallel.DistributedDataParallel(network)
    optimiser = torch.optim.SGD(network.parameters(), 0.01, 0.9)

    def step() -> Step:
        begin = time.perf_counter()
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(network(x).flatten(0, -2), labels).backward()
        optimiser.step()
        return Step(time.perf_counter() - begin)

    return Case(step)
