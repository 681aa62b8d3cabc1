"""Convolutions, pooling, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlprim.graph.graph import Value
from dlprim.graph.operators.convolutions import window_count
from dlprim.torch.operators.table import Call, completed, pair_of, require, rule


def _form(x: Value, how: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """The operator and its attributes, of aten's arguments behind the bias."""
    stride, padding, dilation, transposed, more, groups = how
    axes = len(x.shape) - 2
    require(axes >= 1, "images have no axes")
    form = {
        "strides": pair_of(stride, axes),
        "padding": tuple((it, it) for it in pair_of(padding, axes)),
        "dilations": pair_of(dilation, axes),
        "groups": groups,
    }
    if transposed:
        return "transposed_convolution", {**form, "output_padding": pair_of(more, axes)}
    return "convolution", form


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


# ---------------------------------------------------------------- pooling


def _pool(x: Value, function: str, how: dict[str, Any]) -> dict[str, Any]:
    axes = len(how["kernel"])
    require(len(x.shape) == axes + 2, "there is no axis of images")
    kernel = tuple(how["kernel"])
    strides = pair_of(how["stride"], axes) if how["stride"] else kernel
    front, dilations = pair_of(how["padding"], axes), pair_of(how["dilation"], axes)
    counts = []
    for n, k, s, p, d in zip(x.shape[2:], kernel, strides, front, dilations, strict=True):
        count = window_count(n, k, s, d, (p, p))
        if how["ceil"]:
            covered = d * (k - 1) + 1
            count = -(-(n + 2 * p - covered) // s) + 1
            count = count - 1 if (count - 1) * s >= n + p else count
        counts.append(count)
    return {
        "function": function,
        "kernel": kernel,
        "strides": strides,
        "dilations": dilations,
        "padding": tuple((p, p) for p in front),
        "counts": tuple(counts),
        "counts_padding": how.get("counts_padding", False),
    }


def _windows(kernel: Any, axes: int, *how: Any) -> dict[str, Any]:
    stride, padding, dilation, ceil = completed(how, (), 0, 1, False)
    return {
        "kernel": pair_of(kernel, axes),
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "ceil": ceil,
    }


@rule("aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default")
def max_pool(c: Call, x: Value, kernel: Any, *how: Any) -> tuple[Value | None, ...]:
    form = _pool(x, "max", _windows(kernel, len(kernel), *how))
    return c.b.emit("pool", [x], **form)[0], None


@rule(
    "again.aten.max_pool2d_with_indices_backward.default",
    "again.aten.max_pool3d_with_indices_backward.default",
)
def max_pool_backward(
    c: Call, diff: Value, x: Value, kernel: Any, *how: Any, **forward: Any
) -> Value:
    form = _pool(x, "max", _windows(kernel, len(kernel), *how[:-1]))
    return c.b.emit("pool_gradient", [diff, x], extents=x.shape[2:], **form)[0]


def _mean_pool(x: Value, how: Sequence[Any]) -> dict[str, Any]:
    kernel, stride, padding, ceil, counts, divisor = completed(how, None, (), 0, False, True, None)
    require(divisor is None, "it has a divisor")
    form = {
        **_windows(kernel, len(kernel), stride, padding, 1, ceil),
        "counts_padding": bool(counts),
    }
    require(not (ceil and counts), "windows leave the padding")
    return _pool(x, "mean", form)


@rule("aten.avg_pool2d.default", "aten.avg_pool3d.default")
def avg_pool(c: Call, x: Value, *how: Any) -> Value:
    return c.b.emit("pool", [x], **_mean_pool(x, how))[0]


@rule("aten.avg_pool2d_backward.default", "aten.avg_pool3d_backward.default")
def avg_pool_backward(c: Call, diff: Value, x: Value, *how: Any) -> Value:
    form = _mean_pool(x, how)
    return c.b.emit("pool_gradient", [diff, None], extents=x.shape[2:], **form)[0]


def _equal_windows(x: Value, sizes: Sequence[int]) -> list[int]:
    """The kernel of as many windows, which is the stride, too."""
    pairs = list(zip(x.shape[-2:], sizes, strict=True))
    require(all(n % k == 0 for n, k in pairs), "windows differ")
    return [n // k for n, k in pairs]


@rule("aten._adaptive_avg_pool2d.default")
def adaptive_avg_pool(c: Call, x: Value, sizes: Sequence[int]) -> Any:
    kernel = _equal_windows(x, sizes)
    return avg_pool(c, x, kernel, kernel)


@rule("aten._adaptive_avg_pool2d_backward.default")
def adaptive_avg_pool_backward(c: Call, diff: Value, x: Value) -> Any:
    kernel = _equal_windows(x, diff.shape[-2:])
    return avg_pool_backward(c, diff, x, kernel, kernel)


@rule("aten.upsample_nearest2d.default", "aten.upsample_nearest2d.vec")
def upsample_nearest(c: Call, x: Value, sizes: Any, *how: Any) -> Value:
    found = list(sizes) if sizes is not None else [0, 0]
    if sizes is None:
        found = [int(n * it) for n, it in zip(x.shape[2:], how[0], strict=True)]
    require(
        all(m % n == 0 for n, m in zip(x.shape[2:], found, strict=True)), "pixels differ in size"
    )
    times = [m // n for n, m in zip(x.shape[2:], found, strict=True)]
    n, k, h, w = x.shape
    wide = c.b.expand(c.b.reshape(x, (n, k, h, 1, w, 1)), (n, k, h, times[0], w, times[1]))
    return c.b.reshape(wide, (n, k, *found))
