"""Steps for recurrent layers: the core's primitive, with weights that are packed once if known."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dlprim import _core
from dlprim import schedule_store as store
from dlprim.graph.graph import Array, Node, Value
from dlprim.graph.lowering.formulas import is_computed
from dlprim.graph.lowering.lowering import Lowering
from dlprim.graph.operators.operator import Values
from dlprim.graph.operators.recurrent import FORM, KEPT
from dlprim.primitives.rnn_operands import CellForm

_PACKED = ("packed_w_ih", "packed_w_hh", "packed_bias")
_TRANSPOSED = ("transposed_w_ih", "transposed_w_hh")
_PARAMETERS = ("w_ih", "w_hh", "b_ih", "b_hh")
_STATES = ("h", "c")


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


class _Lowered(NamedTuple):
    """The layer of a node.

    Attributes
    ----------
    core : _core.Rnn
    known : _core.Rnn
        One of the same weights, whose form has nothing of the steps and the samples.
    """

    core: _core.Rnn
    known: _core.Rnn


def _layers(to: Lowering, node: Node, peepholes: Value | None = None) -> _Lowered:
    x, _, r, *_ = node.inputs
    assert x is not None
    assert r is not None
    (steps, samples, channels), hidden = x.shape, r.shape[1]
    cell, reverse = node.attributes["cell"], node.attributes["reverse"]
    what = (cell, _form_of(node, peepholes), x.dtype.name, reverse)
    travelled = store.travelled()
    core = to.call(_layer, travelled, what, (steps, samples, channels, hidden))
    return _Lowered(core, _layer(travelled, what, (1, 1, channels, hidden)))


def _packed_plain(to: Lowering, known: _core.Rnn, given: dict[str, Value]) -> dict[str, Array]:
    """Weights that are constants, packed."""
    plain = {}
    for name, value in given.items():
        dtype = np.dtype(np.float32) if name.startswith("b") else value.dtype
        plain[name] = np.require(to.graph.constants[value], dtype, ["C", "A"])
    return known.pack_weights(plain)


def _new(to: Lowering, layers: _Lowered, names: Sequence[str], node: Node) -> dict[str, int]:
    """Memory for packed weights."""
    x = node.operands[0]
    shapes, single = layers.known.shapes, np.dtype(np.float32)
    return {
        name: to.network.temporary(shapes[name], single if name == "packed_bias" else x.dtype)
        for name in names
    }


def _weights(to: Lowering, layers: _Lowered, node: Node, values: Values) -> dict[str, int]:
    """Weights and biases, which may be None, packed, as values of the network."""
    named = dict(zip(_PARAMETERS, values, strict=False))
    given = {name: value for name, value in named.items() if value is not None}
    if all(value in to.graph.constants for value in given.values()):
        packed = _packed_plain(to, layers.known, given)
        return {name: to.constant(array) for name, array in packed.items()}
    numbers = {name: to.number(to.dense(value)) for name, value in given.items()}
    made = _new(to, layers, _PACKED, node)
    to.network.rnn_pack(layers.core, f"weights of {node.name}", **numbers, **made)
    to.shared.update({(name, *values[:2]): made[name] for name in _PACKED[:2]})
    return made


def _transposed(to: Lowering, layers: _Lowered, node: Node) -> dict[str, int]:
    """Weights as the gradient reads them, of those that the layer has packed."""
    weights = node.operands[1:3]
    if all(value in to.graph.constants for value in weights):
        packed = _packed_plain(to, layers.known, dict(zip(_PARAMETERS, weights, strict=False)))
        found = layers.known.transpose_weights(packed)
        return {name: to.constant(found[name]) for name in _TRANSPOSED}

    def known(names: Sequence[str]) -> dict[str, int]:
        return {it: to.shared[it, *weights] for it in names if (it, *weights) in to.shared}

    if not known(_PACKED):
        _weights(to, layers, node, weights)
    if not known(_TRANSPOSED):
        made = _new(to, layers, _TRANSPOSED, node)
        label = f"weights of {node.name}"
        to.network.rnn_transpose(layers.core, label, **known(_PACKED), **made)
        to.shared.update({(name, *weights): it for name, it in made.items()})
    return known(_TRANSPOSED)


def _lower_no_steps(to: Lowering, node: Node, h_0: Value | None, c_0: Value | None) -> bool:
    """Of no steps, or of no samples: the states stay what they are, zeros where none are given."""
    count = 1 + (node.attributes["cell"] == "lstm")
    firsts, lasts = (h_0, c_0)[:count], node.outputs[1 : 1 + count]
    if any(a is not None and a.dtype != b.dtype for a, b in zip(firsts, lasts, strict=True)):
        return False
    for empty in (node.outputs[0], *node.outputs[1 + count :]):
        to.result(empty)
    for first, last in zip(firsts, lasts, strict=True):
        if first is None:
            source = to.constant(to.call(np.zeros, last.shape, last.dtype))
        else:
            source = to.number(to.dense(first))
        to.network.copy(source, to.number(to.result(last)), f"states of {node.name}")
    return True


def _numbers(to: Lowering, named: dict[str, Value | None]) -> dict[str, int]:
    """Those that are there as values of the network."""
    return {name: to.number(to.dense(it)) for name, it in named.items() if it is not None}


def _results(to: Lowering, node: Node, names: Sequence[str]) -> dict[str, int]:
    zipped = zip(names, node.outputs, strict=True)
    return {name: to.number(to.result(value)) for name, value in zipped}


def lower_recurrent(to: Lowering, node: Node) -> bool:
    """One primitive for the layer, on float32 or bfloat16."""
    x = node.operands[0]
    *_, h_0, c_0, lengths, peepholes = (*node.inputs, *[None] * 4)[:9]
    if 0 in x.shape[:2]:
        return _lower_no_steps(to, node, h_0, c_0)
    if not is_computed(x.dtype) or 0 in x.shape:
        return False
    layers, cell = _layers(to, node, peepholes), node.attributes["cell"]
    operands = _weights(to, layers, node, node.inputs[1:5])
    operands |= _numbers(
        to, {"src": x, "h_0": h_0, "c_0": c_0, "lengths": lengths, "peepholes": peepholes}
    )
    states = [f"{it}_n" for it in _STATES[: 1 + (cell == "lstm")]]
    kept = KEPT[cell] if node.attributes.get("training") else ()
    results = _results(to, node, ("dst", *states, *kept))
    to.network.rnn(layers.core, f"{cell} {node.name}", **operands, **results)
    return True


def lower_recurrent_gradient(to: Lowering, node: Node) -> bool:
    """The primitive's pass backward, on the same types."""
    x = node.operands[0]
    if not is_computed(x.dtype) or 0 in x.shape:
        return False
    layers, cell = _layers(to, node), node.attributes["cell"]
    operands = _transposed(to, layers, node)
    names = ("h_0", "c_0", "lengths", "dst", *(*KEPT[cell], "")[:2])
    names = (*names, "diff_dst", "diff_h_n", "diff_c_n")
    operands |= _numbers(to, {"src": x, **dict(zip(names, node.inputs[3:], strict=True))})
    states = [f"diff_{it}_0" for it in _STATES[: 1 + (cell == "lstm")]]
    results = _results(to, node, ("diff_src", *(f"diff_{it}" for it in _PARAMETERS), *states))
    to.network.rnn_backward(layers.core, f"{cell} {node.name}", **operands, **results)
    return True
