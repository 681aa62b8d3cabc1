"""A layer as a case: a reference that is computed once, and sides that are held to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

import dlprim
from dlprim.bench.measuring.case import Case
from dlprim.bench.measuring.timing import Call
from dlprim.bench.measuring.verification import WrongResultError, floats

# Mean error, of the mean magnitude: where relu turns, two roundings may differ on one element.
_CLOSE = {"float32": 1e-4, "bfloat16": 1e-2}


def layer_case(
    ours: Call,
    sides: Mapping[str, Callable[[], Call]],
    exact: Callable[[], Any],
    *,
    traffic: float,
    dtype: str,
    result: Callable[[Any], Any] = lambda found: found,
    operations: float = 0,
) -> Case:
    """``exact`` gives what all sides should, ``result`` makes that of what ours returned."""
    expected = cache(lambda: _several(exact()))

    def check(found: Any) -> None:
        for one, right in zip(_several(found), expected(), strict=True):
            error = float(np.abs(floats(one) - right).mean())
            limit = _CLOSE[dtype] * max(float(np.abs(right).mean()), 1e-30)
            if not error <= limit:
                raise WrongResultError(f"wrong result, {error / limit:.1f} times the error bound")

    return Case(
        ours, lambda: check(result(ours())), sides, check, operations, traffic, peak_dtype=dtype
    )


def _several(results: Any) -> tuple[Any, ...]:
    return tuple(results) if isinstance(results, tuple | list) else (results,)


def drawn(seed: int, dtype: str, *shape: int) -> np.ndarray:
    """Normal values, rounded to the type."""
    values = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return dlprim.to_bfloat16(values) if dtype == "bfloat16" else values
