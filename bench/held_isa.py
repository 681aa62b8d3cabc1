"""What libraries read once, when they are loaded: import it before dlprim, torch and NumPy.

`--isa LEVEL` holds dlprim, PyTorch (its oneDNN and MKL, too) and NumPy's OpenBLAS to one ISA level,
`--threads N` OpenBLAS to so many threads; dlprim takes the model's schedules, whatever this machine
has stored.
"""

import argparse
import os
import sys

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


def add_to(parser: argparse.ArgumentParser) -> None:
    """The option --isa, which `hold` has obeyed by then."""
    parser.add_argument("--isa", help="hold all sides to this ISA level, such as avx2")


def hold(arguments: list[str]) -> None:
    """Set what the libraries read, from a command line."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--isa")
    parser.add_argument("--threads", default="1")
    options = parser.parse_known_args(arguments)[0]
    os.environ.setdefault("OPENBLAS_NUM_THREADS", options.threads)
    os.environ.setdefault("DLPRIM_TUNE", "0")
    # Some systems hold OpenBLAS to AVX2 for all programs: then NumPy would be no peer.
    os.environ.pop("OPENBLAS_CORETYPE", None)
    if options.isa is not None:
        os.environ["DLPRIM_MAX_ISA"] = options.isa
        os.environ.update(_PEERS.get(options.isa, {}))


hold(sys.argv[1:])
