"""`dlprim.conv1d`, `conv3d` and `conv_transpose1d` to `3d` on shapes/axes.csv against PyTorch.

On one core, float32, with a bias; forward, and all three gradients. Both sides have the same arrays
and take turns; results are compared before anything is timed.
"""

import argparse
import csv
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

# Before NumPy, which then reads what --isa says.
from torch_peer import beside_torch

# isort: split

import numpy as np

import dlprim
import harness

SHAPES = Path(__file__).parent / "shapes" / "axes.csv"
STEPS = ("stride", "padding", "output_padding", "dilation")
Call = Callable[[], Any]
Sides = tuple[Call, Call]


def rows() -> list[dict[str, str]]:
    with SHAPES.open() as lines:
        return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def sides(torch: Any, row: dict[str, str]) -> tuple[Sides, Sides]:
    """Ours and PyTorch's: the layer, and its gradients."""
    rng = np.random.default_rng(0)
    x, w = (
        rng.standard_normal([int(extent) for extent in row[name].split()], np.float32)
        for name in ("x", "w")
    )
    axes, groups, kind = x.ndim - 2, int(row["groups"]), row["kind"]
    steps = {name: [int(each) for each in row[name].split()] for name in STEPS}
    steps = {name: it * axes if len(it) == 1 else it for name, it in steps.items()}
    is_transposed = "transpose" in kind
    settings: dict[str, Any] = {**steps, "groups": groups}
    if not is_transposed:
        del settings["output_padding"]
    bias = rng.standard_normal(w.shape[1] * groups if is_transposed else len(w), np.float32)
    ours, gradients = getattr(dlprim, kind), getattr(dlprim, f"{kind}_backward")
    theirs = getattr(torch.nn.functional, kind)
    tensors = [torch.from_numpy(array) for array in (x, w, bias)]
    dy = rng.standard_normal(ours(x, w, bias, **settings).shape, np.float32)
    all_of = [steps[name] for name in ("stride", "padding", "dilation")]
    others = (*all_of, is_transposed, steps["output_padding"], groups, (True, True, True))
    backward = torch.ops.aten.convolution_backward
    return (
        (lambda: ours(x, w, bias, **settings), lambda: theirs(*tensors, **settings)),
        (
            lambda: gradients(dy, x, w, **settings),
            lambda: backward(torch.from_numpy(dy), *tensors[:2], [len(bias)], *others),
        ),
    )


def verify(found: Any, expected: Any) -> None:
    pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
    for one, other in pairs:
        scale = float(np.abs(other.numpy()).max())
        np.testing.assert_allclose(one, other.numpy(), atol=3e-5 * scale, rtol=1e-4)


def main() -> None:
    options, torch = beside_torch(argparse.ArgumentParser(description=__doc__))
    ratios: tuple[list[float], list[float]] = [], []
    for row in rows():
        shown = []
        for (ours, theirs), found in zip(sides(torch, row), ratios, strict=True):
            verify(ours(), theirs())
            times = harness.alternate(map(harness.timed, (ours, theirs)), options.rounds)
            found.append(harness.median_ratio(times[1], times[0]))
            shown.append(f"{median(times[0]) * 1e3:8.3f} ms, x torch {found[-1]:5.2f}")
        print(
            f"{row['kind']:>16s} {row['x']:>15s} * {row['w']:<14s} {';  '.join(shown)}", flush=True
        )
    for what, found in zip(("forward", "gradients"), ratios, strict=True):
        print(f"{what}: geometric mean {harness.geometric_mean(found):.2f}, least {min(found):.2f}")


if __name__ == "__main__":
    main()
