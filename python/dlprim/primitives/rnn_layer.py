"""What the recurrent primitives share: shapes, weights, and the calls of the core."""

from collections.abc import Mapping
from functools import partial
from operator import index
from typing import Any

import numpy.typing as npt

from dlprim import _core as core
from dlprim.arguments.arrays import Array
from dlprim.arguments.floats import dtype_named
from dlprim.arguments.names import float_type_name
from dlprim.primitives.operands import Scheduled
from dlprim.primitives.rnn_operands import (
    PackedWeights,
    WeightsKind,
    float32_operand,
    sequence_lengths,
)
from dlprim.tuning import store


class RecurrentLayer(Scheduled):
    """The parts of `LSTM` and `GRU` that do not depend on the cell."""

    _cell: str
    _core: core.Rnn

    def __init__(
        self,
        x_shape: tuple[int, int, int],
        K: int,
        dtype: npt.DTypeLike = "float32",
        reverse: bool = False,
        bias: bool = True,
        schedule: Mapping[str, str] | None = None,
    ) -> None:
        t, n, c = _extents(x_shape)
        name = float_type_name(dtype)
        self.x_shape = (t, n, c)
        self.K = _integer("K", K)
        self.dtype = dtype_named(name)
        self.reverse, self.bias = bool(reverse), bool(bias)
        self._kind = WeightsKind(self._cell, c, self.K, name)
        if schedule is not None and not isinstance(schedule, Mapping):
            kind = type(schedule).__name__
            raise TypeError(f"schedule is of type {kind}, expected a dict by pass")
        numbers = {"T": t, "N": n, "C": c, "K": self.K}
        how = (tuple(numbers.values()), name, self.reverse)
        # The direction does not matter to schedules.
        problem = store.Problem(self._cell, numbers, name, "plain")
        self._make(partial(core.Rnn, self._cell, *how), problem, schedule)

    @property
    def gates(self) -> int:
        return 4 if self._cell == "lstm" else 3

    def pack_weights(
        self,
        w_ih: Any,
        w_hh: Any,
        b_ih: Any = None,
        b_hh: Any = None,
        out: PackedWeights | None = None,
    ) -> PackedWeights:
        """PyTorch's weights in the form that the passes read.

        Parameters
        ----------
        w_ih : array of the dtype, (gates*K, C)
            C-contiguous. The gates are i, f, g, o of an LSTM and r, z, n of a GRU.
        w_hh : array of the dtype, (gates*K, K)
        b_ih, b_hh : array of float32 or bfloat16, (gates*K,), optional
            Zeros where absent; refused by a layer without bias.
        out : PackedWeights, optional
            Packed into and returned: those of an earlier call, of this layer or one like it.

        Returns
        -------
        PackedWeights

        Raises
        ------
        TypeError, ValueError
            An array is of another dtype or shape or not C-contiguous, a bias is superfluous, or
            `out` belongs to another kind of layer.
        """
        if not self.bias and not (b_ih is None and b_hh is None):
            raise ValueError("b_ih or b_hh was given, but the layer was made with bias=False")
        if out is None:
            out = PackedWeights(self._kind)
        self._require_weights("out", out)
        biases = {"b_ih": float32_operand("b_ih", b_ih), "b_hh": float32_operand("b_hh", b_hh)}
        out.pack(self._core, {"w_ih": w_ih, "w_hh": w_hh, **biases})
        return out

    def __repr__(self) -> str:
        name = type(self).__name__
        direction = " reverse" if self.reverse else ""
        return f"<dlprim.{name} {self.x_shape} -> {self.K} {self.dtype}{direction}>"

    def _require_weights(self, name: str, weights: Any) -> None:
        if not isinstance(weights, PackedWeights):
            raise TypeError(
                f"{name} is of type {type(weights).__name__}, expected what pack_weights returns"
            )
        if weights.kind != self._kind:
            raise ValueError(
                f"{name} is packed for {weights.kind}, expected weights of {self._kind}"
            )

    def _forward(
        self, operands: dict[str, Any], weights: Any, out: Any, training: bool
    ) -> dict[str, Array]:
        """y as dst, h_n, of an LSTM c_n, and what is saved, by name."""
        self._require_weights("weights", weights)
        return self._core.forward({**operands, **weights.operands(), "dst": out}, bool(training))

    def _backward(self, operands: dict[str, Any], weights: Any) -> dict[str, Any]:
        """The gradients by name."""
        self._require_weights("weights", weights)
        gradients = self._core.backward({**operands, **weights.transposed(self._core)})
        if self.bias:
            return gradients
        return gradients | {"diff_b_ih": None, "diff_b_hh": None}

    def _saved_operands(self, saved: Any, expected: type) -> dict[str, Any]:
        if not isinstance(saved, expected):
            raise TypeError(
                f"saved is of type {type(saved).__name__}, expected {expected.__name__}, which "
                "forward(training=True) returns"
            )
        operands: dict[str, Any] = saved._asdict()  # type: ignore[attr-defined]
        operands["lengths"] = sequence_lengths(operands["lengths"])
        return operands


def _extents(x_shape: Any) -> tuple[int, int, int]:
    try:
        extents = tuple(x_shape)
    except TypeError:
        raise TypeError(
            f"x_shape is of type {type(x_shape).__name__}, expected three integers (T, N, C)"
        ) from None
    if len(extents) != 3:
        raise ValueError(f"x_shape is {extents}, expected three extents (T, N, C)")
    t, n, c = (_integer("x_shape", extent) for extent in extents)
    return t, n, c


def _integer(name: str, value: Any) -> int:
    try:
        return index(value)
    except TypeError:
        raise TypeError(f"{name} holds {value!r}, expected an integer") from None
