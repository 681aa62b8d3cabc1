"""Softmax and layer norm along rows, forward and backward, against PyTorch on one core.

Both sides have arrays of the same values and are called from Python in turns; results are compared
before anything is timed. `x torch` is how many times faster than PyTorch.
"""

import argparse
from collections.abc import Callable
from statistics import median
from typing import Any

# Before NumPy, which then reads what --isa says.
from torch_peer import beside_torch, tensor_on

# isort: split

import numpy as np

import dlprim
import harness

SHAPES = ((256, 64), (16, 1024), (16384, 64), (4096, 1024), (256, 16384))
Call = Callable[[], Any]


def sides(torch: Any, rows: int, columns: int, dtype: str) -> dict[str, tuple[Call, Call]]:
    """Of each function: ours and PyTorch's."""
    rng = np.random.default_rng(0)
    x, dy = (rng.standard_normal((rows, columns)).astype(np.float32) for _ in range(2))
    if dtype == "bfloat16":
        x, dy = dlprim.to_bfloat16(x), dlprim.to_bfloat16(dy)
    weight, bias = np.ones(columns, np.float32), np.zeros(columns, np.float32)
    theirs, slope = tensor_on(torch, x), tensor_on(torch, dy)
    scale, shift = (torch.from_numpy(it).to(theirs.dtype) for it in (weight, bias))
    y, result = dlprim.softmax(x), torch.softmax(theirs, -1)
    _, mean, deviation = torch.native_layer_norm(theirs, (columns,), scale, shift, 1e-5)
    given = (slope, theirs, (columns,), mean, deviation, scale, shift, [True] * 3)
    norm_gradients = torch.ops.aten.native_layer_norm_backward
    return {
        "softmax": (lambda: dlprim.softmax(x), lambda: torch.softmax(theirs, -1)),
        "softmax_backward": (
            lambda: dlprim.softmax_backward(dy, y),
            lambda: torch._softmax_backward_data(slope, result, -1, theirs.dtype),
        ),
        "layer_norm": (
            lambda: dlprim.layer_norm(x, weight, bias),
            lambda: torch.layer_norm(theirs, (columns,), scale, shift),
        ),
        "layer_norm_backward": (
            lambda: dlprim.layer_norm_backward(dy, x, weight).dx,
            lambda: norm_gradients(*given)[0],
        ),
    }


def verify(ours: Call, theirs: Call, dtype: str) -> None:
    tolerance = 1e-4 if dtype == "float32" else 3e-2
    expected = theirs().float().numpy()
    np.testing.assert_allclose(ours().astype(np.float32), expected, tolerance, tolerance)


def main() -> None:
    options, torch = beside_torch(argparse.ArgumentParser(description=__doc__))
    for dtype in ("float32", "bfloat16"):
        for rows, columns in SHAPES:
            for name, pair in sides(torch, rows, columns, dtype).items():
                verify(*pair, dtype)
                ours, peer = harness.alternate(map(harness.timed, pair), options.rounds)
                print(
                    f"{name:>20s} {dtype:>9s} {rows:6d} x {columns:<6d} "
                    f"{median(ours) * 1e9 / rows / columns:7.3f} ns per element, "
                    f"x torch {harness.median_ratio(peer, ours):5.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
