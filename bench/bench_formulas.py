"""Layers as formulas against dlprim's own functions on the same plain arrays, one core, float32.

Convolutions of ResNet-50 (N = 1), plain linear layers, and a dilated convolution along one axis
with its gradients, which are derived from the formula. Both sides take turns; results are compared
before anything is timed. `x own` is how many times faster the formula is than the function, `of
peak` what it reaches of the multiply-add peak that is measured in the same turns.
"""

import argparse
import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import held_isa

# isort: split

import numpy as np

import dlprim
import harness
import machine
from dlprim.testing import fma_peak

SHAPES = Path(__file__).parent / "shapes"
LINEAR = "y(n,k) +=! x(n,c) * w(k,c)"
DILATED = "y(n,k,p) +=! x(n,c,p+8*s) * w(k,c,s)"
Call = Callable[[], Any]


class Case(NamedTuple):
    group: str
    name: str
    flops: float
    formula: Call
    own: Call


def rows_of(name: str) -> list[dict[str, int]]:
    with (SHAPES / name).open() as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return [{key: int(value) for key, value in row.items()} for row in rows]


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def convolution(row: dict[str, int]) -> Case:
    x, w = drawn(1, row["C"], row["H"], row["W"]), drawn(row["K"], row["C"], row["R"], row["S"])
    step, pad = row["stride"], row["pad"]
    read = f"x{'?' if pad else ''}(n,c,{step}*p+r-{pad},{step}*q+s-{pad})"
    sizes = {"p": (row["H"] + 2 * pad - row["R"]) // step + 1}
    sizes["q"] = (row["W"] + 2 * pad - row["S"]) // step + 1
    formula = f"y(n,k,p,q) +=! {read} * w(k,c,r,s)"
    return Case(
        "convolutions",
        f"{row['C']}-{row['K']} {row['H']}x{row['W']} {row['R']}x{row['S']}/{step}",
        2.0 * w.size * sizes["p"] * sizes["q"],
        lambda: dlprim.contract(formula, x, w, sizes=sizes),
        lambda: dlprim.conv2d(x, w, stride=step, padding=pad),
    )


def dilated() -> Iterator[Case]:
    x, w = drawn(1, 15, 60400 + 8 * 50), drawn(15, 15, 51)
    dy = drawn(1, 15, 60400)
    layer = dlprim.define(f"def f(float(N,C,W) x, float(K,C,S) w) -> (y) {{ {DILATED} }}").f
    by_x, by_w = layer.gradient("x"), layer.gradient("w")
    flops = 2.0 * w.size * 60400
    yield Case(
        "dilated", "forward", flops, lambda: layer(x, w), lambda: dlprim.conv1d(x, w, dilation=8)
    )
    yield Case(
        "dilated",
        "backward",
        2 * flops,
        lambda: (by_x(x, w, dy), by_w(x, w, dy)),
        lambda: dlprim.conv1d_backward(dy, x, w, dilation=8)[:2],
    )


def cases() -> Iterator[Case]:
    for row in rows_of("resnet50_conv.csv"):
        yield convolution(row)
    for row in rows_of("plain_linear.csv"):
        n, c, k = row["N"], row["C"], row["K"]
        if n * c * k <= 1 << 32:
            x, w = drawn(n, c), drawn(k, c)
            yield Case(
                "linear",
                f"{n} x {c} x {k}",
                2.0 * n * c * k,
                lambda x=x, w=w: dlprim.contract(LINEAR, x, w),
                lambda x=x, w=w: dlprim.linear(x, w),
            )
    yield from dilated()


def verify(found: Any, exact: Any) -> None:
    pairs = zip(found, exact, strict=True) if isinstance(found, tuple) else [(found, exact)]
    for one, other in pairs:
        scale = float(np.abs(other).max())
        np.testing.assert_allclose(one, other, atol=3e-5 * scale, rtol=1e-3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="turns of each side per row")
    parser.add_argument("--core", type=int, default=0, help="core to run on")
    held_isa.add_to(parser)
    options = parser.parse_args()
    harness.pin(options.core)
    dlprim.set_num_threads(1)
    print(f"{dlprim.isa()} on {machine.cpu_name()}")
    ratios: dict[str, list[float]] = {}
    for case in cases():
        verify(case.formula(), case.own())
        sides = [harness.timed(case.formula), harness.timed(case.own)]
        sides.append(lambda case=case: case.flops / fma_peak(dlprim.isa(), harness.STRETCH))
        times = harness.alternate(sides, options.rounds)
        ratio = harness.median_ratio(times[1], times[0])
        ratios.setdefault(case.group, []).append(ratio)
        print(
            f"{case.group:14s}{case.name:28s}{median(times[0]) * 1e6:10.1f} us  of peak "
            f"{median(times[2]) / median(times[0]):4.2f}  x own {ratio:5.2f}",
            flush=True,
        )
    for group, found in ratios.items():
        print(
            f"{group}: geometric mean {harness.geometric_mean(found):.2f}, least {min(found):.2f}"
        )


if __name__ == "__main__":
    main()
