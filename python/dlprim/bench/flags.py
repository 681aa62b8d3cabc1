"""The options of ``python -m dlprim.bench``: every subcommand has those that make sense for it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dlprim.bench import held, peers
from dlprim.bench.commands import COMMANDS, Command
from dlprim.bench.networks.scaling import DEFAULT_SIDES, MODES, SIDES
from dlprim.bench.networks.sides import MODELS
from dlprim.bench.settings import Settings

_QUICK_ROUNDS, _ROUNDS = 5, 15
_QUICK_SECONDS, _SECONDS = 0.3, 5.0
_EXAMPLES = """examples:
  %(prog)s all --quick
  %(prog)s conv --shapes resnet50 --dtype float32 --peers torch --plot pictures
  %(prog)s graph --shapes model.onnx --peers onnxruntime
  mpiexec -n 2 %(prog)s mpi --models resnet50
  %(prog)s compare before.json after.json
"""


def parser(program: str) -> argparse.ArgumentParser:
    """Of all subcommands."""
    found = argparse.ArgumentParser(
        prog=program,
        description="Measure dlprim beside the machine's roofs and other libraries.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = found.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        own = commands.add_parser(name, help=command.summary, description=command.summary)
        _add_own(own, command)
        _add_common(own, command.peers)
    text = "every subcommand but mpi and compare, with its defaults"
    everything = commands.add_parser("all", help=text, description=text)
    _add_own(everything, Command(text, "", dtypes=("float32", "bfloat16", "uint8", "int8")))
    _add_common(everything, peers.NAMES)
    _add_mpi(commands)
    text = "what changed between two reports, beyond the noise"
    two = commands.add_parser("compare", help=text, description=text)
    two.add_argument("before", type=Path, help="a file that --json has written")
    two.add_argument("after", type=Path)
    two.add_argument(
        "--least", type=share, default=0.05, help="smallest change that counts (default: 0.05)"
    )
    return found


def _add_mpi(commands: Any) -> None:
    text = "weak and strong scaling of training over the ranks of a launcher"
    ranks = commands.add_parser("mpi", help=text, description=text)
    ranks.add_argument("--models", nargs="+", choices=MODELS, default=["resnet50", "lstm"])
    ranks.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    ranks.add_argument("--sides", nargs="+", choices=SIDES, default=list(DEFAULT_SIDES))
    ranks.add_argument("--ranks", nargs="+", type=at_least(1), help="default: 2, 4, ... and all")
    ranks.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    ranks.add_argument("--batch", type=at_least(1), help="samples of a rank; in all, if strong")
    ranks.add_argument("--steps", type=at_least(1), default=2, help="of a block")
    ranks.add_argument("--threads", type=at_least(1), default=1, help="of each rank")
    ranks.add_argument("--rounds", type=at_least(2), default=5, help="blocks of each side")
    ranks.add_argument("--quick", action="store_true", help="small models")
    held.add_to(ranks)
    _add_outputs(ranks)


def _add_outputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there")
    parser.add_argument("--plot", type=Path, metavar="DIR", help="draw pictures there")


def settings_of(options: argparse.Namespace, name: str) -> Settings:
    """What a subcommand measures; those of `all` take what they have of the types."""
    known = vars(options)

    def several(key: str) -> tuple[Any, ...]:
        return tuple(known.get(key) or ())

    return Settings(
        dtypes=several("dtype"), threads=options.threads, isa=options.isa, quick=options.quick,
        brief=options.quick or options.command == "all",
        shapes=several("shapes"), rows=several("rows"), passes=several("passes"),
        layouts=several("layouts"), kinds=several("kinds"), batches=several("batch"),
        algorithm=known.get("algorithm") or "auto", plain=bool(known.get("plain")),
        prepacked=bool(known.get("prepacked")), cache=known.get("cache"),
    )  # fmt: skip


def at_least(least: int) -> Any:
    """An argparse type of integers."""

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected an integer >= {least}, got {text!r}")
        return int(text)

    return parse


def above_zero(text: str) -> float:
    """An argparse type of times."""
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return value


def share(text: str) -> float:
    """An argparse type of fractions."""
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to under 1, got {text!r}")
    return value


def peer_names(text: str) -> list[str]:
    """An argparse type: names between commas, or none."""
    names = [] if text == "none" else text.split(",")
    unknown = [name for name in names if name not in peers.NAMES]
    if unknown:
        known = ",".join(peers.NAMES)
        raise argparse.ArgumentTypeError(f"{unknown[0]} is no peer, expected some of {known}")
    return names


def _add_own(parser: argparse.ArgumentParser, command: Command) -> None:
    parser.add_argument("--dtype", nargs="+", choices=command.dtypes, help="default: all")
    parser.add_argument("--rows", nargs="+", metavar="NAME", help="these of the table only")
    for name in ("passes", "kinds", "layouts"):
        choices = getattr(command, name)
        if choices:
            parser.add_argument(f"--{name}", nargs="+", choices=choices)
    options: dict[str, dict[str, Any]] = {
        "shapes": {
            "nargs": "+",
            "metavar": "TABLE",
            "help": "CSV files, or names such as resnet50",
        },
        "batch": {"nargs": "+", "type": at_least(1), "metavar": "N"},
        "plain": {"action": "store_true", "help": "functions on plain arrays"},
        "prepacked": {"action": "store_true", "help": "pack the weights of backward once"},
        "algorithm": {"choices": ("auto", "direct", "winograd"), "help": "of 3x3 convolutions"},
        "cache": {"type": Path, "metavar": "DIR", "help": "keep model files there"},
    }
    for name in command.flags:
        parser.add_argument(f"--{name}", **options[name])


def _add_common(parser: argparse.ArgumentParser, known: tuple[str, ...]) -> None:
    default = [name for name in peers.DEFAULT if name in known]
    parser.add_argument(
        "--peers", type=peer_names, default=default, metavar="NAMES",
        help=f"with commas between, or none (default: {','.join(default)})",
    )  # fmt: skip
    parser.add_argument("--threads", type=at_least(1), default=1, help="of all sides; 1 is pinned")
    parser.add_argument(
        "--core", type=at_least(0), help="to run one thread on (default: the first)"
    )
    held.add_to(parser)
    parser.add_argument("--rounds", type=at_least(3), default=_ROUNDS, help="turns of each side")
    parser.add_argument(
        "--seconds", type=above_zero, default=_SECONDS, help="of a row, as long as 3 rounds fit"
    )
    parser.add_argument("--minutes", type=above_zero, help="of the run: shared among its rows")
    parser.add_argument(
        "--quick", action=_Quick, nargs=0, default=False, help="a few rows, a few rounds of each"
    )
    parser.add_argument(
        "--cpu-time", action="store_true", help="leave out the time that the thread had to wait"
    )
    _add_outputs(parser)


class _Quick(argparse.Action):
    """Fewer rounds, unless their number is given behind it."""

    def __call__(self, parser: Any, namespace: Any, *_: Any) -> None:
        namespace.quick = True
        namespace.rounds, namespace.seconds = _QUICK_ROUNDS, _QUICK_SECONDS
