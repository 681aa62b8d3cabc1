"""The flags of `python -m dlprim.train`. Whatever a user can get wrong is refused in one line."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

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
    _add(made, _SETTINGS, argparse.SUPPRESS)
    text = "neurons of each hidden layer, channels of convolutions or of states"
    absent = argparse.SUPPRESS
    made.add_argument("--hidden", type=_WIDTH, nargs="+", default=absent, metavar="X", help=text)
    _add(made, _CHOICES, absent)
    text = f"threads to compute with (default: what dlprim finds, here {dlprim.get_num_threads()})"
    _add(made, [("threads", _POSITIVE, "X", text), *_FILES])
    text = "several ranks (mpiexec -n R python -m dlprim.train ...)"
    _add(made.add_argument_group(text), _RANKS)
    return made


Row = tuple[str, Any, Any, str]


def _add(group: Any, rows: Iterable[Row], default: Any = None) -> None:
    """Flags by name, with what they take, what that is called or is by default, and the help.

    They take a word out of a tuple, what a type makes of a text, or nothing.
    """
    for flag, kind, called, text in rows:
        how: dict[str, Any] = {"type": kind, "metavar": called, "default": default}
        if kind is None:
            how = {"action": "store_true"}
        elif isinstance(kind, tuple):
            how = {"choices": kind, "default": called or default}
        elif isinstance(called, float):
            how |= {"metavar": "X", "default": called}
        group.add_argument(f"--{flag}", help=text, **how)


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


_POSITIVE = _number(int, lambda value: value >= 1, "an integer >= 1")
_NATURAL = _number(int, lambda value: value >= 0, "an integer >= 0")
_WIDTH = _number(int, lambda value: 1 <= value <= WIDEST, f"an integer from 1 to {WIDEST}")
_AT_LEAST_0 = _number(float, lambda value: 0 <= value < math.inf, "a finite number >= 0")
_SPREAD = _number(float, lambda value: 0 <= value <= 1e12, "a finite number >= 0 up to 1e12")
_ABOVE_0 = _number(float, lambda value: 0 < value < math.inf, "a finite number > 0")
_FRACTION = _number(float, lambda value: 0 <= value < 1, "a number >= 0 and < 1")

_SETTINGS: list[Row] = [
    ("epochs", _POSITIVE, "X", "passes over the training samples, or blocks of steps"),
    ("steps", _POSITIVE, "X", "steps of an epoch (default: a pass over the data; text: 250)"),
    ("batch-size", _POSITIVE, "X", "samples, or sequences, per step"),
    ("lr", _ABOVE_0, "X", "learning rate of the first step; --schedule says how it goes on"),
    ("momentum", _FRACTION, "X", "fraction of the previous update that is kept (not AdamW's)"),
    ("weight-decay", _AT_LEAST_0, "X", "pull of the weights towards zero"),
    ("noise", _SPREAD, "X", "Gaussian noise added to training pixels of -1 to 1, as its std"),
    ("shift", _NATURAL, "X", "pixels that training images are moved by at most"),
    ("seed", _NATURAL, "X", "decides the split, the first weights, the order and the noise"),
    ("layers", _POSITIVE, "X", "recurrent layers of a language model"),
    ("length", _POSITIVE, "X", "characters of a sequence"),
    (
        "image-size",
        _POSITIVE,
        "X",
        "pixels of a side (default: as the data; resnet50: 224 synthetic, 64 digits)",
    ),
]
_CHOICES: list[Row] = [
    ("model", MODELS, None, "what is trained (default: mlp)"),
    (
        "data",
        str,
        "DATA",
        f"{', '.join(DATA)}; FILE.npz with images and labels; or a folder or file of text",
    ),
    ("dtype", ("float32", "bfloat16"), None, "of activations"),
    (
        "schedule",
        SCHEDULES,
        None,
        "linear: the learning rate falls to zero over all epochs; constant: a finished run can "
        "go on with --resume and more --epochs",
    ),
    ("algorithm", ("auto", "direct"), None, "of convolutions"),
]
_FILES: list[Row] = [
    (
        "json",
        destination,
        "FILE",
        "write the results there as JSON lines, one per epoch and a last one; - is standard "
        "output, and progress then goes to standard error (default: nowhere)",
    ),
    (
        "plot",
        _ending(".png", ".svg", ".pdf"),
        "FILE.png",
        "draw loss and accuracy over the epochs there, at the end (needs matplotlib)",
    ),
    (
        "checkpoint",
        Path,
        "DIR",
        "keep a checkpoint in this folder, renewed after each epoch, on Ctrl-C and SIGTERM",
    ),
    (
        "resume",
        None,
        None,
        "go on from the checkpoint and its settings, to the losses of an uninterrupted run; "
        "with more --epochs, where --schedule is constant, beyond its end",
    ),
    (
        "eval",
        None,
        None,
        "do not train: test the checkpoint; without one only times, with --profile",
    ),
    (
        "predict",
        _ending(".npz", ".npy"),
        "FILE",
        "do not train: print the class that the checkpoint predicts for each of the images in "
        "FILE.npz (its array images) or FILE.npy, one per line",
    ),
    (
        "output",
        _ending(".npy"),
        "FILE.npy",
        "write what --predict computes there, float32 (N, classes) before the softmax",
    ),
    (
        "profile",
        None,
        None,
        "print where the time went, with --eval too, by layer and pass, and the fraction of peak",
    ),
]
_RANKS: list[Row] = [
    (
        "global-batch",
        _POSITIVE,
        "X",
        "samples per step of all ranks together (default: --batch-size on each)",
    ),
    (
        "overlap",
        OVERLAPS,
        "thread",
        "reduce gradients beside the backward pass, between its layers, or after it",
    ),
    ("wire", WIRES, "float32", "how gradients travel"),
    (
        "sync-bn",
        None,
        None,
        "batch normalisation takes the statistics of all ranks, not of each rank's samples",
    ),
    ("bucket-mb", _ABOVE_0, 25.0, "MiB of gradients that travel at once, at most (default: 25)"),
    (
        "timeout",
        _ABOVE_0,
        600.0,
        "seconds after which a rank that does not answer ends the job (default: 600)",
    ),
    (
        "baseline",
        Path,
        "FILE",
        "print the scaling efficiency against this result of --json of another run",
    ),
    (
        "allreduce-only",
        _POSITIVE,
        "BYTES",
        "do not train: measure the reduction of so many bytes, and MPI's own",
    ),
    (
        "check",
        None,
        None,
        "train 10 steps and compare the parameters among ranks and with one rank",
    ),
    (
        "predict-scaling",
        None,
        None,
        "after training, predict efficiency on 2 to 1024 nodes from its step times",
    ),
    (
        "bandwidth",
        _ABOVE_0,
        "X",
        f"of the network that is predicted, GB/s per node and direction (default: {BANDWIDTH})",
    ),
    ("latency", _ABOVE_0, "X", f"of a message there, in microseconds (default: {LATENCY})"),
]
