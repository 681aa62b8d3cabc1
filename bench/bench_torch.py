"""`torch.compile` by dlprim against PyTorch run eagerly and against inductor: whole models.

Each side has a process of its own; the sides take turns step by step, so that none has another's
threads or caches beside it, and the ratio is the median over neighbouring steps. Nothing is timed
before the scores of the first weights, or the loss of the first step and the size of every
gradient, are those of PyTorch. Beside the ratios stand the fraction of the FMA peak measured
around the steps, the seconds of the first step, and the most memory that a side had resident. The
side `step` is `dlprim.nn.Step` on the same network of `dlprim.nn`, from the same weights.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import held_isa

# isort: split

import numpy as np

import dlprim
from dlprim import hardware
from dlprim.bench.measuring import timing, verification
from dlprim.testing import fma_peak
from threads_sides import Side, Worker

_PROGRAM = Path(__file__).parent / "torch_sides.py"
_MODELS = ("resnet50", "mobilenet_v2", "bert_base", "gpt2_small", "vit_b16", "lstm", "unet")
_STEPS = ("gpt", "mlp_784", "mlp_64", "digits")  # trained by `dlprim.nn.Step` as well
_OWN = ("dlprim", "step")
_PEERS = ("eager", "inductor")
_MODES = ("training", "inference")
_DTYPES = ("float32", "bfloat16")
# Of the largest element: of scores and losses, of sizes of gradients, which rounding moves more (of
# ResNet-50 with its first weights PyTorch's own, in float32, are up to 1e-3 from those in float64),
# and of both where a side draws masks for itself.
_CLOSE = {"float32": 1e-3, "bfloat16": 6e-2}
_GRADIENTS_CLOSE = {"float32": 1e-2, "bfloat16": 0.2}
_OWN_MASKS = 0.3
_PEAK_SECONDS = 0.1


class Row(NamedTuple):
    """What is measured."""

    model: str
    dtype: str
    mode: str


def main() -> None:
    arguments = parse()
    dlprim.set_num_threads(arguments.threads)
    print(f"{dlprim.isa()} on {hardware.cpu_name()}, threads: {arguments.threads}")
    rows = [
        Row(model, dtype, mode)
        for model in arguments.models
        for dtype in arguments.dtypes
        for mode in arguments.modes
    ]
    records = []
    for row in rows:
        with started(row, arguments) as workers:
            record = measured(row, workers, arguments)
        records.append({**row._asdict(), "threads": arguments.threads, **record})
    summarize(records)
    if arguments.json:
        lines = "".join(json.dumps(record) + "\n" for record in records)
        Path(arguments.json).write_text(lines, encoding="utf-8")


@contextlib.contextmanager
def started(row: Row, arguments: argparse.Namespace) -> Iterator[list[Worker]]:
    workers = [Worker(Side(it), arguments.threads, _PROGRAM) for it in arguments.sides]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.close()


def measured(row: Row, workers: list[Worker], arguments: argparse.Namespace) -> dict[str, Any]:
    """A record of a row, which is printed."""
    print(f"\n{row.model} {row.dtype} {row.mode}")
    running, record = made(row, workers, arguments)
    verify(row, running, arguments.dropout)
    for worker in running:
        worker.ask(do="time")  # the second step still allocates
    before = peak(row.dtype)
    calls = [lambda worker=worker: worker.ask(do="time") for worker in running]
    series = timing.alternate(calls, arguments.rounds)
    top = (before + peak(row.dtype)) / 2
    memory = [worker.ask(do="memory") for worker in running]
    flops = running[-1].ask(do="flops")
    for worker, own, resident in zip(running, series, memory, strict=True):
        name = worker.side.name
        record[name] |= {"seconds": median(own), "of_peak": flops / median(own) / top}
        record[name]["memory"] = resident
        print(
            f"  {name:9} {1e3 * median(own):9.1f} ms  of the FMA peak {record[name]['of_peak']:.2f}"
            f"  first step {record[name]['first']:6.1f} s  memory {resident / 2**20:6.0f} MiB"
        )
    return record | compared(running, series)


def compared(running: list[Worker], series: list[list[float]]) -> dict[str, Any]:
    """How many times faster dlprim is than each other side, and than the better of them."""
    named = dict(zip((it.side.name for it in running), series, strict=True))
    peers = {name: it for name, it in named.items() if name in _PEERS}
    found = {}
    for side in filter(named.__contains__, _OWN if peers else ()):
        ratios = {name: timing.median_ratio(it, named[side]) for name, it in peers.items()}
        best = [min(turn) for turn in zip(*peers.values(), strict=True)]
        ratios["best"] = timing.median_ratio(best, named[side])
        said = "  ".join(f"{name} {it:.2f}" for name, it in ratios.items())
        print(f"  {side}'s ratio to {said}")
        found["ratios" if side == "dlprim" else f"{side}_ratios"] = ratios
    return found


def made(
    row: Row, workers: list[Worker], arguments: argparse.Namespace
) -> tuple[list[Worker], dict[str, Any]]:
    """The sides that have run a step, and how long that took; others are named and left out."""
    running, record = [], {}
    for worker in workers:  # in turns: compiling takes both cores
        answer = worker.ask(
            do="make", side=worker.side.name, threads=arguments.threads, model=row.model,
            training=row.mode == "training", narrow=row.dtype == "bfloat16",
            batch=arguments.batch, tiny=arguments.tiny, dropout=arguments.dropout,
        )  # fmt: skip
        if "missing" in answer:
            print(f"  {worker.side.name} is left out: {answer['missing']}")
            continue
        running.append(worker)
        record[worker.side.name] = answer
    if not running:
        raise SystemExit(f"no side runs {row.model}")
    return running, record


def verify(row: Row, running: list[Worker], dropout: float) -> None:
    """Stop unless every side has given what PyTorch gives eagerly, or what the last one gives."""
    names = [it.side.name for it in running]
    reference = names.index("eager") if "eager" in names else len(names) - 1
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for worker in running:
            path = Path(folder) / f"{worker.side.name}.npz"
            worker.ask(do="save", to=str(path))
            with np.load(path) as found:
                results.append([found[name] for name in found.files])
    for name, result in zip(names, results, strict=True):
        is_drawn = dropout > 0 and row.mode == "training" and name == "inductor"
        due = results[reference][: 1 if name == "step" else None]  # which keeps no gradients
        for at, (own, exact) in enumerate(zip(result, due, strict=True)):
            close = (_GRADIENTS_CLOSE if at else _CLOSE)[row.dtype]
            close = _OWN_MASKS if is_drawn else close
            bound = np.full(exact.shape, close * np.abs(exact).max())
            verification.verify(f"{row.model} {row.mode} by {name}", own, exact, bound)


def peak(dtype: str) -> float:
    """Operations per second of all threads on registers; NaN where none can be generated."""
    if dlprim.isa() == "scalar":
        return math.nan
    return fma_peak(seconds=_PEAK_SECONDS, dtype=dtype) * dlprim.get_num_threads()


def summarize(records: list[dict[str, Any]]) -> None:
    for mode in _MODES:
        ratios = [it["ratios"]["best"] for it in records if it["mode"] == mode and "ratios" in it]
        if ratios:
            mean = timing.geometric_mean(ratios)
            print(f"\n{mode}: geometric mean {mean:.2f} times the better, least {min(ratios):.2f}")


def at_least(least: int) -> Any:
    """An argparse type of integers."""

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected an integer >= {least}, got {text!r}")
        return int(text)

    return parse


def share(text: str) -> float:
    """An argparse type of what drops out."""
    with contextlib.suppress(ValueError):
        if 0 <= float(text) < 1:
            return float(text)
    raise argparse.ArgumentTypeError(f"expected a number from 0 to under 1, got {text!r}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, known in (
        ("--dtypes", _DTYPES), ("--modes", _MODES),
    ):  # fmt: skip
        parser.add_argument(name, nargs="+", choices=known, default=list(known))
    parser.add_argument("--models", nargs="+", choices=_MODELS + _STEPS, default=list(_MODELS))
    sides = ("dlprim", *_PEERS)
    parser.add_argument("--sides", nargs="+", choices=(*_OWN, *_PEERS), default=list(sides))
    parser.add_argument("--threads", type=at_least(1), default=dlprim.get_num_threads())
    parser.add_argument("--rounds", type=at_least(2), default=7, help="steps of each side")
    parser.add_argument("--batch", type=at_least(1), help="samples, in place of each model's own")
    parser.add_argument("--dropout", type=share, default=0.1, help="of BERT and GPT-2, trained")
    parser.add_argument("--tiny", action="store_true", help="small models: does it still run?")
    parser.add_argument("--json", help="write a record per row there")
    held_isa.add_to(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main()
