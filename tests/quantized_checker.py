"""8-bit convolutions against sums of int64, with every operand between pages that nobody may touch.

Scales and biases are powers of two and eighths, so that float32 holds every number and results are
equal and not near; what is in a block behind its last channel is spoilt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import dlprim
from guarded import guarded
from levels import few

LIMITS = {"uint8": (0, 255), "int8": (-128, 127)}


@dataclass(frozen=True)
class Case:
    x_shape: tuple[int, int, int, int]
    channels: int
    taps: tuple[int, int]
    stride: int = 1
    padding: Any = 0
    dilation: int = 1
    groups: int = 1

    @property
    def w_shape(self) -> tuple[int, int, int, int]:
        return (self.channels, self.x_shape[1] // self.groups, *self.taps)

    @property
    def geometry(self) -> tuple[Any, ...]:
        return self.stride, self.padding, self.dilation, self.groups


CASES = [
    *(Case((2, c, 7, 9), k, (3, 3), padding=1) for c, k in ((1, 7), (3, 64), (5, 65), (17, 20))),
    *(Case((1, c, 6, 5), 33, (3, 3), 2, 1) for c in (33, 65, 130)),
    *(Case((2, c, 5, 6), 17, (1, 1)) for c in (3, 64, 100)),
    Case((1, 64, 8, 8), 64, (1, 1), 2),
    # Each byte meets so many others that, without VNNI, words are made of all first.
    *(Case((2, c, 9, 9), 130, (3, 3), padding=1) for c in (33, 66)),
    Case((3, 70, 12, 12), 200, (1, 1)),
    Case((1, 6, 9, 9), 4, (2, 5), 2, ((1, 2), (0, 3)), 2),
    *(Case((n, 64, 7, 7), 40, (3, 3), padding=1) for n in (1, 2, 3, 4)),
    *(Case((3, c, 9, 8), 24, (3, 2), 2, 1) for c in (4, 32, 64, 100)),
    *(Case((2, 64, h, 8), 36, (1, 1), 2) for h in (1, 7, 8, 9)),
    Case((1, 10, 6, 6), 6, (3, 3), padding=1, groups=2),
    Case((1, 68, 5, 5), 12, (3, 3), padding=2, dilation=2, groups=4),
    Case((1, 3, 4, 4), 6, (3, 3), padding=1, groups=3),
    Case((0, 3, 4, 4), 6, (3, 3)),
    *(Case((2, c, 9, 8), c, (3, 3), padding=1, groups=c) for c in (2, 5, 33, 65)),
    Case((1, 17, 9, 8), 17, (5, 3), 2, 2, 2, groups=17),
    Case((1, 4, 12, 11), 4, (9, 9), padding=4, groups=4),
]


def sums(x: Any, w: Any, zero: int, case: Case) -> Any:
    """The exact sums of (x - zero) w, padded with zeros."""
    (top, bottom), (left, right) = _sides(case.padding)
    wide = np.pad(x.astype(np.int64) - zero, ((0, 0), (0, 0), (top, bottom), (left, right)))
    (r, s), step, apart = case.taps, case.stride, case.dilation
    p = (wide.shape[2] - (r - 1) * apart - 1) // step + 1
    q = (wide.shape[3] - (s - 1) * apart - 1) // step + 1
    y = np.zeros((x.shape[0], case.channels, p, q), np.int64)
    c, k = w.shape[1], case.channels // case.groups
    for group in range(case.groups):
        filters = w[group * k : (group + 1) * k].astype(np.int64)
        for i, j in np.ndindex(r, s):
            seen = wide[:, group * c : (group + 1) * c, i * apart :, j * apart :]
            seen = seen[:, :, : (p - 1) * step + 1 : step, : (q - 1) * step + 1 : step]
            y[:, group * k : (group + 1) * k] += np.einsum(
                "nchw,kc->nkhw", seen, filters[:, :, i, j]
            )
    return y


def _sides(padding: Any) -> Any:
    return ((padding, padding),) * 2 if isinstance(padding, int) else padding


def requantized(exact: Any, dtype: str, zero: int) -> Any:
    """Rounded to even, in front of the zero point, and saturated."""
    return np.clip(np.rint(exact) + zero, *LIMITS[dtype]).astype(dtype)


def check(case: Case, src: str, dst: str, layout: str, seed: int = 0, extreme: bool = False) -> Any:
    """The result, after it was compared."""
    random = np.random.default_rng(seed)
    low, high = LIMITS[src]
    more = dst != "int32" and seed % 2 == 1  # bias, relu and a residual
    conv = dlprim.Conv2d(
        case.x_shape, case.w_shape, *case.geometry,
        dtype=src, dst_dtype=dst, layout=layout, bias=more, activation="relu" if more else None,
    )  # fmt: skip
    x = random.integers(low, high + 1, case.x_shape).astype(src)
    w = random.integers(-128, 128, case.w_shape).astype(np.int8)
    if extreme:
        x[...], w[...] = (high if high > 127 else low), -128
    zero = int(random.integers(low, high + 1))
    whole = random.integers(-1000, 1000, case.channels).astype(np.int32)
    scale = np.exp2(-random.integers(6, 12, case.channels)).astype(np.float32)
    bias = random.integers(-64, 64, case.channels).astype(np.float32) / 8
    dst_zero = int(random.integers(0, 100)) if dst in LIMITS else 0
    residual = random.integers(0, 100, conv.y_shape).astype(dst) if more and dst in LIMITS else None
    exact = sums(x, w, zero, case) + whole[:, None, None]

    operands: dict[str, Any] = {"src_zero_point": zero, "dst_zero_point": dst_zero}
    operands["int_bias"] = _placed(whole - zero * w.sum((1, 2, 3), dtype=np.int32))
    if dst != "int32":
        operands["scale"] = _placed(scale)
    if more:
        operands["bias"] = _placed(bias)
    if residual is not None:
        operands["residual"] = _placed(conv.pack_diff_dst(residual))
        operands["residual_scale"] = 0.25
    packed = _placed(conv.pack_src(x))
    if layout == "blocked" and case.x_shape[1] < packed.shape[-1]:
        packed[..., case.x_shape[1] :] = 77
    out = _placed(np.zeros(conv.dst_shape, conv.dst_dtype))
    y = conv.unpack_dst(conv.forward(packed, _placed(conv.pack_weights(w)), out=out, **operands))

    if dst != "int32":
        expected = exact.astype(np.float32) * scale[:, None, None]
        if more:
            expected = expected + bias[:, None, None]
        if residual is not None:
            expected = expected + residual.astype(np.float32) / 4
        exact = np.maximum(expected, 0) if more else expected
    if dst in LIMITS:
        exact = requantized(exact, dst, dst_zero)
    if dst == "bfloat16":
        exact = dlprim.to_bfloat16(exact)
    np.testing.assert_array_equal(y, exact)
    return y


def _placed(array: Any) -> Any:
    """A copy that ends where a forbidden page begins."""
    copy = guarded(array.size, "end", array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def check_on_this_level() -> None:
    for number, case in few(CASES, dlprim.isa()):
        src = ("uint8", "int8")[number % 2]
        for dst in ("int32", "float32", "uint8", "int8"):
            if dst == "int32" and case.groups == case.x_shape[1] == case.channels:
                continue
            check(case, src, dst, ("blocked", "NHWC")[number // 2 % 2], number)
