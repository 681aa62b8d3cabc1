"""What libraries read once, when they are loaded: the environment that a run needs.

``--isa LEVEL`` holds dlprim, PyTorch (its oneDNN and MKL, too) and NumPy's OpenBLAS to one ISA
level, ``--threads N`` OpenBLAS to so many threads; dlprim takes the model's schedules, whatever
this machine has stored. NumPy is loaded when Python comes here, so the process begins again.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

_ONEDNN = {"avx2": "AVX2", "avx2_vnni": "AVX2_VNNI", "avx2_vnni_int8": "AVX2_VNNI_2"}
_PEERS = {
    isa: {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": level,
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "OPENBLAS_CORETYPE": "Haswell",
    }
    for isa, level in _ONEDNN.items()
}
_HELD = "DLPRIM_BENCH_HELD"


def environment(arguments: Sequence[str]) -> dict[str, str]:
    """Of a process that measures what a command line asks for."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--isa")
    parser.add_argument("--threads", default="1")
    options = parser.parse_known_args(list(arguments))[0]
    # Some systems hold OpenBLAS to AVX2 for all programs: then NumPy would be no peer.
    found = {name: it for name, it in os.environ.items() if name != "OPENBLAS_CORETYPE"}
    found.setdefault("OPENBLAS_NUM_THREADS", options.threads)
    found.setdefault("DLPRIM_TUNE", "0")
    if options.isa is not None:
        found |= {"DLPRIM_MAX_ISA": options.isa, **_PEERS.get(options.isa, {})}
    return found | {_HELD: "1"}


def hold() -> None:
    """Begin this process again with the environment of its command line, unless it has that."""
    if _HELD in os.environ:
        return
    sys.stdout.flush()
    sys.stderr.flush()
    command = [sys.executable, *sys.orig_argv[1:]]
    os.execve(sys.executable, command, environment(sys.argv[1:]))


def add_to(parser: argparse.ArgumentParser) -> None:
    """The option --isa, which `hold` has obeyed by then."""
    parser.add_argument("--isa", help="hold all sides to this ISA level, such as avx2")
