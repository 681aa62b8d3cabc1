"""Products and convolutions with the activation, the sum or the transposition behind or in front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import number, operand
from dlprim.graph.graph import Value
from dlprim.onnx.operators.layers.axis_norms import softmax
from dlprim.onnx.operators.layers.convolutions import conv
from dlprim.onnx.operators.layers.pooling import max_pool
from dlprim.onnx.operators.layers.products import gemm
from dlprim.onnx.operators.microsoft.checks import (
    MICROSOFT,
    require_floats,
    require_rank,
    require_shape,
)
from dlprim.onnx.registry import RefusedError, operator, operator_for

_X, _Y = operand(0), operand(1)
# Activations by name, and what their parameters are called in the order of `activation_params`.
_ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "Celu": ("alpha",),
    "Clip": ("min", "max"),
    "Elu": ("alpha",),
    "Gelu": (),
    "HardSigmoid": ("alpha", "beta"),
    "HardSwish": (),
    "LeakyRelu": ("alpha",),
    "Mish": (),
    "Relu": (),
    "Selu": ("alpha", "gamma"),
    "Sigmoid": (),
    "Softplus": (),
    "Softsign": (),
    "Tanh": (),
    "ThresholdedRelu": ("alpha",),
}
# The last opset in which the limits of Clip are attributes, and one that has all the others.
_CLIP_OPSET, _OPSET = 6, 20


def _activated(build: Builder, y: Value, name: str, parameters: Mapping[str, float]) -> Value:
    """The activation with this name in ONNX; '' is none."""
    if not name:
        return y
    if name not in _ACTIVATIONS:
        listed = ", ".join(sorted(_ACTIVATIONS))
        raise RefusedError(f"activation is {name!r}, expected one of {listed}")
    unknown = sorted(set(parameters) - set(_ACTIVATIONS[name]))
    if unknown:
        raise RefusedError(f"activation {name} is given {unknown[0]}, which it does not have")
    known = operator_for("", name, _CLIP_OPSET if name == "Clip" else _OPSET)
    assert known is not None
    activated: Value = known.function(build, y, **parameters)
    return activated


def _listed(name: str, values: Sequence[float]) -> dict[str, float]:
    names = _ACTIVATIONS.get(name, ())
    if len(values) > len(names):
        raise RefusedError(f"activation_params are {list(values)}, expected {len(names)} of {name}")
    return dict(zip(names, values, strict=False))


def _named(**values: float | None) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}


# ---------------------------------------------------------------- convolutions


@operator("FusedConv", domain=MICROSOFT)
def fused_conv(
    build: Builder,
    x: Value,
    w: Value,
    bias: Value | None = None,
    summand: Value | None = None,
    *,
    activation: str = "",
    activation_params: tuple[float, ...] = (),
    auto_pad: str = "NOTSET",
    dilations: tuple[int, ...] | None = None,
    group: int = 1,
    kernel_shape: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Value:
    """A convolution, a sum with an array like the result, an activation."""
    require_floats(X=x, W=w, B=bias, Z=summand)
    shape = {"auto_pad": auto_pad, "dilations": dilations, "pads": pads, "strides": strides}
    y = conv(build, x, w, bias, group=group, kernel_shape=kernel_shape, **shape)  # type: ignore[arg-type]
    if summand is not None:
        require_shape(y.shape, Z=summand)
        y = build.apply("add", y, summand)
    return _activated(build, y, activation, _listed(activation, activation_params))


@operator("NhwcMaxPool", domain=MICROSOFT)
def nhwc_max_pool(
    build: Builder,
    x: Value,
    *,
    kernel_shape: tuple[int, ...],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Value:
    rank = len(x.shape)
    if rank < 3:
        raise RefusedError(f"x is of {list(x.shape)}, expected (N, ..., C)")
    (y,) = max_pool(
        build,
        build.transpose(x, (0, rank - 1, *range(1, rank - 1))),
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
        dilations=dilations,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return build.transpose(y, (0, *range(2, rank), 1))


# ---------------------------------------------------------------- products


@operator("FusedGemm", domain=MICROSOFT)
def fused_gemm(
    build: Builder,
    a: Value,
    b: Value,
    c: Value | None = None,
    *,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Value:
    require_floats(A=a, B=b, C=c)
    y = gemm(build, a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    given = _named(alpha=activation_alpha, beta=activation_beta, gamma=activation_gamma)
    return _activated(build, y, activation, given)


def _turned(build: Builder, x: Value, batch: int, last: int) -> Value:
    """The first axis put behind all but the last, then the last two exchanged, as asked for."""
    rank = len(x.shape)
    if rank < 2:
        return x
    axes = [*range(1, rank - 1), 0, rank - 1] if batch else [*range(rank)]
    if last:
        axes[-2:] = axes[:-3:-1]
    return build.transpose(x, axes)


@operator("TransposeMatMul", domain=MICROSOFT)
@operator("FusedMatMul", domain=MICROSOFT)
def fused_matmul(
    build: Builder,
    a: Value,
    b: Value,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Value:
    require_floats(A=a, B=b)
    left, right = _turned(build, a, transBatchA, transA), _turned(build, b, transBatchB, transB)
    y = build.matmul(left, right)
    return y if alpha == 1 else build.map(("multiply", number(alpha), _X), y)


@operator("FusedMatMulActivation", domain=MICROSOFT)
def fused_matmul_activation(
    build: Builder,
    a: Value,
    b: Value,
    *,
    activation: str,
    activation_alpha: float | None = None,
    activation_axis: int = -1,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Value:
    """The activation may be Softmax along an axis."""
    sides = {"transA": transA, "transB": transB}
    sides |= {"transBatchA": transBatchA, "transBatchB": transBatchB}
    y = fused_matmul(build, a, b, alpha=alpha, **sides)  # type: ignore[arg-type]
    if activation == "Softmax":
        return softmax(build, y, axis=activation_axis)
    given = _named(alpha=activation_alpha, beta=activation_beta, gamma=activation_gamma)
    return _activated(build, y, activation, given)


@operator("GemmFastGelu", domain=MICROSOFT)
def gemm_fast_gelu(build: Builder, x: Value, w: Value, bias: Value | None = None) -> Value:
    require_floats(X=x, W=w, bias=bias)
    require_rank(2, "(C, K)", W=w)
    y = build.matmul(x, w)
    if bias is None:
        return build.apply("gelu_tanh", y)
    require_shape(w.shape[1:], bias=bias)
    return build.map(("gelu_tanh", ("add", _X, _Y)), y, bias)
