"""Functions for `call` nodes: elements at places that arrays say, and places of elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from dlprim.graph.graph import Array
from dlprim.graph.operators.elements import converted
from dlprim.graph.operators.operator import Arrays, Attributes, callee, widened


def _from_front(places: Array, extent: int) -> Array:
    """Indices that count from the front; those outside are an IndexError."""
    if places.size and (places.min() < -extent or places.max() >= extent):
        raise IndexError(f"indices are {places.min()} to {places.max()}, expected inside {extent}")
    return np.where(places < 0, places + extent, places)


def _grid(shape: tuple[int, ...]) -> list[Array]:
    return list(np.indices(shape, sparse=True))


@callee("gather_elements")
def gather_elements(arrays: Arrays, attributes: Attributes) -> list[Any]:
    x, places = arrays
    axis = attributes["axis"]
    index = _grid(places.shape)
    index[axis] = _from_front(places, x.shape[axis])
    return [x[tuple(index)]]


@callee("gather_nd")
def gather_nd(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """Indices in the last axis of places; the first ``batch_dims`` axes go with those of x."""
    x, places = arrays
    b, depth = attributes["batch_dims"], places.shape[-1]
    batch = [it.reshape(it.shape + (1,) * (places.ndim - 1 - b)) for it in _grid(places.shape[:b])]
    index = [_from_front(places[..., i], x.shape[b + i]) for i in range(depth)]
    if not batch and not index:
        return [np.broadcast_to(x, places.shape[:-1] + x.shape).copy()]
    return [x[(*batch, *index)]]


_SCATTERS: dict[str, Callable[..., Any]] = {
    "add": np.add.at,
    "mul": np.multiply.at,
    "max": np.maximum.at,
    "min": np.minimum.at,
}


def _scattered(x: Array, index: Any, updates: Array, how: str) -> list[Any]:
    y = x.copy()
    if how == "none":
        y[index] = updates
    else:
        _SCATTERS[how](y, index, updates)
    return [y]


@callee("scatter_elements")
def scatter_elements(arrays: Arrays, attributes: Attributes) -> list[Any]:
    x, places, updates = arrays
    axis = attributes["axis"]
    index = _grid(places.shape)
    index[axis] = _from_front(places, x.shape[axis])
    return _scattered(x, tuple(index), updates, attributes["how"])


@callee("scatter_nd")
def scatter_nd(arrays: Arrays, attributes: Attributes) -> list[Any]:
    x, places, updates = arrays
    index = tuple(_from_front(places[..., i], x.shape[i]) for i in range(places.shape[-1]))
    return _scattered(x, index or (...,), updates, attributes["how"])


def _place(compute: Callable[..., Any]) -> Callable[[Arrays, Attributes], list[Any]]:
    def placed(arrays: Arrays, attributes: Attributes) -> list[Any]:
        """The first place, or with ``last`` the last one, in the shape that is asked for."""
        x, axis = arrays[0], attributes["axis"]
        shape = attributes["results"][0][0]
        if attributes["last"]:
            found = x.shape[axis] - 1 - compute(np.flip(x, axis), axis=axis)
        else:
            found = compute(x, axis=axis)
        return [np.asarray(found, np.int64).reshape(shape)]

    return placed


callee("argmax")(_place(np.argmax))
callee("argmin")(_place(np.argmin))


@callee("top_k")
def top_k(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """The greatest or least, sorted, of equal ones the first; and where they are."""
    x, axis, k = arrays[0], attributes["axis"], attributes["k"]
    keys = widened(x)
    if attributes["largest"]:
        order = np.flip(np.argsort(np.flip(keys, axis), axis=axis, kind="stable"), axis)
        order = x.shape[axis] - 1 - order
    else:
        order = np.argsort(keys, axis=axis, kind="stable")
    places = np.take(order, np.arange(k), axis=axis).astype(np.int64)
    return [np.take_along_axis(x, places, axis=axis), places]


def _running(compute: Callable[..., Any], first: int) -> Callable[..., list[Any]]:
    def summed(arrays: Arrays, attributes: Attributes) -> list[Any]:
        """Along an axis, of all elements up to each one, or in front of it if ``exclusive``."""
        x, axis = arrays[0], attributes["axis"]
        y = np.flip(widened(x), axis) if attributes["reverse"] else widened(x)
        if attributes["exclusive"] and x.shape[axis]:
            one = np.full_like(np.take(y, [0], axis=axis), first)
            rest = np.take(y, np.arange(x.shape[axis] - 1), axis=axis)
            y = np.concatenate([one, rest], axis=axis)
        with np.errstate(all="ignore"):
            y = compute(y, axis=axis)
        y = np.flip(y, axis) if attributes["reverse"] else y
        return [converted(y, x.dtype)]

    return summed


callee("running_sum")(_running(np.cumsum, 0))
callee("running_product")(_running(np.cumprod, 1))


@callee("bit_cast")
def bit_cast(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """The same bits as elements of another type."""
    x = np.ascontiguousarray(arrays[0])
    return [x.view(np.dtype(attributes["dtype"])).reshape(arrays[0].shape)]


@callee("narrow")
def narrow(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """To floats of up to 8 bits; with ``saturate``, what is too large becomes the greatest."""
    dtype = np.dtype(attributes["dtype"])
    x = arrays[0].astype(np.float32)
    if dtype.name == "float8_e8m0fnu":
        return [_powers(x, attributes["saturate"], attributes["mode"]).view(dtype)]
    if attributes["saturate"]:
        highest = float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
        x = np.where(np.isnan(x), x, np.clip(x, -highest, highest))
    return [converted(x, dtype)]


def _powers(x: Array, saturate: bool, mode: str) -> Array:
    """Exponents of powers of two, plus 127; 255 is no number. Half way is up in any mode."""
    part, exponent = np.frexp(np.abs(x))
    least = {"up": 0.5, "down": 1.0, "nearest": 0.75}[mode]
    power = exponent - 1 + (part >= least if mode == "nearest" else part > least)
    power = np.where(x == 0, 0, power + 127)
    if saturate:
        power = np.minimum(power, 254)
    return np.where(np.isfinite(x), np.clip(power, 0, 255), 255).astype(np.uint8)
