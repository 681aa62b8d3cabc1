"""LSTM, GRU and RNN: the operator of the graph where it does, else steps in NumPy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.graph import Value
from dlprim.onnx.operators.layers.recurrent_steps import ACTIVATIONS
from dlprim.onnx.registry import RefusedError, operator


class _Cell(NamedTuple):
    """Which gates ONNX lists, by the order of PyTorch; the activations unless others are said."""

    name: str
    gates: tuple[int, ...]
    activations: tuple[str, ...]


_LSTM = _Cell("lstm", (0, 2, 3, 1), ("Sigmoid", "Tanh", "Tanh"))
_GRU = _Cell("gru", (1, 0, 2), ("Sigmoid", "Tanh"))
_RNN = _Cell("rnn", (0,), ("Tanh",))
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
    """For each direction name, alpha and beta; those that take numbers take the next ones given."""
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
    return [tuple(rows[first : first + count]) for first in range(0, len(rows), count)]


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


def _is_plain(build: Builder, cell: _Cell, arrays: _Arrays, manner: _Manner) -> bool:
    """Whether the graph's own operator computes it."""
    names = manner.activations or cell.activations
    usual = cell.activations * (len(names) // len(cell.activations))
    lengths = arrays.lengths
    if lengths is not None:
        steps = arrays.x.shape[0]
        if not build.is_constant(lengths) or not np.all(build.array(lengths) == steps):
            return False
    peeps = arrays.peepholes
    has_peepholes = peeps is not None and (not build.is_constant(peeps) or build.array(peeps).any())
    return (
        cell.name != "rnn"
        and [it.lower() for it in names] == [it.lower() for it in usual]
        and not (manner.clip or manner.input_forget or has_peepholes)
        and bool(manner.linear_before_reset)
    )


def _layer(build: Builder, cell: _Cell, arrays: _Arrays, manner: _Manner) -> tuple[Value, ...]:
    """Y (T, directions, N, K) and the last states (directions, N, K); N is in front in layout 1."""
    if manner.direction not in _DIRECTIONS:
        raise RefusedError(
            f"direction is {manner.direction!r}, expected forward, reverse or bidirectional"
        )
    _check(cell, arrays, manner)
    backwards = _DIRECTIONS[manner.direction]
    activations = _activations(cell, manner, len(backwards))
    if manner.layout:
        h, c = (
            None if it is None else build.transpose(it, (1, 0, 2)) for it in (arrays.h, arrays.c)
        )
        arrays = arrays._replace(x=build.transpose(arrays.x, (1, 0, 2)), h=h, c=c)
    is_plain = _is_plain(build, cell, arrays, manner)
    columns: list[list[Value]] = []
    for place, reverse in enumerate(backwards):
        x, *others = arrays
        parts = [_of_direction(build, it, place) for it in others]
        listed = _Arrays(x, *parts)  # type: ignore[arg-type]
        if is_plain:
            results = _plain(build, cell, listed, reverse)
        else:
            results = _stepwise(build, cell, listed, manner, (activations[place], reverse))
        columns.append([build.reshape(it, (*it.shape[:-2], 1, *it.shape[-2:])) for it in results])
    y, *states = (
        build.concat(parts, len(parts[0].shape) - 3) for parts in zip(*columns, strict=True)
    )
    if manner.layout:
        y = build.transpose(y, (2, 0, 1, 3))
        states = [build.transpose(it, (1, 0, 2)) for it in states]
    return y, *states


def _plain(build: Builder, cell: _Cell, arrays: _Arrays, reverse: bool) -> tuple[Value, ...]:
    bias, half = arrays.bias, 0 if arrays.bias is None else arrays.bias.shape[0] // 2
    inputs = [
        arrays.x,
        _reordered(build, arrays.w, 0, cell),
        _reordered(build, arrays.r, 0, cell),
        _reordered(build, bias, 0, cell),
        _reordered(build, bias, half, cell),
        arrays.h,
        *([arrays.c] if cell.name == "lstm" else []),
    ]
    return build.emit("recurrent", inputs, cell=cell.name, reverse=reverse)


def _stepwise(
    build: Builder,
    cell: _Cell,
    arrays: _Arrays,
    manner: _Manner,
    direction: tuple[tuple[Activation, ...], bool],
) -> tuple[Value, ...]:
    steps, samples, _ = arrays.x.shape
    hidden = arrays.r.shape[1]
    state = ((samples, hidden), arrays.x.dtype)
    results = [((steps, samples, hidden), arrays.x.dtype), state]
    attributes: dict[str, Any] = {
        "cell": cell.name,
        "activations": direction[0],
        "reverse": direction[1],
        "clip": manner.clip or 0.0,
        "input_forget": bool(manner.input_forget),
        "linear_before_reset": bool(manner.linear_before_reset),
    }
    results += [state] * (cell.name == "lstm")
    return build.call("recurrent_steps", arrays, results, **attributes)


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
