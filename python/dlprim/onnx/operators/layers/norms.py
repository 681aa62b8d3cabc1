"""Normalisations."""

from __future__ import annotations

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Value
from dlprim.graph.operators.operator import axis_within
from dlprim.onnx.registry import RefusedError, operator

_X = operand(0)


def _widest(x: Value) -> np.dtype[np.generic]:
    """What statistics are computed in: at least float32."""
    return np.dtype(np.float64 if x.dtype == np.float64 else np.float32)


def _channels(x: Value, **arrays: Value) -> None:
    """Refuses arrays that do not have one number for each channel of x."""
    if len(x.shape) < 2:
        raise RefusedError(f"the input is of {list(x.shape)}, expected (N, C, ...)")
    for name, array in arrays.items():
        if array.shape != x.shape[1:2]:
            raise RefusedError(f"{name} of {list(array.shape)}, expected [{x.shape[1]}]")


def _along_channels(build: Builder, array: Value, x: Value) -> Value:
    return build.reshape(array, (*array.shape, *[1] * (len(x.shape) - 2)))


def checked_epsilon(epsilon: float) -> float:
    if not (np.isfinite(epsilon) and epsilon >= 0):
        raise RefusedError(f"epsilon is {epsilon}, expected a finite number from 0 on")
    return epsilon


def _reciprocal_root(x: Expression, epsilon: float) -> Expression:
    return ("divide", number(1.0), ("sqrt", ("add", x, number(checked_epsilon(epsilon)))))


# ---------------------------------------------------------------- BatchNormalization


def _scaled_channels(
    build: Builder, x: Value, gamma: Value, beta: Value, statistics: tuple[Value, Value, float]
) -> Value:
    """x times a number of its channel plus another: constants in most models."""
    mean, variance, epsilon = statistics
    wide = _widest(x)
    gamma, beta, mean, variance = (
        build.cast(_along_channels(build, it, x), wide) for it in (gamma, beta, mean, variance)
    )
    root = _reciprocal_root(operand(1), epsilon)
    scale = build.map(("multiply", _X, root), gamma, variance)
    taken = ("multiply", operand(1), operand(2))
    shift = build.map(("subtract", _X, taken), beta, mean, scale)
    scaled = ("add", ("multiply", _X, operand(1)), operand(2))
    return build.map(scaled, x, scale, shift)


@operator("BatchNormalization", since=7)
def batch_norm_spatial(
    build: Builder,
    x: Value,
    gamma: Value,
    beta: Value,
    mean: Value,
    variance: Value,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
    outputs: int = 1,
) -> Value:
    if spatial != 1:
        raise RefusedError("spatial is 0, expected 1")
    if outputs > 1:
        raise RefusedError(f"{outputs} outputs, as of training, expected 1")
    _channels(x, scale=gamma, B=beta, mean=mean, var=variance)
    return _scaled_channels(build, x, gamma, beta, (mean, variance, epsilon))


@operator("BatchNormalization", since=9)
def batch_norm_inference(
    build: Builder,
    x: Value,
    gamma: Value,
    beta: Value,
    mean: Value,
    variance: Value,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    outputs: int = 1,
) -> Value:
    return batch_norm_spatial(
        build, x, gamma, beta, mean, variance, epsilon=epsilon, outputs=outputs
    )


@operator("BatchNormalization", since=14)
def batch_norm(
    build: Builder,
    x: Value,
    gamma: Value,
    beta: Value,
    mean: Value,
    variance: Value,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    outputs: int = 1,
) -> Value | tuple[Value, ...]:
    if not training_mode:
        return batch_norm_spatial(
            build, x, gamma, beta, mean, variance, epsilon=epsilon, outputs=outputs
        )
    _channels(x, scale=gamma, B=beta, input_mean=mean, input_var=variance)
    axes = [axis for axis in range(len(x.shape)) if axis != 1]
    wide = build.cast(x, _widest(x))
    now = build.reduce("mean", wide, axes)
    away = build.map(("subtract", _X, operand(1)), wide, _along_channels(build, now, x))
    spread = build.reduce("mean", build.map(("multiply", _X, _X), away), axes)
    y = _scaled_channels(build, x, gamma, beta, (now, spread, epsilon))
    kept = ("multiply", _X, number(momentum))
    mixed = ("add", kept, ("multiply", operand(1), number(1 - momentum)))
    return y, build.map(mixed, mean, now), build.map(mixed, variance, spread)


# ---------------------------------------------------------------- groups of channels


def _check_groups(x: Value, groups: int) -> None:
    if len(x.shape) < 2 or groups < 1 or x.shape[1] % groups:
        raise RefusedError(f"num_groups is {groups}, expected a divisor of the channels")


@operator("InstanceNormalization")
def instance_norm(
    build: Builder, x: Value, gamma: Value, beta: Value, *, epsilon: float = 1e-5
) -> Value:
    _channels(x, scale=gamma, B=beta)
    return group_norm(build, x, gamma, beta, num_groups=x.shape[1], epsilon=epsilon)


@operator("GroupNormalization", since=18)
def group_norm_by_groups(
    build: Builder,
    x: Value,
    gamma: Value,
    beta: Value,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
) -> Value:
    """Scale and bias have a number for each group."""
    _check_groups(x, num_groups)
    spread = []
    for name, array in (("scale", gamma), ("bias", beta)):
        if array.shape != (num_groups,):
            raise RefusedError(f"{name} of {list(array.shape)}, expected [{num_groups}]")
        rows = build.reshape(array, (num_groups, 1))
        whole = build.expand(rows, (num_groups, x.shape[1] // num_groups))
        spread.append(build.reshape(whole, x.shape[1:2]))
    return group_norm(build, x, *spread, num_groups=num_groups, epsilon=epsilon)


@operator("GroupNormalization", since=21)
def group_norm(
    build: Builder,
    x: Value,
    gamma: Value,
    beta: Value,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Value:
    _channels(x, scale=gamma, bias=beta)
    _check_groups(x, num_groups)
    attributes = {"groups": num_groups, "epsilon": checked_epsilon(epsilon)}
    return build.emit("group_norm", [x, gamma, beta], **attributes)[0]


# ---------------------------------------------------------------- of the last axes


def over_last_axes(
    build: Builder,
    x: Value,
    scale: Value,
    bias: Value | None,
    axis: int,
    epsilon: float,
    rms: bool = False,
) -> Value:
    first = axis_within(axis, len(x.shape))
    normalized = x.shape[first:]
    arrays: list[Value | None] = [x]
    for name, array in (("Scale", scale), ("B", bias)):
        if array is None:
            arrays.append(None)
            continue
        lead = len(array.shape) - len(normalized)
        if any(extent != 1 for extent in array.shape[: max(0, lead)]):
            raise RefusedError(
                f"{name} of {list(array.shape)}, expected one that can be broadcast to "
                f"{list(normalized)}"
            )
        inner = build.reshape(array, array.shape[max(0, lead) :])
        arrays.append(build.expand(inner, normalized))
    attributes = {"axes": len(normalized), "epsilon": checked_epsilon(epsilon), "rms": rms}
    return build.emit("normalize", arrays, **attributes)[0]


def statistics(build: Builder, x: Value, axis: int, epsilon: float) -> tuple[Value, Value]:
    axes = range(axis_within(axis, len(x.shape)), len(x.shape))
    wide = build.cast(x, _widest(x))
    mean = build.reduce("mean", wide, axes, keepdims=True)
    away = build.map(("subtract", _X, operand(1)), wide, mean)
    spread = build.reduce("mean", build.map(("multiply", _X, _X), away), axes, keepdims=True)
    return mean, build.map(_reciprocal_root(_X, epsilon), spread)


def root_mean_square(build: Builder, x: Value, axis: int, epsilon: float) -> Value:
    """One over the root of the mean of squares, as outputs for training have it."""
    axes = range(axis_within(axis, len(x.shape)), len(x.shape))
    squares = build.map(("multiply", _X, _X), build.cast(x, _widest(x)))
    mean = build.reduce("mean", squares, axes, keepdims=True)
    return build.map(_reciprocal_root(_X, epsilon), mean)


@operator("LayerNormalization")  # ONNX has it from opset 17 on, ONNX Runtime in any
def layer_norm(
    build: Builder,
    x: Value,
    scale: Value,
    bias: Value | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[Value, ...]:
    y = over_last_axes(build, x, scale, bias, axis, epsilon)
    return y, *statistics(build, x, axis, epsilon)


@operator("RMSNormalization", since=23)
def rms_norm(
    build: Builder,
    x: Value,
    scale: Value,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Value:
    return over_last_axes(build, x, scale, None, axis, epsilon, rms=True)


@operator("SimplifiedLayerNormalization")
def simplified_layer_norm(
    build: Builder,
    x: Value,
    scale: Value,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[Value, ...]:
    """RMSNormalization, as ONNX Runtime writes it."""
    y = over_last_axes(build, x, scale, None, axis, epsilon, rms=True)
    return y, root_mean_square(build, x, axis, epsilon)
