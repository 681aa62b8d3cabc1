"""Recurrent layers: shapes fixed once, weights packed once, forward and backward in time."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy.typing as npt

from dlprim import _core as core
from dlprim import schedule_store as store
from dlprim.arguments.arrays import Array
from dlprim.arguments.floats import dtype_named, float32_operand
from dlprim.arguments.names import float_type_name, one_of_names
from dlprim.arguments.scalars import flag, held_integer, operand_flag, refuse_array
from dlprim.primitives.operands import Scheduled
from dlprim.primitives.rnn_operands import (
    RESULTS,
    CellForm,
    GRUGradients,
    GRUSaved,
    LSTMGradients,
    LSTMSaved,
    PackedWeights,
    RNNResult,
    WeightsKind,
    sequence_lengths,
)


class RecurrentLayer(Scheduled):
    """`LSTM`, `GRU` and `RNN` but for the arguments and results that one of them lacks."""

    _cell: str
    _form = CellForm()
    _saved: Any
    _gradients: Any
    _core: core.Rnn

    def __init__(
        self,
        x_shape: tuple[int, int, int],
        K: int,
        *,
        dtype: npt.DTypeLike = "float32",
        reverse: bool = False,
        bias: bool = True,
        schedule: Mapping[str, str] | None = None,
    ) -> None:
        t, n, c = _extents(x_shape)
        name = float_type_name(dtype)
        self.x_shape = (t, n, c)
        self.K = held_integer("K", K)
        self.dtype = dtype_named(name)
        self.reverse = flag("reverse", reverse)
        self.bias = operand_flag("bias", bias, "pack_weights")
        kind = self._form.kind(self._cell)
        self._kind = WeightsKind(kind, c, self.K, name)
        if schedule is not None and not isinstance(schedule, Mapping):
            kind = type(schedule).__name__
            raise TypeError(f"schedule is of type {kind}, expected a dict by pass")
        for which, text in (schedule or {}).items():
            if not isinstance(text, str):
                kind = type(text).__name__
                raise TypeError(f"schedule[{which!r}] is of type {kind}, expected a str")
        numbers = {"T": t, "N": n, "C": c, "K": self.K}
        how = (tuple(numbers.values()), name, self.reverse, self._form)
        # The direction does not matter to schedules.
        problem = store.Problem(kind, numbers, name, "plain")
        self._make(partial(core.Rnn, self._cell, *how), problem, schedule)

    @property
    def gates(self) -> int:
        return {"lstm": 4, "gru": 3, "rnn": 1}[self._cell]

    def pack_weights(
        self,
        w_ih: Any,
        w_hh: Any,
        b_ih: Any = None,
        b_hh: Any = None,
        *,
        out: PackedWeights | None = None,
    ) -> PackedWeights:
        """PyTorch's weights in packed form.

        Parameters
        ----------
        w_ih : array of the dtype, (gates*K, C)
            C-contiguous. The gates are i, f, g, o of an LSTM and r, z, n of a GRU.
        w_hh : array of the dtype, (gates*K, K)
        b_ih, b_hh : array of float32 or bfloat16, (gates*K,), optional
            Zeros by default; refused by a layer without bias.
        out : PackedWeights, optional
            Weights from an earlier call, of this layer or a similar one; written and returned.

        Returns
        -------
        PackedWeights

        Raises
        ------
        TypeError, ValueError
            An array has the wrong dtype or shape or is not C-contiguous, a bias is superfluous, or
            `out` belongs to another kind of layer.
        """
        if not self.bias and not (b_ih is None and b_hh is None):
            raise ValueError("b_ih or b_hh was given, but the layer was made with bias=False")
        if out is None:
            out = PackedWeights(self._kind)
        self._require_weights("out", out)
        biases = {
            name: float32_operand(name, value, self._kind.dtype)
            for name, value in (("b_ih", b_ih), ("b_hh", b_hh))
        }
        plain = {"w_ih": w_ih, "w_hh": w_hh, **biases}
        out.pack(self._core, plain)
        return out

    def __repr__(self) -> str:
        name = type(self).__name__
        direction = " reverse" if self.reverse else ""
        return f"<dlprim.{name} {self.x_shape} -> {self.K} {self.dtype}{direction}>"

    def _require_weights(self, name: str, weights: Any) -> None:
        if not isinstance(weights, PackedWeights):
            kind = type(weights).__name__
            raise TypeError(f"{name} is of type {kind}, expected what pack_weights returns")
        if weights.kind != self._kind:
            raise ValueError(
                f"{name} is packed for {weights.kind}, expected weights of {self._kind}"
            )

    def _forward(self, operands: dict[str, Any], weights: Any, out: Any, training: bool) -> Any:
        """y, the states at the end and, with training, what `backward` needs."""
        training = flag("training", training)
        if training and self._form != CellForm():
            raise ValueError(
                "training is True, expected False: a GRU with reset_after=False has no backward "
                "pass"
            )
        operands["lengths"] = sequence_lengths(operands["lengths"], out)
        self._require_weights("weights", weights)
        arrays = {**operands, **weights.operands(), "dst": out}
        found = self._core.forward(arrays, training)
        states = [found.pop(name) for name in ("h_n", "c_n") if name in found]
        result, trained = RESULTS[self._cell]
        if not training:
            return tuple.__new__(result, (found["dst"], *states))  # half a constructor's time
        return trained(found["dst"], *states, self._saved(**operands, **found))

    def _backward(self, saved: Any, weights: Any, gradients: dict[str, Any]) -> Any:
        """Through all steps, from the gradients by name of what `forward` returned."""
        if not isinstance(saved, self._saved):
            raise TypeError(
                f"saved is of type {type(saved).__name__}, expected {self._saved.__name__}, which "
                "forward(training=True) returns"
            )
        operands = saved._asdict() | gradients
        operands["lengths"] = sequence_lengths(operands["lengths"])
        for name in ("c_0", "diff_c_n"):
            operands[name] = float32_operand(name, operands.get(name), self._kind.dtype)
        self._require_weights("weights", weights)
        found: dict[str, Any] = self._core.backward(operands | weights.transposed(self._core))
        absent = {} if self.bias else {"diff_b_ih": None, "diff_b_hh": None}
        return self._gradients(**(found | absent))


class LSTM(RecurrentLayer):
    """One layer of long short-term memory in one direction, of fixed shape.

    ::

        i, f, o = sigmoid(w_i{i,f,o} x + b_i{i,f,o} + w_h{i,f,o} h + b_h{i,f,o})
        g = tanh(w_ig x + b_ig + w_hg h + b_hg)
        c = f * c + i * g
        h = o * tanh(c)

    The bits of results do not depend on the number of threads, and an instance may be called from
    many threads at once. Results are new arrays, whose memory is reused for later results of the
    instance once nothing refers to them.

    Parameters
    ----------
    x_shape : (T, N, C)
        Steps, sequences and input channels; T and N may be 0.
    K : int
        Channels of the state.
    dtype : dtype
        float32 or bfloat16, for src, weights, h and dst. Sums, gates and c are float32.
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
        uint16 for bfloat16 if ml_dtypes is not installed.
    reverse, bias : bool
    flops : float
        Operations of the products of one pass forward, two per multiply-add; backward twice that.
    scratch_bytes : dict
        Memory that a call takes while it runs: "inference", "forward" (training), "backward".
    schedules : dict
        The loop nest of each product, by its name.

    Raises
    ------
    TypeError
        An argument has the wrong type.
    ValueError
        An extent is out of range or a schedule cannot be followed.

    Notes
    -----
    arXiv 1906.06440, the section on recurrent networks; the equations are those of PyTorch's LSTM.
    """

    _cell, _saved, _gradients = "lstm", LSTMSaved, LSTMGradients

    def forward(
        self,
        x: Any,
        weights: PackedWeights,
        h_0: Any = None,
        c_0: Any = None,
        *,
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
            does not change. In reverse, sequence n starts at t = lengths[n] - 1.
        training : bool
            Also return what `backward` needs.
        out : ndarray of the dtype, (T, N, K), optional
            Written and returned as y. Must be C-contiguous and share no memory with an operand.

        Returns
        -------
        LSTMResult
            ``(y, h_n, c_n)``: h after each step, of the dtype, (T, N, K), and the states after the
            last step of each sequence, (N, K), h_n of the dtype and c_n of float32.
        LSTMTrained
            ``(y, h_n, c_n, saved)``, with ``training=True``. The `LSTMSaved` refers to x, h_0, c_0
            and y, which must not change before `backward`.

        Raises
        ------
        TypeError, ValueError
            An array has the wrong dtype or shape, is not C-contiguous, or overlaps `out`; a length
            is out of range.
        """
        operands = {
            "src": x,
            "h_0": h_0,
            "c_0": float32_operand("c_0", c_0, self._kind.dtype),
            "lengths": lengths,
        }
        return self._forward(operands, weights, out, training)

    def backward(
        self,
        dy: Any,
        saved: LSTMSaved,
        weights: PackedWeights,
        *,
        diff_h_n: Any = None,
        diff_c_n: Any = None,
    ) -> LSTMGradients:
        """The gradients of all operands, through all steps.

        Parameters
        ----------
        dy : array of the dtype, (T, N, K)
            With respect to y. Its values in padding are ignored.
        saved : LSTMSaved
            From `forward`, or made from stored arrays.
        weights : PackedWeights
            As in the forward pass.
        diff_h_n : array of the dtype, (N, K), optional
            With respect to the states at the end; zeros by default.
        diff_c_n : array of float32 or bfloat16, (N, K), optional

        Returns
        -------
        LSTMGradients
            In plain shapes. Gradients of weights and biases are float32, summed over steps and
            sequences.

        Raises
        ------
        TypeError, ValueError
            An array, possibly a saved one, has the wrong dtype or shape or is not C-contiguous.
        """
        gradients = {"diff_dst": dy, "diff_h_n": diff_h_n, "diff_c_n": diff_c_n}
        found: LSTMGradients = self._backward(saved, weights, gradients)
        return found


class GRU(RecurrentLayer):
    """One layer of gated recurrent units in one direction, of fixed shape.

    ::

        r, z = sigmoid(w_i{r,z} x + b_i{r,z} + w_h{r,z} h + b_h{r,z})
        n = tanh(w_in x + b_in + r * (w_hn h + b_hn))
        h = (1 - z) * n + z * h

    The equations are PyTorch's: the reset gate is applied after the product. h is kept in float32
    from step to step. Attributes, methods and sources are those of `LSTM`, without c.

    Parameters
    ----------
    x_shape, K, dtype, reverse, bias, schedule
        As for `LSTM`.
    reset_after : bool
        If False, ``n = tanh(w_in x + b_in + w_hn (r * h) + b_hn)``, as in ONNX and the paper; for
        inference only.

    Raises
    ------
    TypeError, ValueError
        As for `LSTM`.
    """

    _cell, _saved, _gradients = "gru", GRUSaved, GRUGradients

    def __init__(
        self,
        x_shape: tuple[int, int, int],
        K: int,
        *,
        dtype: npt.DTypeLike = "float32",
        reverse: bool = False,
        bias: bool = True,
        reset_after: bool = True,
        schedule: Mapping[str, str] | None = None,
    ) -> None:
        self.reset_after = flag("reset_after", reset_after)
        self._form = CellForm(reset_after=self.reset_after)
        how: Any = {"dtype": dtype, "reverse": reverse, "bias": bias, "schedule": schedule}
        super().__init__(x_shape, K, **how)

    def forward(
        self,
        x: Any,
        weights: PackedWeights,
        h_0: Any = None,
        *,
        lengths: Any = None,
        training: bool = False,
        out: Array | None = None,
    ) -> Any:
        """All steps.

        Parameters
        ----------
        x, weights, h_0, lengths, training, out
            As for `LSTM.forward`.

        Returns
        -------
        GRUResult
            ``(y, h_n)``.
        GRUTrained
            ``(y, h_n, saved)``, with ``training=True``.

        Raises
        ------
        TypeError, ValueError
            As for `LSTM.forward`.
        """
        operands = {"src": x, "h_0": h_0, "lengths": lengths}
        return self._forward(operands, weights, out, training)

    def backward(
        self, dy: Any, saved: GRUSaved, weights: PackedWeights, *, diff_h_n: Any = None
    ) -> GRUGradients:
        """The gradients of all operands, through all steps.

        Parameters
        ----------
        dy, saved, weights, diff_h_n
            As for `LSTM.backward`, with a `GRUSaved`.

        Returns
        -------
        GRUGradients

        Raises
        ------
        TypeError, ValueError
            As for `LSTM.backward`.
        """
        gradients = {"diff_dst": dy, "diff_h_n": diff_h_n}
        found: GRUGradients = self._backward(saved, weights, gradients)
        return found


class RNN(RecurrentLayer):
    """One layer of a plain recurrence in one direction, of fixed shape, for inference.

    ``h = tanh(w_ih x + b_ih + w_hh h + b_hh)``, or relu instead of tanh. Attributes, methods and
    sources are those of `LSTM`, without c and a backward pass.

    Parameters
    ----------
    x_shape, K, dtype, reverse, bias, schedule
        As for `LSTM`.
    activation : "tanh" or "relu"

    Raises
    ------
    TypeError, ValueError
        As for `LSTM`, or the activation is unknown.
    """

    _cell = "rnn"

    def __init__(
        self,
        x_shape: tuple[int, int, int],
        K: int,
        *,
        dtype: npt.DTypeLike = "float32",
        reverse: bool = False,
        bias: bool = True,
        activation: str = "tanh",
        schedule: Mapping[str, str] | None = None,
    ) -> None:
        self.activation = one_of_names("activation", activation, ("tanh", "relu"))
        self._form = CellForm(((activation.capitalize(), 0.0, 0.0),))
        how: Any = {"dtype": dtype, "reverse": reverse, "bias": bias, "schedule": schedule}
        super().__init__(x_shape, K, **how)
        for which in schedule or {}:
            if which not in self.schedules:
                raise ValueError(f"schedule has {which}, expected {' or '.join(self.schedules)}")

    # Only networks run it backward.

    @property
    def scratch_bytes(self) -> dict[str, int]:
        return {**super().scratch_bytes, "backward": 0}

    @property
    def schedules(self) -> dict[str, str]:
        products = super().schedules.items()
        return {which: text for which, text in products if not which.startswith("diff_")}

    def forward(
        self,
        x: Any,
        weights: PackedWeights,
        h_0: Any = None,
        *,
        lengths: Any = None,
        out: Array | None = None,
    ) -> RNNResult:
        """All steps.

        Parameters
        ----------
        x, weights, h_0, lengths, out
            As for `LSTM.forward`.

        Returns
        -------
        RNNResult
            ``(y, h_n)``.

        Raises
        ------
        TypeError, ValueError
            As for `LSTM.forward`.
        """
        operands = {"src": x, "h_0": h_0, "lengths": lengths}
        found: RNNResult = self._forward(operands, weights, out, training=False)
        return found


def _extents(x_shape: Any) -> tuple[int, int, int]:
    refuse_array("x_shape", x_shape, "(T, N, C)")
    try:
        extents = tuple(x_shape)
    except TypeError:
        raise TypeError(
            f"x_shape is of type {type(x_shape).__name__}, expected three integers (T, N, C)"
        ) from None
    if len(extents) != 3:
        raise ValueError(f"x_shape is {extents}, expected three extents (T, N, C)")
    t, n, c = (held_integer("x_shape", extent) for extent in extents)
    return t, n, c
