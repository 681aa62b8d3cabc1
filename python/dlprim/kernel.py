"""The batch-reduce GEMM kernel itself."""

from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt

from dlprim import _core
from dlprim.arrays import FloatArray, float_array, require_shape

_ADDRESSINGS = ("stride", "offset", "address")
_ACTIVATIONS = ("relu",)


class Brgemm(_core.Kernel):
    """A kernel for ``C = activation(beta*C + sum_i A_i @ B_i + bias)``, generated for this machine.

    Shapes and leading dimensions are fixed here, the number of matrices is not. Equal requests
    share one generated kernel. Instances are immutable and may be called from many threads.

    Parameters
    ----------
    m, n, k : int
        A_i is m x k, B_i is k x n, C is m x n; each from 1 to 2^31 - 1.
    dtype : dtype
        Of A, B and C: float32.
    lda, ldb, ldc : int, optional
        Elements from row to row; the row length by default, at most 2^24.
    trans_a : bool
        A_i is stored transposed, as k x m.
    beta : 0 or 1
        With 0, C is written without being read.
    addressing : "stride", "offset" or "address"
        How a call says where the A_i and B_i are.
    bias : bool
        Calls pass a bias of n values, added to every row.
    activation : None or "relu"
    out_dtype : dtype, optional
        Of C; `dtype` by default.
    isa : str, optional
        Generate for a lower instruction set level than `dlprim.isa()`.

    Attributes
    ----------
    isa : str
        The instruction set level whose instructions the kernel uses.
    tile : (int, int)
        Rows and vectors of the register tile that does most of the work.
    name : str
        Unique for a request and ISA.
    plan : str
        All tiles, with their unrolling.
    code : bytes
        The machine code, to disassemble; empty for the scalar level.

    Raises
    ------
    TypeError
        An argument has the wrong type or dtype.
    ValueError
        An extent, leading dimension, beta or name is out of range.

    Notes
    -----
    Source: "High-Performance Deep Learning via a Single Building Block", arXiv 1906.06440.
    """

    def __init__(
        self,
        m: int,
        n: int,
        k: int,
        dtype: npt.DTypeLike = np.float32,
        lda: int | None = None,
        ldb: int | None = None,
        ldc: int | None = None,
        trans_a: bool = False,
        beta: int = 0,
        addressing: str = "stride",
        bias: bool = False,
        activation: str | None = None,
        out_dtype: npt.DTypeLike | None = None,
        isa: str | None = None,
    ) -> None:
        _require_float32("dtype", dtype)
        if out_dtype is not None:
            _require_float32("out_dtype", out_dtype)
        if addressing not in _ADDRESSINGS:
            raise ValueError(
                f"addressing is {addressing!r}, expected 'stride', 'offset' or 'address'"
            )
        if activation is not None and activation not in _ACTIVATIONS:
            raise ValueError(f"activation is {activation!r}, expected None or 'relu'")
        if isa is not None and not isinstance(isa, str):
            raise TypeError(f"isa is of type {type(isa).__name__}, expected the name of a level")
        if _integer("beta", beta) not in (0, 1):
            raise ValueError(f"beta is {beta}, expected 0 or 1")
        m, n, k = _integer("m", m), _integer("n", n), _integer("k", k)
        super().__init__(
            m=m,
            n=n,
            k=k,
            lda=_leading("lda", lda, m if trans_a else k),
            ldb=_leading("ldb", ldb, n),
            ldc=_leading("ldc", ldc, n),
            trans_a=bool(trans_a),
            beta=_integer("beta", beta),
            addressing=addressing,
            bias=bool(bias),
            activation=activation or "none",
            isa=_core.isa() if isa is None else isa,
        )

    def __repr__(self) -> str:
        return f"<dlprim.Brgemm {self.name}>"


def brgemm(
    a: Any, b: Any, c: FloatArray | None = None, bias: Any = None, activation: str | None = None
) -> FloatArray:
    """``activation(c + sum_i a[i] @ b[i] + bias)`` in one kernel call on the calling thread.

    Parameters
    ----------
    a : array of float32, (batch, m, k)
    b : array of float32, (batch, k, n)
    c : ndarray of float32, (m, n), optional
        Accumulated into, in place, and returned. Without it the sum starts from zero.
    bias : array of float32, (n,), optional
    activation : None or "relu"

    Returns
    -------
    ndarray of float32, (m, n)
        `c` where it was given. With a batch of 0 the sum is empty.

    Raises
    ------
    TypeError
        An argument is no array or not of float32.
    ValueError
        Shapes do not agree, or c is read-only, not contiguous or overlaps an operand.
    """
    a = float_array("a", a)
    b = float_array("b", b)
    if a.ndim != 3:
        raise ValueError(f"a has shape {a.shape}, expected three dimensions (batch, m, k)")
    if b.ndim != 3 or b.shape[:2] != (a.shape[0], a.shape[2]):
        raise ValueError(
            f"b has shape {b.shape}, expected ({a.shape[0]}, {a.shape[2]}, n): "
            f"batch and k of a, whose shape is {a.shape}"
        )
    batch, m, k = a.shape
    n = b.shape[2]
    if c is not None and not isinstance(c, np.ndarray):
        raise TypeError(f"c is of type {type(c).__name__}, expected a NumPy array of float32")
    if c is not None and c.shape != (m, n):
        raise ValueError(f"c has shape {c.shape}, expected ({m}, {n}) from a and b")
    if c is not None and c.dtype != np.float32:
        raise TypeError(f"c has dtype {c.dtype}, expected float32")
    if bias is not None:
        bias = float_array("bias", bias)
        require_shape("bias", bias, (n,), "n from b")
    if activation is not None and activation not in _ACTIVATIONS:
        raise ValueError(f"activation is {activation!r}, expected None or 'relu'")
    result = np.empty((m, n), np.float32) if c is None else c
    if m == 0 or n == 0:
        return result
    kernel = Brgemm(
        m,
        n,
        max(k, 1),
        beta=0 if c is None else 1,
        bias=bias is not None,
        activation=activation,
    )
    if k == 0:  # an empty sum
        a, b, batch = np.empty((0, m, 1), np.float32), np.empty((0, 1, n), np.float32), 0
    kernel(a, b, result, batch=batch, bias=bias)
    return result


def kernel_cache_info() -> dict[str, int]:
    """The cache of generated kernels.

    Returns
    -------
    dict
        ``entries`` and ``bytes`` of executable memory held now with their bounds ``max_entries``
        and ``max_bytes``; ``hits``, ``misses`` and ``evictions`` since the start or the last
        `kernel_cache_clear`.
    """
    return _core.kernel_cache_info()


def kernel_cache_clear() -> None:
    """Forget all cached kernels and counters. Kernels that are still referenced stay alive."""
    _core.kernel_cache_clear()


def _require_float32(name: str, dtype: npt.DTypeLike) -> None:
    try:
        resolved = np.dtype(dtype)
    except TypeError:
        raise TypeError(f"{name} is {dtype!r}, which is no dtype; expected float32") from None
    if resolved != np.float32:
        raise TypeError(f"{name} is {resolved}, expected float32")


def _integer(name: str, value: int) -> int:
    try:
        number = index(value)
    except TypeError:
        raise TypeError(f"{name} is of type {type(value).__name__}, expected an integer") from None
    if not -(2**31) <= number < 2**63:
        raise ValueError(f"{name} is {number}, which is out of range")
    return number


def _leading(name: str, value: int | None, row_length: int) -> int:
    if value is None:
        return max(row_length, 1)
    leading = _integer(name, value)
    if leading < row_length:
        raise ValueError(f"{name} is {leading}, expected at least the row length {row_length}")
    return leading
