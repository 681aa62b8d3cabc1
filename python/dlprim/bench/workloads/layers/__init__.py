"""What stands around the products: most of it waits for memory, so bytes are its roof.

Traffic is what a layer must at least move: operands once, results once. PyTorch runs the same layer
on channels-last tensors. References are float64 sums by the layers' definitions.
"""

from __future__ import annotations

from collections.abc import Iterator

from dlprim.bench.measuring.case import Row
from dlprim.bench.settings import Settings
from dlprim.bench.workloads.layers import attention, flat, images, packing, reductions

KINDS = {
    "norm": images.norms,
    "pool": images.pools,
    "flat": flat.rows,
    "embedding": flat.embeddings,
    "optimizer": flat.optimizers,
    "rows": reductions.rows,
    "attention": attention.rows,
    "packing": packing.rows,
}


def rows(settings: Settings) -> Iterator[Row]:
    """Of the kinds that were asked for."""
    for kind in settings.kinds or KINDS:
        for row in KINDS[kind](settings):
            if settings.wanted(row.name):
                yield row
