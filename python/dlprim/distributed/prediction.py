"""How a step would scale to more nodes: a replay of its buckets on a network of given speed.

A message of n bytes takes latency + n / bandwidth (Hockney's alpha-beta model). A bucket takes
R - 1 messages of 1 / R of its bytes to the owners of its parts, as many back, and, on each rank,
passes over its memory for packing, summing and unpacking. Buckets go one after the other, each no
earlier than its gradients are final; what is left when the backward pass ends is exposed. Overlap
hides the wire, but not the passes over memory, which take their time from the core that computes:
they are exposed at least. Noise, stragglers and congestion are not in the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlprim.distributed.traffic import bus_bytes

NODES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_PASSES = 6  # reads and writes of a bucket in memory: pack, sum, unpack


@dataclass(frozen=True)
class Network:
    """Of one node, in each direction."""

    bandwidth: float  # bytes per second
    latency: float  # seconds per message
    memory_bandwidth: float = 1e10  # bytes per second, of one core


@dataclass(frozen=True)
class StepProfile:
    """One step on one rank that computes alone, and when its buckets were ready."""

    computing: float  # seconds of forward, backward and optimiser
    buckets: tuple[tuple[int, float], ...]  # as `Traffic.buckets`


@dataclass(frozen=True)
class Prediction:
    """Of a step on some nodes."""

    nodes: int
    step: float  # seconds
    communication: float  # seconds
    exposed: float  # seconds
    efficiency: float  # weak scaling: computing time / step time


def predict(
    profile: StepProfile, network: Network, nodes: Sequence[int] = NODES, overlap: bool = True
) -> list[Prediction]:
    """What a step takes on so many nodes with the same batch on each.

    Parameters
    ----------
    profile : StepProfile
    network : Network
    nodes : sequence of int
    overlap : bool
        Whether buckets are reduced while the backward pass runs.
    """
    return [_predict(profile, network, count, overlap) for count in nodes]


def reduction_seconds(size: int, nodes: int, network: Network) -> float:
    """For a bucket of ``size`` bytes."""
    if nodes == 1:
        return 0.0
    messages = 2 * (nodes - 1) * network.latency
    wire = bus_bytes(size, nodes) / network.bandwidth
    return messages + wire + _work_seconds(size, nodes, network)


def _work_seconds(size: int, nodes: int, network: Network) -> float:
    return _PASSES * size / network.memory_bandwidth if nodes > 1 else 0.0


def _predict(profile: StepProfile, network: Network, nodes: int, overlap: bool) -> Prediction:
    clock, communication = float("-inf"), 0.0  # 0 is the end of the backward pass
    for size, lead in profile.buckets:
        took = reduction_seconds(size, nodes, network)
        clock = max(clock, -lead if overlap else 0.0) + took
        communication += took
    work = sum(_work_seconds(size, nodes, network) for size, _ in profile.buckets)
    exposed = max(clock, work)
    step = profile.computing + exposed
    return Prediction(nodes, step, communication, exposed, profile.computing / step)


def table(predictions: Sequence[Prediction]) -> list[str]:
    """Lines to print."""
    lines = ["nodes  step ms  communication ms  exposed ms  efficiency"]
    for it in predictions:
        lines.append(
            f"{it.nodes:5d} {1e3 * it.step:8.1f} {1e3 * it.communication:17.1f} "
            f"{1e3 * it.exposed:11.1f} {it.efficiency:11.3f}"
        )
    return lines
