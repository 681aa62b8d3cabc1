"""The operators of `dlprim.torch.eager` as nodes, with what their gradients ask for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dlprim.graph.graph import Value
from dlprim.torch.operators.table import FLOAT32, Call, asked, rule


def _rows(c: Call, x: Value) -> Value:
    return c.b.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))


# ---------------------------------------------------------------- products


@rule("dlprim.linear.default")
def linear(c: Call, x: Value, w: Value, bias: Value | None) -> Value:
    product = c.b.matmul(_rows(c, x), c.b.transpose(w, (1, 0)))
    if bias is not None:
        product = c.b.apply("add", product, bias)
    return c.b.reshape(product, (*x.shape[:-1], w.shape[0]))


@rule("dlprim.linear_backward.default")
def linear_backward(
    c: Call, diff: Value, x: Value, w: Value, mask: Sequence[bool]
) -> tuple[Value, ...]:
    rows = _rows(c, diff)
    found: list[Any] = [None, None, None]
    if mask[0]:
        found[0] = c.b.reshape(c.b.matmul(rows, w), x.shape)
    if mask[1]:
        found[1] = c.b.matmul(c.b.transpose(rows, (1, 0)), _rows(c, x))
    if mask[2]:
        found[2] = c.b.reduce("sum", c.b.cast(rows, FLOAT32), (0,))
    return asked(c, found, mask)


def _windows(how: Sequence[Any]) -> dict[str, Any]:
    strides, (top, bottom, left, right), dilations, groups = how
    return {
        "strides": tuple(strides),
        "padding": ((top, bottom), (left, right)),
        "dilations": tuple(dilations),
        "groups": groups,
    }


@rule("dlprim.conv2d.default")
def conv2d(c: Call, x: Value, w: Value, bias: Value | None, *how: Any) -> Value:
    inputs = [x, w] if bias is None else [x, w, bias]
    return c.b.emit("convolution", inputs, **_windows(how))[0]


@rule("dlprim.conv2d_backward.default")
def conv2d_backward(c: Call, diff: Value, x: Value, w: Value, *how: Any) -> tuple[Value, ...]:
    *geometry, mask = how
    like = Value("bias", diff.shape[1:2], diff.dtype)
    found = c.gradients("convolution", [x, w, like], diff, _windows(geometry))
    return asked(c, found, mask)


# ---------------------------------------------------------------- norms


@rule("dlprim.layer_norm.default")
def layer_norm(
    c: Call, x: Value, weight: Any, bias: Any, shape: Sequence[int], epsilon: float
) -> Value:
    inputs = [x, *(it and c.b.cast(it, x.dtype) for it in (weight, bias))]
    return c.b.emit("normalize", inputs, axes=len(shape), rms=False, epsilon=epsilon)[0]


@rule("dlprim.layer_norm_backward.default")
def layer_norm_backward(
    c: Call, diff: Value, x: Value, weight: Any, shape: Sequence[int], *how: Any
) -> tuple[Value, ...]:
    epsilon, mask = how
    form = {"axes": len(shape), "rms": False, "epsilon": epsilon}
    like = Value("parameter", tuple(shape), x.dtype)
    if weight is not None:
        weight = c.b.cast(weight, x.dtype)
    found = c.gradients("normalize", [x, weight, like], diff, form)
    return asked(c, found, mask)


# ---------------------------------------------------------------- recurrence


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
