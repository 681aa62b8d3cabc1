"""Steps for recurrent layers: the core's primitive, with weights that are packed once if known."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from dlprim import _core
from dlprim.graph.graph import Array, Node, Value
from dlprim.graph.lowering.formulas import is_computed
from dlprim.graph.lowering.lowering import Lowering
from dlprim.graph.operators.recurrent import FORM
from dlprim.primitives.rnn_operands import CellForm
from dlprim.tuning import store

_PACKED = ("packed_w_ih", "packed_w_hh", "packed_bias")


@lru_cache(maxsize=64)
def _layer(
    schedules: store.Travelled | None,
    what: tuple[str, CellForm, str, bool],
    extents: tuple[int, int, int, int],
) -> _core.Rnn:
    cell, form, dtype, reverse = what
    core = _core.Rnn(cell, extents, dtype, reverse, form)
    numbers = dict(zip("TNCK", extents, strict=True))
    problem = store.Problem(form.kind(cell), numbers, dtype, "plain")
    store.use_stored(core, problem)
    if schedules is not None:
        store.use_stored(core, problem, schedules)
    return core


def _form_of(node: Node, peepholes: Value | None) -> CellForm:
    named: dict[str, Any] = FORM | dict(node.attributes)
    return CellForm(peepholes=peepholes is not None, **{name: named[name] for name in FORM})


def _known(to: Lowering, value: Value | None, dtype: np.dtype[np.generic]) -> Array | None:
    if value is None:
        return None
    return np.require(to.graph.constants[value], dtype, ["C", "A"])


def _weights(to: Lowering, layer: _core.Rnn, known: _core.Rnn, node: Node) -> dict[str, int]:
    """The packed weights as values of the network; `known` has their form whatever the extents."""
    x, *values = node.inputs[:5]
    assert x is not None
    single = np.dtype(np.float32)
    named = dict(zip(("w_ih", "w_hh", "b_ih", "b_hh"), values, strict=False))
    given = {name: value for name, value in named.items() if value is not None}
    if all(value in to.graph.constants for value in given.values()):
        plain = {
            name: _known(to, value, single if name.startswith("b") else x.dtype)
            for name, value in given.items()
        }
        packed = known.pack_weights(plain)
        return {name: to.constant(array) for name, array in packed.items()}
    numbers = {name: to.number(to.dense(value)) for name, value in given.items()}
    shapes = known.shapes
    types = (x.dtype, x.dtype, single)
    made = {
        name: to.network.temporary(shapes[name], dtype)
        for name, dtype in zip(_PACKED, types, strict=True)
    }
    to.network.rnn_pack(layer, f"weights of {node.name}", **numbers, **made)
    return made


def _lower_no_steps(to: Lowering, node: Node, h_0: Value | None, c_0: Value | None) -> bool:
    """Of no steps, or of no samples: the states stay what they are, zeros where none are given."""
    _, *lasts = node.outputs
    firsts = (h_0, c_0)[: len(lasts)]
    if any(a is not None and a.dtype != b.dtype for a, b in zip(firsts, lasts, strict=True)):
        return False
    to.result(node.outputs[0])
    for first, last in zip(firsts, lasts, strict=True):
        if first is None:
            source = to.constant(to.call(np.zeros, last.shape, last.dtype))
        else:
            source = to.number(to.dense(first))
        to.network.copy(source, to.number(to.result(last)), f"states of {node.name}")
    return True


def lower_recurrent(to: Lowering, node: Node) -> bool:
    """One primitive for the layer, on float32 or bfloat16."""
    x, _, r, *_ = node.inputs
    *_, h_0, c_0, lengths, peepholes = (*node.inputs, *[None] * 4)[:9]
    assert x is not None
    assert r is not None
    if 0 in x.shape[:2]:
        return _lower_no_steps(to, node, h_0, c_0)
    if not is_computed(x.dtype) or 0 in x.shape:
        return False
    what = (
        node.attributes["cell"],
        _form_of(node, peepholes),
        x.dtype.name,
        node.attributes["reverse"],
    )
    (steps, samples, channels), hidden = x.shape, r.shape[1]
    travelled = store.travelled()
    layer = to.call(_layer, travelled, what, (steps, samples, channels, hidden))
    # The form of weights has nothing of the steps and the samples.
    operands = _weights(to, layer, _layer(travelled, what, (1, 1, channels, hidden)), node)
    others = {"h_0": h_0, "c_0": c_0, "lengths": lengths, "peepholes": peepholes}
    for name, value in others.items():
        if value is not None:
            operands[name] = to.number(to.dense(value))
    results = [to.number(to.result(value)) for value in node.outputs]
    operands.update(zip(("dst", "h_n", "c_n"), results, strict=False))
    src = to.number(to.dense(x))
    to.network.rnn(layer, f"{what[0]} {node.name}", src=src, **operands)
    return True
