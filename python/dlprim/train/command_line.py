"""What `python -m dlprim.train` does with its flags, and its exit status.

Whatever a user can get wrong is refused in one sentence before the first step. The exit status is
0 after a complete run; 1 when it cannot start, diverges or cannot write its result; 2 for a wrong
flag; 130 after Ctrl-C and 143 after SIGTERM. Without a complete run no result file is written, but
where a folder for checkpoints is given the run can be resumed.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence

import dlprim
from dlprim.distributed import CollectiveError, Group, LauncherError, end_job
from dlprim.distributed.agreement import require_same_code, require_same_settings
from dlprim.distributed.ceiling import measure_ceiling
from dlprim.distributed.launcher import launched_rank
from dlprim.files import check_writable
from dlprim.train.agreement import check, only_rank_0_prints
from dlprim.train.data import MissingDataError
from dlprim.train.fit.history import figure_class
from dlprim.train.flags import PROGRAM, parser
from dlprim.train.folder import CheckpointError, claimed
from dlprim.train.loop import DivergenceError
from dlprim.train.prediction import load, predict_file
from dlprim.train.records import StandardOutput
from dlprim.train.run import Run
from dlprim.train.settings import require_company, settled

# Where files are, what rank 0 alone writes, and what changes no result.
_OF_A_RANK = (
    *("baseline", "checkpoint", "data", "json", "output", "plot", "predict"),
    *("threads", "timeout"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains as the flags say and returns the exit status.

    Args:
        arguments: the flags; None takes them from the command line. The number of threads stays
            set after the run.

    Raises:
        SystemExit: with code 2 after a wrong flag, with code 0 after --help.
    """
    options = parser()
    flags = options.parse_args(arguments)
    try:
        group = Group.world(flags.timeout)
    except LauncherError as error:
        if launched_rank() == 0:
            print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 1
    with contextlib.ExitStack() as outputs:
        if isinstance(flags.json, StandardOutput):
            outputs.enter_context(contextlib.redirect_stdout(sys.stderr))
        outputs.enter_context(only_rank_0_prints(group))
        return _main(options, flags, group)


def _main(options: argparse.ArgumentParser, flags: argparse.Namespace, group: Group) -> int:
    """As `main`, on the ranks of a group."""
    require_company(options, flags, group)
    if flags.json is not None:
        try:
            flags.json.check()
        except OSError as error:
            options.error(f"argument --json: {error}")
    if flags.plot is not None:
        try:
            figure_class()
            check_writable(flags.plot)
        except (ImportError, OSError) as error:
            options.error(f"argument --plot: {error}")
    if flags.threads is not None:
        try:
            dlprim.set_num_threads(flags.threads)
        except (TypeError, ValueError) as error:
            options.error(f"argument --threads: {error}")
    try:
        require_same_code(group)
        given = {name: it for name, it in vars(flags).items() if name not in _OF_A_RANK}
        require_same_settings(group, given)
        if flags.allreduce_only is not None:
            print(measure_ceiling(group, flags.allreduce_only))
            return 0
        config = settled(options, flags, group)
        if flags.predict is not None:
            _predict(flags)
            return 0
        if flags.check:
            return check(config, flags, group)
        writes = None if flags.eval else flags.checkpoint
        with claimed(group, writes, flags.resume):
            return Run(config, flags, group).run()
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted.", file=sys.stderr)
        return 130 if group.size == 1 else group.abort(130)
    except DivergenceError as error:
        return end_job(group, PROGRAM, error, shared=True)
    except (MissingDataError, CheckpointError, CollectiveError, MemoryError, OSError) as error:
        return end_job(group, PROGRAM, error)
    except Exception as error:
        if group.size == 1 and not isinstance(error, ValueError):
            raise
        return end_job(group, PROGRAM, error)


def _predict(flags: argparse.Namespace) -> None:
    """Prints a class per image.

    Raises
    ------
    CheckpointError, MissingDataError, ValueError, OSError
        As `load` and `predict_file` do.
    """
    model = load(flags.checkpoint)
    try:
        classes = predict_file(model, flags.predict, flags.output)
    except TypeError as error:  # the file's, and no mistake of this program
        raise MissingDataError(str(error)) from error
    print("".join(f"{it}\n" for it in classes), end="")
