"""Which tile a kernel has: a model of bytes and occupancy ranks them, `tune` measures.

A tile's time is the longer of its products and of its bytes from the second cache; tiles run in
waves over the processors. Figures of a device are its makers', and only their ratios matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import ceil
from typing import NamedTuple

import torch

from dlprim.gpu.arrays import interprets
from dlprim.gpu.kernels import row_tile
from dlprim.gpu.mapping import Step, Tile
from dlprim.gpu.tree import Array, count

_START = 3e-6  # seconds of a further launch,
_STEP = 5e-8  # and of what a step of the sum waits for
_CYCLES = 1.5e9  # in a second
_ROWS = ((2048, 4), (1024, 4), (4096, 8), (512, 2), (8192, 8))


class Device(NamedTuple):
    """An H100 where no GPU is asked; bytes in a second from memory and from the second cache."""

    name: str = "H100"
    processors: int = 132
    shared: int = 227 * 1024
    warp: int = 32
    bandwidth: float = 3.3e12
    cache: float = 5.5e12
    sums: int = 128  # of a thread in registers


TARGETS = {
    "sm_80": Device("A100", 108, 163 * 1024, 32, 1.6e12, 4e12, 64),
    "sm_90": Device(),
    "gfx942": Device("MI300X", 304, 64 * 1024, 64, 5.3e12, 1e13),
}


def device() -> Device:
    if interprets() or not torch.cuda.is_available():
        return Device("interpreter")
    return _asked(torch.cuda.current_device())


@cache
def _asked(number: int) -> Device:
    it = torch.cuda.get_device_properties(number)
    shared = getattr(it, "shared_memory_per_block_optin", 64 * 1024)
    made = Device(it.name, it.multi_processor_count, shared, it.warp_size)
    return made if it.warp_size == 64 or it.major == 9 else made._replace(sums=64)


@dataclass(frozen=True)
class _Work:
    """What a product asks of a device."""

    it: Step
    size: int  # bytes of an element
    speed: int  # multiplications and additions of a processor in a cycle
    device: Device

    def fits(self, tile: Tile) -> bool:
        """Registers and shared memory; without a matrix instruction tiles are small."""
        least = 16 if self.size > 1 else 32
        stage = (tile.m + tile.n) * tile.k * self.size
        threads = tile.warps * self.device.warp // (2 if self.size == 1 else 1)
        return (
            least <= tile.k <= (16 if self.speed == 128 else 256 // self.size)
            and tile.m * tile.n <= (64 * 64 if self.speed == 128 else self.device.sums * threads)
            and stage * (tile.stages - (self.device.warp == 64)) <= self.device.shared
        )

    def seconds(self, tile: Tile) -> float:
        it, on = self.it, self.device
        outer, m, n = count(it.outer), count(it.rows), count(it.columns)
        blocks = ceil(count(it.batch) * ceil(count(it.k) / tile.k) / tile.split)
        tiles = outer * ceil(m / tile.m) * ceil(n / tile.n) * tile.split
        stage = (tile.m + tile.n) * tile.k * self.size
        together = max(min(on.shared // (stage * tile.stages), 2), 1)
        waves = ceil(tiles / (on.processors * together)) * together
        # Narrow tiles leave parts of a matrix instruction unused.
        products = (
            tile.m * tile.n * tile.k / (self.speed * _CYCLES * (0.9 if tile.m >= 64 else 0.5))
        )
        step = max(products, stage / on.cache * on.processors) + _STEP
        time = waves * ((blocks + 4) * step + 5e-7)
        if tile.split > 1:
            time += _START + outer * m * n * 8 * tile.split / on.bandwidth
        return time


def tiles_for(it: Step, arrays: Mapping[str, Array], on: Device, precision: str) -> list[Tile]:
    """All that fit, the fastest first as far as the model knows."""
    if not it.factors:
        return _row_tiles(it, arrays, on)
    types = {arrays[read.value].dtype for read in it.factors}
    dtype = types.pop() if len(types) == 1 else "float32"
    size, speed = {"float32": (4, 128), "int8": (1, 8192)}.get(dtype, (2, 4096))
    work = _Work(it, size, 2048 if (dtype, precision) == ("float32", "tf32") else speed, on)
    depth = count(it.batch) * count(it.k)
    splits = (1, 2, 4, 8, 16, 32, 64) if depth > 1024 and it.can_split(arrays) else (1,)
    sides = [
        [size for size in (16, 32, 64, 128, 256) if size < 2 * count(group) or size <= least]
        for group, least in ((it.rows, 16), (it.columns, 16), (it.k, 32))
    ]
    made = [
        Tile(m, n, k, 8 if m * n >= 128 * 128 else 4, stages, 8, split)
        for m, n, k, stages, split in product(*sides, (2, 3, 4), splits)
    ]
    return sorted((tile for tile in made if work.fits(tile)), key=work.seconds)


def _row_tiles(it: Step, arrays: Mapping[str, Array], on: Device) -> list[Tile]:
    rows, columns, wanted = count(it.rows), count(it.columns), 4 * on.processors
    splits = [1]
    if it.can_split(arrays) and rows < wanted and columns > 16384:
        needed = min(ceil(wanted / max(rows, 1)), ceil(columns / 4096))
        splits = [needed, max(needed // 4, 1), 1]
    made = [row_tile(it, *size, split) for split in splits for size in _ROWS]
    return list(dict.fromkeys(made))
