"""The flags, the progress lines and the exit status of `python -m dlprim.train`.

Whatever a user can get wrong is refused in one sentence before the first step. The exit status is
0 after a complete run; 1 when it cannot start, diverges or cannot write its result; 2 for a wrong
flag; 130 after Ctrl-C. Without a complete run no result file is written.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import NoReturn, TypeVar

import numpy as np

import dlprim
from dlprim.train.data import MissingDataError, load_digits
from dlprim.train.loop import DivergenceError, EpochRecord, TrainConfig, Trainer
from dlprim.train.mlp import MLP
from dlprim.train.records import check_writable, write_lines

PROGRAM = "python -m dlprim.train"
SCHEMA_VERSION = 1
WIDEST = 1_000_000  # neurons of a layer; beyond it a typing error is likelier than a wish

Number = TypeVar("Number", int, float)


class OneLineParser(argparse.ArgumentParser):
    """Refuses a wrong flag in one line; the usage is what --help is for."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains as the flags say and returns the exit status.

    Args:
        arguments: the flags; None takes them from the command line. The number of threads stays
            set after the run.

    Raises:
        SystemExit: with code 2 after a wrong flag, with code 0 after --help.
    """
    parser = _parser()
    flags = parser.parse_args(arguments)
    if flags.json is not None:
        try:
            check_writable(flags.json)
        except OSError as error:
            parser.error(f"argument --json: {error}")
    if flags.threads is not None:
        try:
            dlprim.set_num_threads(flags.threads)
        except (TypeError, ValueError) as error:
            parser.error(f"argument --threads: {error}")
    chosen = {field.name: getattr(flags, field.name) for field in fields(TrainConfig)}
    config = TrainConfig(**chosen | {"hidden": tuple(flags.hidden)})
    try:
        _run(config, flags.json)
    except (MissingDataError, DivergenceError, MemoryError, OSError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted.", file=sys.stderr)
        return 130
    return 0


def _run(config: TrainConfig, json_path: Path | None) -> None:
    # Separate streams: another width or batch size leaves the held-out samples as they were.
    split, initial, order = (
        np.random.Generator(np.random.PCG64(seed))
        for seed in np.random.SeedSequence(config.seed).spawn(3)
    )
    dataset = load_digits(split)
    widths = (dataset.train_src.shape[1], *config.hidden, dataset.classes)
    environment = {
        "dlprim": dlprim.__version__,
        "isa": dlprim.isa(),
        "threads": dlprim.get_num_threads(),
        "numpy": np.__version__,
    }
    print(
        f"dlprim {environment['dlprim']}, {environment['isa']}, threads: {environment['threads']}; "
        f"{dataset.name}: {dataset.train_labels.size} training and {dataset.test_labels.size} "
        f"test samples; mlp {'-'.join(map(str, widths))}",
        flush=True,
    )
    history: list[EpochRecord] = []
    for record in Trainer(MLP(widths, initial), dataset, config, order).run():
        history.append(record)
        print(_progress_line(record, config.epochs), flush=True)
    final = _final_record(history)
    print(
        f"final: test accuracy {100 * history[-1].test_accuracy:.2f} %, "
        f"{final['samples_per_s']:.0f} samples/s in training",
        flush=True,
    )
    if json_path is not None:
        described = {"model": "mlp", "data": dataset.name, **asdict(config)}
        final |= {"config": described, "environment": environment}
        write_lines(json_path, [*map(_epoch_record, history), final])


def _progress_line(record: EpochRecord, epochs: int) -> str:
    digits = len(str(epochs))
    return (
        f"epoch {record.epoch:{digits}d}/{epochs}  "
        f"train loss {record.train_loss:.4f}  "
        f"test accuracy {100 * record.test_accuracy:6.2f} %  "
        f"{record.samples_per_s:8.0f} samples/s"
    )


def _epoch_record(record: EpochRecord) -> dict[str, object]:
    return {"record": "epoch", **asdict(record), "samples_per_s": record.samples_per_s}


def _final_record(history: Sequence[EpochRecord]) -> dict[str, object]:
    samples = sum(record.samples for record in history)
    seconds = sum(record.seconds for record in history)
    return {
        "record": "final",
        "schema_version": SCHEMA_VERSION,
        "train_loss": history[-1].train_loss,
        "test_accuracy": history[-1].test_accuracy,
        "samples": samples,
        "seconds": seconds,
        "samples_per_s": samples / seconds,
    }


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog=PROGRAM,
        description="Train a multilayer perceptron on the handwritten digits of scikit-learn. "
        "Every matrix product is done by dlprim. The same seed gives the same losses, bit for "
        "bit, with any number of threads.",
        allow_abbrev=False,
    )
    positive = _number(int, lambda value: value >= 1, "an integer >= 1")
    at_least_0 = _number(float, lambda value: 0 <= value < math.inf, "a finite number >= 0")
    above_0 = _number(float, lambda value: 0 < value < math.inf, "a finite number > 0")
    fraction = _number(float, lambda value: 0 <= value < 1, "a number >= 0 and < 1")
    natural = _number(int, lambda value: value >= 0, "an integer >= 0")
    width = _number(int, lambda value: 1 <= value <= WIDEST, f"an integer from 1 to {WIDEST}")
    table: list[tuple[str, Callable[[str], float], str]] = [
        ("epochs", positive, "passes over the training samples"),
        ("batch-size", positive, "samples per step"),
        ("lr", above_0, "learning rate of the first step; it falls linearly to zero"),
        ("momentum", fraction, "fraction of the previous update that is kept"),
        ("noise", at_least_0, "Gaussian noise added to training pixels of -1 to 1, as its std"),
        ("seed", natural, "decides the split, the first weights, the order and the noise"),
    ]
    default = TrainConfig()
    for flag, kind, text in table:
        value = getattr(default, flag.replace("-", "_"))
        text += " (default: %(default)s)"
        parser.add_argument(f"--{flag}", type=kind, default=value, metavar="X", help=text)
    text = f"neurons of each hidden layer (default: {' '.join(map(str, default.hidden))})"
    parser.add_argument(
        "--hidden", type=width, nargs="+", default=default.hidden, metavar="X", help=text
    )
    text = f"threads to compute with (default: what dlprim finds, here {dlprim.get_num_threads()})"
    parser.add_argument("--threads", type=positive, metavar="X", help=text)
    text = "write the results there as JSON lines, one per epoch and a last one (default: nowhere)"
    parser.add_argument("--json", type=Path, metavar="FILE", help=text)
    return parser


def _number(
    convert: Callable[[str], Number], accept: Callable[[Number], bool], expected: str
) -> Callable[[str], Number]:
    """Returns an argparse type that refuses numbers outside a range, saying what was expected."""

    def parse(text: str) -> Number:
        try:
            value = convert(text)
        except ValueError:
            value = None
        if value is None or not accept(value):
            raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
        return value

    return parse
