"""Weights of 2 to 8 bits with a scale for every block: products with them, and rows of tables."""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from dlprim.functions.quantized_weights import QuantizedWeights
from dlprim.graph.builder import Builder
from dlprim.graph.expressions import number, operand
from dlprim.graph.graph import Array, Value
from dlprim.graph.lowering.sharing import made_of, passing
from dlprim.graph.operators.operator import Arrays, Attributes, callee
from dlprim.onnx.operators.microsoft.checks import (
    MICROSOFT,
    require_at_least,
    require_floats,
    require_integers,
    require_rank,
    require_shape,
)
from dlprim.onnx.operators.shapes import axis_of
from dlprim.onnx.registry import RefusedError, operator

_X, _Y = operand(0), operand(1)
# Weights that are computed at once: few enough for caches.
_MOST_AT_ONCE = 1 << 17


@callee("few_bits", "integers of few bits stand for its numbers")
def few_bits(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """Numbers that share bytes along the last axis, the low bits first, as bytes of their own."""
    bits, packed = attributes["bits"], arrays[0]
    (shape, _) = attributes["results"][0]
    if bits == 8:
        return [packed]
    if 8 % bits == 0:
        apart: Array = np.empty((*packed.shape, 8 // bits), np.uint8)
        for place in range(8 // bits):
            np.right_shift(packed, np.uint8(bits * place), out=apart[..., place])
        apart &= np.uint8((1 << bits) - 1)
    else:  # numbers that lie in two bytes
        lines = np.unpackbits(packed, axis=-1, bitorder="little")
        whole = lines.shape[-1] // bits * bits
        groups = lines[..., :whole].reshape(*packed.shape[:-1], -1, bits)
        apart = np.packbits(groups, axis=-1, bitorder="little")
    flat = apart.reshape(*packed.shape[:-1], -1)
    return [np.ascontiguousarray(flat[..., : shape[-1]])]


def _unpacked(build: Builder, packed: Value, bits: int, count: int) -> Value:
    """So many numbers along the last axis; those of constants are unpacked at once."""
    if bits == 8:
        return packed
    result = ((*packed.shape[:-1], count), "uint8")
    if build.is_constant(packed):
        return build.constant(
            few_bits([build.array(packed)], {"bits": bits, "results": [result]})[0]
        )
    return build.call("few_bits", [packed], [result], bits=bits)[0]


def _shaped(build: Builder, x: Value, shape: tuple[int, ...]) -> Value:
    """x in another shape, known where x is known, however large."""
    if build.is_constant(x):
        return build.constant(build.array(x).reshape(shape))
    return build.reshape(x, shape)


def _require_bytes(**values: Value | None) -> None:
    for name, value in values.items():
        if value is not None and value.dtype != np.uint8:
            raise RefusedError(f"{name} is of {value.dtype}, expected uint8")


# ---------------------------------------------------------------- MatMulNBits


def _zeros(
    build: Builder, zeros: Value | None, scales: Value, rows: int, blocks: int, bits: int
) -> Value | None:
    """Zero points (N, blocks), floats or bytes; None for the middle of all numbers."""
    if zeros is None:
        return None
    if zeros.dtype == scales.dtype:
        if zeros.size != rows * blocks:
            raise RefusedError(f"zero_points are {list(zeros.shape)}, expected {[rows, blocks]}")
        return _shaped(build, zeros, (rows, blocks))
    _require_bytes(zero_points=zeros)
    width = -(-blocks * bits // 8)
    if zeros.size != rows * width:
        raise RefusedError(f"zero_points are {list(zeros.shape)}, expected {[rows, width]}")
    return _unpacked(build, _shaped(build, zeros, (rows, width)), bits, blocks)


class _Form(NamedTuple):
    """How weights (results, inputs) lie: in blocks along the inputs."""

    results: int
    inputs: int
    bits: int
    block: int

    @property
    def blocks(self) -> int:
        return -(-self.inputs // self.block)


def _floats(form: _Form, packed: Array, scales: Array, zeros: Array | None) -> Array:
    """Known weights (results, inputs), some rows after the others."""
    made = passing((form.results, form.inputs), scales.dtype)
    step = max(1, _MOST_AT_ONCE // form.inputs)
    result = ((form.results, form.blocks, form.block), "uint8")
    for first in range(0, form.results, step):
        rows = slice(first, first + step)
        (numbers,) = few_bits([packed[rows]], {"bits": form.bits, "results": [result]})
        middle = np.full(1, 1 << (form.bits - 1))
        shift = middle if zeros is None else zeros[rows, :, None]
        wide = numbers.astype(np.float32) - shift.astype(np.float32)
        wide *= scales[rows, :, None].astype(np.float32)
        made[rows] = wide.reshape(len(wide), -1)[:, : form.inputs]
    return made


def _weights(build: Builder, form: _Form, given: list[Value], zeros: Value | None) -> Value:
    """Floats (inputs, results) of numbers, scales and zero points; known ones at once.

    They are made again where they are needed again, so that only what steps read stays.
    """
    packed, scales = given
    known = [*given, *([] if zeros is None else [zeros])]
    if all(map(build.is_constant, known)):
        arrays = [build.array(it) for it in known]
        make = partial(_floats, form, *arrays, *([None] if zeros is None else []))
        digest = sha256(b"".join(it.tobytes() for it in arrays[1:])).digest()
        return build.constant(made_of(make(), arrays[0], ("few bits", form, digest), make).T)
    wide = [build.cast(_unpacked(build, packed, form.bits, form.block), np.float32)]
    rows = [scales, *([] if zeros is None else [zeros])]
    wide += [build.reshape(build.cast(it, np.float32), (*it.shape, 1)) for it in rows]
    zero = number(float(1 << (form.bits - 1))) if zeros is None else operand(2)
    expression = ("multiply", ("subtract", _X, zero), _Y)
    floats = build.map(expression, *wide, dtype=scales.dtype)
    whole = build.reshape(floats, (form.results, form.blocks * form.block))
    cut = build.slice(whole, (0, 0), (form.results, form.inputs), (1, 1))
    return build.transpose(cut, (1, 0))


def _in_panels(
    build: Builder, form: _Form, x: Value, given: list[Value], zeros: Value | None
) -> tuple[Value, dict[str, Any]] | None:
    """Known weights packed as products of a few rows read them, and what says how; else None."""
    known = [*given, *([] if zeros is None else [zeros])]
    suits = form.bits in (4, 8) and form.block in (32, 64, 128) and x.dtype == np.float32
    if not suits or not all(map(build.is_constant, known)):
        return None
    if zeros is not None and zeros.dtype != np.uint8:
        return None
    arrays = [build.array(it) for it in known]

    def pack() -> QuantizedWeights:
        result = ((form.results, form.blocks, form.block), "uint8")
        (numbers,) = few_bits([arrays[0]], {"bits": form.bits, "results": [result]})
        q = numbers.reshape(form.results, -1)[:, : form.inputs]
        return QuantizedWeights.from_integers(q, *arrays[1:], bits=form.bits)

    packed = pack()
    digest = sha256(b"".join(it.tobytes() for it in arrays[1:])).digest()
    key = ("panels", form, digest)
    value = build.constant(made_of(packed._packed, arrays[0], key, lambda: pack()._packed))
    return value, {"channels": packed.shape, "form": packed._form, "activation": None}


@operator("MatMulNBits", domain=MICROSOFT)
def matmul_of_few_bits(
    build: Builder,
    x: Value,
    w: Value,
    scales: Value,
    zeros: Value | None = None,
    order: Value | None = None,
    bias: Value | None = None,
    *,
    K: int,
    N: int,
    block_size: int,
    accuracy_level: int = 0,
    bits: int = 4,
    weight_prepacked: int = 0,
) -> Value:
    """x by floats that numbers (N, blocks, bytes) stand for.

    Where x may be rounded to 8 bits, accuracy_level 4, it is to 15.
    """
    require_floats(A=x, scales=scales, bias=bias)
    _require_bytes(B=w)
    require_at_least(1, K=K, N=N, block_size=block_size)
    if not 2 <= bits <= 8 or block_size * bits % 8 or weight_prepacked or order is not None:
        raise RefusedError(
            f"bits is {bits} and block_size {block_size}, expected 2 to 8 bits, blocks of whole "
            "bytes, no g_idx and weight_prepacked 0"
        )
    form = _Form(N, K, bits, block_size)
    blocks, width = form.blocks, block_size * bits // 8
    if w.size != N * blocks * width or scales.size != N * blocks or x.shape[-1:] != (K,):
        raise RefusedError(
            f"A is of {list(x.shape)}, B of {list(w.shape)} and scales of {list(scales.shape)}, "
            f"expected (..., {K}), {[N, blocks, width]} and {[N, blocks]}"
        )
    require_shape((N,), bias=bias)
    points = _zeros(build, zeros, scales, N, blocks, bits)
    given = [_shaped(build, w, (N, blocks, width)), _shaped(build, scales, (N, blocks))]
    panels = _in_panels(build, form, x, given, points) if accuracy_level == 4 else None
    if panels is None:
        y = build.matmul(x, _weights(build, form, given, points))
    else:
        packed, how = panels
        y = build.call("panel_product", [x, packed], [((*x.shape[:-1], N), x.dtype)], **how)[0]
    return y if bias is None else build.apply("add", y, bias)


# ---------------------------------------------------------------- GatherBlockQuantized


def _table(build: Builder, packed: Value, bits: int) -> Value:
    """The numbers of a table, one by one, as those of 4 bits with a type of their own are."""
    if packed.dtype.name in ("int4", "uint4"):
        return build.cast(packed, np.int8)
    return _unpacked(build, packed, bits, packed.shape[-1] * 8 // bits)


@operator("GatherBlockQuantized", domain=MICROSOFT)
def gather_of_few_bits(
    build: Builder,
    table: Value,
    places: Value,
    scales: Value,
    zeros: Value | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> Value:
    """Rows of numbers, of scales and of zero points are gathered, and then become floats."""
    require_floats(scales=scales)
    require_integers(indices=places)
    require_at_least(1, block_size=block_size)
    if bits not in (2, 4, 8) or table.dtype.name not in ("uint8", "int4", "uint4"):
        raise RefusedError(
            f"data is {table!r} of {bits} bits, expected uint8, int4 or uint4 of 2, 4 or 8 bits"
        )
    rank = len(table.shape)
    gathered, axis = axis_of(gather_axis, rank), axis_of(quantize_axis, rank)
    numbers = _table(build, table, bits)
    counts = [n if at != axis else -(-n // block_size) for at, n in enumerate(numbers.shape)]
    require_rank(rank, f"{rank} axes", scales=scales, zero_points=zeros)
    require_shape(counts, scales=scales)
    if gathered == axis:
        raise RefusedError(f"gather_axis and quantize_axis are {axis}, expected two axes")
    points = None
    if zeros is not None:
        points = zeros
        if zeros.dtype == np.uint8:
            points = _unpacked(build, zeros, bits, counts[-1])
        require_shape(counts, zero_points=points)
    middle = 1 << (bits - 1) if table.dtype == np.uint8 else 0
    arrays = [build.gather(it, places, gathered) for it in (numbers, scales)]
    if points is not None:
        arrays.append(build.gather(build.cast(points, np.float32), places, gathered))
    # The axis of blocks is that of the result.
    at = axis if axis < gathered else axis + len(places.shape) - 1
    return _spread(build, arrays, at, block_size, middle)


def _spread(build: Builder, arrays: list[Value], axis: int, block: int, middle: int) -> Value:
    """Floats of numbers, whose scales and zero points stand for blocks along an axis."""
    numbers, *rest = arrays
    shape, extent = numbers.shape, numbers.shape[axis]
    blocks = rest[0].shape[axis]
    wide = build.cast(numbers, np.float32)
    if extent % block:
        widths = [
            (0, blocks * block - extent) if at == axis else (0, 0) for at in range(len(shape))
        ]
        wide = build.emit("pad", [wide], widths=tuple(widths), mode="constant")[0]
    wide = build.reshape(wide, (*shape[:axis], blocks, block, *shape[axis + 1 :]))
    rows = [build.reshape(it, (*it.shape[: axis + 1], 1, *it.shape[axis + 1 :])) for it in rest]
    zero = operand(2) if len(rows) > 1 else number(float(middle))
    floats = build.map(("multiply", ("subtract", _X, zero), _Y), wide, *rows, dtype=rest[0].dtype)
    floats = build.reshape(floats, (*shape[:axis], blocks * block, *shape[axis + 1 :]))
    return build.slice(floats, [0] * len(shape), shape, [1] * len(shape))
