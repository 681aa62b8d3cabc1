"""``python -m dlprim``: what a bug report needs, and where the C++ library in the package is."""

import argparse
import importlib
import sys
from pathlib import Path

import dlprim
from dlprim import bug_report

_ABOUT = "Print what a bug report needs, or where the C++ library inside this package is."


def main(arguments: list[str] | None = None) -> int:
    package = Path(dlprim.__file__).resolve().parent
    parser = argparse.ArgumentParser(prog="python -m dlprim", description=_ABOUT)
    parser.add_argument(
        "--cmakedir",
        "--cmake-dir",
        action="store_true",
        help="print the folder of dlprimConfig.cmake, for cmake -Ddlprim_DIR=...",
    )
    parser.add_argument(
        "--includes", action="store_true", help="print the folder of the C++ headers"
    )
    parser.add_argument(
        "--beside",
        nargs="+",
        metavar="MODULE",
        default=[],
        help="import these first, as your program does: torch, for example",
    )
    parser.add_argument("--version", action="version", version=dlprim.__version__)
    options = parser.parse_args(arguments)
    if options.cmakedir:
        print(package / "lib" / "cmake" / "dlprim")
    if options.includes:
        print(package / "include")
    for name in options.beside:
        try:
            importlib.import_module(name)
        except ImportError as error:
            parser.error(f"argument --beside: {error}")
    if not (options.cmakedir or options.includes):
        print("\n".join(bug_report.lines()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
