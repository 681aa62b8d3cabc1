"""Which tile a kernel has: a model of bytes and occupancy ranks them, `tune` measures.

A tile's time is the longer of its products and of its bytes from the second cache; tiles run in
waves over the processors. Figures are those of an H100's makers, and only their ratios matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import ceil
from types import SimpleNamespace
from typing import Any

import torch

from dlprim.gpu.arrays import interprets
from dlprim.gpu.kernels import row_tile
from dlprim.gpu.mapping import Step, Tile
from dlprim.gpu.tree import Array, Index, count, reads_in, steps_of

_START = 3e-6  # seconds of a further launch,
_STEP = 5e-8  # and of what a step of the sum waits for
_CYCLES = 1.5e9  # in a second
_MEMORY = 3e12  # bytes in a second,
_CACHE = 4e10  # and of one processor from the second cache
_ENTRIES = 4  # of a batch whose length is not known
_ROWS = ((2048, 4), (1024, 4), (4096, 8), (512, 2), (8192, 8))


def device() -> Any:
    """What PyTorch says of the GPU at hand, and of an H100 where kernels are interpreted."""
    if torch.cuda.is_available() and not interprets():
        return torch.cuda.get_device_properties(torch.cuda.current_device())
    return target("interpreter", 132, 227)


def target(name: str, processors: int, kilobytes: int, warp: int = 32, major: int = 9) -> Any:
    """What a model needs to know of a device: shared memory of a block, threads of a warp."""
    return SimpleNamespace(
        name=name, multi_processor_count=processors, warp_size=warp, major=major,
        shared_memory_per_block_optin=kilobytes * 1024,
    )  # fmt: skip


@dataclass(frozen=True)
class _Work:
    """What a product asks of a device."""

    it: Step
    size: int  # bytes of an element
    speed: int  # multiplications and additions of a processor in a cycle
    on: Any

    def fits(self, tile: Tile) -> bool:
        """Registers and shared memory; without a matrix instruction tiles are small."""
        least, most = (16, 16) if self.speed == 128 else (32 // min(self.size, 2), 256 // self.size)
        # An end has values of its own in registers.
        is_wide = (self.on.warp_size == 64 or self.on.major == 9) and len(self.it.statements) == 1
        sums = tile.warps * self.on.warp_size * (128 if is_wide else 64) // (2 // min(self.size, 2))
        sums = 64 * 64 if self.speed == 128 else sums
        stages = tile.stages - (self.on.warp_size == 64)
        return least <= tile.k <= most and tile.m * tile.n <= sums and self.room(tile) >= stages

    def room(self, tile: Tile) -> int:
        """For steps of the sum in shared memory."""
        shared: int = getattr(self.on, "shared_memory_per_block_optin", 64 * 1024)
        return shared // self.stage(tile)

    def stage(self, tile: Tile) -> int:
        """Bytes of a step of the sum."""
        return (tile.m + tile.n) * tile.k * self.size

    def seconds(self, tile: Tile) -> float:
        it, outer, m, n = self.it, *map(count, (self.it.outer, self.it.rows, self.it.columns))
        blocks = ceil(count(it.batch) * ceil(count(it.k) / tile.k) / tile.split)
        tiles = outer * ceil(m / tile.m) * ceil(n / tile.n) * tile.split
        together = max(min(self.room(tile) // tile.stages, 2), 1)
        waves = ceil(tiles / (self.on.multi_processor_count * together)) * together
        # Narrow tiles leave parts of a matrix instruction unused.
        speed = self.speed * _CYCLES * (0.9 if tile.m >= 64 else 0.5)
        step = max(tile.m * tile.n * tile.k / speed, self.stage(tile) / _CACHE) + _STEP
        time: float = waves * ((blocks + 4) * step + 5e-7)
        return time + (_START + outer * m * n * 8 * tile.split / _MEMORY if tile.split > 1 else 0)


def tiles_for(it: Step, arrays: Mapping[str, Array], on: Any, precision: str) -> list[Tile]:
    """All that fit, the fastest first as far as the model knows."""
    if not it.factors:
        return _row_tiles(it, arrays, 4 * on.multi_processor_count)
    if any(arrays[read.value].entry for read in it.factors):  # how many, only calls say
        it = replace(it, batch=(Index("batch", _ENTRIES),))
    types = {arrays[read.value].dtype for read in it.factors}
    dtype = types.pop() if len(types) == 1 else "float32"
    size, speed = {"float32": (4, 128), "int8": (1, 8192)}.get(dtype, (2, 4096))
    work = _Work(it, size, 2048 if (dtype, precision) == ("float32", "tf32") else speed, on)
    is_long = count(it.batch) * count(it.k) > 1024 and it.can_split(arrays)
    splits = (1, 2, 4, 8, 16, 32, 64) if is_long else (1,)
    sides = [
        [side for side in (16, 32, 64, 128, 256) if side < 2 * count(group) or side <= least]
        for group, least in ((it.rows, 16), (it.columns, 16), (it.k, 32))
    ]
    # Of those that cost the same, copies in advance are better but where warps are of 64 threads.
    stages = (2, 3, 4) if on.warp_size == 64 else (4, 3, 2)
    made = [
        Tile(m, n, k, 8 if m * n >= 128 * 128 else 4, ahead, 8, split)
        for m, n, k, ahead, split in product(*sides, stages, splits)
    ]
    return sorted(filter(work.fits, made), key=work.seconds)


def _row_tiles(it: Step, arrays: Mapping[str, Array], wanted: int) -> list[Tile]:
    """First those that are enough programs; where neighbours are rows, each has some of them."""
    reads = reads_in(it.statements[0].value)
    moved = [steps_of(read, arrays[read.value]) or {} for read in reads]
    is_turned = any(steps.get(index.name) == 1 for steps in moved for index in it.rows)
    made = []
    for share, size in product((1, 4, wanted), _ROWS):
        tile = row_tile(it, *size, 64 if is_turned else 1)
        programs, pieces = ceil(count(it.rows) / tile.m), ceil(count(it.columns) / tile.n)
        split = min(wanted // max(programs, 1), pieces // 4) // share
        made.append(tile._replace(split=max(split, 1) if it.can_split(arrays) else 1))
    return list(dict.fromkeys(made))
