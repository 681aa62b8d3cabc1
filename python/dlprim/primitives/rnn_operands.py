"""Operands of the recurrent primitives: packed weights, saved states, gradients, new arrays."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlprim import _core
from dlprim.arguments.arrays import Array, FloatArray, refuse_masked

IntArray = npt.NDArray[np.int64]


class LSTMResult(NamedTuple):
    """What `LSTM.forward` and `lstm` return.

    Attributes
    ----------
    y : ndarray of the dtype, (T, N, K)
        h after each step.
    h_n : ndarray of the dtype, (N, K)
    c_n : ndarray of float32, (N, K)
        The states after the last step of each sequence.
    """

    y: Array
    h_n: Array
    c_n: FloatArray


class LSTMTrained(NamedTuple):
    """As `LSTMResult`, with ``training=True``.

    Attributes
    ----------
    y, h_n, c_n : ndarray
        As for `LSTMResult`.
    saved : LSTMSaved, or of `lstm` SavedRecurrence
        For the backward pass.
    """

    y: Array
    h_n: Array
    c_n: FloatArray
    saved: Any


class GRUResult(NamedTuple):
    """As `LSTMResult`, of `GRU.forward` and `gru`, without c_n."""

    y: Array
    h_n: Array


class GRUTrained(NamedTuple):
    """As `LSTMTrained`, of `GRU.forward` and `gru`, without c_n."""

    y: Array
    h_n: Array
    saved: Any


class RNNResult(NamedTuple):
    """As `GRUResult`, of `RNN.forward` and `rnn`.

    Attributes
    ----------
    y, h_n : ndarray
    """

    y: Array
    h_n: Array


RESULTS: dict[str, tuple[Any, Any]] = {  # without and with training
    "lstm": (LSTMResult, LSTMTrained),
    "gru": (GRUResult, GRUTrained),
    "rnn": (RNNResult, None),
}


class LSTMSaved(NamedTuple):
    """What `LSTM.backward` needs of a forward pass: plain arrays, which may be stored and loaded.

    src, h_0 and c_0 are the arguments of `LSTM.forward`, not copies; dst is its result; lengths is
    a copy. The other arrays have (4 + 1) * T * N * K float32 values.

    Attributes
    ----------
    src : ndarray of the dtype, (T, N, C)
    h_0 : ndarray of the dtype, (N, K), or None
    c_0 : ndarray of float32, (N, K), or None
    gates : ndarray of float32, (T, N, 4*K)
        i, f, g, o after their activations; zero in padding.
    cells : ndarray of float32, (T, N, K)
        c after each step; in padding, the last state.
    dst : ndarray of the dtype, (T, N, K)
    lengths : ndarray of int64, (N,), or None
    """

    src: Array
    h_0: Array | None
    c_0: FloatArray | None
    gates: FloatArray
    cells: FloatArray
    dst: Array
    lengths: IntArray | None


class GRUSaved(NamedTuple):
    """Like `LSTMSaved`, for `GRU`, with (3 + 1) * T * N * K float32 values.

    Attributes
    ----------
    gates : ndarray of float32, (T, N, 3*K)
        r, z, n after their activations; zero in padding.
    hidden_n : ndarray of float32, (T, N, K)
        ``w_hn h + b_hn``, which r multiplies in n; zero in padding.
    src, h_0, dst, lengths
        As for `LSTMSaved`.
    """

    src: Array
    h_0: Array | None
    gates: FloatArray
    hidden_n: FloatArray
    dst: Array
    lengths: IntArray | None


class LSTMGradients(NamedTuple):
    """Gradients with respect to the arguments of `LSTM.forward` and `LSTM.pack_weights`.

    diff_src and diff_h_0 have the dtype of the primitive, the others float32; all have the plain
    shape of what they belong to. The biases' are None without bias. Of `lstm`, those of weights
    and biases are lists where w_ih was a sequence.
    """

    diff_src: Array
    diff_h_0: Array
    diff_c_0: FloatArray
    diff_w_ih: Any
    diff_w_hh: Any
    diff_b_ih: Any
    diff_b_hh: Any


class GRUGradients(NamedTuple):
    """As `LSTMGradients`, of `GRU` and `gru`, without diff_c_0."""

    diff_src: Array
    diff_h_0: Array
    diff_w_ih: Any
    diff_w_hh: Any
    diff_b_ih: Any
    diff_b_hh: Any


class CellForm(NamedTuple):
    """What the core lets a recurrent cell do otherwise; see `cpp/primitives/rnn/rnn_cell.h`.

    Attributes
    ----------
    functions : tuple of (str, float, float)
        ONNX's names of activations with alpha and beta; the cell's own where there are none.
    clip : float
        The bound of what goes into gates; 0 is none.
    input_forget, peepholes : bool
        Of an LSTM.
    reset_after : bool
        Of a GRU: r multiplies the product with the state, not the state.
    """

    functions: tuple[tuple[str, float, float], ...] = ()
    clip: float = 0.0
    input_forget: bool = False
    peepholes: bool = False
    reset_after: bool = True

    def kind(self, cell: str) -> str:
        """The cell by what its products and their weights depend on."""
        return cell if self.reset_after else f"{cell}_reset_before"


class WeightsKind(NamedTuple):
    """What packed weights depend on. Others may round to the same panels, so shapes do not tell."""

    cell: str
    C: int
    K: int
    dtype: str

    def __str__(self) -> str:
        return f"{self.cell} with C = {self.C} and K = {self.K} in {self.dtype}"


class PackedWeights:
    """Weights of a recurrent layer in the form its kernels read; made by `pack_weights`.

    They fit every primitive with the same cell, C, K and dtype, whatever its T and N. bc and bk are
    the widths of panels of channels, a multiple of 16 and at most 64, padded with zeros.

    Attributes
    ----------
    kind : WeightsKind
        The cell, C, K and the dtype.
    w_ih : ndarray, (K panels, gates, C panels, bc, bk)
        In bfloat16, pairs of input channels are adjacent: (..., bc / 2, bk, 2).
    w_hh : ndarray, (K panels, gates, K panels, bk, bk)
        The same.
    bias : ndarray of float32, (gates, K) with K in whole vectors
        Sums of both biases for each gate; for a GRU four rows: r, z, b_in and b_hn.
    """

    def __init__(self, kind: WeightsKind) -> None:
        self.kind = kind
        self._lock = Lock()
        self._packed: dict[str, Array] = {}
        self._transposed: dict[str, Array] = {}
        self._is_transposed = False

    def pack(self, core: _core.Rnn, plain: Mapping[str, Any]) -> None:
        """Replace the content by plain weights, which ``core`` checks: that of a layer they fit."""
        with self._lock:
            self._is_transposed = False
            self._packed = core.pack_weights({**plain, **self._packed})
            names = ("packed_w_ih", "packed_w_hh", "packed_bias")
            self.w_ih, self.w_hh, self.bias = (self._packed[name] for name in names)

    def operands(self) -> dict[str, Array]:
        """By the core's names."""
        return self._packed

    def transposed(self, core: _core.Rnn) -> dict[str, Array]:
        """The form for the backward pass, by the core's names; made once per packing."""
        with self._lock:
            if not self._is_transposed:
                self._transposed = core.transpose_weights({**self._packed, **self._transposed})
                self._is_transposed = True
            return self._transposed


def sequence_lengths(value: Any, out: Any = None) -> IntArray | None:
    """A copy of ``value`` as the core takes it: int64, which is checked there.

    TypeError where these are no integers; ValueError where they share memory with ``out``.
    """
    if value is None:
        return None
    refuse_masked({"lengths": value})
    try:
        lengths = np.asarray(value)
    except Exception as error:  # whatever another library's array raises
        raise TypeError(f"lengths cannot be viewed as a NumPy array: {error}") from error
    if lengths.dtype.kind not in "iu":
        raise TypeError(f"lengths has dtype {lengths.dtype}, expected integers")
    if isinstance(out, np.ndarray) and np.shares_memory(lengths, out):
        raise ValueError(
            "out shares memory with lengths, expected a result that overlaps no operand"
        )
    return np.array(lengths, np.int64, order="C")
