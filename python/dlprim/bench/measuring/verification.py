"""Error bounds of float32 and bfloat16 results: nothing is timed before it is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dlprim.arguments.floats import widened

BFLOAT16_ROUNDOFF = 2.0**-8
_UNIT_ROUNDOFF = 2.0**-24


class WrongResultError(Exception):
    """A side does not compute what it should; the sentence names the row and the error."""


def verify(name: str, result: np.ndarray, exact: np.ndarray, bound: Any) -> None:
    """Refuse a result unless ``|result - exact| <= bound`` everywhere; NaN fails.

    Raises
    ------
    WrongResultError
    """
    error = np.abs(result - exact)
    if not np.all(error <= bound):
        with np.errstate(all="ignore"):
            worst = np.max(error / bound)
        raise WrongResultError(f"{name}: wrong result, {worst:.1f} times the error bound")


def sum_bound(terms: int, magnitude: Any) -> Any:
    """Error bound of a float32 sum of ``terms`` products whose absolute values add to
    ``magnitude``: the random-walk estimate with a factor of 8, never above the worst case."""
    return np.minimum(8 * terms**0.5, terms + 1) * _UNIT_ROUNDOFF * magnitude


def verify_product(name: str, result: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """As `verify`, of the product of two matrices in any floating-point type."""
    a, b = doubles(a), doubles(b)
    exact = a @ b
    bound = sum_bound(a.shape[1], np.abs(a) @ np.abs(b))
    if result.dtype != np.float32:
        bound = bound + BFLOAT16_ROUNDOFF * (np.abs(exact) + bound)
    verify(name, doubles(result), exact, bound)


def doubles(array: np.ndarray) -> np.ndarray:
    """Of any type; bfloat16 may be stored as 16-bit integers."""
    is_plain = array.dtype != np.uint16
    return (array if is_plain else widened(np.ascontiguousarray(array))).astype(np.float64)


def close_to(name: str, expected: Any, share: float) -> Callable[[Any], None]:
    """What refuses results, of any side, that differ by more than a share of the largest element.

    Several results are a tuple; tensors of PyTorch are taken as they are.
    """
    references = [floats(it) for it in _several(expected)]

    def check(found: Any) -> None:
        for one, exact in zip(_several(found), references, strict=True):
            largest = max(float(np.abs(exact).max(initial=0)), 1e-30)
            verify(name, floats(one), exact, np.float64(share * largest))

    return check


def floats(result: Any) -> np.ndarray:
    """An array or a tensor in float32."""
    if hasattr(result, "detach"):
        result = result.detach().float().numpy()
    array = np.asarray(result)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)


def _several(results: Any) -> tuple[Any, ...]:
    return tuple(results) if isinstance(results, tuple | list) else (results,)
