"""LSTM, GRU and RNN: the operator of the graph, one for each direction."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.graph import Value
from dlprim.graph.operators.recurrent import ACTIVATIONS, FORM, USUAL
from dlprim.onnx.registry import RefusedError, operator


class _Cell(NamedTuple):
    """Which gates ONNX lists, by the order of PyTorch."""

    name: str
    gates: tuple[int, ...]

    @property
    def activations(self) -> tuple[str, ...]:
        """Unless others are said."""
        return USUAL[self.name]


_LSTM = _Cell("lstm", (0, 2, 3, 1))
_GRU = _Cell("gru", (1, 0, 2))
_RNN = _Cell("rnn", (0,))
_LOOKS = (0, 2, 1)  # the same of peepholes
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


class _Manner(NamedTuple):
    """Attributes of all three."""

    direction: str
    layout: int
    hidden_size: int | None
    activations: tuple[str, ...] | None
    alphas: tuple[float, ...] | None
    betas: tuple[float, ...] | None
    clip: float | None
    input_forget: int = 0
    linear_before_reset: int = 1


class _Arrays(NamedTuple):
    """Inputs of all three, in ONNX's order."""

    x: Value
    w: Value
    r: Value
    bias: Value | None
    lengths: Value | None
    h: Value | None
    c: Value | None = None
    peepholes: Value | None = None


Activation = tuple[str, float, float]


def _activations(cell: _Cell, manner: _Manner, directions: int) -> list[tuple[Activation, ...]]:
    """For each direction name, alpha and beta; those that take numbers take the next ones given.

    Nothing for a direction whose functions are the usual ones.
    """
    count = len(cell.activations)
    names = manner.activations or cell.activations * directions
    alphas, betas = list(manner.alphas or ()), list(manner.betas or ())
    if len(names) != count * directions:
        raise RefusedError(f"activations is {list(names)}, expected {count * directions} of them")
    rows: list[Activation] = []
    for given in names:
        name = next((it for it in ACTIVATIONS if it.lower() == given.lower()), None)
        if name is None:
            listed = ", ".join(ACTIVATIONS)
            raise RefusedError(f"activation is {given!r}, expected one of {listed}")
        _, alpha, beta = ACTIVATIONS[name]
        if alpha is not None and alphas:
            alpha = alphas.pop(0)
        if beta is not None and betas:
            beta = betas.pop(0)
        rows.append((name, alpha or 0.0, beta or 0.0))
    parts = [tuple(rows[first : first + count]) for first in range(0, len(rows), count)]
    return [() if tuple(it[0] for it in part) == cell.activations else part for part in parts]


def _check(cell: _Cell, arrays: _Arrays, manner: _Manner) -> None:
    directions, gates = len(_DIRECTIONS[manner.direction]), len(cell.gates)
    if len(arrays.r.shape) != 3:
        raise RefusedError(f"R of {list(arrays.r.shape)}, expected three axes")
    hidden = arrays.r.shape[-1]
    if manner.hidden_size not in (None, hidden):
        raise RefusedError(f"hidden_size is {manner.hidden_size}, expected {hidden} as R has")
    if len(arrays.x.shape) != 3:
        raise RefusedError(f"X of {list(arrays.x.shape)}, expected three axes")
    samples = arrays.x.shape[0 if manner.layout else 1]
    state = (directions, samples, hidden)
    state = (samples, directions, hidden) if manner.layout else state
    rows = {
        "W": (arrays.w, (directions, gates * hidden, arrays.x.shape[2])),
        "R": (arrays.r, (directions, gates * hidden, hidden)),
        "B": (arrays.bias, (directions, 2 * gates * hidden)),
        "sequence_lens": (arrays.lengths, (samples,)),
        "initial_h": (arrays.h, state),
        "initial_c": (arrays.c, state),
        "P": (arrays.peepholes, (directions, 3 * hidden)),
    }
    for name, (value, shape) in rows.items():
        if value is not None and value.shape != shape:
            raise RefusedError(f"{name} of {list(value.shape)}, expected {list(shape)}")


def _of_direction(build: Builder, value: Value | None, place: int) -> Value | None:
    """What is listed first for one direction; lengths are listed for all."""
    if value is None or len(value.shape) < 2:
        return value
    rest = value.shape[1:]
    starts, steps = (place, *[0] * len(rest)), [1] * len(value.shape)
    return build.reshape(build.slice(value, starts, (1, *rest), steps), rest)


def _reordered(build: Builder, value: Value | None, first: int, cell: _Cell) -> Value | None:
    """Of the gates that begin at this row those of the cell, in the order of the graph."""
    if value is None:
        return None
    count = value.shape[0] // (2 * len(cell.gates) if len(value.shape) == 1 else len(cell.gates))
    rest, steps = value.shape[1:], [1] * len(value.shape)
    parts = [
        build.slice(value, (first + gate * count, *[0] * len(rest)), (count, *rest), steps)
        for gate in cell.gates
    ]
    return build.concat(parts, 0)


def _lengths(build: Builder, arrays: _Arrays) -> Value | None:
    """The steps of every sequence; None where these are known to be all."""
    lengths, steps = arrays.lengths, arrays.x.shape[0]
    if lengths is None:
        return None
    if build.is_constant(lengths) and np.all(build.array(lengths) == steps):
        return None
    return build.cast(lengths, np.int64)


def _peepholes(build: Builder, value: Value | None) -> Value | None:
    """Rows for i, f and o; None where they are known to be zeros."""
    if value is None or (build.is_constant(value) and not build.array(value).any()):
        return None
    rows = build.reshape(value, (len(_LOOKS), value.shape[0] // len(_LOOKS)))
    return build.gather(rows, build.constant(np.array(_LOOKS)), 0)


def _layer(build: Builder, cell: _Cell, arrays: _Arrays, manner: _Manner) -> tuple[Value, ...]:
    """Y (T, directions, N, K) and the last states (directions, N, K); N is in front in layout 1."""
    if manner.direction not in _DIRECTIONS:
        raise RefusedError(
            f"direction is {manner.direction!r}, expected forward, reverse or bidirectional"
        )
    if manner.clip is not None and not manner.clip >= 0:
        raise RefusedError(f"clip is {manner.clip}, expected a number of at least 0")
    _check(cell, arrays, manner)
    backwards = _DIRECTIONS[manner.direction]
    activations = _activations(cell, manner, len(backwards))
    if manner.layout:
        h, c = (
            None if it is None else build.transpose(it, (1, 0, 2)) for it in (arrays.h, arrays.c)
        )
        arrays = arrays._replace(x=build.transpose(arrays.x, (1, 0, 2)), h=h, c=c)
    arrays = arrays._replace(lengths=_lengths(build, arrays))
    columns: list[list[Value]] = []
    for functions, reverse in zip(activations, backwards, strict=True):
        place = len(columns)
        x, *others = arrays
        parts = [_of_direction(build, it, place) for it in others]
        form = {
            "functions": functions,
            "clip": manner.clip or 0.0,
            "input_forget": bool(manner.input_forget),
            "reset_after": cell.name != "gru" or bool(manner.linear_before_reset),
        }
        results = _one_way(build, cell, _Arrays(x, *parts), form, reverse)  # type: ignore[arg-type]
        columns.append([build.reshape(it, (*it.shape[:-2], 1, *it.shape[-2:])) for it in results])
    y, *states = (
        build.concat(parts, len(parts[0].shape) - 3) for parts in zip(*columns, strict=True)
    )
    if manner.layout:
        y = build.transpose(y, (2, 0, 1, 3))
        states = [build.transpose(it, (1, 0, 2)) for it in states]
    return y, *states


def _one_way(
    build: Builder, cell: _Cell, arrays: _Arrays, form: dict[str, Any], reverse: bool
) -> tuple[Value, ...]:
    """One direction; what the form has as usual goes unsaid."""
    bias, half = arrays.bias, 0 if arrays.bias is None else arrays.bias.shape[0] // 2
    inputs = [
        arrays.x,
        _reordered(build, arrays.w, 0, cell),
        _reordered(build, arrays.r, 0, cell),
        _reordered(build, bias, 0, cell),
        _reordered(build, bias, half, cell),
        arrays.h,
        arrays.c,
        arrays.lengths,
        _peepholes(build, arrays.peepholes),
    ]
    said = {name: value for name, value in form.items() if value != FORM[name]}
    return build.emit("recurrent", inputs, cell=cell.name, reverse=reverse, **said)


# ---------------------------------------------------------------- the operators


@operator("LSTM")
def lstm(
    build: Builder,
    x: Value,
    w: Value,
    r: Value,
    bias: Value | None = None,
    lengths: Value | None = None,
    h: Value | None = None,
    c: Value | None = None,
    peepholes: Value | None = None,
    *,
    activation_alpha: tuple[float, ...] | None = None,
    activation_beta: tuple[float, ...] | None = None,
    activations: tuple[str, ...] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> tuple[Value, ...]:
    functions = (activations, activation_alpha, activation_beta, clip)
    manner = _Manner(direction, layout, hidden_size, *functions, input_forget)
    return _layer(build, _LSTM, _Arrays(x, w, r, bias, lengths, h, c, peepholes), manner)


@operator("GRU")
def gru(
    build: Builder,
    x: Value,
    w: Value,
    r: Value,
    bias: Value | None = None,
    lengths: Value | None = None,
    h: Value | None = None,
    *,
    activation_alpha: tuple[float, ...] | None = None,
    activation_beta: tuple[float, ...] | None = None,
    activations: tuple[str, ...] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[Value, ...]:
    functions = (activations, activation_alpha, activation_beta, clip)
    manner = _Manner(direction, layout, hidden_size, *functions, 0, linear_before_reset)
    return _layer(build, _GRU, _Arrays(x, w, r, bias, lengths, h), manner)


@operator("RNN")
def rnn(
    build: Builder,
    x: Value,
    w: Value,
    r: Value,
    bias: Value | None = None,
    lengths: Value | None = None,
    h: Value | None = None,
    *,
    activation_alpha: tuple[float, ...] | None = None,
    activation_beta: tuple[float, ...] | None = None,
    activations: tuple[str, ...] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> tuple[Value, ...]:
    functions = (activations, activation_alpha, activation_beta, clip)
    manner = _Manner(direction, layout, hidden_size, *functions)
    return _layer(build, _RNN, _Arrays(x, w, r, bias, lengths, h), manner)
