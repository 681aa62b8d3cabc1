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
from dlprim.arguments.floats import bits_of, type_of, widened
from dlprim.primitives.activations import Activations

_PREPARED = 32  # geometries that are kept; a network has fewer
_FEW = 8  # channels, which leave most of each vector empty

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


def table(axis: Axis, backward: bool = False) -> Table:
    """Of the results of an axis, or of the gradients with respect to what it reads."""
    begins, counts, weights = weights_of(axis)
    places = np.append(0, np.cumsum(counts))
    if not backward:
        return begins.tolist(), places.tolist(), weights.tolist()
    results = np.repeat(np.arange(axis.dst), counts)
    inputs = np.arange(places[-1]) + np.repeat(begins - places[:-1], counts)
    order = np.argsort(inputs, kind="stable")
    readers = np.append(0, np.cumsum(np.bincount(inputs, minlength=axis.src)))
    first = np.append(results[order], 0)[readers[:-1]]
    return first.tolist(), readers.tolist(), weights[order].tolist()


def weights_of(axis: Axis) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
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
    is_last = layout == "NHWC"
    channels, *size = (others[2], *others[:2]) if is_last else others
    if is_last and channels >= _FEW:
        resampling(((n, channels, *size), layout, dtype, 1), plane, backward).forward(src, dst)
    elif plane.rows.kind == "nearest" and not backward:
        _take(bits_of(src), bits_of(dst), 1 if is_last else 2, plane)
    elif channels < _FEW:
        planes = (n, *size, channels) if is_last else (n * channels, *size, 1)
        _resample_rows(src, dst, planes, plane, backward)
    else:
        shape = (n, channels, *size)
        packed = Activations(shape, dtype=dtype).pack(src)
        found = resampling((shape, "blocked", dtype, 1), plane, backward).forward(packed, None)
        Activations(dst.shape, dtype=dtype).unpack(found, dst)


def _take(src: Array, dst: Array, height: int, plane: Plane) -> None:
    """Pixels as they are; along that axis first which leaves less to the second."""
    (rows, *_), (columns, *_) = weights_of(plane.rows), weights_of(plane.columns)
    if plane.rows.dst * plane.columns.src <= plane.rows.src * plane.columns.dst:
        np.take(src.take(rows, height), columns, height + 1, dst, "clip")
    else:
        np.take(src.take(columns, height + 1), rows, height, dst, "clip")


def _resample_rows(src: Array, dst: Array, planes: Shape, plane: Plane, backward: bool) -> None:
    """One axis after the other, that first which leaves less to the second; in float32.

    ``planes`` is (count, height, width, inner): rows of an image are summed as they are, and those
    of its transpose, whose elements are columns.
    """
    count, height, width, inner = planes
    rows, columns = (it.src if backward else it.dst for it in plane)
    x = widened(src).view(np.ndarray).reshape(count, height, width * inner)
    y = dst if dst.dtype == np.float32 else aligned(dst.shape, np.float32)
    result = y.view(np.ndarray).reshape(count, rows, columns * inner)
    if rows * width <= height * columns:
        turned = swapped(_along_rows(x, plane.rows, backward)).reshape(count, width, -1)
        found = _along_rows(turned, plane.columns, backward)
        swapped(found.reshape(count, -1, rows), result)
    else:
        turned = swapped(x).reshape(count, width, -1)
        found = _along_rows(turned, plane.columns, backward).reshape(count, -1, height)
        _along_rows(swapped(found), plane.rows, backward, result)
    if y is not dst:
        _core.round_to_bfloat16(y, dst)


def _along_rows(x: Array, axis: Axis, backward: bool, out: Array | None = None) -> Array:
    """Of matrices (count, extent, others), as images of one column whose channels are others."""
    count, extent, others = x.shape
    plane = Plane(axis, Axis("nearest", 1, 1, 1.0))
    core = resampling(((count, others, extent, 1), "NHWC", "float32", 1), plane, backward)
    into = None if out is None else out.reshape(core.dst_shape)
    return core.forward(x.reshape(count, extent, 1, others), into).reshape(count, -1, others)
