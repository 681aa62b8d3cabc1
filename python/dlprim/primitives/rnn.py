"""LSTM and GRU layers: shapes fixed once, weights packed once, forward and backward in time."""

from typing import Any, Literal, overload

from dlprim.arguments.arrays import Array, FloatArray
from dlprim.primitives.rnn_layer import RecurrentLayer
from dlprim.primitives.rnn_operands import (
    GRUGradients,
    GRUSaved,
    LSTMGradients,
    LSTMSaved,
    PackedWeights,
    float32_operand,
    sequence_lengths,
)


class LSTM(RecurrentLayer):
    """One layer of long short-term memory in one direction, of fixed shape.

    ::

        i, f, o = sigmoid(w_i{i,f,o} x + b_i{i,f,o} + w_h{i,f,o} h + b_h{i,f,o})
        g = tanh(w_ig x + b_ig + w_hg h + b_hg)
        c = f * c + i * g
        h = o * tanh(c)

    Every pass writes the same bits for any number of threads, and an instance may be called from
    many threads at once. Results are new arrays; their memory is kept for later results of the
    instance once nobody refers to them.

    Parameters
    ----------
    x_shape : (T, N, C)
        Steps, sequences and input channels; T and N may be 0.
    K : int
        Channels of the state.
    dtype : dtype
        float32 or bfloat16, of src, weights, h and dst. Sums, gates and c are float32.
    reverse : bool
        From the last step to the first.
    bias : bool
        `pack_weights` takes biases, and `backward` returns their gradients.
    schedule : dict, optional
        The loop nests of some passes, in the form of `schedules`.

    Attributes
    ----------
    x_shape : (T, N, C)
    K : int
    dtype : dtype
        uint16 for bfloat16 where ml_dtypes is not installed.
    reverse, bias : bool
    flops : float
        Operations of the products of one pass forward, two per multiply-add; backward are twice
        as many.
    scratch_bytes : dict
        Memory that a call takes while it runs: "inference", "forward" (training), "backward".
    schedules : dict
        The loop nest of each product, by its name.

    Raises
    ------
    TypeError
        An argument is of the wrong type.
    ValueError
        An extent is out of range, or a schedule cannot be followed.

    Notes
    -----
    Source: arXiv 1906.06440, the section on recurrent networks; the equations are those of
    PyTorch's LSTM.
    """

    _cell = "lstm"

    @overload
    def forward(
        self, x: Any, weights: PackedWeights, h_0: Any = None, c_0: Any = None, lengths: Any = None,
        training: Literal[False] = False, out: Array | None = None,
    ) -> tuple[Array, Array, FloatArray]: ...  # fmt: skip
    @overload
    def forward(
        self, x: Any, weights: PackedWeights, h_0: Any = None, c_0: Any = None, lengths: Any = None,
        *, training: Literal[True], out: Array | None = None,
    ) -> tuple[Array, Array, FloatArray, LSTMSaved]: ...  # fmt: skip

    def forward(
        self,
        x: Any,
        weights: PackedWeights,
        h_0: Any = None,
        c_0: Any = None,
        lengths: Any = None,
        training: bool = False,
        out: Array | None = None,
    ) -> Any:
        """All steps.

        Parameters
        ----------
        x : array of the dtype, (T, N, C)
            C-contiguous.
        weights : PackedWeights
            From `pack_weights`.
        h_0 : array of the dtype, (N, K), optional
            The state before the first step; zeros by default.
        c_0 : array of float32 or bfloat16, (N, K), optional
        lengths : integers, (N,), optional
            From 0 to T: steps t >= lengths[n] of sequence n are padding, where y is 0 and the state
            is kept. In reverse sequence n begins at t = lengths[n] - 1.
        training : bool
            Also return what `backward` needs.
        out : ndarray of the dtype, (T, N, K), optional
            Written and returned as y; C-contiguous, shares no memory with an operand.

        Returns
        -------
        y : ndarray of the dtype, (T, N, K)
            h after each step.
        h_n : ndarray of the dtype, (N, K)
        c_n : ndarray of float32, (N, K)
            The states after the last step of each sequence.
        saved : LSTMSaved
            With ``training=True``. It refers to x, h_0, c_0 and y, which must not change until
            `backward`.

        Raises
        ------
        TypeError, ValueError
            An array is of another dtype or shape, not C-contiguous, or overlaps `out`; a length is
            out of range.
        """
        operands = {
            "src": x,
            "h_0": h_0,
            "c_0": float32_operand("c_0", c_0),
            "lengths": sequence_lengths(lengths, out),
        }
        found = self._forward(operands, weights, out, training)
        h_n, c_n = found.pop("h_n"), found.pop("c_n")
        ends = found["dst"], h_n, c_n
        return (*ends, LSTMSaved(**operands, **found)) if training else ends

    def backward(
        self,
        diff_dst: Any,
        saved: LSTMSaved,
        weights: PackedWeights,
        diff_h_n: Any = None,
        diff_c_n: Any = None,
    ) -> LSTMGradients:
        """The gradients of everything, through all steps.

        Parameters
        ----------
        diff_dst : array of the dtype, (T, N, K)
            With respect to y. What it has in padding counts for nothing.
        saved : LSTMSaved
            From `forward`, or made of arrays that were stored.
        weights : PackedWeights
            As in the forward pass.
        diff_h_n : array of the dtype, (N, K), optional
            With respect to the states at the end; zeros by default.
        diff_c_n : array of float32 or bfloat16, (N, K), optional

        Returns
        -------
        LSTMGradients
            In plain shapes; those of weights and biases are float32, summed over steps and
            sequences.

        Raises
        ------
        TypeError, ValueError
            An array, of the saved ones too, is of another dtype or shape or not C-contiguous.
        """
        operands = self._saved_operands(saved, LSTMSaved)
        operands["c_0"] = float32_operand("c_0", operands["c_0"])
        operands |= {"diff_dst": diff_dst, "diff_h_n": diff_h_n}
        operands["diff_c_n"] = float32_operand("diff_c_n", diff_c_n)
        return LSTMGradients(**self._backward(operands, weights))


class GRU(RecurrentLayer):
    """One layer of gated recurrent units in one direction, of fixed shape.

    ::

        r, z = sigmoid(w_i{r,z} x + b_i{r,z} + w_h{r,z} h + b_h{r,z})
        n = tanh(w_in x + b_in + r * (w_hn h + b_hn))
        h = (1 - z) * n + z * h

    Parameters, attributes, errors and sources are those of `LSTM`, and it keeps h in float32 from
    step to step. The equations are PyTorch's: the reset gate is applied after the product.
    """

    _cell = "gru"

    @overload
    def forward(
        self, x: Any, weights: PackedWeights, h_0: Any = None, lengths: Any = None,
        training: Literal[False] = False, out: Array | None = None,
    ) -> tuple[Array, Array]: ...  # fmt: skip
    @overload
    def forward(
        self, x: Any, weights: PackedWeights, h_0: Any = None, lengths: Any = None,
        *, training: Literal[True], out: Array | None = None,
    ) -> tuple[Array, Array, GRUSaved]: ...  # fmt: skip

    def forward(
        self,
        x: Any,
        weights: PackedWeights,
        h_0: Any = None,
        lengths: Any = None,
        training: bool = False,
        out: Array | None = None,
    ) -> Any:
        """All steps: y and h_n, with ``training=True`` also a `GRUSaved`; else as `LSTM.forward`.

        Parameters
        ----------
        x : array of the dtype, (T, N, C)
        weights : PackedWeights
        h_0 : array of the dtype, (N, K), optional
        lengths : integers, (N,), optional
        training : bool
        out : ndarray of the dtype, (T, N, K), optional

        Returns
        -------
        y : ndarray of the dtype, (T, N, K)
        h_n : ndarray of the dtype, (N, K)
        saved : GRUSaved

        Raises
        ------
        TypeError, ValueError
            As `LSTM.forward` does.
        """
        operands = {"src": x, "h_0": h_0, "lengths": sequence_lengths(lengths, out)}
        found = self._forward(operands, weights, out, training)
        ends = found["dst"], found.pop("h_n")
        return (*ends, GRUSaved(**operands, **found)) if training else ends

    def backward(
        self, diff_dst: Any, saved: GRUSaved, weights: PackedWeights, diff_h_n: Any = None
    ) -> GRUGradients:
        """The gradients of everything, through all steps; else as `LSTM.backward`.

        Parameters
        ----------
        diff_dst : array of the dtype, (T, N, K)
        saved : GRUSaved
        weights : PackedWeights
        diff_h_n : array of the dtype, (N, K), optional

        Returns
        -------
        GRUGradients

        Raises
        ------
        TypeError, ValueError
            As `LSTM.backward` does.
        """
        operands = self._saved_operands(saved, GRUSaved)
        operands |= {"diff_dst": diff_dst, "diff_h_n": diff_h_n}
        return GRUGradients(**self._backward(operands, weights))
