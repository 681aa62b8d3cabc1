"""Convolutions, pooling, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlprim.graph.graph import Value
from dlprim.graph.operators.convolutions import window_count
from dlprim.torch.operators.table import Call, asked, backward, pair_of, require, rule


def _form(x: Value, how: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """The operator and its attributes, of aten's arguments behind the bias."""
    stride, padding, dilation, transposed, more, groups = how
    axes = len(x.shape) - 2
    require(axes >= 1, "images have no axes")
    form = {
        "strides": pair_of(stride, axes),
        "padding": tuple(
            it if isinstance(it, tuple) else (it, it) for it in pair_of(padding, axes)
        ),
        "dilations": pair_of(dilation, axes),
        "groups": groups,
    }
    if transposed:
        return "transposed_convolution", {**form, "output_padding": pair_of(more, axes)}
    return "convolution", form


def _of_rims(how: Sequence[Any]) -> tuple[Any, ...]:
    """Arguments of aten, of those of `dlprim.torch.conv2d`, which has rims of four widths."""
    strides, (top, bottom, left, right), dilations, groups = how
    return strides, ((top, bottom), (left, right)), dilations, False, (), groups


@rule("aten.convolution.default")
def convolution(c: Call, x: Value, w: Value, bias: Value | None, *how: Any) -> Value:
    operator, form = _form(x, how)
    if bias is not None and operator == "transposed_convolution" and not c.b.is_constant(w):
        # Of computed weights there is a step for the sums alone.
        (sums,) = c.b.emit(operator, [x, w], **form)
        spread = c.b.reshape(bias, (bias.shape[0], *[1] * (len(x.shape) - 2)))
        return c.b.apply("add", sums, spread)
    inputs = [x, w] if bias is None else [x, w, bias]
    return c.b.emit(operator, inputs, **form)[0]


@rule("dlprim.conv2d.default")
def conv2d(c: Call, x: Value, w: Value, bias: Value | None, *how: Any) -> Any:
    return convolution(c, x, w, bias, *_of_rims(how))


@rule("aten.convolution_backward.default", "dlprim.wide_convolution_backward")
def convolution_backward(
    c: Call, diff: Value, x: Value, w: Value, bias: Any, *how: Any
) -> tuple[Value | None, ...]:
    *rest, mask = how
    operator, form = _form(x, rest)
    like = Value("bias", diff.shape[1:2], diff.dtype)
    found = list(c.gradients(operator, (x, w, like), diff, form))
    if c.dtypes[1] not in (None, w.dtype):  # sums that are not rounded; what reads w is dropped
        wide = Value("weights", w.shape, c.dtypes[1] or w.dtype)
        found[1] = list(c.gradients(operator, (x, wide, like), diff, form))[1]
    return tuple(it if wanted else None for it, wanted in zip(found, mask, strict=True))


@rule("dlprim.conv2d_backward.default")
def conv2d_backward(c: Call, diff: Value, x: Value, w: Value, *how: Any) -> tuple[Value, ...]:
    *geometry, mask = how
    operator, form = _form(x, _of_rims(geometry))
    like = Value("bias", diff.shape[1:2], diff.dtype)
    return asked(c, c.gradients(operator, (x, w, like), diff, form), mask)


# ---------------------------------------------------------------- pooling


def _windows(
    x: Value, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil: bool = False
) -> dict[str, Any]:
    """Attributes of a pool, of aten's arguments."""
    axes = len(kernel)
    require(len(x.shape) == axes + 2, "there is no axis of images")
    strides = pair_of(stride, axes) if stride else tuple(kernel)
    front, dilations = pair_of(padding, axes), pair_of(dilation, axes)
    counts = []
    for n, k, s, p, d in zip(x.shape[2:], kernel, strides, front, dilations, strict=True):
        count = window_count(n, k, s, d, (p, p + s - 1 if ceil else p))
        counts.append(count - 1 if ceil and (count - 1) * s >= n + p else count)
    return {
        "kernel": tuple(kernel),
        "strides": strides,
        "dilations": dilations,
        "padding": tuple((p, p) for p in front),
        "counts": tuple(counts),
    }


@rule("aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default")
def max_pool(c: Call, x: Value, *how: Any) -> tuple[Value | None, ...]:
    form = {**_windows(x, *how), "function": "max", "counts_padding": False}
    return c.b.emit("pool", [x], **form)[0], None


@rule(
    "again.aten.max_pool2d_with_indices_backward.default",
    "again.aten.max_pool3d_with_indices_backward.default",
)
def max_pool_backward(c: Call, diff: Value, x: Value, *how: Any, **forward: Any) -> Value:
    return c.through("aten.max_pool2d_with_indices.default", diff, x, *how[:-1])


@rule("aten.avg_pool2d.default", "aten.avg_pool3d.default")
def avg_pool(
    c: Call,
    x: Value,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil: bool = False,
    counts: bool = True,
    divisor: Any = None,
) -> Value:
    require(divisor is None, "it has a divisor")
    require(not (ceil and counts), "windows leave the padding")
    form = _windows(x, kernel, stride, padding, 1, ceil)
    return c.b.emit("pool", [x], function="mean", counts_padding=bool(counts), **form)[0]


@rule("aten._adaptive_avg_pool2d.default")
def adaptive_avg_pool(c: Call, x: Value, sizes: Sequence[int]) -> Any:
    pairs = list(zip(x.shape[-2:], sizes, strict=True))
    require(all(n % k == 0 for n, k in pairs), "windows differ")
    kernel = [n // k for n, k in pairs]
    return avg_pool(c, x, kernel, kernel)


@rule("aten._adaptive_avg_pool2d_backward.default")
def adaptive_avg_pool_backward(c: Call, diff: Value, x: Value) -> Value:
    return c.through("aten._adaptive_avg_pool2d.default", diff, x, diff.shape[-2:])


backward({f"aten.avg_pool{it}d_backward.default": f"aten.avg_pool{it}d.default" for it in (2, 3)})


@rule("aten.upsample_nearest2d.default", "aten.upsample_nearest2d.vec")
def upsample_nearest(c: Call, x: Value, sizes: Any, *how: Any) -> Value:
    n, k, h, w = x.shape
    tall, wide = sizes or [int(it * scale) for it, scale in zip((h, w), how[0], strict=True)]
    require(tall % h == wide % w == 0, "pixels differ in size")
    repeated = (n, k, h, tall // h, w, wide // w)
    return c.b.reshape(c.b.expand(c.b.reshape(x, (n, k, h, 1, w, 1)), repeated), (n, k, tall, wide))
