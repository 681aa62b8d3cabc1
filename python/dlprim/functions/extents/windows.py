"""Results along an axis as weighted sums of neighbours: what pooling and interpolation share.

Height and width have weights of their own, so that a table of each says everything: of every result
where the pixels begin that it reads, and their weights. The gradient is the transposed table.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from dlprim import _core
from dlprim.arguments.arrays import Array, Shape, aligned, swapped
from dlprim.arguments.floats import type_of, widened
from dlprim.primitives.activations import Activations

_PREPARED = 128  # geometries that are kept; a network has fewer
_FEW = 8  # channels that would leave most of each vector empty

# Where the pixels of each result begin; where its weights begin, and all end; the weights.
Table: TypeAlias = tuple[list[int], list[int], list[float]]


class Axis(NamedTuple):
    """What becomes of one axis.

    Attributes
    ----------
    kind : "average", "nearest", "linear" or "corners"
        "corners" is linear with the outermost pixels on each other.
    src, dst : int
        Extents of what is read and of the result.
    scale : float
        Pixels that are read per result; not of "average", whose windows cover all.
    """

    kind: str
    src: int
    dst: int
    scale: float = 0.0


class Plane(NamedTuple):
    """Both axes of images."""

    rows: Axis
    columns: Axis


@lru_cache(_PREPARED)
def table(axis: Axis, backward: bool = False) -> Table:
    """Of the results of an axis, or of the gradients with respect to what it reads."""
    begins, counts, weights = _forward(axis)
    places = np.append(0, np.cumsum(counts))
    if not backward:
        return begins.tolist(), places.tolist(), weights.tolist()
    results = np.repeat(np.arange(axis.dst), counts)
    inputs = np.arange(places[-1]) + np.repeat(begins - places[:-1], counts)
    order = np.argsort(inputs, kind="stable")
    readers = np.append(0, np.cumsum(np.bincount(inputs, minlength=axis.src)))
    first = np.append(results[order], 0)[readers[:-1]]
    return first.tolist(), readers.tolist(), weights[order].tolist()


def _forward(axis: Axis) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """The begins, how many pixels, and their weights one result after the other."""
    src, dst = axis.src, axis.dst
    places = np.arange(dst)
    if axis.kind == "average":
        begins = places * src // dst
        counts = -(-(places + 1) * src // dst) - begins
        return begins, counts, np.repeat(1 / counts, counts)
    if axis.kind == "nearest":  # in float32, as PyTorch: where it rounds another pixel is taken
        found = np.floor(places.astype(np.float32) * np.float32(axis.scale))
        begins = np.minimum(found.astype(np.int64), src - 1)
        return begins, np.ones(dst, np.int64), np.ones(dst)
    if axis.kind == "linear":
        exact = np.maximum((places + 0.5) * axis.scale - 0.5, 0)
    else:
        exact = places * axis.scale
    begins = np.minimum(exact.astype(np.int64), src - 1)
    share = np.where(begins == src - 1, 0, exact - begins)  # of the neighbour behind, if there is
    pairs = np.stack([1 - share, share], 1)
    counts = 1 + (share > 0)
    return begins, counts, pairs[pairs > 0]


@lru_cache(_PREPARED)
def resampling(
    activations: tuple[Shape, str, str, int], plane: Plane, backward: bool = False
) -> _core.Resampling:
    """The primitive on packed arrays, (N, C, H, W), layout, dtype and groups of what it reads."""
    shape, layout, dtype, groups = activations
    core = _core.Activations(shape, groups, dtype, layout)
    return _core.Resampling(core, table(plane.rows, backward), table(plane.columns, backward))


def resample(src: Array, dst: Array, layout: str, plane: Plane, backward: bool = False) -> None:
    """Writes all of ``dst``, an array of the layout "NCHW" or "NHWC", of the dtype of ``src``."""
    if not src.size:
        return
    dtype = type_of(src)
    n, *others = src.shape
    if layout == "NHWC":
        *size, channels = others
        resampling(((n, channels, *size), layout, dtype, 1), plane, backward).forward(src, dst)
    elif others[0] < _FEW:
        _resample_planes(src, dst, plane, backward)
    else:
        shape = (n, *others)
        packed = Activations(shape, dtype=dtype).pack(src)
        found = resampling((shape, "blocked", dtype, 1), plane, backward).forward(packed, None)
        Activations(dst.shape, dtype=dtype).unpack(found, dst)


def _resample_planes(src: Array, dst: Array, plane: Plane, backward: bool) -> None:
    """One axis after the other, that first which leaves less to the second; in float32."""
    *_, height, width = src.shape
    *_, rows, columns = dst.shape
    x = widened(src).view(np.ndarray).reshape(-1, height, width)
    y = dst if dst.dtype == np.float32 else aligned(dst.shape, np.float32)
    result = y.view(np.ndarray).reshape(-1, rows, columns)
    if rows * width <= height * columns:
        middle = swapped(_along_first(x, plane.rows, backward))
        swapped(_along_first(middle, plane.columns, backward), result)
    else:
        middle = swapped(_along_first(swapped(x), plane.columns, backward))
        _along_first(middle, plane.rows, backward, result)
    if y is not dst:
        _core.round_to_bfloat16(y, dst)


def _along_first(x: Array, axis: Axis, backward: bool, out: Array | None = None) -> Array:
    """Of matrices (count, extent, others), as images of one column whose channels are others."""
    count, extent, others = x.shape
    plane = Plane(axis, Axis("nearest", 1, 1, 1.0))
    core = resampling(((count, others, extent, 1), "NHWC", "float32", 1), plane, backward)
    into = None if out is None else out.reshape(core.dst_shape)
    return core.forward(x.reshape(count, extent, 1, others), into).reshape(count, -1, others)
