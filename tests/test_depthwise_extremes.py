"""Depthwise filters and steps of extreme sizes: right, and without minutes of generating code."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import dlprim

pytestmark = pytest.mark.every_level


def convolved(x: np.ndarray, w: np.ndarray, stride: int) -> np.ndarray:
    """A filter for every channel, tap by tap, in float64."""
    height, width = (
        (extent - taps) // stride + 1 for extent, taps in zip(x.shape[2:], w.shape[2:], strict=True)
    )
    y = np.zeros((*x.shape[:2], height, width))
    for r in range(w.shape[2]):
        for s in range(w.shape[3]):
            rows = slice(r, r + (height - 1) * stride + 1, stride)
            columns = slice(s, s + (width - 1) * stride + 1, stride)
            y += w[:, 0, r, s, None, None] * x[:, :, rows, columns].astype(np.float64)
    return y


@pytest.mark.parametrize(
    ("image", "taps", "stride"),
    [((520, 510), (3, 3), 80), ((1, 300), (1, 64), 1), ((1, 300), (1, 65), 1), ((2, 9), (1, 9), 1)],
    ids=str,
)
def test_long_filters_and_long_steps(
    image: tuple[int, int], taps: tuple[int, int], stride: int
) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((1, 8, *image)).astype(np.float32)
    w = rng.standard_normal((8, 1, *taps)).astype(np.float32)
    y = dlprim.conv2d(x, w, stride=stride, groups=8)
    expected = convolved(x, w, stride)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


_FIRST_CALLS = """
import threading
import numpy as np
import dlprim
x = np.ones((1, 24, 9, 12), np.float32)
layers = [dlprim.Activations(x.shape) for _ in range(8)]
threads = [threading.Thread(target=layer.pack, args=(x,)) for layer in layers]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_threads_may_make_the_first_calls_of_a_process() -> None:
    subprocess.run([sys.executable, "-c", _FIRST_CALLS], check=True, timeout=120)
