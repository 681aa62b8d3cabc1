"""Between which numbers the elements of arrays lie, or most of them, over calibration inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dlprim.graph.graph import Array

Range = tuple[float, float]
# Visits all batches: calls a function with the arrays that are observed, in their order.
Visit = Callable[[Callable[[Sequence[Array]], None]], None]

_BINS = 2048
_STEP = 16  # between thresholds that are tried


def ranges(
    visit: Visit, count: int, method: str, percentile: float, is_symmetric: bool
) -> list[Range]:
    """The range of each array: of all elements, or of those that a method keeps.

    Parameters
    ----------
    visit : callable
        Is called once, or twice where elements must be counted.
    count : int
        How many arrays there are.
    method : "minmax", "percentile" or "entropy"
    percentile : float
        Of the elements, how many per cent lie below the upper bound, and above the lower one.
    is_symmetric : bool
        Whether half of the 8 bits are for numbers below zero, even where there are none.

    Raises
    ------
    ValueError
        An array has an element that is no finite number.
    """
    lowest, highest = np.zeros(count), np.zeros(count)  # zero is always among the numbers

    def extend(arrays: Sequence[Array]) -> None:
        for place, array in enumerate(arrays):
            if not array.size:
                continue
            low, high = float(array.min()), float(array.max())
            if not np.isfinite([low, high]).all():
                raise ValueError("calibration gives elements that are no finite numbers")
            lowest[place] = min(lowest[place], low)
            highest[place] = max(highest[place], high)

    visit(extend)
    if method == "minmax":
        return [(float(a), float(b)) for a, b in zip(lowest, highest, strict=True)]
    histograms = np.zeros((count, _BINS), np.int64)
    magnitude = np.maximum(-lowest, highest)
    is_signed = method == "percentile"

    def add(arrays: Sequence[Array]) -> None:
        for place, array in enumerate(arrays):
            limits = (lowest[place], highest[place]) if is_signed else (0, magnitude[place])
            if limits[0] < limits[1]:
                # Zero costs nothing, and behind relu it is most of what there is.
                counted = array if is_signed else np.abs(array[array != 0])
                histograms[place] += np.histogram(counted, _BINS, limits)[0]

    visit(add)
    found = []
    for place in range(count):
        low, high = float(lowest[place]), float(highest[place])
        if is_signed:
            found.append(_percentiles(histograms[place], (low, high), percentile))
        else:
            levels = 255 if low == 0 and not is_symmetric else 127
            limit = _least_entropy(histograms[place], levels) * float(magnitude[place])
            found.append((max(low, -limit), min(high, limit)))
    return found


def _percentiles(histogram: Array, whole: Range, percentile: float) -> Range:
    """With zero inside, and never beyond the whole."""
    total = histogram.sum()
    if not total:
        return whole
    edges = np.linspace(*whole, _BINS + 1)
    below = np.concatenate(([0], np.cumsum(histogram))) / total
    high = np.interp(percentile / 100, below, edges)
    low = np.interp(1 - percentile / 100, below, edges)
    return min(0.0, float(low)), max(0.0, float(high))


def _least_entropy(histogram: Array, levels: int) -> float:
    """The part of the range of magnitudes that loses least information in so many levels.

    For each threshold: the distribution with all that lies beyond it in the last bin, against the
    one where bins that fall into one level share what they hold; their divergence decides.
    """
    best, part = np.inf, 1.0
    for end in range(_BINS, levels, -_STEP):
        kept = histogram[:end].astype(np.float64)
        clipped = kept.copy()
        clipped[-1] += histogram[end:].sum()
        is_there = kept > 0
        starts = np.arange(levels) * end // levels
        sums = np.add.reduceat(kept, starts)
        counts = np.maximum(np.add.reduceat(is_there.astype(np.int64), starts), 1)
        level = np.searchsorted(starts, np.arange(end), side="right") - 1
        shared = np.where(is_there, (sums / counts)[level], 0)
        if not shared.sum():
            continue
        p, q = clipped / clipped.sum(), shared / shared.sum()
        both = (p > 0) & (q > 0)
        # What stands where the other has nothing costs as if that had a tiny part of it.
        alone = p[(p > 0) & (q == 0)]
        divergence = (p[both] * np.log(p[both] / q[both])).sum()
        divergence += (alone * np.log(alone / 1e-9)).sum()
        if divergence < best:
            best, part = float(divergence), end / _BINS
    return part
