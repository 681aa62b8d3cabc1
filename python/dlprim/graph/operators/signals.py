"""Functions for `call` nodes on signals and matrices: Fourier transforms, inverses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dlprim.graph.graph import Node, Value
from dlprim.graph.operators.elements import converted
from dlprim.graph.operators.operator import Arrays, Attributes, Values, callee, there, widened

if TYPE_CHECKING:
    from dlprim.graph.builder import Builder


def _fourier_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    """A transform the other way: one is the other, transposed, but for a factor.

    Of half a spectrum, each number but the first, and the last of an even length, stands for two.
    """
    (x,), form, diff = node.operands, node.attributes, there(diffs[0])
    axis, length = form["axis"] % len(x.shape), form["length"]
    to_reals = form["inverse"] and form["onesided"]
    of_reals = x.shape[-1] == 1 or (form["onesided"] and not form["inverse"])
    half = length // 2 + 1
    if form["onesided"] and not form["inverse"]:
        diff = _filled(b, diff, axis, length)
    how = {"axis": axis, "length": length, "inverse": not form["inverse"], "onesided": to_reals}
    extents = (*diff.shape[:axis], half if to_reals else length, *diff.shape[axis + 1 : -1])
    (made,) = b.call("fourier", [diff], [((*extents, 2), diff.dtype)], **how)
    factors = np.full(made.shape[axis], 1 / length if form["inverse"] else length)
    if to_reals:
        factors[1 : (length + 1) // 2] *= 2
    along = [-1 if it == axis else 1 for it in range(len(made.shape))]
    scaled = b.constant(factors.reshape(along).astype(x.dtype), "factors")
    made = b.apply("multiply", made, scaled)
    if of_reals:
        made = b.slice(made, [0] * len(made.shape), (*made.shape[:-1], 1), [1] * len(made.shape))
    made = _filled(b, made, axis, x.shape[axis])
    return [_filled(b, made, len(x.shape) - 1, x.shape[-1])]


def _filled(b: Builder, x: Value, axis: int, extent: int) -> Value:
    """x cut, or zeros behind it, up to an extent."""
    if x.shape[axis] == extent:
        return x
    widths = tuple((0, extent - n) if it == axis else (0, 0) for it, n in enumerate(x.shape))
    return b.emit("pad", [x], mode="constant", widths=widths)[0]


def _turned(b: Builder, x: Value) -> Value:
    axes = list(range(len(x.shape)))
    return b.transpose(x, [*axes[:-2], axes[-1], axes[-2]])


def _inverse_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    turned = _turned(b, node.output)
    product = b.matmul(b.matmul(turned, there(diffs[0])), turned)
    return [b.apply("negate", product)]


def _determinant_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    (x,) = node.operands
    (inverse,) = b.call("inverse", [x], [(x.shape, x.dtype)])
    share = b.apply("multiply", there(diffs[0]), node.output)
    return [b.apply("multiply", _turned(b, inverse), b.reshape(share, (*share.shape, 1, 1)))]


@callee("fourier", _fourier_gradient)
def fourier(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """Along an axis, of numbers whose real and imaginary parts are the last axis.

    The signal is cut or filled with zeros to ``length``. Half of a spectrum is returned where it is
    ``onesided``, and with ``inverse`` taken, which gives real numbers.
    """
    x = arrays[0] if arrays[0].dtype.name in ("float32", "float64") else widened(arrays[0])
    axis, length = attributes["axis"], attributes["length"]
    numbers = x[..., 0]
    if x.shape[-1] == 2:
        numbers = numbers + np.complex64(1j) * x[..., 1]
    if attributes["inverse"] and attributes["onesided"]:
        result = np.fft.irfft(numbers, length, axis=axis)[..., None]
        return [converted(result, arrays[0].dtype)]
    if attributes["inverse"]:
        y = np.fft.ifft(numbers, length, axis=axis)
    elif attributes["onesided"]:
        y = np.fft.rfft(numbers.real, length, axis=axis)
    else:
        y = np.fft.fft(numbers, length, axis=axis)
    return [converted(np.stack([y.real, y.imag], axis=-1), arrays[0].dtype)]


@callee("determinant", _determinant_gradient)
def determinant(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """Of the matrices in the last two axes."""
    return [converted(np.asarray(np.linalg.det(widened(arrays[0]))), arrays[0].dtype)]


@callee("inverse", _inverse_gradient)
def inverse_arrays(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """Of the matrices in the last two axes; of one that has none, no numbers."""
    wide = widened(arrays[0])
    try:
        found = np.linalg.inv(wide)
    except np.linalg.LinAlgError:
        found = np.full_like(wide, np.nan)
        for place in np.ndindex(*wide.shape[:-2]):
            if np.linalg.matrix_rank(wide[place]) == wide.shape[-1]:
                found[place] = np.linalg.inv(wide[place])
    return [converted(found, arrays[0].dtype)]
