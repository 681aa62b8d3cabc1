"""What `tune` measures: the passes of a primitive on operands that stay the same.

Operands are random: with zeros a CPU runs at another clock.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from copy import copy
from typing import Any, TypeAlias

import numpy as np

from dlprim import schedule_store as store
from dlprim.arguments.arrays import Array, Shape, aligned
from dlprim.arguments.floats import to_bfloat16
from dlprim.lang import CompiledFormula
from dlprim.primitives.conv import Conv2d
from dlprim.primitives.linear import Linear
from dlprim.primitives.rnn import RecurrentLayer
from dlprim.tuning.moves import Decision
from dlprim.tuning.search import Choices, Pass

Tunable: TypeAlias = Conv2d | Linear | RecurrentLayer | CompiledFormula

_RANKED = 8  # schedules of the cost model that the search begins with

# A gradient that each product of the backward pass of a recurrent layer has a part in.
_GRADIENTS = {
    "diff_recurrence": "diff_src",
    "diff_src": "diff_src",
    "diff_w_ih": "diff_w_ih",
    "diff_w_hh": "diff_w_hh",
}


class TunedPass(Pass):
    """A pass of somebody's who is given what the search finds.

    Attributes
    ----------
    key : str
        What its schedule is called in a file.
    current : dict of str
        The choices that are in use.
    """

    key: str
    current: Choices

    @abstractmethod
    def use(self, choices: Choices) -> None: ...

    def schedule_of(self, choices: Choices) -> Any:
        """As a file has it; and back."""
        return choices

    def choices_of(self, schedule: Any) -> Choices:
        return schedule if isinstance(schedule, dict) else {self.which: schedule}


class _NestPass(TunedPass):
    """A pass of a primitive with packed operands, whose one decision is the order of its loops."""

    def __init__(self, which: str, primitive: Any, run: Callable[[Any], None], out: Array) -> None:
        super().__init__(which, [out])
        self._primitive, self._call = primitive, run
        algorithm = primitive.algorithms[which] if isinstance(primitive, Conv2d) else "direct"
        self.key = store.key(which, primitive._stored_as, algorithm)
        self.current = {which: primitive.schedules[which]}
        self._options = primitive._core.candidates(which, _RANKED)
        self._loops = primitive._core.loops(which)

    def made(self, choices: Choices, spare: Any = None) -> Any:
        core = spare or self._primitive._new_core()
        try:
            core.set_schedule(self.which, choices.get(self.which, self._options[0]))
        except ValueError:
            return None
        return core

    def decisions(self, core: Any) -> dict[str, Decision]:
        return {self.which: Decision(core.schedules[self.which], self._options, self._loops)}

    def run(self, core: Any) -> None:
        self._call(core)

    def use(self, choices: Choices) -> None:
        self._primitive._core.set_schedule(self.which, choices[self.which])

    def schedule_of(self, choices: Choices) -> Any:
        return choices[self.which]


class _FormulaPass(TunedPass):
    """A compiled formula: pieces, what runs its products, and the order of their loops."""

    def __init__(self, formula: CompiledFormula) -> None:
        results = formula._new_results()
        super().__init__("formula", [it for it, _ in results], [is_read for _, is_read in results])
        self._formula, self.key, self.current = formula, formula._stored_as, formula.schedule
        random = np.random.default_rng(0)
        self._arrays = [_lying(random, *geometry) for geometry in formula._geometries]

    def made(self, choices: Choices, spare: Any = None) -> Any:
        return self._formula._made(choices)

    def decisions(self, core: Any) -> dict[str, Decision]:
        return {name: Decision(*rest) for name, *rest in core.decisions(_RANKED)}

    def run(self, core: Any) -> None:
        core.run(self._arrays, self._outs)

    def use(self, choices: Choices) -> None:
        self._formula._use(self._formula._made(choices))


def pass_of(primitive: Tunable, which: str) -> TunedPass:
    """The pass, or the pass of a recurrent layer with the product, of that name."""
    if isinstance(primitive, CompiledFormula):
        return _FormulaPass(primitive)
    if isinstance(primitive, RecurrentLayer):
        return _NestPass(which, primitive, *_recurrent(primitive, which))
    return _NestPass(which, primitive, *_product(primitive, which))


def _lying(
    random: np.random.Generator, shape: Shape, strides: Shape, dtype: np.dtype[Any]
) -> Array:
    """An array like one that a formula takes; places are 0, which is in every table."""
    last = sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    memory = aligned((0 if 0 in shape else last // dtype.itemsize + 1,), dtype)
    is_place = dtype.kind == "i" and dtype.itemsize > 1
    memory[...] = 0 if is_place else _drawn(random, memory.shape, dtype)
    return np.lib.stride_tricks.as_strided(memory, shape, strides)


def _drawn(random: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    if dtype.kind in "iu" and dtype.itemsize == 1:
        return random.integers(0, 100, shape, dtype)
    values = random.random(shape, np.float32)
    values -= 0.5
    return values if dtype == np.float32 else to_bfloat16(values)


def _recurrent(layer: Any, which: str) -> tuple[Callable[[Any], None], Array]:
    random = np.random.default_rng(0)
    (t, n, c), channels = layer.x_shape, layer.gates * layer.K
    x, diff_dst = (_drawn(random, shape, layer.dtype) for shape in ((t, n, c), (t, n, layer.K)))
    scale = layer.dtype.type(layer.K**-0.5)
    w_ih, w_hh = (
        (_drawn(random, shape, layer.dtype) * scale).astype(layer.dtype)
        for shape in ((channels, c), (channels, layer.K))
    )
    weights = layer.pack_weights(w_ih, w_hh)

    def on(core: Any) -> Any:
        """The same layer with that core."""
        other = copy(layer)
        other._core = core
        return other

    if which not in _GRADIENTS:
        dst = np.empty((t, n, layer.K), layer.dtype)
        return (lambda core: on(core).forward(x, weights, out=dst), dst)
    saved = layer.forward(x, weights, training=True)[-1]
    name = _GRADIENTS[which]
    out = getattr(layer.backward(diff_dst, saved, weights), name).copy()

    def run(core: Any) -> None:
        np.copyto(out, getattr(on(core).backward(diff_dst, saved, weights), name))

    return run, out


def _product(primitive: Conv2d | Linear, which: str) -> tuple[Callable[[Any], None], Array]:
    random = np.random.default_rng(0)

    dtype = primitive.dtype
    if which == "backward_weights":
        src = primitive.pack_src(_drawn(random, primitive.x_shape, dtype))
        diff_dst = primitive.pack_diff_dst(_drawn(random, primitive.y_shape, dtype))
        out = primitive.backward_weights(src, diff_dst)
        return (lambda core: core.backward_weights(src, diff_dst, out, False), out)
    exact = dtype.itemsize == 1
    weights = primitive.pack_weights(
        _drawn(random, primitive.w_shape, np.dtype(np.int8) if exact else dtype)
    )
    if which == "backward_data":
        diff_dst = primitive.pack_diff_dst(_drawn(random, primitive.y_shape, dtype))
        out = primitive.backward_data(diff_dst, weights)
        return (lambda core: core.backward_data(diff_dst, weights, out), out)
    src = primitive.pack_src(_drawn(random, primitive.x_shape, dtype))
    channels = primitive.w_shape[0]
    bias = random.random(channels, np.float32) if primitive.bias else None
    factor = np.full(channels, 1e-3, np.float32) if primitive.dst_dtype != np.int32 else None
    quantized = (None, factor, 0, 0, 1.0) if exact else None
    out = primitive._core.new("dst", src)
    if isinstance(primitive, Linear):
        return (lambda core: core.forward(src, weights, bias, quantized, None, out), out)
    return (lambda core: core.forward(src, weights, bias, None, None, out, quantized), out)
