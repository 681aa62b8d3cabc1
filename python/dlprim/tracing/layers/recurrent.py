"""`lstm`, `gru` and `rnn` in a trace: a node for each layer and direction."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlprim.arguments.arrays import places_of
from dlprim.functions.recurrent_arguments import Settings, Stack, stack_of, states_of
from dlprim.graph.extents import plain
from dlprim.primitives.rnn_operands import RESULTS
from dlprim.tracing.array import TracedArray
from dlprim.tracing.layers.operands import checked_layer, floats
from dlprim.tracing.refusals import refuse
from dlprim.tracing.tracer import tracer_of


@checked_layer
def recurrent(
    cell: str,
    x: Any,
    named: dict[str, Any],
    settings: Settings,
    first: dict[str, Any],
    others: tuple[Any, bool, bool],
) -> Any:
    """As `dlprim.functions.recurrent_stack.forward`, whose checks are made of arrays of zeros."""
    lengths, training, _ = others
    if training:
        refuse(
            f"dlprim.{cell} is called with training=True", "False: gradients come by dlprim.grad"
        )
    leaves = [x, *_flat(named.values()), *first.values()]
    tracer = tracer_of([it for it in (*leaves, lengths) if it is not None])
    stack, src, _ = stack_of(cell, _like(x), _each(named, _like), settings, bits=False)
    steps, samples = x.shape[1::-1] if stack.batch_first else x.shape[:2]
    stack = stack._replace(T=steps, N=samples)  # which may be recorded
    for name, it in first.items():
        states_of(stack, name, None if it is None else _like(it), src)
    (values,) = floats(x=x if isinstance(x, TracedArray) else TracedArray(tracer, tracer.value(x)))
    values = np.swapaxes(values, 0, 1) if stack.batch_first else values
    parameters = {name: _listed(it) for name, it in named.items() if it is not None}
    states = {name: it for name, it in first.items() if it is not None}
    counts = None if lengths is None else _lengths(tracer, lengths, stack)
    last: list[list[Any]] = []
    while len(last) < stack.runs:
        layer = []
        for reverse in stack.directions:
            given = {name: each[len(last)] for name, each in (parameters | states).items()}
            y, *ends = _run(values, given, (cell, reverse, counts, stack))
            layer.append(y)
            last.append(ends)
        values = layer[0] if len(layer) == 1 else np.concatenate(layer, axis=2)
    y = np.swapaxes(values, 0, 1) if stack.batch_first else values
    return RESULTS[cell][0](y, *(np.stack(ends) for ends in zip(*last, strict=True)))


def _run(x: Any, given: dict[str, Any], how: tuple[str, bool, Any, Stack]) -> list[Any]:
    """One layer in one direction: y and the last states."""
    cell, reverse, counts, stack = how
    tracer, form = x.tracer, dict(stack.options)
    single = np.dtype(np.float32)
    dtypes = {"w_ih": x.dtype, "w_hh": x.dtype, "b_ih": single, "b_hh": single, "h_0": x.dtype}
    if cell == "lstm":
        dtypes["c_0"] = single
    inputs = [
        tracer.value(given[name], dtype) if name in given else None
        for name, dtype in dtypes.items()
    ]
    inputs = [x.value, *inputs, *([None] * (6 - len(inputs))), counts]
    if form.pop("activation", "tanh") == "relu":
        form["functions"] = (("Relu", 0.0, 0.0),)
    form = {name: it for name, it in form.items() if it is not True}  # what cells do unasked
    results = tracer.build.emit("recurrent", inputs, cell=cell, reverse=reverse, **form)
    return [TracedArray(tracer, it) for it in results]


def _lengths(tracer: Any, lengths: Any, stack: Stack) -> Any:
    if not isinstance(lengths, TracedArray):
        known = places_of("lengths", np.asarray(lengths))
        if known.size and not 0 <= known.min() <= known.max() <= stack.T:
            raise ValueError(f"lengths is {known.tolist()}, expected 0 to {stack.T}")
        lengths = TracedArray(tracer, tracer.value(known))
    if lengths.dtype.kind not in "iu":
        raise TypeError(f"lengths has dtype {lengths.dtype}, expected integers")
    if lengths.shape != (stack.N,):
        raise ValueError(f"lengths has shape {lengths.shape}, expected {(stack.N,)}")
    return tracer.cast(lengths.value, np.dtype(np.int64))


def _like(x: Any) -> Any:
    """An array of zeros with the shape and the type, which takes no memory until it is read."""
    if not isinstance(x, TracedArray):
        return np.asarray(x, np.float32) if getattr(x, "dtype", None) == np.float64 else x
    return np.zeros(plain(x.shape), x.dtype)


def _each(named: dict[str, Any], function: Any) -> dict[str, Any]:
    found = {}
    for name, it in named.items():
        is_many = isinstance(it, list | tuple)
        found[name] = type(it)(map(function, it)) if is_many else function(it)
    return found


def _listed(it: Any) -> list[Any]:
    return list(it) if isinstance(it, list | tuple) else [it]


def _flat(values: Any) -> list[Any]:
    return [leaf for it in values for leaf in _listed(it) if leaf is not None]
