"""Sums of two arrays in 8 bits, of which a convolution makes one: its kernel adds the other.

A model that rounds the convolution on its own, and then the sum, means two roundings, and the map
that says so divides floats. A kernel multiplies and adds instead, which is other arithmetic; but
there are only 65536 pairs of bytes, so that each of them is compared, and factors a few bits away
are tried until no pair differs.
"""

from __future__ import annotations

from itertools import product as all_steps
from typing import NamedTuple

import numpy as np

from dlprim.graph.expressions import Expression, evaluate
from dlprim.graph.graph import Array, Node, Value
from dlprim.graph.passes.draft import Draft
from dlprim.graph.passes.precision.elements import byte_map, rounded
from dlprim.graph.passes.precision.parameters import Parameters

_NEAR = 1e-3  # of a half, in steps of the result: farther away roundings decide nothing
_STEPS = sorted(range(-3, 4), key=abs)


class _Factors(NamedTuple):
    """``sum * scale + shift + residual * residual_scale`` in steps of the result."""

    scale: np.float32
    shift: np.float32
    residual_scale: np.float32

    def results(self, sums: Array, residuals: Array) -> Array:
        """As kernels compute them, of float32."""
        total: Array = sums * self.scale + self.shift + residuals * self.residual_scale
        return total


class _Pairs(NamedTuple):
    """All pairs of a sum and a residual in 8 bits, as float32, and what becomes of them."""

    sums: Array  # (256, 1), less their zero point
    residuals: Array  # (1, 256)
    exact: Array  # (256, 256) in float64, in steps of the result
    rounded: Array  # the same less the zero point, as the model has it


def add_rounded(draft: Draft, value: Value, parameters: Parameters, name: str) -> Value | None:
    """The value in 8 bits, if it is such a sum."""
    found = byte_map(draft, value)
    if found is None:
        return None
    expression, inputs = found
    if len(inputs) != 2 or {it.shape for it in inputs} != {value.shape}:
        return None
    for place in (0, 1):
        product, residual = _rounded_product(draft, inputs[place]), inputs[1 - place]
        if product is None or residual.dtype.name != parameters.dtype:
            continue
        with np.errstate(all="ignore"):  # scales may be any, and what is no number agrees with none
            pairs = _pairs(expression, parameters, (place, product, residual))
            factors = _factors(pairs)
        if factors is not None:
            return _added(draft, product, residual, factors, pairs.rounded, parameters, name)
    return None


def _rounded_product(draft: Draft, value: Value) -> Node | None:
    """The convolution by kernels that makes it, which ends in 8 bits and adds nothing yet."""
    node = draft.only_maker(value, "quantized_convolution")
    if node is None or node.inputs[4] is not None or value.dtype.name not in ("uint8", "int8"):
        return None
    is_depthwise = node.attributes["groups"] == node.operands[0].shape[1] > 1
    return None if is_depthwise else node


def _bytes(value: Value) -> Array:
    whole = np.iinfo(value.dtype)
    return np.arange(whole.min, whole.max + 1)


def _pairs(
    expression: Expression, parameters: Parameters, which: tuple[int, Node, Value]
) -> _Pairs:
    place, product, residual = which
    sums, residuals = _bytes(product.output)[:, None], _bytes(residual)[None, :]

    def values(it: Expression, dtype: type) -> Array:
        both: list[Array] = [sums.astype(dtype), residuals.astype(dtype)]
        array: Array = evaluate(it, both if place == 0 else both[::-1])
        return np.broadcast_to(array, (256, 256))

    return _Pairs(
        (sums - product.attributes["y_zero_point"]).astype(np.float32),
        residuals.astype(np.float32),
        values(expression, np.float64) / parameters.scale,
        values(rounded(expression, parameters), np.float32) - np.float32(parameters.zero_point),
    )


def _factors(pairs: _Pairs) -> _Factors | None:
    """With which no pair differs, for a sum that may be cut off below."""
    scale, residual_scale = (np.diff(pairs.exact, axis=it).max() for it in (0, 1))
    last = scale * pairs.sums[-1, 0] + residual_scale * pairs.residuals[0, -1]
    shift = pairs.exact[-1, -1] - last
    bounds = pairs.rounded.min(), pairs.rounded.max()
    near = np.abs(pairs.exact - np.floor(pairs.exact) - 0.5) < _NEAR
    wanted = pairs.rounded[near]
    sums, residuals = (
        np.broadcast_to(it, near.shape)[near] for it in (pairs.sums, pairs.residuals)
    )
    size = float(np.spacing(np.float32(bounds[1] - bounds[0])))
    for i, j, k in all_steps(_STEPS, repeat=3):
        tried = _Factors(
            _moved(scale, i), np.float32(shift + k * size / 4), _moved(residual_scale, j)
        )
        if not _agree(tried.results(sums, residuals), wanted, bounds):
            continue
        if _agree(tried.results(pairs.sums, pairs.residuals), pairs.rounded, bounds):
            return tried
    return None


def _moved(factor: float, steps: int) -> np.float32:
    rounded = np.float32(factor)
    return np.float32(rounded + steps * np.spacing(rounded))


def _agree(results: Array, wanted: Array, bounds: tuple[float, float]) -> bool:
    return bool((np.rint(np.clip(results, *bounds)) == wanted).all())


def _added(
    draft: Draft,
    product: Node,
    residual: Value,
    factors: _Factors,
    rounded: Array,
    parameters: Parameters,
    name: str,
) -> Value:
    it = product.attributes
    attributes = {
        **it,
        "inner": (it["lowest"], it["highest"], float(factors.scale), float(factors.shift)),
        "y_zero_point": parameters.zero_point,
        "dtype": parameters.dtype,
        "residual_scale": float(factors.residual_scale),
        "lowest": float(rounded.min()),
        "highest": float(rounded.max()),
    }
    return draft.emit(product.operator, [*product.inputs[:4], residual], name, **attributes)[0]
