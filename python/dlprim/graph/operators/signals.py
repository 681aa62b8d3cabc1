"""Functions for `call` nodes on signals and matrices: Fourier transforms, determinants."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlprim.graph.operators.elements import converted
from dlprim.graph.operators.operator import Arrays, Attributes, callee, widened


@callee("fourier", "later")
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


@callee("determinant", "later")
def determinant(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """Of the matrices in the last two axes."""
    return [converted(np.asarray(np.linalg.det(widened(arrays[0]))), arrays[0].dtype)]
