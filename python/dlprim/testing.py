"""What tests and benchmarks share and users may want to repeat: the machine's measured roofs.

A figure in GFLOP/s says little on a machine whose clock and neighbours change; a fraction of a
roof that was measured in the same second, on the same core, says something.
"""

import numpy as np
import numpy.typing as npt

from dlprim import _core
from dlprim.kernel import dtype_name


def fma_peak(
    isa: str | None = None, seconds: float = 0.05, dtype: npt.DTypeLike = np.float32
) -> float:
    """Operations per second of one core, two per multiply-add, on registers.

    Parameters
    ----------
    isa : str, optional
        "avx2" or any "avx512" level; `dlprim.isa()` by default.
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
    return _core.fma_peak(dtype_name("dtype", dtype), level, seconds)


def read_bandwidth(size: int, isa: str | None = None, seconds: float = 0.05) -> float:
    """Bytes per second that one core loads from a buffer of ``size`` bytes, over and over.

    A size below the first cache's gives that cache's bandwidth, and so on up to memory.

    Raises
    ------
    ValueError
        The ISA level is unknown, scalar, or not usable here.
    """
    return _core.read_bandwidth(_core.isa() if isa is None else isa, size, seconds)
