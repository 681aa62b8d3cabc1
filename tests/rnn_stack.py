"""Calls of lstm and gru in all their forms: layers, directions, lengths, against the oracle."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

import dlprim
import rnn_reference as reference
from rnn_cases import Operands, Rnn, doubles
from rnn_checker import assert_close, tolerance
from rnn_reference import State

FORWARD = {"lstm": dlprim.lstm, "gru": dlprim.gru}
BACKWARD = {"lstm": dlprim.lstm_backward, "gru": dlprim.gru_backward}


class Form(NamedTuple):
    """What a call asks for."""

    layers: int = 1
    bidirectional: bool = False
    reverse: bool = False
    lengths: bool = False
    states: bool = True
    bias: bool = True
    batch_first: bool = False

    def __str__(self) -> str:
        flags = (name for name in self._fields[1:] if getattr(self, name))
        return "-".join((str(self.layers), *flags))

    @property
    def directions(self) -> tuple[bool, ...]:
        return (False, True) if self.bidirectional else (self.reverse,)

    @property
    def keywords(self) -> dict[str, Any]:
        return {
            "num_layers": self.layers,
            "bidirectional": self.bidirectional,
            "reverse": self.reverse,
            "batch_first": self.batch_first,
        }


FORMS = [
    Form(),
    Form(states=False, bias=False),
    Form(reverse=True, lengths=True),
    Form(bidirectional=True),
    Form(bidirectional=True, lengths=True, batch_first=True),
    Form(3, lengths=True, bias=False),
    Form(2, reverse=True, states=False, batch_first=True),
    Form(2, bidirectional=True, lengths=True),
    Form(3, bidirectional=True, states=False),
]


class Problem:
    """Operands of a stack, every layer and direction with its own, as lists and stacked states."""

    def __init__(self, rnn: Rnn, form: Form, dtype: str = "float32") -> None:
        self.rnn, self.form, self.dtype = rnn, form, dtype
        width = len(form.directions)
        inner = rnn._replace(C=width * rnn.K, bias=form.bias)
        first = rnn._replace(bias=form.bias)
        self.runs = [
            Operands(first if run < width else inner, dtype, run)
            for run in range(form.layers * width)
        ]
        random = self.runs[0].random
        self.x = self.runs[0].x
        self.diff_y = np.concatenate([each.diff_y for each in self.runs[:width]], axis=2)
        self.lengths = random.integers(0, rnn.T + 1, rnn.N) if form.lengths else None

    def stacked(self, name: str) -> np.ndarray:
        return np.stack([getattr(each, name) for each in self.runs])

    def states(self, h: str, c: str) -> dict[str, np.ndarray]:
        if not self.form.states:
            return {}
        names = (h, c) if self.rnn.cell == "lstm" else (h,)
        return {name: self.stacked(name) for name in names}

    def parameters(self) -> dict[str, Any]:
        names = ("w_ih", "w_hh", *(("b_ih", "b_hh") if self.form.bias else ()))
        lists = {name: [getattr(each, name) for each in self.runs] for name in names}
        return lists if len(self.runs) > 1 else {name: each[0] for name, each in lists.items()}

    def outer(self, array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(array.swapaxes(0, 1)) if self.form.batch_first else array

    def solve(self) -> tuple[list[np.ndarray], Any]:
        """The results of the forward pass, and the gradients by name."""
        cell = self.rnn.cell
        *results, saved = FORWARD[cell](
            self.outer(self.x), **self.parameters(), **self.states("h_0", "c_0"),
            lengths=self.lengths, **self.form.keywords, training=True,
            dtype="bfloat16" if self.x.dtype == np.uint16 else None,
        )  # fmt: skip
        last = self.states("diff_h_n", "diff_c_n")
        return results, BACKWARD[cell](self.outer(self.diff_y), saved, **last)

    def expected(self) -> tuple[list[np.ndarray], dict[str, Any]]:
        cell, width = self.rnn.cell, len(self.form.directions)
        weights = [each.weights for each in self.runs]
        start, end = (
            State(*(np.stack(each) * self.form.states for each in zip(*states, strict=True)))
            for states in ([e.start for e in self.runs], [e.diff_end for e in self.runs])
        )
        result, runs = reference.stack_forward(
            cell, doubles(self.x), weights, start, self.form.directions, self.lengths
        )
        diff_x, gradients = reference.stack_backward(
            cell, weights, runs, doubles(self.diff_y), end, width
        )
        lists: dict[str, Any] = {
            name: [getattr(each, name) for each in gradients] for name in gradients[0]._fields
        }
        lists["diff_src"] = self.outer(diff_x)
        return [self.outer(result.y), result.h_n, result.c_n], lists

    def check(self) -> None:
        limit = 2 * self.form.layers * tolerance(self.rnn, self.dtype)
        (results, gradients), (exact, lists) = self.solve(), self.expected()
        for one, other in zip(results, exact, strict=False):
            assert_close(one, other, limit)
        for name, found in gradients._asdict().items():
            entries = [found] if isinstance(found, np.ndarray) and "_w_" in name else found
            if "_b_" in name and len(self.runs) == 1:
                entries = [found]
            if "_b_" in name and not self.form.bias:
                assert found is None
            elif name == "diff_src":
                assert_close(found, lists[name], limit)
            else:
                for one, other in zip(entries, lists[name], strict=True):
                    assert_close(one, other, limit)


def bits_of(arrays: Iterable[Any]) -> list[bytes]:
    """Of arrays, and of lists of arrays in between."""
    lists = (each if isinstance(each, list) else [each] for each in arrays)
    return [array.tobytes() for each in lists for array in each]
