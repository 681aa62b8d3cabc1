"""Whole networks against PyTorch: ResNet-50 and a language model, training and inference.

Both sides begin with the same weights, see the same batches and take turns step by step in one
process; the ratio is the median over neighbouring steps, and beside it stands the fraction of the
FMA peak measured around them. Nothing is timed before the logits of the first weights and the loss
of the first step agree. Curves of the loss stand beside each other, with PyTorch on one thread as a
third: what that differs from PyTorch on all threads is what rounding alone does to a curve. Peak
memory is that of a process that runs one side only.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import held_isa

# isort: split

import numpy as np

import dlprim
import harness
from dlprim.arguments.floats import widened
from dlprim.testing import fma_peak
from torch_peer import load_torch
from train_case import Ours, Setting, Theirs, batch_of, seconds_of

_STEPS_FOR_MEMORY = 3
_CLOSE_STEPS = 5  # whose losses must agree
_CLOSE = 1e-3
_SAME = {"float32": 1e-5, "bfloat16": 2e-2}  # relative, before anything is timed
_PEAK_SECONDS = 0.1


def main() -> None:
    arguments = parse()
    dlprim.set_num_threads(arguments.threads)
    if arguments.memory_of:
        print(peak_memory(arguments))
        return
    torch = load_torch(arguments.threads)
    if torch is None:
        raise SystemExit("PyTorch is not installed: pip install torch")
    records = []
    for model in arguments.models:
        for dtype in arguments.dtypes:
            setting = setting_of(arguments, model, dtype)
            print(f"\n{model} {dtype}, N = {setting.batch}, threads: {arguments.threads}")
            if model == "lstm" and dtype == "bfloat16" and not has_bfloat16_lstm(torch):
                print("  left out: PyTorch has no bfloat16 LSTM on this CPU")
                continue
            record: dict[str, Any] = {"threads": arguments.threads, **asdict(setting)}
            if "speed" in arguments.parts:
                record |= speed(torch, setting, arguments.rounds)
            if "memory" in arguments.parts:
                record |= memory(model, dtype, arguments)
            if "curves" in arguments.parts:
                record |= curves(torch, setting, arguments)
            records.append(record)
    if arguments.json:
        lines = "".join(json.dumps(record) + "\n" for record in records)
        Path(arguments.json).write_text(lines, encoding="utf-8")


def has_bfloat16_lstm(torch: Any) -> bool:
    """Whether PyTorch can run one here: its oneDNN wants AVX-512."""
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch.nn.LSTM(8, 8)(torch.rand(2, 2, 8))
    except RuntimeError:
        return False
    return True


def speed(torch: Any, setting: Setting, rounds: int) -> dict[str, Any]:
    """Training and inference in turns, once both sides have given the same results."""
    ours = Ours(setting)
    theirs = Theirs(torch, setting, ours.model.state_dict())
    src, targets = batch_of(setting, 0)
    flops = verified(ours, theirs, src, targets)
    unit = "images/s" if setting.is_images else "characters/s"
    found: dict[str, Any] = {}
    pairs = {
        "training": ((ours.train, src, targets), (theirs.train, src, targets)),
        "inference": ((ours.infer, src), (theirs.infer, src)),
    }
    for name, sides in pairs.items():
        for call, *operands in sides:
            call(*operands)
        calls = [lambda side=side: seconds_of(*side) for side in sides]
        before = peak(setting.dtype)
        own, other = harness.alternate(calls, rounds)
        share = flops[name] / median(own) / ((before + peak(setting.dtype)) / 2)
        ratio = 1 / harness.median_ratio(own, other)
        rates = [setting.samples / median(series) for series in (own, other)]
        print(
            f"  {name:9}  ours {rates[0]:9.1f} {unit}  PyTorch {rates[1]:9.1f}  ratio {ratio:.2f}"
            f"  of the FMA peak {share:.2f}"
        )
        found |= {f"{name}_ours": rates[0], f"{name}_torch": rates[1], f"{name}_ratio": ratio}
        found[f"{name}_of_peak"] = share
    return found


def verified(ours: Ours, theirs: Theirs, src: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """Nominal operations of a step, and of inference, whose results agree on both sides.

    They are the logits of the first weights, apart by a fraction of the largest of them, and the
    loss of the first step.

    Raises
    ------
    SystemExit
        They do not agree.
    """
    setting = ours.setting
    close = _SAME[setting.dtype]
    dst = ours.infer(src)
    expected = theirs.infer(src).float().numpy()
    bound = np.full(expected.shape, close * np.abs(expected).max())
    harness.verify(f"{setting.model} inference", widened(dst), expected, bound)
    loss = ours.train(src, targets)
    expected = np.array(theirs.train(src, targets))
    harness.verify(f"{setting.model} training", np.array(loss), expected, close * abs(expected))
    return {it: ours.operations(src, it == "training") for it in ("training", "inference")}


def peak(dtype: str) -> float:
    """Operations per second of all threads on registers; NaN where none can be generated."""
    if dlprim.isa() == "scalar":
        return math.nan
    return fma_peak(seconds=_PEAK_SECONDS, dtype=dtype) * dlprim.get_num_threads()


def memory(model: str, dtype: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Peak resident memory of training, in a process of its own for each side."""
    found = {}
    for side in ("ours", "torch"):
        command = [sys.executable, __file__, "--models", model, "--dtypes", dtype]
        command += ["--memory-of", side, "--threads", str(arguments.threads)]
        if arguments.batch is not None:
            command += ["--batch", str(arguments.batch)]
        command += ["--algorithm", arguments.algorithm]
        command += ["--size", str(arguments.size), "--hidden", str(arguments.hidden)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found[f"memory_{side}"] = int(done.stdout)
    own, other = found["memory_ours"], found["memory_torch"]
    print(
        f"  memory     ours {own / 2**20:7.0f} MiB  PyTorch {other / 2**20:7.0f} MiB  "
        f"ratio {own / other:.2f}"
    )
    return found


def peak_memory(arguments: argparse.Namespace) -> int:
    """Bytes that this process had resident at most, after some steps of one side."""
    setting = setting_of(arguments, arguments.models[0], arguments.dtypes[0])
    side: Any
    if arguments.memory_of == "ours":
        side = Ours(setting)
    else:
        side = Theirs(load_torch(arguments.threads), setting, None)
    for step in range(_STEPS_FOR_MEMORY):
        side.step(step)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def curves(torch: Any, setting: Setting, arguments: argparse.Namespace) -> dict[str, Any]:
    """The loss of the first steps of both sides, and of PyTorch on one thread."""
    sides: list[Any] = [Ours(setting)]
    state = sides[0].model.state_dict()
    sides += [Theirs(torch, setting, state), Theirs(torch, setting, state)]
    print("  step   ours      PyTorch   1 thread  ours - PyTorch  1 thread - PyTorch (relative)")
    losses: list[list[float]] = []
    for step in range(arguments.steps):
        row = []
        for place, side in enumerate(sides):
            torch.set_num_threads(1 if place == 2 else arguments.threads)
            row.append(side.step(step))
        losses.append(row)
        own, other, single = row
        print(
            f"  {step:4d}   {own:<8.5f}  {other:<8.5f}  {single:<8.5f}  "
            f"{(own - other) / other:14.1e}  {(single - other) / other:18.1e}"
        )
    torch.set_num_threads(arguments.threads)
    first = losses[:_CLOSE_STEPS]
    worst = max(abs(own - other) / abs(other) for own, other, _ in first)
    verdict = "within" if worst <= _CLOSE else "beyond"
    if setting.dtype == "float32":
        print(f"  first {len(first)} steps: {worst:.1e} apart, {verdict} {_CLOSE:g}")
    return {"losses": losses, "first_steps_apart": worst}


def setting_of(arguments: argparse.Namespace, model: str, dtype: str) -> Setting:
    return Setting(
        model, dtype, arguments.batch or (16 if model == "resnet50" else 32),
        size=arguments.size, hidden=arguments.hidden, algorithm=arguments.algorithm,
    )  # fmt: skip


def at_least(least: int) -> Callable[[str], int]:
    """An argparse type of integers."""

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected an integer >= {least}, got {text!r}")
        return int(text)

    return parse


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    models = ["resnet50", "lstm", "gru"]
    parser.add_argument("--models", nargs="+", choices=models, default=["resnet50", "lstm"])
    kinds = ["float32", "bfloat16"]
    parser.add_argument("--dtypes", nargs="+", choices=kinds, default=kinds)
    parts = ["speed", "memory", "curves"]
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    some = at_least(1)
    parser.add_argument("--batch", type=some, help="default: 16 images, 32 sequences")
    parser.add_argument("--size", type=some, default=224)
    parser.add_argument("--hidden", type=some, default=512)
    parser.add_argument("--algorithm", default="auto", choices=["auto", "direct"])
    parser.add_argument("--threads", type=some, default=dlprim.get_num_threads())
    parser.add_argument("--rounds", type=at_least(2), default=7, help="turns of both sides")
    parser.add_argument("--steps", type=some, default=20, help="of the curves")
    parser.add_argument("--json", help="write a record per network there")
    parser.add_argument("--memory-of", choices=["ours", "torch"], help=argparse.SUPPRESS)
    held_isa.add_to(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main()
