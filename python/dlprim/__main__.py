"""``python -m dlprim``: where the C++ library inside this package is, for build systems."""

import argparse
import sys
from pathlib import Path

import dlprim
from dlprim import _core


def main(arguments: list[str] | None = None) -> int:
    package = Path(dlprim.__file__).resolve().parent
    parser = argparse.ArgumentParser(prog="python -m dlprim", description=__doc__)
    parser.add_argument(
        "--cmakedir",
        "--cmake-dir",
        action="store_true",
        help="print the folder of dlprimConfig.cmake, for cmake -Ddlprim_DIR=...",
    )
    parser.add_argument(
        "--includes", action="store_true", help="print the folder of the C++ headers"
    )
    parser.add_argument("--version", action="version", version=dlprim.__version__)
    options = parser.parse_args(arguments)
    if options.cmakedir:
        print(package / "lib" / "cmake" / "dlprim")
    if options.includes:
        print(package / "include")
    if not (options.cmakedir or options.includes):
        threads = dlprim.get_num_threads()
        print(
            f"dlprim {dlprim.__version__}, {dlprim.isa()}, "
            f"{threads} thread{'s' * (threads != 1)} ({_core.reason_for_num_threads()})"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
