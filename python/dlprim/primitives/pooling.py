"""Pooling of packed activations: maximum, average, global average."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt

from dlprim import _core
from dlprim.arguments.arrays import Array, aligned
from dlprim.arguments.floats import float_operand
from dlprim.arguments.scalars import flag, held_integer, refuse_flag, shown
from dlprim.primitives.activations import Activations


class _Pool2d:
    """Geometry, shapes and results of every kind of pooling."""

    _kind = "max"

    def __init__(
        self,
        shape: Sequence[int],
        kernel: Any,
        stride: Any = None,
        padding: Any = 0,
        *,
        layout: str = "blocked",
        dtype: npt.DTypeLike = "float32",
        groups: int = 1,
    ) -> None:
        self.activations = Activations(shape, layout=layout, dtype=dtype, groups=groups)
        window = _pair("kernel", kernel)
        stride = window if stride is None else _pair("stride", stride)
        numbers = (*window, *stride, *_pair("padding", padding))
        self._core = _core.Pooling(self.activations._core, self._kind, numbers)
        self.src_shape = self.activations.packed_shape
        self.dst_shape = self._core.dst_shape
        first = 1 if layout == "NHWC" else 2
        p, q = self.dst_shape[first : first + 2]
        self.y_shape = (*self.activations.shape[:2], p, q)
        self.dst_activations = Activations(self.y_shape, layout=layout, dtype=dtype, groups=groups)

    def __repr__(self) -> str:
        it = self.activations
        name = type(self).__name__
        return f"<dlprim.{name} {it.shape} -> {self.y_shape} {it.dtype} {it.layout}>"


class MaxPool2d(_Pool2d):
    """The largest element of each window; NaN counts as largest, padding as smallest.

    Parameters
    ----------
    shape, layout, dtype, groups
        As for `Activations`.
    kernel : int or (height, width)
        At most 256 elements.
    stride : int or (height, width), optional
        The kernel by default.
    padding : int or (height, width)
        On each side, at most half of the kernel.

    Attributes
    ----------
    src_shape, dst_shape, indices_shape : tuple of int
        Of packed arrays; indices are uint8.
    y_shape : tuple of int
        Of the plain result, (N, C, P, Q), with P and Q rounded down.
    activations, dst_activations : Activations

    Raises
    ------
    TypeError, ValueError
        As for `Activations`; the geometry is impossible.
    """

    @property
    def indices_shape(self) -> tuple[int, ...]:
        return self.dst_shape

    def new_indices(self) -> npt.NDArray[np.uint8]:
        """A new array for the indices.

        Returns
        -------
        ndarray of uint8, indices_shape
        """
        return aligned(self.dst_shape, np.uint8, zeros=True)

    def forward(
        self, src: Any, out: Array | None = None, indices: npt.NDArray[np.uint8] | None = None
    ) -> Array:
        """Pools src.

        Parameters
        ----------
        src : packed array, src_shape
        out : packed ndarray, dst_shape, optional
            Written and returned. Must share no memory with src.
        indices : ndarray of uint8, indices_shape, optional
            For `backward`: receives for each result its position in the window, ``r * S + s``, the
            first of equal ones.

        Returns
        -------
        packed ndarray, dst_shape

        Raises
        ------
        TypeError, ValueError
            An array has the wrong dtype or shape, is not C-contiguous, or overlaps a result.
        """
        return self._core.forward(src, out, indices)

    def backward(
        self, diff_dst: Any, indices: npt.NDArray[np.uint8], out: Array | None = None
    ) -> Array:
        """The gradient with respect to src.

        Parameters
        ----------
        diff_dst : packed array, dst_shape
        indices : ndarray of uint8, indices_shape
            From `forward`. Gradients with an index outside the window are dropped.
        out : packed ndarray, src_shape, optional
            Written and returned. Must share no memory with an operand.

        Returns
        -------
        packed ndarray, src_shape

        Raises
        ------
        TypeError, ValueError
            As for `forward`.
        """
        return self._core.backward(diff_dst, indices, out)


class AvgPool2d(_Pool2d):
    """The mean of each window.

    Parameters
    ----------
    shape, kernel, stride, padding, layout, dtype, groups
        As for `MaxPool2d`, with a kernel of any size.
    count_include_pad : bool
        Whether zeros of padding count as elements, as in PyTorch.

    Attributes
    ----------
    src_shape, dst_shape, y_shape, activations, dst_activations
        As for `MaxPool2d`.

    Raises
    ------
    TypeError, ValueError
        As for `MaxPool2d`.
    """

    def __init__(
        self,
        shape: Sequence[int],
        kernel: Any,
        stride: Any = None,
        padding: Any = 0,
        *,
        layout: str = "blocked",
        dtype: npt.DTypeLike = "float32",
        groups: int = 1,
        count_include_pad: bool = True,
    ) -> None:
        counted = flag("count_include_pad", count_include_pad)
        self._kind = "average_padded" if counted else "average"
        super().__init__(shape, kernel, stride, padding, layout=layout, dtype=dtype, groups=groups)

    def forward(self, src: Any, out: Array | None = None) -> Array:
        """Pools src.

        Parameters
        ----------
        src : packed array, src_shape
        out : packed ndarray, dst_shape, optional
            As for `MaxPool2d.forward`.

        Returns
        -------
        packed ndarray, dst_shape

        Raises
        ------
        TypeError, ValueError
            As for `MaxPool2d.forward`.
        """
        return self._core.forward(src, out, None)

    def backward(self, diff_dst: Any, out: Array | None = None) -> Array:
        """The gradient with respect to src.

        Parameters
        ----------
        diff_dst : packed array, dst_shape
        out : packed ndarray, src_shape, optional
            As for `MaxPool2d.backward`.

        Returns
        -------
        packed ndarray, src_shape

        Raises
        ------
        TypeError, ValueError
            As for `MaxPool2d.backward`.
        """
        return self._core.backward(diff_dst, None, out)


class GlobalAvgPool2d(AvgPool2d):
    """The mean of each channel of each image: `AvgPool2d` with one window.

    Parameters
    ----------
    shape, layout, dtype, groups
        As for `Activations`.

    Attributes
    ----------
    src_shape, dst_shape, y_shape, activations, dst_activations
        As for `AvgPool2d`.

    Raises
    ------
    TypeError, ValueError
        As for `Activations`.
    """

    def __init__(
        self,
        shape: Sequence[int],
        *,
        layout: str = "blocked",
        dtype: npt.DTypeLike = "float32",
        groups: int = 1,
    ) -> None:
        plain = Activations(shape, layout=layout, dtype=dtype, groups=groups).shape
        super().__init__(plain, plain[2:], layout=layout, dtype=dtype, groups=groups)

    def features(self, dst: Any) -> Array:
        """The result as a plain (N, C) array: a view, or a copy if the last block is padded.

        Parameters
        ----------
        dst : packed array, dst_shape
            From `forward`.

        Returns
        -------
        ndarray of the dtype of dst, (N, C)

        Raises
        ------
        TypeError, ValueError
            dst has the wrong dtype or shape.
        """
        packed = float_operand("dst", dst, self.activations.takes_bits)
        if packed.shape != self.dst_shape:
            raise ValueError(f"dst has shape {packed.shape}, expected {self.dst_shape}")
        features = self.y_shape[:2]
        if packed.size == math.prod(features):
            return packed.view(np.ndarray).reshape(features)
        return self.dst_activations.unpack(packed).reshape(features)

    def from_features(self, features: Any, out: Array | None = None) -> Array:
        """A plain (N, C) array packed as dst_shape, for `backward`: the inverse of `features`.

        Parameters
        ----------
        features : array of float32 or bfloat16, (N, C)
        out : packed ndarray, dst_shape, optional
            Written and returned. Must be C-contiguous and share no memory with features.

        Returns
        -------
        packed ndarray, dst_shape

        Raises
        ------
        TypeError, ValueError
            An array has the wrong dtype or shape.
        """
        plain = float_operand("features", features, self.activations.takes_bits)
        if plain.shape != self.y_shape[:2]:
            raise ValueError(f"features has shape {plain.shape}, expected {self.y_shape[:2]}")
        return self.dst_activations.pack(plain.reshape(self.y_shape), out)


def _pair(name: str, value: Any) -> tuple[int, int]:
    try:
        pair = value if isinstance(value, Sequence) else (value, value)
        height, width = (index(refuse_flag(each)) for each in pair)
    except (TypeError, ValueError):
        raise TypeError(
            f"{name} is {shown(value)}, expected an integer or a pair (height, width)"
        ) from None
    return held_integer(name, height), held_integer(name, width)
