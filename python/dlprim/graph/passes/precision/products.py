"""Products of quantised operands: integers multiplied, the scales behind them one vector."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dlprim.graph.graph import Array, Node, Value
from dlprim.graph.passes.draft import Draft
from dlprim.graph.passes.precision.moves import bytes_of
from dlprim.graph.passes.precision.parameters import known_floats

_MOST_SUM = 2**31 - 1
_MOST_LEFT = 255  # of |x - zero_point|


class _RefusedError(Exception):
    """Why a product stays in floats."""


class _Weights(NamedTuple):
    values: Array  # int8, zero point 0
    scale: Array  # float64, one or one per channel


def multiply(draft: Draft, node: Node) -> Sequence[Value] | None:
    """An integer product with a float result for one of operands that are both dequantised."""
    x, w, bias = (*node.inputs, None)[:3]
    is_matmul = node.operator == "matmul"
    left = bytes_of(draft, x)
    is_open = len(node.inputs) <= 3 and not node.attributes.get("activation")
    if left is None or node.output.dtype != np.float32 or not is_open:
        return None
    try:
        weights = _weights(draft, w, is_matmul)
        _check_geometry(node, weights)
        shift = None if bias is None else known_floats(draft, bias)
        if bias is not None and shift is None:
            raise _RefusedError(f"its bias {bias.name} is computed, expected a constant")
    except _RefusedError as error:
        draft.refuse("a product of 8 bits", node, str(error))
        return None
    channels = weights.values.shape[1 if is_matmul else 0]
    scale = np.broadcast_to(weights.scale * left.parameters.scale, channels).astype(np.float32)
    operands = [
        left.value,
        draft.constant(weights.values, f"{node.name}.weights"),
        draft.constant(scale, f"{node.name}.scale"),
        None if shift is None else draft.constant(shift, f"{node.name}.bias"),
        None,
    ]
    return draft.emit(
        f"quantized_{node.operator}",
        operands,
        node.name,
        **{
            **node.attributes,
            "x_zero_point": left.parameters.zero_point,
            "y_zero_point": 0,
            "dtype": "float32",
            "residual_scale": 1.0,
            "inner": None,
            "lowest": -math.inf,
            "highest": math.inf,
        },
    )


def _weights(draft: Draft, w: Value | None, is_matmul: bool) -> _Weights:
    """As int8 without a zero point, scaled per tensor or per channel of the result."""
    node, axes = draft.maker(w), None
    if node is not None and node.operator == "transpose":
        axes = node.attributes["axes"]
        node = draft.maker(node.operands[0])
    if node is None or node.operator != "dequantize":
        raise _RefusedError("its weights are not quantised")
    arrays = [draft.constants.get(value) for value in node.operands]
    q, scale, zero_point = (*arrays, None)[:3]
    if q is None or scale is None or (len(arrays) == 3 and zero_point is None):
        raise _RefusedError("its weights are computed, expected constants")
    if q.dtype.name not in ("int8", "uint8") or scale.dtype != np.float32 or scale.ndim > 1:
        raise _RefusedError(f"its weights are {q.dtype} with scales of {list(scale.shape)}")
    axis = node.attributes["axis"] % max(1, q.ndim)
    is_centred = q.dtype == np.int8 and (zero_point is None or not zero_point.any())
    centred = q if is_centred else q.astype(np.int16)
    if zero_point is not None and not is_centred:
        along = [-1 if it == axis else 1 for it in range(q.ndim)] if zero_point.size > 1 else []
        centred = centred - zero_point.astype(np.int16).reshape(along)
    if centred.size and not (is_centred or -128 <= centred.min() <= centred.max() <= 127):
        raise _RefusedError("its weights less their zero points do not fit into int8")
    if axes is not None:
        centred, axis = centred.transpose(axes), axes.index(axis)
    if scale.size > 1 and axis != (centred.ndim - 1 if is_matmul else 0):
        raise _RefusedError(f"its weights have scales along axis {axis}, which is summed")
    values = centred if is_centred else np.ascontiguousarray(centred.astype(np.int8))
    return _Weights(values, scale.astype(np.float64).reshape(-1))


def _check_geometry(node: Node, weights: _Weights) -> None:
    values = weights.values
    if node.operator == "matmul" and (values.ndim != 2 or len(node.operands[0].shape) < 2):
        raise _RefusedError("its operands are not matrices and one matrix of weights")
    if node.operator == "convolution" and values.ndim not in (3, 4):
        raise _RefusedError(f"its images have {values.ndim - 2} axes, expected one or two")
    summed = 0 if node.operator == "matmul" else tuple(range(1, values.ndim))
    sums = np.abs(values.astype(np.int64)).sum(axis=summed)
    if sums.size and int(sums.max()) * _MOST_LEFT > _MOST_SUM:
        raise _RefusedError("its sums can leave 32 bits")
