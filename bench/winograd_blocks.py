"""Blocks of tiles of Winograd convolution, sized for the L2 cache or as the cost model has them.

For ResNet-50's 3x3 layers and each schedule that the model knows: scratch of a block of tiles, that
is V and M, and the time over that of the schedule that the model takes. Schedules and the model's
choice take turns.
"""

import argparse
import os
import time
from collections.abc import Callable
from statistics import median

os.environ.setdefault("DLPRIM_TUNE", "0")  # the model's schedules, whatever this machine has stored

import numpy as np

import dlprim
from dlprim import hardware
from dlprim.bench.measuring import timing

LAYERS = {4: (64, 56), 8: (128, 28), 13: (256, 14), 18: (512, 7)}  # channels, size
MOST_SCHEDULES = 32


def block_bytes(conv: dlprim.Conv2d) -> int:
    """V and M of the forward pass; weights transformed in the call are left out."""
    scratch = conv.scratch_bytes["forward"]
    w = np.zeros(conv.w_shape, np.float32)
    both, packed = (conv.pack_weights(w, form=form).nbytes for form in ("forward", "direct"))
    transformed = both - packed
    return scratch - transformed if scratch > transformed else scratch


def convolution(channels: int, size: int, batch: int, schedule: str | None = None) -> dlprim.Conv2d:
    return dlprim.Conv2d(
        (batch, channels, size, size), (channels, channels, 3, 3), padding=1,
        algorithm="winograd", schedule=schedule,
    )  # fmt: skip


def timed(conv: dlprim.Conv2d, src: np.ndarray, weights: np.ndarray) -> Callable[[], float]:
    dst = conv.forward(src, weights)

    def seconds() -> float:
        start = time.perf_counter()
        conv.forward(src, weights, out=dst)
        return time.perf_counter() - start

    return seconds


def print_layer(number: int, options: argparse.Namespace) -> None:
    channels, size = LAYERS[number]
    random = np.random.default_rng(number)
    chosen = convolution(channels, size, options.batch)
    src = chosen.pack_src(random.standard_normal(chosen.x_shape, np.float32))
    weights = chosen.pack_weights(random.standard_normal(chosen.w_shape, np.float32))
    mine = timed(chosen, src, weights)
    l2 = hardware.cache_bytes()["L2"]
    for schedule in chosen._core.candidates("forward", MOST_SCHEDULES):
        conv = convolution(channels, size, options.batch, schedule)
        bytes_of_block = block_bytes(conv)
        if bytes_of_block > options.most_l2 * l2 and schedule != chosen.schedules["forward"]:
            continue
        times, reference = timing.alternate([timed(conv, src, weights), mine], options.rounds)
        ratio = median(a / b for a, b in zip(times, reference, strict=True))
        note = " (the model's)" if schedule == chosen.schedules["forward"] else ""
        print(
            f"{number:3d} {schedule:>18s} {bytes_of_block / l2:6.2f} of L2  "
            f"{ratio:.3f} of the model's time{note}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ids", type=int, nargs="+", choices=LAYERS, default=list(LAYERS))
    parser.add_argument("--batch", type=int, default=8, help="images")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each schedule")
    parser.add_argument("--most-l2", type=float, default=1, help="largest scratch shown, over L2")
    parser.add_argument("--core", type=int, default=0, help="core to run on")
    options = parser.parse_args()
    timing.place([options.core], 1)
    dlprim.set_num_threads(1)
    for number in options.ids:
        print_layer(number, options)


if __name__ == "__main__":
    main()
