"""dlprim's products, windows and moves in a trace: linear, convolutions, pools, attention."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from dlprim.arguments.names import activation_name, one_of_names
from dlprim.arguments.scalars import flag, integer, real, shown
from dlprim.functions.conv.windows import group_count, steps, window
from dlprim.functions.extents.image_arrays import image_layout, image_size
from dlprim.functions.extents.interpolation import rule_of
from dlprim.functions.extents.padding import MODES, borders_of
from dlprim.functions.extents.windows import Axis, weights_of
from dlprim.tracing.array import TracedArray
from dlprim.tracing.functions.operands import alike, checked_layer, floats, shaped, values
from dlprim.tracing.functions.products import einsum as einstein
from dlprim.tracing.functions.products import multiplied
from dlprim.tracing.functions.rows import activated
from dlprim.tracing.refusals import refuse
from dlprim.tracing.tracer import made, tracer_of

_SHAPES = {1: "(N, C, W)", 2: "(N, C, H, W)", 3: "(N, C, D, H, W)"}


def _ended(y: Any, activation: str | None) -> Any:
    name = activation_name(activation)
    return y if name == "none" else activated(y, name)


@checked_layer
def linear(x: Any, w: Any, bias: Any = None, *, activation: str | None = None) -> Any:
    x, w, bias = floats(x=x, w=w, bias=bias)
    alike("w", w, "x", x)
    if w.ndim != 2:
        raise ValueError(f"w has shape {w.shape}, expected two dimensions (K, C)")
    if x.ndim == 0 or x.shape[-1] != w.shape[1]:
        raise ValueError(
            f"x has shape {x.shape}, expected (..., {w.shape[1]}): the last axis holds the C input "
            f"channels of w, whose shape is {w.shape}"
        )
    shaped("bias", bias, w.shape[:1], "K from w")
    y = multiplied(x, w.T)
    return _ended(y if bias is None else y + bias.astype(x.dtype), activation)


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


# ---------------------------------------------------------------- convolutions


def _convolved(axes: int, arrays: tuple[Any, ...], numbers: tuple[Any, ...]) -> Any:
    x, w, bias = floats(x=arrays[0], w=arrays[1], bias=arrays[2])
    _require_axes(axes, x, w)
    it = window(x.shape, w.shape, *numbers)
    shaped("bias", bias, w.shape[:1], "K from w")
    how = {
        "strides": it.stride,
        "dilations": it.dilation,
        "padding": it.padding,
        "groups": it.groups,
    }
    build, inputs = x.tracer.build, values(x, w, bias)
    return made(x.tracer, lambda: build.emit("convolution", inputs, **how)[0])


def _require_axes(axes: int, x: Any, w: Any) -> None:
    alike("w", w, "x", x)
    if x.ndim != axes + 2:
        raise ValueError(f"x has shape {x.shape}, expected {axes + 2} dimensions {_SHAPES[axes]}")
    if w.ndim != axes + 2:
        raise ValueError(f"w has shape {w.shape}, expected {axes + 2} dimensions")


@checked_layer
def conv1d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    return _convolved(1, (x, w, bias), (stride, padding, dilation, groups))


@checked_layer
def conv3d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    return _convolved(3, (x, w, bias), (stride, padding, dilation, groups))


@checked_layer
def conv2d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    activation: str | None = None,
    residual: Any = None,
    layout: str = "NCHW",
) -> Any:
    is_last = image_layout(layout) == "NHWC"
    x, w, residual = floats(x=x, w=w, residual=residual)
    source = np.moveaxis(x, -1, 1) if is_last and x.ndim == 4 else x
    y = _convolved(2, (source, w, bias), (stride, padding, dilation, groups))
    result = np.moveaxis(y, 1, -1) if is_last else y
    if residual is not None:
        alike("residual", residual, "x", x)
        shaped("residual", residual, result.shape, "the shape of y")
        result = result + residual
    return _ended(result, activation)


def _transposed(axes: int, arrays: tuple[Any, ...], numbers: tuple[Any, ...]) -> Any:
    x, w, bias = floats(x=arrays[0], w=arrays[1], bias=arrays[2])
    _require_axes(axes, x, w)
    stride, padding, output_padding, groups, dilation = numbers
    strides, dilations = steps("stride", stride, axes, 1), steps("dilation", dilation, axes, 1)
    more = steps("output_padding", output_padding, axes, 0)
    if any(extra >= max(pair) for extra, *pair in zip(more, strides, dilations, strict=True)):
        raise ValueError(
            f"output_padding is {shown(output_padding)}, expected less than stride or dilation"
        )
    count = integer("groups", groups, 1)
    if x.shape[1] != w.shape[0]:
        raise ValueError(f"w has shape {w.shape}, expected {x.shape[1]} input channels as x has")
    group_count(count, w.shape)
    shaped("bias", bias, (w.shape[1] * count,), "K from w")
    how = {
        "strides": strides,
        "dilations": dilations,
        "padding": tuple((it, it) for it in steps("padding", padding, axes, 0)),
        "groups": count,
        "output_padding": more,
    }
    build, inputs = x.tracer.build, values(x, w, bias)
    return made(x.tracer, lambda: build.emit("transposed_convolution", inputs, **how)[0])


def _transposed_layer(axes: int) -> None:
    def apply(
        x: Any,
        w: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Any:
        return _transposed(axes, (x, w, bias), (stride, padding, output_padding, groups, dilation))

    apply.__name__ = f"conv_transpose{axes}d"
    checked_layer(apply)


# ---------------------------------------------------------------- windows


def _pooled(
    axes: int, function: str, x: Any, numbers: tuple[Any, ...], counts_padding: bool
) -> Any:
    (x,) = floats(x=x)
    if x.ndim != axes + 2:
        raise ValueError(f"x has shape {x.shape}, expected {axes + 2} dimensions {_SHAPES[axes]}")
    kernel, stride, padding = numbers
    taps = steps("kernel", kernel, axes, 1)
    strides = taps if stride is None else steps("stride", stride, axes, 1)
    sides = steps("padding", padding, axes, 0)
    counts = []
    for n, k, s, p in zip(x.shape[2:], taps, strides, sides, strict=True):
        if 2 * p > k:
            raise ValueError(f"padding is {padding!r}, expected at most half of kernel = {kernel}")
        if k > n + 2 * p:
            raise ValueError(
                f"kernel covers {k} elements along an axis of x, which has {n} and a padding of "
                f"{2 * p}"
            )
        counts.append((n + 2 * p - k) // s + 1)
    how = {
        "function": function,
        "kernel": taps,
        "strides": strides,
        "dilations": (1,) * axes,
        "padding": tuple((it, it) for it in sides),
        "counts": tuple(counts),
        "counts_padding": counts_padding,
    }
    build = x.tracer.build
    return made(x.tracer, lambda: build.emit("pool", [x.value], **how)[0])


def _pool_layers(axes: int) -> None:
    def largest(x: Any, kernel: Any, stride: Any = None, padding: Any = 0) -> Any:
        return _pooled(axes, "max", x, (kernel, stride, padding), False)

    def mean(
        x: Any, kernel: Any, stride: Any = None, padding: Any = 0, *, count_include_pad: bool = True
    ) -> Any:
        counts = flag("count_include_pad", count_include_pad)
        return _pooled(axes, "mean", x, (kernel, stride, padding), counts)

    largest.__name__, mean.__name__ = f"max_pool{axes}d", f"avg_pool{axes}d"
    checked_layer(largest)
    checked_layer(mean)


for _axes in (1, 2, 3):
    _transposed_layer(_axes)
    _pool_layers(_axes)


def _resampled(x: Any, layout: str, rows: Axis, columns: Axis) -> Any:
    """A product with a matrix along each axis."""
    image = np.moveaxis(x, -1, 1) if layout == "NHWC" else x
    down, across = (_matrix(it).astype(x.dtype) for it in (rows, columns))
    y = np.matmul(np.matmul(down, image), across.T)
    return np.moveaxis(y, 1, -1) if layout == "NHWC" else y


def _matrix(axis: Axis) -> Any:
    """What each result takes of each pixel."""
    begins, counts, weights = weights_of(axis)
    made = np.zeros((axis.dst, axis.src), np.float32)
    places = np.repeat(begins, counts) + np.concatenate([np.arange(it) for it in counts])
    made[np.repeat(np.arange(axis.dst), counts), places] = weights
    return made


def _image(x: Any, layout: Any) -> tuple[Any, str, tuple[int, int]]:
    order = image_layout(layout)
    (x,) = floats(x=x)
    if x.ndim != 4:
        raise ValueError(f"x has shape {x.shape}, expected four dimensions")
    return x, order, (x.shape[1:3] if order == "NHWC" else x.shape[2:])


@checked_layer
def adaptive_avg_pool2d(x: Any, output_size: Any, *, layout: str = "NCHW") -> Any:
    x, order, size = _image(x, layout)
    due = image_size("output_size", output_size, size)
    if due == (1, 1):
        return np.mean(x, axis=(1, 2) if order == "NHWC" else (2, 3), keepdims=True)
    rows, columns = (Axis("average", n, m) for n, m in zip(size, due, strict=True))
    return _resampled(x, order, rows, columns)


@checked_layer
def interpolate(
    x: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool = False,
    *,
    layout: str = "NCHW",
) -> Any:
    rule = rule_of(size, scale_factor, mode, align_corners)
    x, order, extents = _image(x, layout)
    return _resampled(x, order, *rule(extents))


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
) -> Any:
    q, k, v = floats(q=q, k=k, v=v)
    _require_heads(q, k, v)
    by = 1 / np.sqrt(max(1, q.shape[-1])) if scale is None else real("scale", scale)
    cap, before = real("softcap", softcap, 0), integer("past", past, 0, 1 << 62)
    scores = (*q.shape[:-1], k.shape[-2])
    is_causal = flag("causal", causal)
    if is_causal and before:
        seen = np.tri(scores[-2], scores[-1], before, dtype=bool)
        mask = seen if mask is None else _both(mask, seen)
        is_causal = False
    inputs = [_four(it) for it in (q, k, v)]
    if mask is not None:
        inputs.append(_mask(q, mask, scores))
    how = {"scale": float(by), "softcap": cap, "causal": is_causal}
    build, given = q.tracer.build, values(*inputs)
    y = made(q.tracer, lambda: build.emit("attention", given, **how)[0])
    return y.reshape(*q.shape[:-1], v.shape[-1])


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


def _both(mask: Any, seen: Any) -> Any:
    """A mask that hides what another one does, too."""
    if mask.dtype == bool:
        return np.logical_and(mask, seen)
    return np.where(seen, mask, np.array(-np.inf, np.float32))


def _four(x: Any) -> Any:
    """(N, H, rows, elements) of any number of leading axes."""
    return x.reshape(
        -1 if x.ndim > 3 else 1, *((1,) if x.ndim < 3 else x.shape[-3:-2]), *x.shape[-2:]
    )


def _mask(q: Any, mask: Any, scores: tuple[int, ...]) -> Any:
    tracer = q.tracer
    if not isinstance(mask, TracedArray):
        mask = TracedArray(tracer, tracer.value(mask))
    if mask.dtype != bool:
        (mask,) = floats(mask=mask)
    try:
        fits = np.broadcast_shapes(mask.shape, scores) == scores
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
    if (
        np.asarray(indices).dtype.kind not in "iu"
        if not isinstance(indices, TracedArray)
        else (indices.dtype.kind not in "iu")
    ):
        raise TypeError(f"indices has dtype {indices.dtype}, expected integers of int64")
    return w[indices]


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
    widths = [(0, 0)] * x.ndim
    for border in borders_of(pad, x.ndim):
        widths[border.axis] = (border.before, border.behind)
    if min(min(it) for it in widths) < 0:
        refuse("dlprim.pad takes elements away", "a slice")
    names = {"replicate": "edge", "circular": "wrap"}
    build, inputs = x.tracer.build, [x.value]
    if kind == "constant":
        inputs.append(x.tracer.value(real("value", value), x.dtype))
    how = {"widths": tuple(widths), "mode": names.get(kind, kind)}
    return made(x.tracer, lambda: build.emit("pad", inputs, **how)[0])
