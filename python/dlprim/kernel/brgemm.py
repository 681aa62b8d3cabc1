"""The batch-reduce GEMM kernel itself."""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt

from dlprim import _core
from dlprim.arguments.arrays import FloatArray, array_of, require_shape
from dlprim.arguments.names import activation_name, dtype_name, one_of_names
from dlprim.arguments.scalars import flag, operand_flag, typed_integer

_ADDRESSINGS = ("stride", "offset", "address")
_SCALES = ("tensor", "column")
_CALL = "the call of the kernel"  # which takes the operands that flags announce
_OF_BYTES = (("int8", "uint8"), ("int32", "float32", "bfloat16", "uint8", "int8"))
# Of A: what B and the result can be, the default first.
_DTYPES = {
    "float32": (("float32",), ("float32",)),
    "bfloat16": (("bfloat16",), ("float32", "bfloat16")),
    "uint8": _OF_BYTES,
    "int8": _OF_BYTES,
}


class Brgemm(_core.Kernel):
    """A kernel for ``C = epilogue(beta*C + sum_i A_i @ B_i)``, generated for this machine.

    Shapes and leading dimensions are fixed, but not the number of matrices. Equal requests share
    one generated kernel. Instances are immutable and may be called from many threads.

    Parameters
    ----------
    m, n, k : int
        A_i is m x k, B_i is k x n, C is m x n; each from 1 to 2^31 - 1, and rows at most 2^24 long.
    dtype : dtype
        Of A: float32, bfloat16, uint8 or int8. Sums are float32, int32 for 8-bit operands.
    lda, ldb, ldc : int, optional
        Elements from row to row (columns for a packed B), at most 2^24; the row length by default.
    trans_a : bool
        A_i is stored transposed, as k x m, and packed by `dlprim.pack_b` if B is.
    beta : 0 or 1
        With 0, C is written without being read. With 1, the C of 8-bit operands is int32.
    addressing : "stride", "offset" or "address"
        How a call specifies where the A_i and B_i are.
    bias : bool
        Calls pass a bias of n float32 values, added to every row.
    activation : None or str
        "relu", "relu6", "sigmoid", "hardsigmoid", "tanh", "gelu", "gelu_tanh", "swish" or
        "hardswish". "gelu" is the erf form. At most 4 ULP from the exact value of its float32
        argument.
    b_dtype : dtype, optional
        Of B, which is packed by `dlprim.pack_b` unless it is float32. That of A; for an 8-bit A,
        int8 (the default) or uint8.
    out_dtype : dtype, optional
        Of C. By default float32, and int32 for 8-bit operands. Also bfloat16 for bfloat16 operands,
        and float32, bfloat16, uint8 or int8 for 8-bit ones. Rounds to nearest even and saturates.
    isa : str, optional
        Generate for a lower instruction set level than `dlprim.isa()`, or the next lower one that
        the CPU has.
    scale : None, "tensor" or "column"
        Calls pass one float32 value, or n, by which the sums are multiplied.
    residual : bool
        Calls pass an m x n matrix, of C's dtype and leading dimension, to add.
    relu_mask : bool
        Calls pass uint8 (m, ceil(n / 8)): bit j % 8 of byte j / 8 is set if relu passed column j.
    zero_point_a, zero_point_b : bool
        For 8-bit operands: calls pass an integer that is subtracted from every element of A or B.

    Attributes
    ----------
    isa : str
        The instruction set level whose instructions the kernel uses.
    tile : (int, int)
        Rows and vectors of the register tile that does most of the work.
    name : str
        Unique for the request and ISA.
    plan : str
        All tiles, with their unrolling.
    code : bytes
        The machine code; empty for the scalar level.

    Raises
    ------
    TypeError
        An argument has the wrong type or dtype.
    ValueError
        An extent, leading dimension, beta or name is out of range, or the epilogue is not available
        for the dtype.

    Notes
    -----
    The epilogue is, in order: scale, bias, residual, activation, conversion.

    Source: "High-Performance Deep Learning via a Single Building Block", arXiv 1906.06440.

    Examples
    --------
    >>> kernel = dlprim.Brgemm(28, 64, 64, bias=True, activation="relu")
    >>> a, b = np.ones((16, 28, 64), np.float32), np.ones((16, 64, 64), np.float32)
    >>> c = np.empty((28, 64), np.float32)
    >>> result = kernel(a, b, c, bias=np.ones(64, np.float32))  # c: the sum of 16 products
    >>> float(c[0, 0])
    1025.0
    """

    def __init__(
        self,
        m: int,
        n: int,
        k: int,
        dtype: npt.DTypeLike = np.float32,
        *,
        lda: int | None = None,
        ldb: int | None = None,
        ldc: int | None = None,
        trans_a: bool = False,
        beta: int = 0,
        addressing: str = "stride",
        bias: bool = False,
        activation: str | None = None,
        b_dtype: npt.DTypeLike | None = None,
        out_dtype: npt.DTypeLike | None = None,
        isa: str | None = None,
        scale: str | None = None,
        residual: bool = False,
        relu_mask: bool = False,
        zero_point_a: bool = False,
        zero_point_b: bool = False,
    ) -> None:
        if isa is not None and not isinstance(isa, str):
            raise TypeError(f"isa is of type {type(isa).__name__}, expected the name of a level")
        if _integer("beta", beta) not in (0, 1):
            raise ValueError(f"beta is {beta}, expected 0 or 1")
        trans_a = flag("trans_a", trans_a)
        super().__init__(
            {
                **_types(dtype, b_dtype, out_dtype),
                **_extents((m, n, k), (lda, ldb, ldc), trans_a),
                "trans_a": trans_a,
                "beta": index(beta),
                "addressing": one_of_names("addressing", addressing, _ADDRESSINGS),
                "zero_point_a": flag("zero_point_a", zero_point_a),
                "zero_point_b": flag("zero_point_b", zero_point_b),
                "scale": "none" if scale is None else one_of_names("scale", scale, _SCALES),
                "bias": operand_flag("bias", bias, _CALL),
                "residual": operand_flag("residual", residual, _CALL),
                "activation": activation_name(activation),
                "relu_mask": operand_flag("relu_mask", relu_mask, _CALL),
                "isa": _core.isa() if isa is None else isa,
            }
        )

    def disassemble(self) -> str:
        """The machine code in Intel syntax, a line per instruction; empty for the scalar level.

        Returns
        -------
        str

        Raises
        ------
        RuntimeError
            ``objdump`` of GNU binutils is missing, or failed.
        """
        from dlprim.kernel.disassembly import disassembly  # and `subprocess` with it

        return disassembly(self.code)

    def __repr__(self) -> str:
        return f"<dlprim.Brgemm {self.name}>"


def brgemm(
    a: Any, b: Any, c: FloatArray | None = None, *, bias: Any = None, activation: str | None = None
) -> FloatArray:
    """``activation(c + sum_i a[i] @ b[i] + bias)`` in one kernel call on the calling thread.

    Parameters
    ----------
    a : array of float32, (batch, m, k)
    b : array of float32, (batch, k, n)
    c : ndarray of float32, (m, n), optional
        Updated in place and returned. Without it, the sum starts at zero.
    bias : array of float32, (n,), optional
    activation : str, optional
        As for `Brgemm`.

    Returns
    -------
    ndarray of float32, (m, n)
        `c` if it was given. With a batch of 0, the sum is empty.

    Raises
    ------
    TypeError
        An argument is not an array of float32.
    ValueError
        Shapes do not agree, or c is read-only, not contiguous or overlaps an operand.
    """
    a = array_of("a", a)
    b = array_of("b", b)
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
        bias = array_of("bias", bias)
        require_shape("bias", bias, (n,), "n from b")
    activation_name(activation)
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


def _types(
    dtype: npt.DTypeLike, b_dtype: npt.DTypeLike | None, out_dtype: npt.DTypeLike | None
) -> dict[str, str]:
    a_type = _one_of("dtype", dtype, tuple(_DTYPES))
    factors, results = _DTYPES[a_type]
    return {
        "a_type": a_type,
        "b_type": factors[0] if b_dtype is None else _one_of("b_dtype", b_dtype, factors),
        "c_type": results[0] if out_dtype is None else _one_of("out_dtype", out_dtype, results),
    }


def _extents(
    extents: tuple[int, int, int],
    leading: tuple[int | None, int | None, int | None],
    trans_a: bool,
) -> dict[str, int]:
    m, n, k = (_integer(name, value) for name, value in zip("mnk", extents, strict=True))
    lda, ldb, ldc = leading
    return {
        "m": m,
        "n": n,
        "k": k,
        "lda": _leading("lda", lda, m if trans_a else k),
        "ldb": _leading("ldb", ldb, n),
        "ldc": _leading("ldc", ldc, n),
    }


def _one_of(argument: str, dtype: npt.DTypeLike, names: tuple[str, ...]) -> str:
    name = dtype_name(argument, dtype)
    if name not in names:
        raise TypeError(f"{argument} is {name}, expected {' or '.join(names)}")
    return name


def _integer(name: str, value: int) -> int:
    number = typed_integer(name, value)
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
