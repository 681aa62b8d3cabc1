"""conv1d, conv3d and the transposed convolutions on plain arrays: forward and all gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import dlprim
from dlprim.bench import peers, tables
from dlprim.bench.measuring.case import Case, Row
from dlprim.bench.measuring.timing import Call
from dlprim.bench.measuring.verification import close_to
from dlprim.bench.settings import Settings

_STEPS = ("stride", "padding", "output_padding", "dilation")
_COLUMNS = ("kind", "x", "w", *_STEPS, "groups")
_CLOSE = 2e-4  # of the largest element
_SHARE = 3  # rows of a quick run: every so many


def rows(path: Path, settings: Settings) -> Iterator[Row]:
    """PyTorch is what they are verified against, and has to be there."""
    table = tables.read(path, _COLUMNS)
    for which in settings.passes or ("forward", "backward"):
        for row in table[:: _SHARE if settings.quick else 1]:
            name = f"{row['kind']} {row['x']} * {row['w']}"
            if settings.wanted(row["kind"]) and settings.types("float32"):
                make = partial(_case, row, which, settings.threads)
                yield Row(f"{path.stem} {which}", name, "float32", make)


def _case(row: tables.Row, which: str, threads: int) -> Case:
    torch = peers.torch(threads)
    rng = np.random.default_rng(0)
    x, w = (
        rng.standard_normal([int(extent) for extent in row[name].split()], np.float32)
        for name in ("x", "w")
    )
    axes, groups, kind = x.ndim - 2, int(row["groups"]), row["kind"]
    steps = {name: [int(each) for each in row[name].split()] for name in _STEPS}
    steps = {name: it * axes if len(it) == 1 else it for name, it in steps.items()}
    transposed = "transpose" in kind
    settings: dict[str, Any] = {**steps, "groups": groups}
    if not transposed:
        del settings["output_padding"]
    bias = rng.standard_normal(w.shape[1] * groups if transposed else len(w), np.float32)
    ours, gradients = getattr(dlprim, kind), getattr(dlprim, f"{kind}_backward")
    tensors = [torch.from_numpy(array) for array in (x, w, bias)]
    dy = rng.standard_normal(ours(x, w, bias, **settings).shape, np.float32)
    operations = 2.0 * w.size * (x if transposed else dy).size / w.shape[0]
    traffic = float(x.nbytes + w.nbytes + dy.nbytes)
    call: Call = lambda: ours(x, w, bias, **settings)  # noqa: E731
    theirs: Callable[[], Any] = partial(getattr(torch.nn.functional, kind), *tensors, **settings)
    if which == "backward":
        others = (*(steps[it] for it in ("stride", "padding", "dilation")), transposed,
                  steps["output_padding"], groups, (True, True, True))  # fmt: skip
        backward, slope = torch.ops.aten.convolution_backward, torch.from_numpy(dy)
        call = partial(gradients, dy, x, w, **settings)
        theirs = partial(backward, slope, *tensors[:2], [len(bias)], *others)
        operations, traffic = 2 * operations, 2 * traffic
    check = close_to(f"{kind} {which}", theirs(), _CLOSE)
    return Case(
        call, lambda: check(call()), {"torch": lambda: theirs},
        operations=operations, traffic=traffic,
    )  # fmt: skip
