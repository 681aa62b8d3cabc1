"""The flags of `python -m dlprim.train`. Whatever a user can get wrong is refused in one line."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeVar

import dlprim
from dlprim.distributed.launcher import launched_rank
from dlprim.distributed.overlap import OVERLAPS
from dlprim.distributed.reduction import WIRES
from dlprim.train.config import DATA, MODELS, SCHEDULES, WIDEST, default_of
from dlprim.train.records import destination

PROGRAM = "python -m dlprim.train"
BANDWIDTH, LATENCY = 12.5, 2.0  # GB/s and microseconds of the network that is predicted

Number = TypeVar("Number", int, float)


class WithDefaults(argparse.HelpFormatter):
    """Says what a flag is where it is not given."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text = action.help or ""
        if "(default: " in text or isinstance(action, argparse._HelpAction):
            return text
        if action.default is argparse.SUPPRESS:
            default = default_of(action.dest)
        elif action.default is None:
            default = "none"
        else:
            default = "off" if action.default is False else f"{action.default}"
        return f"{text} (default: {default})".lstrip()


class OneLineParser(argparse.ArgumentParser):
    """Refuses a wrong flag in one line; the usage is what --help is for."""

    def error(self, message: str) -> NoReturn:
        is_first = launched_rank() == 0  # of many ranks, one says it
        self.exit(2, f"{self.prog}: {message} (see --help)\n" if is_first else None)


def parser() -> OneLineParser:
    """The parser; what is not given is absent from its result, or None for what is no setting."""
    made = OneLineParser(
        prog=PROGRAM,
        description="Train a network on data that are here already: every product of matrices is "
        "done by dlprim. The same seed gives the same losses, bit for bit, with any number of "
        "threads.",
        allow_abbrev=False,
        formatter_class=WithDefaults,
    )
    _add_settings(made)
    positive = _number(int, lambda value: value >= 1, "an integer >= 1")
    text = f"threads to compute with (default: what dlprim finds, here {dlprim.get_num_threads()})"
    made.add_argument("--threads", type=positive, metavar="X", help=text)
    text = "write the results there as JSON lines, one per epoch and a last one; - is standard "
    text += "output, and progress then goes to standard error (default: nowhere)"
    made.add_argument("--json", type=destination, metavar="FILE", help=text)
    text = "draw loss and accuracy over the epochs there, at the end (needs matplotlib)"
    kinds = _ending(".png", ".svg", ".pdf")
    made.add_argument("--plot", type=kinds, metavar="FILE.png", help=text)
    text = "keep a checkpoint in this folder, renewed after each epoch, on Ctrl-C and SIGTERM"
    made.add_argument("--checkpoint", type=Path, metavar="DIR", help=text)
    text = "go on from the checkpoint and its settings, to the losses of an uninterrupted run; "
    text += "with more --epochs, where --schedule is constant, beyond its end"
    made.add_argument("--resume", action="store_true", help=text)
    text = "do not train: test the checkpoint; without one only times, with --profile"
    made.add_argument("--eval", action="store_true", help=text)
    text = "do not train: print the class that the checkpoint predicts for each of the images in "
    text += "FILE.npz (its array images) or FILE.npy, one per line"
    made.add_argument("--predict", type=_ending(".npz", ".npy"), metavar="FILE", help=text)
    text = "write what --predict computes there, float32 (N, classes) before the softmax"
    made.add_argument("--output", type=_ending(".npy"), metavar="FILE.npy", help=text)
    text = "print where the time went, with --eval too, by layer and pass, and the fraction of peak"
    made.add_argument("--profile", action="store_true", help=text)
    _add_ranks(made)
    return made


def _add_ranks(made: argparse.ArgumentParser) -> None:
    """What matters to several ranks, started with mpiexec or srun."""
    ranks = made.add_argument_group("several ranks (mpiexec -n R python -m dlprim.train ...)")
    positive = _number(int, lambda value: value >= 1, "an integer >= 1")
    above_0 = _number(float, lambda value: 0 < value < math.inf, "a finite number > 0")
    text = "samples per step of all ranks together (default: --batch-size on each)"
    ranks.add_argument("--global-batch", type=positive, metavar="X", help=text)
    text = "reduce gradients beside the backward pass, between its layers, or after it"
    ranks.add_argument("--overlap", choices=OVERLAPS, default="thread", help=text)
    text = "how gradients travel"
    ranks.add_argument("--wire", choices=WIRES, default="float32", help=text)
    text = "batch normalisation takes the statistics of all ranks, not of each rank's samples"
    ranks.add_argument("--sync-bn", action="store_true", help=text)
    text = "MiB of gradients that travel at once, at most (default: 25)"
    ranks.add_argument("--bucket-mb", type=above_0, default=25.0, metavar="X", help=text)
    text = "seconds after which a rank that does not answer ends the job (default: 600)"
    ranks.add_argument("--timeout", type=above_0, default=600.0, metavar="X", help=text)
    text = "print the scaling efficiency against this result of --json of another run"
    ranks.add_argument("--baseline", type=Path, metavar="FILE", help=text)
    text = "do not train: measure the reduction of so many bytes, and MPI's own"
    ranks.add_argument("--allreduce-only", type=positive, metavar="BYTES", help=text)
    text = "train 10 steps and compare the parameters among ranks and with one rank"
    ranks.add_argument("--check", action="store_true", help=text)
    text = "after training, predict efficiency on 2 to 1024 nodes from its step times"
    ranks.add_argument("--predict-scaling", action="store_true", help=text)
    text = f"of the network that is predicted, GB/s per node and direction (default: {BANDWIDTH})"
    ranks.add_argument("--bandwidth", type=above_0, metavar="X", help=text)
    text = f"of a message there, in microseconds (default: {LATENCY})"
    ranks.add_argument("--latency", type=above_0, metavar="X", help=text)


def _add_settings(made: argparse.ArgumentParser) -> None:
    positive = _number(int, lambda value: value >= 1, "an integer >= 1")
    at_least_0 = _number(float, lambda value: 0 <= value < math.inf, "a finite number >= 0")
    spread = _number(float, lambda value: 0 <= value <= 1e12, "a finite number >= 0 up to 1e12")
    above_0 = _number(float, lambda value: 0 < value < math.inf, "a finite number > 0")
    fraction = _number(float, lambda value: 0 <= value < 1, "a number >= 0 and < 1")
    natural = _number(int, lambda value: value >= 0, "an integer >= 0")
    width = _number(int, lambda value: 1 <= value <= WIDEST, f"an integer from 1 to {WIDEST}")
    table: list[tuple[str, Callable[[str], float], str]] = [
        ("epochs", positive, "passes over the training samples, or blocks of steps"),
        ("steps", positive, "steps of an epoch (default: a pass over the data; text: 250)"),
        ("batch-size", positive, "samples, or sequences, per step"),
        ("lr", above_0, "learning rate of the first step; --schedule says how it goes on"),
        ("momentum", fraction, "fraction of the previous update that is kept (not AdamW's)"),
        ("weight-decay", at_least_0, "pull of the weights towards zero"),
        ("noise", spread, "Gaussian noise added to training pixels of -1 to 1, as its std"),
        ("shift", natural, "pixels that training images are moved by at most"),
        ("seed", natural, "decides the split, the first weights, the order and the noise"),
        ("layers", positive, "recurrent layers of a language model"),
        ("length", positive, "characters of a sequence"),
        (
            "image-size",
            positive,
            "pixels of a side (default: as the data; resnet50: 224 synthetic, 64 digits)",
        ),
    ]
    absent = argparse.SUPPRESS
    for flag, kind, text in table:
        made.add_argument(f"--{flag}", type=kind, default=absent, metavar="X", help=text)
    text = "neurons of each hidden layer, channels of convolutions or of states"
    made.add_argument("--hidden", type=width, nargs="+", default=absent, metavar="X", help=text)
    made.add_argument(
        "--model", choices=MODELS, default=absent, help="what is trained (default: mlp)"
    )
    text = f"{', '.join(DATA)}; FILE.npz with images and labels; or a folder or file of text"
    made.add_argument("--data", default=absent, metavar="DATA", help=text)
    kinds = ("float32", "bfloat16")
    made.add_argument("--dtype", choices=kinds, default=absent, help="of activations")
    text = "linear: the learning rate falls to zero over all epochs; constant: a finished run can "
    text += "go on with --resume and more --epochs"
    made.add_argument("--schedule", choices=SCHEDULES, default=absent, help=text)
    text = "of convolutions"
    algorithms = ("auto", "direct")
    made.add_argument("--algorithm", choices=algorithms, default=absent, help=text)


def _ending(*suffixes: str) -> Callable[[str], Path]:
    """Returns an argparse type that refuses names of other kinds of files."""

    def parse(text: str) -> Path:
        if Path(text).suffix not in suffixes:
            expected = " or ".join(f"FILE{it}" for it in suffixes)
            raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
        return Path(text)

    return parse


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
