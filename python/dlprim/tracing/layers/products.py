"""dlprim's products and moves in a trace: linear, attention, tables, joins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from dlprim.arguments.arrays import places_of
from dlprim.arguments.names import activation_name, one_of_names
from dlprim.arguments.scalars import flag, integer, real
from dlprim.arguments.traced import RUNNING
from dlprim.functions.attention import checked_past, checked_window, filled_places
from dlprim.functions.extents.padding import MODES, borders_of, filling_number, padded_shape
from dlprim.functions.quantized_weights import QuantizedWeights, require_channels
from dlprim.graph.extents import derived
from dlprim.graph.operators.elements import broadcast_shape
from dlprim.tracing.array import TracedArray
from dlprim.tracing.functions.products import einsum as einstein
from dlprim.tracing.functions.products import multiplied
from dlprim.tracing.layers.operands import (
    alike,
    checked_layer,
    counted,
    floats,
    shaped,
    values,
)
from dlprim.tracing.layers.rows import ended
from dlprim.tracing.tracer import made, tracer_of


@checked_layer
def linear(x: Any, w: Any, bias: Any = None, *, activation: str | None = None) -> Any:
    if isinstance(w, QuantizedWeights):
        return _of_few_bits(x, w, bias, activation)
    x, w, bias = floats(x=x, w=w, bias=bias)
    alike("w", w, "x", x)
    if w.ndim != 2:
        raise ValueError(f"w has shape {w.shape}, expected two dimensions (K, C)")
    require_channels(x, w.shape)
    shaped("bias", bias, w.shape[:1], "K from w")
    y = multiplied(x, w.T)
    return ended(y if bias is None else y + bias.astype(x.dtype), activation)


def _of_few_bits(x: Any, w: QuantizedWeights, bias: Any, activation: str | None) -> Any:
    """Activations that the core's product has; weights are kept, not copied."""
    x, bias = floats(x=x, bias=bias)
    require_channels(x, w.shape)
    shaped("bias", bias, w.shape[:1], "K from w")
    tracer = x.tracer
    given = [x.value, tracer.build.constant(w._packed)]
    if bias is not None:
        given.append(tracer.cast(bias.value, np.dtype(np.float32)))
    result = ((*x.shape[:-1], w.shape[0]), x.dtype)
    name = None if activation is None else activation_name(activation)
    how = {"channels": w.shape, "form": w._form, "activation": name}
    return made(tracer, lambda: tracer.build.call("panel_product", given, [result], **how)[0])


@checked_layer
def matmul(a: Any, b: Any) -> Any:
    a, b = floats(a=a, b=b)
    return multiplied(a, b)


@checked_layer
def einsum(subscripts: Any, *arrays: Any) -> Any:
    if not isinstance(subscripts, str):
        raise TypeError(f"subscripts is of type {type(subscripts).__name__}, expected a str")
    found = floats(**{f"operand {place}": it for place, it in enumerate(arrays)})
    return einstein(subscripts, *found)


# ---------------------------------------------------------------- attention and tables


@checked_layer
def attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    *,
    scale: float | None = None,
    causal: bool = False,
    softcap: float = 0.0,
    past: int = 0,
    window: int | None = None,
    fill: Any = None,
) -> Any:
    q, k, v = floats(q=q, k=k, v=v)
    _require_heads(q, k, v)
    by = 1 / np.sqrt(max(1, q.shape[-1])) if scale is None else real("scale", scale)
    cap, before = real("softcap", softcap, 0), integer("past", past, 0, 1 << 62)
    scores = (*q.shape[:-1], k.shape[-2])
    is_causal = flag("causal", causal)
    wide = checked_window(window, is_causal)
    if fill is None and is_causal and (before or wide):
        seen = derived(_seen, *scores[-2:], before, wide)
        mask = seen if mask is None else _both(mask, seen)
        is_causal = False
    inputs = [_four(it) for it in (q, k, v)]
    how = {"scale": float(by), "softcap": cap, "causal": is_causal}
    kind = "attention"
    if fill is not None:
        checked_past(before)
        inputs.append(_counts(q, k, fill))
        kind, how = "filled_attention", {**how, "window": wide}
    if mask is not None:
        inputs.append(_mask(q, mask, scores))
    build, given = q.tracer.build, values(*inputs)
    y = made(q.tracer, lambda: build.emit(kind, given, **how)[0])
    return y.reshape(*q.shape[:-1], v.shape[-1])


def _counts(q: Any, k: Any, fill: Any) -> Any:
    """A number for each sequence, which a run may be given."""
    sequences = q.shape[:-3]
    if not isinstance(fill, TracedArray):
        known = filled_places(fill, sequences, k.shape[-2])
        return TracedArray(q.tracer, q.tracer.value(known))
    if fill.dtype.kind not in "iu":
        raise TypeError(f"fill has dtype {fill.dtype}, expected integers")
    if fill.shape not in ((), sequences):
        raise ValueError(f"fill has shape {fill.shape}, expected a number or {sequences}")
    return np.broadcast_to(fill, sequences).astype(np.int64).reshape(math.prod(sequences))


def _require_heads(q: Any, k: Any, v: Any) -> None:
    if q.ndim < 2:
        raise ValueError(f"q has shape {q.shape}, expected (..., H, Q, D)")
    for name, it in (("k", k), ("v", v)):
        alike(name, it, "q", q)
        if it.ndim != q.ndim:
            raise ValueError(f"{name} has shape {it.shape}, expected as many axes as q, {q.shape}")
    if k.shape[:-3] != q.shape[:-3]:
        raise ValueError(f"k has shape {k.shape}, expected the leading axes of q, {q.shape}")
    if q.ndim > 2 and (k.shape[-3] == 0 or q.shape[-3] % k.shape[-3]):
        raise ValueError(f"k has {k.shape[-3]} heads, expected a divisor of the {q.shape[-3]} of q")
    shaped("k", k, (*k.shape[:-1], q.shape[-1]), "D from q")
    shaped("v", v, (*k.shape[:-1], v.shape[-1]), "heads and K from k")


def _seen(queries: int, keys: int, before: int, window: int) -> Any:
    """Which keys the queries may look at, behind so many others, 0 for any window."""
    seen = np.tri(queries, keys, before, dtype=bool)
    return seen & ~np.tri(queries, keys, before - window, dtype=bool) if window else seen


def _both(mask: Any, seen: Any) -> Any:
    """A mask that hides what another one does, too."""
    if mask.dtype == bool:
        return np.logical_and(mask, seen)
    return np.where(seen, mask, np.array(-np.inf, np.float32))


def _four(x: Any) -> Any:
    """(N, H, rows, elements) of any number of leading axes."""
    heads = x.shape[-3:-2] or (1,)
    return x.reshape(math.prod(x.shape[:-3]), *heads, *x.shape[-2:])


def _mask(q: Any, mask: Any, scores: tuple[int, ...]) -> Any:
    tracer = q.tracer
    if not isinstance(mask, TracedArray):
        mask = TracedArray(tracer, tracer.value(mask))
    if mask.dtype != bool:
        (mask,) = floats(mask=mask)
    try:
        fits = broadcast_shape(mask.shape, scores) == scores
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"mask has shape {mask.shape}, expected what broadcasts to {scores}, (..., H, Q, K)"
        )
    if len(scores) > 4:
        return _four(np.broadcast_to(mask, scores))
    last = np.broadcast_to(mask, (*mask.shape[:-1], scores[-1]))
    return last.reshape(*[1] * (4 - last.ndim), *last.shape)


@checked_layer
def embedding(indices: Any, w: Any) -> Any:
    tracer = tracer_of((indices, w))
    (w,) = floats(w=w if isinstance(w, TracedArray) else TracedArray(tracer, tracer.value(w)))
    if w.ndim != 2:
        raise ValueError(f"w has shape {w.shape}, expected (V, K)")
    places = indices if isinstance(indices, TracedArray) else places_of("indices", indices)
    if places.dtype.kind not in "iu":
        raise TypeError(f"indices has dtype {places.dtype}, expected integers of int64")
    if not isinstance(places, TracedArray):
        return w[counted("indices", places, w.shape[0], IndexError)]
    name = f"x of {RUNNING.layer}" if RUNNING.layer else "indices"
    given = places.value
    if given.dtype != np.uint64:  # of which int64 does not hold all that are to be refused
        given = tracer.cast(given, np.dtype(np.int64))
    return made(tracer, lambda: tracer.build.gather(w.value, given, 0, name))


# ---------------------------------------------------------------- moves


@checked_layer
def concat(arrays: Sequence[Any], axis: int = 0) -> Any:
    parts = floats(**{f"arrays[{place}]": it for place, it in enumerate(arrays)})
    for place, it in enumerate(parts):
        alike(f"arrays[{place}]", it, "arrays[0]", parts[0])
    return np.concatenate(parts, axis=axis)


@checked_layer
def split(x: Any, sizes: int | Sequence[int], axis: int = 0) -> list[Any]:
    (x,) = floats(x=x)
    place = integer("axis", axis, -x.ndim, x.ndim) % x.ndim
    extent = x.shape[place]
    if isinstance(sizes, int):
        step = integer("sizes", sizes, 1)
        begins = [*range(0, extent, step), extent] if extent else [0, 0]
    else:
        lengths = [integer(f"sizes[{number}]", it, 0) for number, it in enumerate(sizes)]
        if sum(lengths) != extent:
            raise ValueError(
                f"sizes add up to {sum(lengths)}, expected the {extent} elements of x along axis "
                f"{place}"
            )
        begins = np.cumsum([0, *lengths]).tolist()
    lead = (slice(None),) * place
    return [x[(*lead, slice(begin, end))] for begin, end in pairwise(begins)]


@checked_layer
def pad(x: Any, pad: Sequence[int], mode: str = "constant", value: float = 0.0) -> Any:
    (x,) = floats(x=x)
    kind = one_of_names("mode", mode, MODES)
    widths, borders = [(0, 0)] * x.ndim, borders_of(pad, x.ndim)
    padded_shape(x.shape, borders, kind)  # which refuses what it does not take
    for border in borders:
        widths[border.axis] = (border.before, border.behind)
    if min(min(it) for it in widths) < 0:
        sides = zip(x.shape, widths, strict=True)
        x = x[tuple(slice(max(-one, 0), n + min(two, 0)) for n, (one, two) in sides)]
        widths = [(max(one, 0), max(two, 0)) for one, two in widths]
    names = {"replicate": "edge", "circular": "wrap"}
    build, inputs = x.tracer.build, [x.value]
    filling = filling_number(value, kind)
    if kind == "constant":
        inputs.append(x.tracer.value(filling, x.dtype))
    how = {"widths": tuple(widths), "mode": names.get(kind, kind)}
    return made(x.tracer, lambda: build.emit("pad", inputs, **how)[0])
