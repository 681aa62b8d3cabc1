"""`--isa LEVEL` for every benchmark: dlprim, PyTorch and NumPy's OpenBLAS held to one ISA level.

Import it before dlprim, torch and NumPy, which read these variables once, when they are loaded.
"""

import argparse
import os
import sys

_PEERS = {
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "OPENBLAS_CORETYPE": "Haswell",
    }
}


def add_to(parser: argparse.ArgumentParser) -> None:
    """The option, which `hold` has obeyed by then."""
    parser.add_argument("--isa", help="hold both sides to this ISA level, such as avx2")


def hold(arguments: list[str]) -> None:
    """Set what the libraries read, from a command line."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--isa")
    level = parser.parse_known_args(arguments)[0].isa
    if level is not None:
        os.environ["DLPRIM_MAX_ISA"] = level
        os.environ.update(_PEERS.get(level, {}))


hold(sys.argv[1:])
