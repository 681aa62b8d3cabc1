"""Convolutions along any number of axes: cases, their operands, and what is right, tap by tap."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np

import dlprim

F4, F8 = np.float32, np.float64
Sides = tuple[int, int]


class Case(NamedTuple):
    """Along as many axes as there are strides; transposed where there is an output_padding."""

    N: int
    C: int
    K: int
    extents: tuple[int, ...]
    taps: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[Sides, ...]
    dilation: tuple[int, ...]
    groups: int = 1
    output_padding: tuple[int, ...] = ()

    @property
    def axes(self) -> int:
        return len(self.stride)

    @property
    def name(self) -> str:
        return f"conv{'_transpose' if self.output_padding else ''}{self.axes}d"

    @property
    def x_shape(self) -> tuple[int, ...]:
        return (self.N, self.C, *self.extents)

    @property
    def w_shape(self) -> tuple[int, ...]:
        if self.output_padding:
            return (self.C, self.K // self.groups, *self.taps)
        return (self.K, self.C // self.groups, *self.taps)

    @property
    def y_shape(self) -> tuple[int, ...]:
        sums = []
        for axis, (extent, taps) in enumerate(zip(self.extents, self.taps, strict=True)):
            covered = self.dilation[axis] * (taps - 1)
            if self.output_padding:
                spread = (extent - 1) * self.stride[axis] + 1 + self.output_padding[axis]
                sums.append(spread + covered - sum(self.padding[axis]))
            else:
                span = extent + sum(self.padding[axis]) - covered - 1
                sums.append(span // self.stride[axis] + 1 if span >= 0 else 0)
        return (self.N, self.K, *sums)

    @property
    def keywords(self) -> dict[str, Any]:
        shared = {"stride": self.stride, "dilation": self.dilation, "groups": self.groups}
        if not self.output_padding:
            return shared | {"padding": self.padding}
        pads = tuple(front for front, _ in self.padding)
        return shared | {"padding": pads, "output_padding": self.output_padding}


def random_cases(count: int, axes: int, transposed: bool, seed: int) -> list[Case]:
    random = np.random.default_rng(seed)

    def draw(values: Any) -> tuple[int, ...]:
        return tuple(int(random.choice(values)) for _ in range(axes))

    found: list[Case] = []
    while len(found) < count:
        groups = int(random.choice([1, 1, 1, 2, 3]))
        c, k = (groups * int(random.integers(1, 12 if axes == 3 else 20)) for _ in range(2))
        if random.random() < 0.15:
            c = k = groups = int(random.integers(2, 20))
        extents, taps, dilation = draw(range(1, 9)), draw([1, 2, 3, 3, 4]), draw([1, 1, 2, 3])
        stride, fronts = draw([1, 1, 2, 3]), draw(range(4))
        behind = fronts if transposed or random.random() < 0.6 else draw(range(4))
        more = ()
        if transposed:
            most = (max(pair) for pair in zip(stride, dilation, strict=True))
            more = tuple(int(random.integers(0, bound)) for bound in most)
        sides = tuple(zip(fronts, behind, strict=True))
        n = int(random.integers(0, 4) if random.random() < 0.1 else random.integers(1, 4))
        case = Case(n, c, k, extents, taps, stride, sides, dilation, groups, more)
        if min(case.y_shape[2:]) >= 1:
            found.append(case)
    return found


ONE, NONE = (1, 1, 1), ((0, 0),) * 3
PADDED = ((1, 1),) * 3
FIXED = [
    Case(1, 1, 1, (1,), (1,), (1,), ((0, 0),), (1,)),
    Case(2, 80, 70, (33,), (3,), (1,), ((1, 1),), (1,)),
    Case(1, 64, 64, (40,), (5,), (1,), ((16, 0),), (4,)),
    Case(1, 1, 1, (1, 1, 1), (1, 1, 1), ONE, NONE, ONE),
    # Winograd's planes; filters flat along the depth and along the planes; taps out of reach.
    Case(2, 16, 17, (5, 12, 12), (3, 3, 3), ONE, PADDED, ONE),
    Case(2, 8, 6, (4, 7, 7), (1, 3, 3), ONE, ((0, 0), (1, 1), (1, 1)), ONE),
    Case(2, 8, 6, (7, 5, 5), (3, 1, 1), (2, 2, 2), ((1, 1), (0, 0), (0, 0)), (2, 1, 1)),
    Case(1, 4, 5, (2, 3, 3), (2, 1, 1), (3, 1, 1), ((5, 4), (0, 0), (0, 0)), (4, 1, 1)),
    Case(1, 3, 5, (9, 4, 4), (1, 1, 1), (4, 1, 1), NONE, ONE),
    # Neighbouring axes that the filter does not go along are one.
    Case(2, 8, 6, (5, 4, 6), (3, 1, 1), (2, 1, 1), ((1, 1), (0, 0), (0, 0)), (2, 1, 1)),
    Case(2, 6, 4, (3, 4, 9), (1, 1, 3), (1, 1, 2), ((0, 0), (0, 0), (1, 2)), ONE, 2),
    Case(2, 8, 6, (5, 4, 6), (1, 1, 1), ONE, NONE, (1, 2, 3)),
    Case(2, 8, 6, (5, 4, 6), (1, 1, 2), (1, 1, 2), NONE, ONE, 2, (0, 0, 1)),
    # One filter for each channel.
    Case(2, 7, 7, (5, 6, 9), (3, 3, 3), (1, 2, 1), PADDED, (1, 1, 2), 7),
    Case(2, 6, 6, (4, 5, 6), (2, 1, 3), (2, 1, 2), ((0, 1), (2, 0), (4, 3)), (2, 3, 1), 6),
    Case(0, 3, 3, (4, 5, 6), (3, 3, 3), ONE, PADDED, ONE, 3),
    Case(2, 5, 5, (3, 4, 5), (3, 2, 3), (2, 1, 3), NONE, (1, 2, 1), 5, (1, 1, 2)),
    # Many channels, and many images.
    Case(2, 24, 16, (7, 12, 12), (3, 3, 3), ONE, PADDED, ONE),
    Case(17, 24, 16, (3, 5, 6), (3, 3, 3), (2, 1, 1), PADDED, ONE, 2),
    # Transposed: to the double, depthwise, an output_padding beyond stride and padding.
    Case(2, 32, 24, (7, 7), (4, 4), (2, 2), ((1, 1),) * 2, (1, 1), 1, (0, 0)),
    Case(2, 16, 16, (7, 6), (3, 3), (2, 2), ((1, 1),) * 2, (1, 1), 16, (1, 0)),
    Case(2, 3, 4, (5,), (3,), (1,), ((0, 0),), (4,), 1, (3,)),
    Case(2, 3, 4, (5,), (3,), (1,), ((1, 1),), (4,), 1, (3,)),
    Case(2, 12, 9, (4, 5, 5), (2, 2, 2), (2, 2, 2), NONE, ONE, 3, (0, 1, 0)),
    # One filter of several channels, whose gradient goes through all pixels as one index.
    Case(5, 8, 1, (11, 5, 9), (1, 3, 3), ONE, ((1, 1), (1, 1), (0, 0)), ONE),
    Case(3, 16, 1, (4, 4, 6), (2, 1, 2), ONE, ((1, 1), (1, 1), (0, 0)), ONE),
]  # fmt: skip
CASES = [*FIXED]
for number, (axes, transposed) in enumerate(
    [(1, False), (3, False), (1, True), (2, True), (3, True)]
):
    CASES += random_cases(24, axes, transposed, seed=number)


# ---------------------------------------------------------------- the oracle, tap by tap


def reads(case: Case, shape: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Of each tap its place, and what of the padded images results of ``shape`` read."""
    for tap in product(*map(range, case.taps)):
        steps = zip(tap, case.stride, case.dilation, shape, strict=True)
        at = (slice(d * r, d * r + s * (extent - 1) + 1, s) for r, s, d, extent in steps)
        yield tap, (slice(None), slice(None), *at)


def padded(case: Case, images: np.ndarray) -> np.ndarray:
    return np.pad(images, ((0, 0), (0, 0), *case.padding))


def grouped(case: Case, array: np.ndarray, axis: int) -> np.ndarray:
    shape = array.shape
    channels = shape[axis] // case.groups
    return array.reshape(*shape[:axis], case.groups, channels, *shape[axis + 1 :])


def correlated(case: Case, x: np.ndarray, w: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    wide = padded(case, x)
    y = np.zeros((len(x), case.groups, len(w) // case.groups, *shape))
    for tap, at in reads(case, shape):
        read = grouped(case, wide[at], 1)
        filters = grouped(case, w[(slice(None), slice(None), *tap)], 0)
        y += np.einsum("ngc...,gkc->ngk...", read, filters)
    return y.reshape(len(x), len(w), *shape)


def spread(case: Case, dy: np.ndarray, w: np.ndarray, x_shape: tuple[int, ...]) -> np.ndarray:
    """The gradient of `correlated` with respect to x."""
    wide = padded(case, np.zeros(x_shape))
    for tap, at in reads(case, dy.shape[2:]):
        filters = grouped(case, w[(slice(None), slice(None), *tap)], 0)
        part = np.einsum("ngk...,gkc->ngc...", grouped(case, dy, 1), filters)
        wide[at] += part.reshape(len(dy), x_shape[1], *dy.shape[2:])
    inner = (slice(front, front + n) for (front, _), n in
             zip(case.padding, x_shape[2:], strict=True))  # fmt: skip
    return wide[(slice(None), slice(None), *inner)]


def of_filters(case: Case, dy: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The gradient of `correlated` with respect to w."""
    wide, found = padded(case, x), []
    for _, at in reads(case, dy.shape[2:]):
        read = grouped(case, wide[at], 1)
        axes = "pqr"[: case.axes]
        part = np.einsum(f"ngk{axes},ngc{axes}->gkc", grouped(case, dy, 1), read)
        found.append(part.reshape(dy.shape[1], -1))
    return np.stack(found, -1).reshape(dy.shape[1], -1, *case.taps)


class Exact(NamedTuple):
    y: np.ndarray
    dx: np.ndarray
    dw: np.ndarray


def exact(case: Case, t: dict[str, np.ndarray]) -> Exact:
    x, w, dy = (t[name].astype(F8) for name in ("x", "w", "dy"))
    if not case.output_padding:
        y = correlated(case, x, w, case.y_shape[2:])
        return Exact(y, spread(case, dy, w, case.x_shape), of_filters(case, dy, x))
    y, dx = spread(case, x, w, case.y_shape), correlated(case, dy, w, case.extents)
    return Exact(y, dx, of_filters(case, x, dy))


def operands(case: Case, dtype: str = "float32") -> dict[str, np.ndarray]:
    random = np.random.default_rng(sum(case.x_shape))
    shapes = {"x": case.x_shape, "w": case.w_shape, "dy": case.y_shape}
    values = {name: random.standard_normal(shape, F4) for name, shape in shapes.items()}
    if dtype == "bfloat16":
        values = {name: dlprim.to_bfloat16(value) for name, value in values.items()}
    return {**values, "bias": random.standard_normal(case.K, F4)}


def assert_close(
    found: np.ndarray, expected: np.ndarray, sizes: np.ndarray, roundings: int
) -> None:
    """``sizes`` is the sum of the sizes of products, which errors of float32 are a part of."""
    assert found.shape == expected.shape
    bound = 2e-6 * sizes + 1e-6
    if found.dtype != F4:
        bound = bound + roundings * 2.0**-8 * (np.abs(expected) + 1)
    assert (np.abs(found.astype(F8) - expected) <= bound).all()
