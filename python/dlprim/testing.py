"""What tests and benchmarks share and users may want to repeat: the machine's measured roofs.

A figure in GFLOP/s says little on a machine whose clock and neighbours change; a fraction of a
roof that was measured in the same second, on the same core, says something.
"""

import numpy as np
import numpy.typing as npt

from dlprim import _core
from dlprim.arguments.names import dtype_name

__all__ = ["fma_peak", "read_bandwidth"]


def fma_peak(
    isa: str | None = None, seconds: float = 0.05, dtype: npt.DTypeLike = np.float32
) -> float:
    """Operations per second of one core, two per multiply-add, on registers.

    Parameters
    ----------
    isa : str, optional
        Any "avx2" or "avx512" level; `dlprim.isa()` by default.
    seconds : float
        How long to measure, about.
    dtype : dtype
        Of the operands: float32, bfloat16, uint8 or int8. Where the ISA has no instruction for
        bfloat16 or 8 bits, the float32 FMAs that stand in for it are measured.

    Raises
    ------
    ValueError
        The ISA level is unknown, scalar, or not usable here.
    """
    level = _core.isa() if isa is None else isa
    _require_seconds(seconds)
    return _core.fma_peak(dtype_name("dtype", dtype), level, seconds)


def read_bandwidth(size: int, isa: str | None = None, seconds: float = 0.05) -> float:
    """Bytes per second that one core loads from a buffer of ``size`` bytes, over and over.

    A size below the first cache's gives that cache's bandwidth, and so on up to memory.

    Raises
    ------
    ValueError
        The ISA level is unknown, scalar, or not usable here; size or seconds is out of range.
    """
    _require_seconds(seconds)
    if size < 1:
        raise ValueError(f"size is {size}, expected at least 1 byte")
    return _core.read_bandwidth(_core.isa() if isa is None else isa, size, seconds)


def _require_seconds(seconds: float) -> None:
    if not 0 < seconds <= 3600:
        raise ValueError(f"seconds is {seconds}, expected more than 0 and at most 3600")
