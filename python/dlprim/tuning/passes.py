"""What `tune` measures: the passes of a primitive on operands that stay the same.

Operands are random: with zeros a CPU runs at another clock.
"""

from __future__ import annotations

from copy import copy
from typing import Any, TypeAlias

import numpy as np

from dlprim.arguments.arrays import Array
from dlprim.arguments.floats import to_bfloat16
from dlprim.primitives.conv import Conv2d
from dlprim.primitives.linear import Linear
from dlprim.primitives.rnn import RecurrentLayer
from dlprim.tuning.search import Pass

Tunable: TypeAlias = Conv2d | Linear | RecurrentLayer

# A gradient that each product of the backward pass of a recurrent layer has a part in.
_GRADIENTS = {
    "diff_recurrence": "diff_src",
    "diff_src": "diff_src",
    "diff_w_ih": "diff_w_ih",
    "diff_w_hh": "diff_w_hh",
}


def pass_of(primitive: Tunable, which: str) -> Pass:
    """The pass, or the pass of a recurrent layer with the product, of that name."""
    if isinstance(primitive, RecurrentLayer):
        return _recurrent(primitive, which)
    return _product(primitive, which)


def _drawn(random: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    if dtype.kind in "iu" and dtype.itemsize == 1:
        return random.integers(0, 100, shape, dtype)
    values = random.random(shape, np.float32)
    values -= 0.5
    return values if dtype == np.float32 else to_bfloat16(values)


def _recurrent(layer: Any, which: str) -> Pass:
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
        return Pass(which, lambda core: on(core).forward(x, weights, out=dst), dst)
    saved = layer.forward(x, weights, training=True)[-1]
    name = _GRADIENTS[which]
    out = getattr(layer.backward(diff_dst, saved, weights), name).copy()

    def run(core: Any) -> None:
        np.copyto(out, getattr(on(core).backward(diff_dst, saved, weights), name))

    return Pass(which, run, out)


def _product(primitive: Conv2d | Linear, which: str) -> Pass:
    random = np.random.default_rng(0)

    dtype = primitive.dtype
    if which == "backward_weights":
        src = primitive.pack_src(_drawn(random, primitive.x_shape, dtype))
        diff_dst = primitive.pack_diff_dst(_drawn(random, primitive.y_shape, dtype))
        out = primitive.backward_weights(src, diff_dst)
        return Pass(which, lambda core: core.backward_weights(src, diff_dst, out, False), out)
    exact = dtype.itemsize == 1
    weights = primitive.pack_weights(
        _drawn(random, primitive.w_shape, np.dtype(np.int8) if exact else dtype)
    )
    if which == "backward_data":
        diff_dst = primitive.pack_diff_dst(_drawn(random, primitive.y_shape, dtype))
        out = primitive.backward_data(diff_dst, weights)
        return Pass(which, lambda core: core.backward_data(diff_dst, weights, out), out)
    src = primitive.pack_src(_drawn(random, primitive.x_shape, dtype))
    channels = primitive.w_shape[0]
    bias = random.random(channels, np.float32) if primitive.bias else None
    factor = np.full(channels, 1e-3, np.float32) if primitive.dst_dtype != np.int32 else None
    quantized = (None, factor, 0, 0, 1.0) if exact else None
    out = primitive._core.new("dst", src)
    if isinstance(primitive, Linear):
        return Pass(which, lambda core: core.forward(src, weights, bias, quantized, None, out), out)
    return Pass(
        which, lambda core: core.forward(src, weights, bias, None, None, out, quantized), out
    )
