"""Attention on arrays as they are held: heads in front of positions, or the other way round."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlprim import _core
from dlprim.arguments.arrays import (
    Array,
    contiguous,
    require_shape,
    result_array,
    taken,
    viewed,
)
from dlprim.arguments.floats import holds_bits, plain_view
from dlprim.arguments.instead import instead
from dlprim.arguments.scalars import flag, integer, real, shown

_Settings = tuple[float | None, float, bool, int, bool, int]
_AXES = 4  # sequences, heads, queries or keys, elements of a head
_MOST_ELEMENTS = 1 << 24  # of a row, the kernel's bound


class AttentionGradients(NamedTuple):
    """What `attention_backward` returns.

    Attributes
    ----------
    dq : ndarray of the dtype of q, (..., H, Q, D)
    dk : ndarray of the dtype of q, (..., Hk, K, D)
    dv : ndarray of the dtype of q, (..., Hk, K, Dv)
    """

    dq: Array
    dk: Array
    dv: Array


@instead(query="q", key="k", value="v", attn_mask="mask", is_causal="causal")
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
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Array:
    """Scaled dot-product attention: ``softmax(scale * q @ k.T + mask) @ v`` for every head.

    Parameters
    ----------
    q : array of float32 or bfloat16, (..., H, Q, D)
        Q queries of H heads. Leading axes are optional. An array whose last axis is dense is read
        in place, so heads may be stored inside positions, as in ``x.transpose(0, 2, 1, 3)``.
    k : array of the dtype of q, or of bfloat16, (..., Hk, K, D)
        K keys. H is a multiple of Hk: ``H // Hk`` consecutive heads share keys and values.
    v : array of the dtype of k, (..., Hk, K, Dv)
    mask : array, broadcastable to (..., H, Q, K), optional
        bool: True where a query sees a key. float32 or bfloat16: added to the scores.
    scale : float, optional
        ``1 / sqrt(D)`` if None.
    causal : bool
        Query i sees only the keys 0 to i + `past`, as with PyTorch's ``is_causal`` (with `past` 0)
        and in ONNX's ``Attention``. A mask applies in addition.
    softcap : float
        Scores become ``softcap * tanh(score / softcap)`` before the mask, unless it is 0.
    past : int
        With `causal`, the number of keys before that of the first query.
    window : int, optional
        With `causal`, each query sees only its own key and the ``window - 1`` keys before it.
    fill : int, or array of integers with the axes of q in front of H, optional
        k and v are a cache with K places, of which only the first `fill` count: an int for all
        sequences, or a number for each. The others are not read. With `causal`, the queries are the
        last ones of these places, whatever `fill` is, and `past` must be 0.
    out : ndarray of the dtype of q, (..., H, Q, Dv), optional
        Written and returned. Its last axis must be dense, and it must share no memory with an
        operand.
    dtype : None or "bfloat16"
        "bfloat16" treats uint16 arrays as the bits of bfloat16 values; the result is then uint16
        too.

    Returns
    -------
    ndarray of the dtype of q, (..., H, Q, Dv)
        Sums are float32. A query that sees no key gives zeros. The bits do not depend on the number
        of threads.

    Raises
    ------
    TypeError
        An argument is not an array, or has the wrong dtype.
    ValueError
        Shapes do not agree, a number is out of range, or `out` does not fit the result.

    Notes
    -----
    Scores are computed block by block and stay in the second-level cache. Sources: arXiv
    1706.03762; sums of long rows as in arXiv 1805.02867 and FlashAttention (arXiv 2205.14135).
    """
    bits = dtype is not None and holds_bits(dtype)
    asked = _asked(scale, softcap, causal, past, bits, window)
    if fill is not None:
        checked_past(past)
    if not bits:
        y: Array | None = _core.attention(q, k, v, mask, out, fill, asked)
        if y is not None:
            return y
    query, key, value = _operands(q, k, v, bits)
    if key.dtype != query.dtype and query.dtype != np.float32:
        raise TypeError(f"k has dtype {key.dtype}, expected {query.dtype} as q has")
    filled = fill
    if fill is not None:
        filled = filled_places(fill, query.shape[:-3], key.shape[-2])
    hidden = _mask(mask, (*query.shape[:-1], key.shape[-2]), bits)
    shape = (*query.shape[:-1], value.shape[-1])
    operands = {"q": query, "k": key, "v": value, "mask": hidden}
    result = result_array(out, shape, operands, query.dtype, query.ndim <= _AXES)
    _require_heads(query, value)
    if result.size:
        first, second, third, fourth = (_four_axes(name, it) for name, it in operands.items())
        to = _four_axes("out", result)
        settings = (*asked[:4], True, asked[5])
        taken(_core.attention(first, second, third, fourth, to, filled, settings))
    return result


@instead(query="q", key="k", value="v", attn_mask="mask", is_causal="causal")
def attention_backward(
    dy: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    *,
    scale: float | None = None,
    causal: bool = False,
    softcap: float = 0.0,
    past: int = 0,
    dtype: npt.DTypeLike | None = None,
) -> AttentionGradients:
    """Gradients of `attention` with respect to q, k and v.

    Parameters
    ----------
    dy : array of the dtype of q, (..., H, Q, Dv)
        Gradient of the loss with respect to the result of `attention`.
    q, k, v, mask
        As passed to `attention`: arrays whose last axis is dense are read in place.
    scale, causal, softcap, past, dtype
        As passed to `attention`.

    Returns
    -------
    AttentionGradients
        ``(dq, dk, dv)`` of the shapes and the dtype of q, k and v, in C order. Sums are float32. A
        query that sees no key has a gradient of zero and contributes to no other. The bits do not
        depend on the number of threads.

    Raises
    ------
    TypeError, ValueError
        As for `attention`.

    Notes
    -----
    A NaN or infinity in a key that a bool mask hides does not affect the result of `attention`, but
    makes dq NaN: the gradients of its scores are 0, and are multiplied by the key
    (docs/attention.md).

    Nothing needs to be kept from `attention`: scores are recomputed block by block and stay in the
    caches, as in FlashAttention (arXiv 2205.14135). With more than 2,048 keys, scores are computed
    twice.
    """
    bits = dtype is not None and holds_bits(dtype)
    asked = _asked(scale, softcap, causal, past, bits)
    if not bits:
        found = _core.attention_backward(dy, q, k, v, mask, asked)
        if found is not None:
            return AttentionGradients(*found)
    query, key, value = _operands(q, k, v, bits)
    if key.dtype != query.dtype:
        raise TypeError(f"k has dtype {key.dtype}, expected {query.dtype} as q has")
    hidden = _mask(mask, (*query.shape[:-1], key.shape[-2]), bits)
    shape = (*query.shape[:-1], value.shape[-1])
    diff = plain_view("dy", dy, bits)
    if diff.dtype != query.dtype:
        raise TypeError(f"dy has dtype {diff.dtype}, expected {query.dtype} as q has")
    require_shape("dy", diff, shape, "H and Q from q, Dv from v")
    _require_heads(query, value)
    if not diff.size or not key.size:
        zeros = (np.zeros(it.shape, it.dtype) for it in (query, key, value))
        return AttentionGradients(*zeros)
    operands = {"dy": diff, "q": query, "k": key, "v": value, "mask": hidden}
    to, first, second, third, fourth = (_four_axes(name, it) for name, it in operands.items())
    settings = (*asked[:4], True, 0)
    found = taken(_core.attention_backward(to, first, second, third, fourth, settings))
    shapes = (it.shape for it in (query, key, value))
    return AttentionGradients(*(it.reshape(s) for it, s in zip(found, shapes, strict=True)))


def _asked(
    scale: float | None, softcap: float, causal: bool, past: int, bits: bool,
    window: int | None = None,
) -> _Settings:  # fmt: skip
    number = None if scale is None else real("scale", scale)
    cap, before = real("softcap", softcap, 0), integer("past", past, 0, 1 << 62)
    is_causal = flag("causal", causal)
    return number, cap, is_causal, before, bits, checked_window(window, is_causal)


def checked_window(window: int | None, causal: bool) -> int:
    """The argument window, 0 where there is none."""
    wide = 0 if window is None else integer("window", window, 1, 1 << 62)
    if wide and not causal:
        raise ValueError(f"window is {wide} and causal is False, expected True beside a window")
    return wide


def checked_past(past: int) -> None:
    """Raises where a number of keys in front of the queries is given beside fill."""
    if past:
        raise ValueError(f"past is {past}, expected 0: with fill, the queries are the last places")


def filled_places(fill: Any, sequences: tuple[int, ...], capacity: int) -> Array:
    """The argument fill, a number for each sequence."""
    array = np.asarray(fill)
    if array.dtype.kind not in "iu":
        raise TypeError(f"fill is {shown(fill)}, expected an integer or an array of integers")
    if array.shape not in ((), sequences):
        raise ValueError(f"fill is {shown(fill)}, expected a number or one of shape {sequences}")
    if array.size and not 0 <= int(array.min()) <= int(array.max()) <= capacity:
        raise ValueError(f"fill is {shown(fill)}, expected numbers from 0 to {capacity}, K")
    return np.broadcast_to(array, sequences).astype(np.int64).reshape(-1)


def _require_heads(query: Array, value: Array) -> None:
    if query.shape[-1] == 0 or max(query.shape[-1], value.shape[-1]) > _MOST_ELEMENTS:
        raise ValueError(f"q has shape {query.shape}, expected heads of 1 to 2**24 elements")


def _operands(q: Any, k: Any, v: Any, bits: bool) -> tuple[Array, Array, Array]:
    query, key, value = (plain_view(name, it, bits) for name, it in (("q", q), ("k", k), ("v", v)))
    if query.ndim < 2:
        raise ValueError(f"q has shape {query.shape}, expected (..., H, Q, D)")
    if value.dtype != key.dtype:
        raise TypeError(f"v has dtype {value.dtype}, expected {key.dtype} as k has")
    for name, it in (("k", key), ("v", value)):
        if it.ndim != query.ndim:
            raise ValueError(f"{name} has shape {it.shape}, expected as many axes as q, {q.shape}")
    front, rest = key.shape[:-2], query.shape[:-2]
    if front[:-1] != rest[:-1]:
        raise ValueError(f"k has shape {key.shape}, expected the leading axes of q, {query.shape}")
    if front and (front[-1] == 0 or rest[-1] % front[-1]):
        raise ValueError(f"k has {front[-1]} heads, expected a divisor of the {rest[-1]} of q")
    require_shape("k", key, (*key.shape[:-1], query.shape[-1]), "D from q")
    require_shape("v", value, (*key.shape[:-1], value.shape[-1]), "heads and K from k")
    return query, key, value


def _mask(mask: Any, scores: tuple[int, ...], bits: bool) -> Array | None:
    """The argument mask, whose last axis has as many elements as there are keys."""
    if mask is None:
        return None
    array = viewed("mask", mask, "bool, float32 or bfloat16")
    if array.dtype != np.bool_:
        array = plain_view("mask", array, bits)
    try:
        whole = np.broadcast_to(array, scores)
    except ValueError:
        raise ValueError(
            f"mask is {shown(array)}, expected what broadcasts to {scores}, (..., H, Q, K)"
        ) from None
    if len(scores) > _AXES:
        return whole
    return np.broadcast_to(array, (*array.shape[:-1], scores[-1]))


def _four_axes(name: str, array: Array | None) -> Array | None:
    """The array with (sequences, heads, rows, elements), in place where the core takes it so."""
    if array is None:
        return None
    array = array.view(np.ndarray)
    missing = _AXES - array.ndim
    if missing > 0 and name != "mask":
        array = array[(None,) * missing]
    elif missing < 0:
        array = array.reshape(-1, *array.shape[-3:])
    if name == "mask" and array.ndim == 0:
        array = array.reshape(1)
    steps, size = array.strides, array.itemsize
    dense = array.size == 0 or array.shape[-1] <= 1 or steps[-1] == size
    moves = [step for step, extent in zip(steps, array.shape, strict=True) if extent > 1]
    fits = dense and array.flags.aligned and all(it >= 0 and it % size == 0 for it in moves)
    if name in ("q", "dy"):
        apart = array.shape[3] <= steps[2] // size <= _MOST_ELEMENTS
        fits = fits and (array.shape[2] <= 1 or apart)
    return array if fits else contiguous(array)
