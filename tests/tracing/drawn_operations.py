"""What drawn functions are made of: operations, and where each may be applied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
# How far from a corner operands have to be, and how many elements a value may have.
MARGIN, LARGEST = 0.02, 300

Operation = Callable[..., Any]


def every(condition: Any) -> bool:
    return bool(np.all(condition))


def smooth(x: Array) -> bool:
    return every(np.abs(x) > MARGIN)


# Of each ufunc where it may be applied.
UNARY: dict[str, tuple[Operation, Callable[[Array], bool]]] = {
    "abs": (np.abs, smooth),
    "arccos": (np.arccos, lambda x: every(np.abs(x) < 0.9)),
    "arccosh": (np.arccosh, lambda x: every(x > 1.2)),
    "arcsin": (np.arcsin, lambda x: every(np.abs(x) < 0.9)),
    "arcsinh": (np.arcsinh, lambda x: True),
    "arctan": (np.arctan, lambda x: True),
    "arctanh": (np.arctanh, lambda x: every(np.abs(x) < 0.9)),
    "cbrt": (np.cbrt, lambda x: every(np.abs(x) > 0.1)),
    "ceil": (np.ceil, lambda x: smooth(x - np.rint(x))),
    "cos": (np.cos, lambda x: True),
    "cosh": (np.cosh, lambda x: every(np.abs(x) < 3)),
    "deg2rad": (np.deg2rad, lambda x: True),
    "exp": (np.exp, lambda x: every(x < 3)),
    "exp2": (np.exp2, lambda x: every(x < 4)),
    "expm1": (np.expm1, lambda x: every(x < 3)),
    "floor": (np.floor, lambda x: smooth(x - np.rint(x))),
    "log": (np.log, lambda x: every(x > 0.1)),
    "log10": (np.log10, lambda x: every(x > 0.1)),
    "log1p": (np.log1p, lambda x: every(x > -0.8)),
    "log2": (np.log2, lambda x: every(x > 0.1)),
    "negative": (np.negative, lambda x: True),
    "positive": (np.positive, lambda x: True),
    "reciprocal": (np.reciprocal, lambda x: every(np.abs(x) > 0.3)),
    "rint": (np.rint, lambda x: smooth(np.abs(x - np.rint(x)) - 0.5)),
    "sign": (np.sign, smooth),
    "sin": (np.sin, lambda x: True),
    "sinc": (np.sinc, lambda x: every(np.abs(x) > 0.1)),
    "sinh": (np.sinh, lambda x: every(np.abs(x) < 3)),
    "sqrt": (np.sqrt, lambda x: every(x > 0.1)),
    "square": (np.square, lambda x: True),
    "tan": (np.tan, lambda x: every(np.abs(x) < 1.2)),
    "tanh": (np.tanh, lambda x: True),
    "trunc": (np.trunc, lambda x: smooth(x - np.rint(x))),
    "nan_to_num": (np.nan_to_num, lambda x: True),
    "1 - x": (lambda x: 1 - x, lambda x: True),
    "x * 0.5 + 2": (lambda x: x * 0.5 + 2, lambda x: True),
    "x ** 2": (lambda x: x**2, lambda x: True),
    "x ** 3": (lambda x: x**3, lambda x: True),
    "x ** 1.5": (lambda x: x**1.5, lambda x: every(x > 0.1)),
    "x ** -1": (lambda x: x**-1.0, lambda x: every(np.abs(x) > 0.3)),
    "2 / x": (lambda x: 2 / x, lambda x: every(np.abs(x) > 0.3)),
    "1.5 ** x": (lambda x: 1.5**x, lambda x: True),
    "x // 0.7": (lambda x: x // 0.7, lambda x: smooth(x / 0.7 - np.rint(x / 0.7))),
    "x % 0.7": (lambda x: x % 0.7, lambda x: smooth(x / 0.7 - np.rint(x / 0.7))),
    "relu": (lambda x: np.maximum(x, 0), smooth),
    "relu in place": (lambda x: _in_place(x), lambda x: True),
    "clip": (lambda x: np.clip(x, -1, 1), lambda x: smooth(np.abs(x) - 1)),
    "where": (lambda x: np.where(x > 0, x, 0.1 * x), smooth),
    "select": (
        lambda x: np.select([x < -1, x < 1], [x + 1, x * x], 0.5),
        lambda x: smooth(np.abs(x) - 1),
    ),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), lambda x: True),
    "positions": (lambda x: x + np.arange(x.size).reshape(x.shape) * 0.1, lambda x: True),
    "line": (lambda x: x * np.linspace(0, 1, x.size).reshape(x.shape), lambda x: True),
    "like": (lambda x: np.ones_like(x) * 0.3 + x - np.zeros(x.shape), lambda x: True),
    "half of a count": (lambda x: x * (np.sum(x > 0) / x.size), smooth),
}

BINARY: dict[str, tuple[Operation, Callable[[Array, Array], bool]]] = {
    "add": (np.add, lambda a, b: True),
    "subtract": (np.subtract, lambda a, b: True),
    "multiply": (np.multiply, lambda a, b: True),
    "divide": (np.divide, lambda a, b: every(np.abs(b) > 0.3)),
    "power": (np.power, lambda a, b: every(a > 0.2) and every(np.abs(b) < 2)),
    "maximum": (np.maximum, lambda a, b: smooth(a - b)),
    "minimum": (np.minimum, lambda a, b: smooth(a - b)),
    "fmax": (np.fmax, lambda a, b: smooth(a - b)),
    "hypot": (np.hypot, lambda a, b: every(a * a + b * b > 0.1)),
    "arctan2": (np.arctan2, lambda a, b: every(np.abs(b) > 0.1)),
    "logaddexp": (np.logaddexp, lambda a, b: smooth(a - b)),
    "where": (lambda a, b: np.where(a > b, a, b * 2), lambda a, b: smooth(a - b)),
    "outer": (lambda a, b: np.outer(a, b), lambda a, b: a.size * b.size < LARGEST),
    "add.outer": (np.add.outer, lambda a, b: a.size * b.size < LARGEST and a.ndim + b.ndim < 5),
}


def _in_place(x: Any) -> Any:
    y = x * 2.0
    y += 1.0
    y *= y
    return y


# ---------------------------------------------------------------- along axes


def _apart(x: Array, axis: Any) -> bool:
    """Whether no two elements along the axes are close to the extremes."""
    moved = np.moveaxis(x, axis, -1).reshape(-1, x.shape[axis])
    moved = np.sort(moved, axis=1)
    steps = np.diff(moved, axis=1)
    return moved.shape[1] > 0 and (steps.size == 0 or every(steps[:, [0, -1]] > MARGIN))


def reductions(rng: np.random.Generator, x: Array) -> list[tuple[str, Operation]]:
    axis = int(rng.integers(-x.ndim, x.ndim))
    keeps = bool(rng.integers(2))
    several = tuple(int(it) for it in rng.permutation(x.ndim)[: rng.integers(1, x.ndim + 1)])
    found: list[tuple[str, Operation]] = [
        ("sum", lambda x: np.sum(x, axis=several, keepdims=keeps)),
        ("mean", lambda x: x.mean(axis=axis, keepdims=keeps)),
        ("all sum", lambda x: x.sum() * 0.2 + x),
        ("var", lambda x: np.var(x, axis=several, keepdims=keeps)),
        ("cumsum", lambda x: np.cumsum(x, axis=axis)),
        ("diff", lambda x: np.diff(x, axis=axis)),
        ("add.reduce", lambda x: np.add.reduce(x, axis=axis)),
        ("average", lambda x: np.average(x, axis=axis, weights=np.arange(1, x.shape[axis] + 1))),
        ("softmax", lambda x: np.exp(x - x.max(axis, keepdims=True)) / np.sum(
            np.exp(x - x.max(axis, keepdims=True)), axis=axis, keepdims=True)),
        ("argmax", lambda x: np.argmax(x, axis=axis) * 0.1 + np.mean(x)),
    ]  # fmt: skip
    if x.shape[axis] <= 4:
        found.append(("prod", lambda x: np.prod(x, axis=axis, keepdims=keeps)))
    if every(np.var(x, axis=axis) > 0.05):
        found.append(("std", lambda x: x.std(axis=axis, keepdims=keeps)))
    if every(np.sum(x * x, axis=axis) > 0.1):
        found.append(("norm", lambda x: np.linalg.norm(x, axis=axis)))
    if _apart(x, axis):
        found.append(("max", lambda x: np.max(x, axis=axis, keepdims=keeps)))
        found.append(("min", lambda x: x.min(axis=axis)))
        found.append(("ptp", lambda x: np.ptp(x, axis=axis)))
    return found


# ---------------------------------------------------------------- places


def _part(rng: np.random.Generator, extent: int) -> Any:
    kind = rng.integers(5)
    if kind == 0:
        return int(rng.integers(-extent, extent))
    step = int(rng.choice([1, 1, 2, -1]))
    if kind == 1:
        return slice(None, None, step)
    begin, end = sorted(rng.integers(0, extent + 1, 2).tolist())
    if begin == end:
        return slice(None)
    return slice(begin, end) if step > 0 else slice(end - 1, begin - 1 if begin else None, step)


def _key(rng: np.random.Generator, x: Array) -> Any:
    parts = [_part(rng, extent) for extent in x.shape[: rng.integers(1, x.ndim + 1)]]
    if rng.integers(3) == 0:
        parts.insert(int(rng.integers(len(parts) + 1)), None)
    if rng.integers(3) == 0:
        parts.append(...)
    return tuple(parts)


def _places(rng: np.random.Generator, x: Array) -> Any:
    """Arrays of places among slices and integers."""
    count = int(rng.integers(1, 4))
    key: list[Any] = [slice(None)] * x.ndim
    shape = (count,) if rng.integers(2) else (count, 2)
    for axis in rng.permutation(x.ndim)[: rng.integers(1, 3)]:
        key[axis] = rng.integers(-x.shape[axis], x.shape[axis], shape)
    if x.ndim > 2 and rng.integers(2):
        at = next((it for it, part in enumerate(key) if isinstance(part, slice)), None)
        if at is not None:
            key[at] = int(rng.integers(x.shape[at]))
    return tuple(key)


def indices(rng: np.random.Generator, x: Array) -> list[tuple[str, Operation]]:
    key, places = _key(rng, x), _places(rng, x)
    axis = int(rng.integers(x.ndim))
    taken = rng.integers(0, x.shape[axis], 3)
    mask = rng.integers(0, 2, x.shape[0]).astype(bool)
    mask[0] = True
    along = rng.integers(0, x.shape[axis], x.shape)
    return [
        ("x[key]", lambda x: x[key]),
        ("x[places]", lambda x: x[places]),
        ("x[mask]", lambda x: x[mask]),
        ("take", lambda x: np.take(x, taken, axis=axis)),
        ("take_along_axis", lambda x: np.take_along_axis(x, along, axis)),
    ]


# ---------------------------------------------------------------- shapes


def shapes(rng: np.random.Generator, x: Array) -> list[tuple[str, Operation]]:
    order = tuple(int(it) for it in rng.permutation(x.ndim))
    axis = int(rng.integers(x.ndim))
    size = x.size
    front = int(rng.choice([it for it in range(1, size + 1) if size % it == 0]))
    widths = [(int(a), int(b)) for a, b in rng.integers(0, 3, (x.ndim, 2))]
    mode = str(rng.choice(["constant", "edge", "wrap"]))
    shift = int(rng.integers(-3, 4))
    return [
        ("reshape", lambda x: x.reshape(front, -1)),
        ("ravel", lambda x: np.ravel(x)),
        ("transpose", lambda x: np.transpose(x, order)),
        ("T", lambda x: x.T),
        ("swapaxes", lambda x: x.swapaxes(0, -1)),
        ("moveaxis", lambda x: np.moveaxis(x, axis, 0)),
        ("expand_dims", lambda x: np.expand_dims(x, axis)),
        ("squeeze", lambda x: np.squeeze(x[None], 0)),
        ("broadcast_to", lambda x: np.broadcast_to(x, (2, *x.shape))),
        ("concatenate", lambda x: np.concatenate([x, x * x], axis=axis)),
        ("stack", lambda x: np.stack([x, -x, x], axis=axis)),
        ("hstack", lambda x: np.hstack([x, np.ones(x.shape)])),
        ("vstack", lambda x: np.vstack([x, x])),
        ("tile", lambda x: np.tile(x, 2)),
        ("repeat", lambda x: np.repeat(x, 2, axis=axis)),
        ("flip", lambda x: np.flip(x, axis)),
        ("roll", lambda x: np.roll(x, shift, axis=axis)),
        ("pad", lambda x: np.pad(x, widths, mode=mode)),
        ("split", lambda x: np.array_split(x, 2, axis=axis)[0]),
        ("rows", lambda x: sum(it for it in x)),
        ("full_like", lambda x: x + np.full_like(x, 0.5)),
    ]


def matrices(rng: np.random.Generator, x: Array) -> list[tuple[str, Operation]]:
    if x.ndim < 2:
        return [("dot", lambda x: np.dot(x, x) * 0.1), ("vander", lambda x: x[:, None] * x)]
    w = rng.standard_normal((x.shape[-1], 3)) * 0.5
    offset = int(rng.integers(-1, 2))
    found: list[tuple[str, Operation]] = [
        ("tril", lambda x: np.tril(x, offset)),
        ("triu", lambda x: np.triu(x, offset)),
        ("diagonal", lambda x: np.diagonal(x, offset)),
        ("trace", lambda x: np.trace(x) * 0.3),
        ("matmul", lambda x: x @ w),
        ("gram", lambda x: np.einsum("...ij,...kj->...ik", x, x) * 0.3),
        ("einsum", lambda x: np.einsum("...ij,jk->...ki", x, w)),
        ("einsum of one", lambda x: np.einsum("...ij->...j", x)),
        ("einsum of three", lambda x: np.einsum("...ij,jk,jk->...i", x, w, w)),
        ("inner", lambda x: np.inner(x, w.T)),
        ("tensordot", lambda x: np.tensordot(x, w, axes=1)),
        ("matrix times its transpose", lambda x: x @ x.swapaxes(-1, -2) * 0.3),
        ("vector", lambda x: x @ w[:, 0]),
        ("dot", lambda x: np.dot(x, w)),
    ]
    return found
