"""Runs the command, in a process whose libraries have read what its options say."""

import sys

from dlprim.bench import held


def start() -> int:
    held.hold()
    from dlprim.bench.command_line import main

    return main()


if __name__ == "__main__":
    sys.exit(start())
