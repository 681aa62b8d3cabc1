"""LSTM and GRU as operators of `dlprim.torch.eager`, with what their gradients ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlprim.graph.graph import Value
from dlprim.torch.operators.table import FLOAT32, Call, rule


def _layers(count: int, both_ways: bool) -> list[list[tuple[int, bool]]]:
    """For each layer its runs, by number and whether they go from the end."""
    ways = (False, True) if both_ways else (False,)
    width = len(ways)
    return [[(at * width + way, it) for way, it in enumerate(ways)] for at in range(count)]


def _begin(c: Call, states: Sequence[Value | None], run: int) -> list[Value | None]:
    """The states of a layer in one direction; an LSTM's second one is float32."""
    own = [it and _state(c, it, run) for it in states]
    return [*own[:1], *(it and c.b.cast(it, FLOAT32) for it in own[1:])]


@rule("dlprim.lstm.default", "dlprim.gru.default")
def recurrent(c: Call, x: Value, weights: Sequence[Value], *rest: Any) -> tuple[Value, ...]:
    *states, count, both_ways, training = rest
    cell = "lstm" if len(states) == 2 else "gru"
    each = len(weights) // (count * (2 if both_ways else 1))
    last: list[Sequence[Value]] = []
    kept: list[Value] = []
    between: list[Value] = []
    for runs in _layers(count, both_ways):
        layer = []
        for run, reverse in runs:
            own = weights[run * each : (run + 1) * each]
            biases = [c.b.cast(it, FLOAT32) for it in own[2:]] or (None, None)
            inputs = [x, *own[:2], *biases, *_begin(c, states, run)]
            how = {"cell": cell, "reverse": reverse, "training": bool(training)}
            y, *others = c.b.emit("recurrent", inputs, **how)
            layer.append(y)
            last.append(others[: len(states)])
            kept += others[len(states) :]
        x = c.b.concat(layer, 2)
        between.append(x)
    joined = [c.b.concat([_alone(c, it) for it in ends], 0) for ends in zip(*last, strict=True)]
    results = (x, *(c.b.cast(it, x.dtype) for it in joined))
    return (*results, *kept, *between[:-1]) if training else results


@rule("dlprim.lstm_backward.default", "dlprim.gru_backward.default")
def recurrent_backward(
    c: Call, diffs: Sequence[Value | None], x: Value, weights: Sequence[Value], *rest: Any
) -> tuple[Any, ...]:
    *states, count, both_ways, (y, *kept) = rest
    cell = "lstm" if len(states) == 2 else "gru"
    layers = _layers(count, both_ways)
    each, more = len(weights) // sum(map(len, layers)), 2 * sum(map(len, layers))
    sources = [x, *kept[more:], y]
    diff, *lasts = diffs
    by_weights: list[Any] = []
    by_states: list[list[Value]] = []
    for at in reversed(range(count)):
        of_x, parameters, ends = [], [], []
        for way, (run, reverse) in enumerate(layers[at]):
            own = weights[run * each : (run + 1) * each]
            width = own[1].shape[1]
            inputs: list[Value | None]
            inputs = [sources[at], *own[:2], *(*_begin(c, states, run), None)[:2], None]
            inputs += [_columns(c, sources[at + 1], way * width, width)]
            inputs += [*kept[2 * run : 2 * run + 2], diff and _columns(c, diff, way * width, width)]
            inputs += (*_begin(c, lasts, run), None)[:2]
            how = {"cell": cell, "reverse": reverse, "functions": ()}
            by_x, *found = c.b.emit("recurrent_gradient", inputs, **how)
            of_x.append(by_x)
            parameters += found[:each]
            ends.append([_alone(c, it) for it in found[4:]])
        diff = of_x[0] if len(of_x) == 1 else c.b.apply("add", *of_x)
        by_weights, by_states = parameters + by_weights, ends + by_states
    joined = [c.b.concat(list(it), 0) for it in zip(*by_states, strict=True)]
    made = zip((diff, *by_weights, *joined), c.dtypes, strict=True)
    return tuple(it and c.b.cast(it, dtype or x.dtype) for it, dtype in made)


def _state(c: Call, states: Value, run: int) -> Value:
    """Of one layer and direction."""
    part = c.b.slice(states, (run, 0, 0), (1, *states.shape[1:]), (1, 1, 1))
    return c.b.reshape(part, states.shape[1:])


def _columns(c: Call, x: Value, first: int, count: int) -> Value:
    return c.b.slice(x, (0, 0, first), (*x.shape[:2], count), (1, 1, 1))


def _alone(c: Call, state: Value) -> Value:
    return c.b.reshape(state, (1, *state.shape))
