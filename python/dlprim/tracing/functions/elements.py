"""Functions of elements that are no ufuncs: where, clip, tests, and arrays like others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dlprim.tracing.array import FUNCTIONS, TracedArray, implements
from dlprim.tracing.functions.ufuncs import copied
from dlprim.tracing.refusals import refuse
from dlprim.tracing.tracer import (
    is_float,
    literal_of,
    made,
    named_type,
    result_type,
    tracer_of,
)

_MOST_INTEGER = 2**63 - 1
_MOST_BFLOAT16 = 255 * 2.0**120


def chosen(condition: Any, x: Any, y: Any) -> Any:
    """``np.where`` of three operands."""
    tracer = tracer_of((condition, x, y))
    due, is_weak = result_type((x, y))
    asked = TracedArray(tracer, tracer.value(condition, np.dtype(bool)))
    it = _mapped_choice(asked, x, y, due)
    it.is_weak = is_weak
    return it


def _mapped_choice(asked: Any, x: Any, y: Any, due: np.dtype[Any]) -> Any:
    tracer, values, parts = asked.tracer, [asked.value], [("input", 0)]
    for it in (x, y):
        literal = literal_of(it, due)
        if literal is None:
            values.append(tracer.value(it, due))
            literal = ("input", len(values) - 1)
        parts.append(literal)
    return made(tracer, lambda: tracer.build.map(("where", *parts), *values, dtype=due))


@implements(np.where)
def _where(condition: Any, *arrays: Any) -> Any:
    if len(arrays) != 2:
        refuse("np.where of a condition alone has a shape of its elements", "three operands")
    return chosen(condition, *arrays)


@implements(np.select)
def _select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    made = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        made = np.where(condition, choice, made)
    return made


@implements(np.clip)
def _clip(
    a: Any,
    a_min: Any = None,
    a_max: Any = None,
    *,
    min: Any = None,
    max: Any = None,
    dtype: Any = None,
) -> Any:
    lowest, highest = (a_min if min is None else min), (a_max if max is None else max)
    made = a if lowest is None else np.maximum(a, lowest)
    made = made if highest is None else np.minimum(made, highest)
    return np.positive(made) if made is a else made


@implements(np.nan_to_num)
def _nan_to_num(
    x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None
) -> Any:
    if not is_float(x.dtype):
        return copied(x) if copy else x
    limit = _MOST_BFLOAT16 if x.dtype.name == "bfloat16" else float(np.finfo(np.float32).max)
    made = np.where(np.isnan(x), float(nan), x)
    made = np.where(x == math.inf, limit if posinf is None else float(posinf), made)
    made = np.where(x == -math.inf, -limit if neginf is None else float(neginf), made)
    return made if copy else x.replace("np.nan_to_num", made)


@implements(np.round, np.around)
def _round(a: Any, decimals: int = 0) -> Any:
    if a.dtype.kind in "iu":
        return copied(a) if decimals >= 0 else _rounded_to(a, 10**-decimals)
    if decimals == 0 or a.dtype.kind == "b":
        return np.rint(a)
    factor = 10.0**decimals
    return np.rint(a * factor) / factor


def _rounded_to(a: Any, step: int) -> Any:
    """Integers to multiples of a step, halves to even ones."""
    if step > _MOST_INTEGER // 2:
        return np.zeros_like(a)
    wide = a if a.dtype == np.uint64 else a.astype(np.int64)
    count, rest = wide // step, wide % step
    is_up = np.logical_or(2 * rest > step, np.logical_and(2 * rest == step, count % 2 == 1))
    return ((count + is_up) * step).astype(a.dtype)


@implements(np.isclose)
def _isclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    near = np.abs(a - b) <= atol + rtol * np.abs(b)
    made = np.logical_or(np.equal(a, b), np.logical_and(near, np.isfinite(b)))
    return np.logical_or(made, np.isnan(a) & np.isnan(b)) if equal_nan else made


@implements(np.sinc)
def _sinc(x: Any) -> Any:
    angle = np.where(x == 0, 1.0, x) * math.pi
    return np.where(x == 0, 1.0, np.sin(angle) / angle)


@implements(np.zeros_like, np.empty_like)
def _zeros_like(
    a: Any, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None
) -> Any:
    return _full_like(a, 0, dtype, shape=shape)


@implements(np.ones_like)
def _ones_like(
    a: Any, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None
) -> Any:
    return _full_like(a, 1, dtype, shape=shape)


@implements(np.full_like)
def _full_like(
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    order: Any = "K",
    subok: bool = True,
    shape: Any = None,
) -> Any:
    like = tracer_of((a, fill_value))
    due = a.dtype if dtype is None else named_type(dtype)
    one = like.value(fill_value, due)
    shape = a.shape if shape is None else shape
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return TracedArray(like, like.build.expand(one, shape))


@implements(np.copy)
def _copy(a: Any, order: Any = "K", subok: bool = False) -> Any:
    return copied(a)


FUNCTIONS[np.real] = copied
FUNCTIONS[np.shape] = lambda a: a.shape
FUNCTIONS[np.ndim] = lambda a: a.ndim
FUNCTIONS[np.size] = lambda a, axis=None: a.size if axis is None else a.shape[axis]
FUNCTIONS[np.result_type] = lambda *operands: result_type(operands)[0]
FUNCTIONS[np.iscomplexobj] = lambda x: False
FUNCTIONS[np.isrealobj] = lambda x: True
