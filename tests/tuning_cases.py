"""A convolution that is tuned, and the results of its passes."""

from typing import Any

import numpy as np
import pytest

import dlprim

PASSES = ("forward", "backward_data", "backward_weights")
SHAPES = {"x_shape": (3, 34, 9, 7), "w_shape": (70, 17, 3, 2), "groups": 2, "padding": 1}
every_pass = pytest.mark.parametrize("which", PASSES)
variants = pytest.mark.parametrize(
    ("layout", "dtype"),
    [(layout, dtype) for layout in ("blocked", "NHWC") for dtype in ("float32", "bfloat16")],
)


def schedules_of(layer: Any, which: str, count: int) -> list[str]:
    """Those that the cost model would consider, and some of them with a step near 2^63."""
    found = layer._core.candidates(which, count)
    endless = list[str]()
    for schedule in found[:2]:
        levels = schedule.split()
        for number, level in enumerate(levels):
            for step in (2**63 - 1, 2**62 + 1):
                changed = f"{level[0]}{step}"
                endless.append(" ".join([*levels[:number], changed, *levels[number + 1 :]]))
    return found + [it for it in dict.fromkeys(endless) if _is_taken(layer, which, it)]


def _is_taken(layer: Any, which: str, schedule: str) -> bool:
    try:
        layer._core.set_schedule(which, schedule)
    except ValueError:
        return False
    return True


def result(conv: dlprim.Conv2d, which: str) -> np.ndarray:
    """Of a pass, plain; NaN where nothing is written."""
    random = np.random.default_rng(0)
    shapes = (conv.x_shape, conv.w_shape, conv.y_shape)
    plain = [random.standard_normal(shape, np.float32) for shape in shapes]
    if conv.dtype != np.float32:
        plain = [dlprim.to_bfloat16(each) for each in plain]
    src, weights = conv.pack_src(plain[0]), conv.pack_weights(plain[1])
    diff_dst = conv.pack_diff_dst(plain[2])
    run, operands, unpack = {
        "forward": (conv.forward, (src, weights), conv.unpack_dst),
        "backward_data": (conv.backward_data, (diff_dst, weights), conv.unpack_diff_src),
        "backward_weights": (conv.backward_weights, (src, diff_dst), conv.unpack_diff_weights),
    }[which]
    out = run(*operands)
    out.view(np.uint8).fill(0xFF)
    return unpack(run(*operands, out=out)).astype(np.float32)


def assert_close(value: np.ndarray, expected: np.ndarray, dtype: str) -> None:
    scale = np.abs(expected).max() * (1e-5 if dtype == "float32" else 1e-2)
    np.testing.assert_allclose(value, expected, rtol=0, atol=scale)
