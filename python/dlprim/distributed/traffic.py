"""What communication cost in a step, and the part of it that nothing hid."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Traffic:
    """Of one step on one rank; `seconds` beyond `exposed` were hidden behind the backward pass."""

    buckets: tuple[tuple[int, float], ...]  # (bytes, seconds ready before the backward pass ended)
    seconds: float = 0.0  # during which a bucket was on its way
    exposed: float = 0.0  # seconds during which computing stood still

    @property
    def bytes(self) -> int:
        """Of all gradients, in their form on the wire."""
        return sum(size for size, _ in self.buckets)

    def bus_bandwidth(self, ranks: int) -> float:
        """Bytes per second that each rank sent, and received; 0 where nothing was sent."""
        return bus_bytes(self.bytes, ranks) / self.seconds if self.seconds > 0 else 0.0


def bus_bytes(size: int, ranks: int) -> float:
    """What each rank has to send, and to receive, at least, for an allreduce of `size` bytes."""
    return 2 * (ranks - 1) / ranks * size
