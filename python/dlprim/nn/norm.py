"""Normalisation as layers: of batches, of channels and groups of them, and of the last axes."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

import dlprim
from dlprim.arguments.arrays import FloatArray
from dlprim.arguments.instead import LAYER, instead
from dlprim.arguments.names import relu_or_none
from dlprim.arguments.scalars import flag, fraction, integer, real
from dlprim.arguments.traced import RUNNING, HeldArray
from dlprim.nn.calls import label
from dlprim.nn.initial import filled, zeros
from dlprim.nn.layer import Layer, Told, fixed
from dlprim.nn.parameter import Parameter, Tracked, of_layer
from dlprim.primitives.populations import Population


class BatchNorm2d(Layer):
    """``activation(normalised(x) * weight + bias + residual)``; see `dlprim.BatchNorm`.

    Defaults are those of `torch.nn.BatchNorm2d`. What stands behind C goes by name. There is no
    affine and no track_running_stats, which are always True, and no cumulative average,
    momentum=None.

    Parameters
    ----------
    C : int
    activation : None or "relu"
        Follows the normalisation and the residual.
    weight : float
        What all weights are at first; 0 makes a residual block begin as the identity.
    eps, momentum : float

    Attributes
    ----------
    population : dlprim.primitives.populations.Population or None
        Whose statistics are taken in training; None for those of the batch. Copies and pickles
        have none.

    Raises
    ------
    TypeError, ValueError
        C is no integer of at least 1, activation another one, eps negative, momentum outside
        [0, 1], or relu given, as the activation was called in version 0.1; or `forward` trains
        with a single value for each channel.
    """

    weight: Parameter = of_layer(Parameter)
    bias: Parameter = of_layer(Parameter)
    mean: Tracked = of_layer(Tracked)
    var: Tracked = of_layer(Tracked)
    activation = fixed()
    _shapes: ClassVar[dict[int, str]] = {4: "(N, C, H, W)"}

    @instead(
        num_features="C",
        affine="none: it always has weight and bias",
        track_running_stats="none: it always has running statistics",
        **LAYER,
    )
    def __init__(
        self,
        C: int,
        *,
        activation: str | None = None,
        weight: float = 1.0,
        eps: float = 1e-5,
        momentum: float = 0.1,
        relu: None = None,
    ) -> None:
        super().__init__()
        if relu is not None:
            raise TypeError(f"relu is {relu!r}, expected activation='relu' or None in its place")
        integer("C", C, 1)
        real("eps", eps, 0)
        fraction("momentum", momentum)
        real("weight", weight)
        self._keep(activation=relu_or_none(activation))
        self.eps, self.momentum = eps, momentum
        self.weight = Parameter(filled(C, weight))
        self.bias = Parameter(zeros(C))
        self.mean = Tracked(zeros(C), "running_mean")
        self.var = Tracked(filled(C, 1), "running_var")
        self.batches = np.zeros((), np.int64)
        self.population: Population | None = None

    @property
    def relu(self) -> bool:
        raise AttributeError("relu of BatchNorm2d is now activation, None or 'relu'")

    @property
    def running_mean(self) -> FloatArray:
        return self.mean.value

    @running_mean.setter
    def running_mean(self, value: npt.ArrayLike) -> None:
        self.mean.value = value

    @property
    def running_var(self) -> FloatArray:
        return self.var.value

    @running_var.setter
    def running_var(self, value: npt.ArrayLike) -> None:
        self.var.value = value

    def arguments(self) -> dict[str, Any]:
        return {
            "C": self.weight.shape[0],
            "activation": self.activation,
            "eps": self.eps,
            "momentum": self.momentum,
        }

    def own_statistics(self) -> dict[str, Any]:
        return {
            "running_mean": self.running_mean,
            "running_var": self.running_var,
            "num_batches_tracked": self.batches,
        }

    def _held_statistics(self) -> dict[str, Any]:
        if type(self).own_statistics is not BatchNorm2d.own_statistics:
            return self.own_statistics()
        return {
            "running_mean": self.mean.held,
            "running_var": self.var.held,
            "num_batches_tracked": self.batches,
        }

    def forward(self, x: Any, residual: Any = None) -> Any:
        (C,), shape, training = self.weight.shape, x.shape, self.training
        if len(shape) not in self._shapes or shape[1] != C:
            due = " or ".join(self._shapes.values()).replace("C", str(C))
            raise ValueError(f"x of {label(self)} has shape {shape}, expected {due}")
        statistics: tuple[Any, Any] = self.mean, self.var
        parameters = self.weight, self.bias
        how = self.momentum, self.eps
        if training and self.population is not None:
            from dlprim.tracing.layers.batches import in_population  # which takes long to import

            y = in_population(self.population, x, statistics, parameters, how)
        elif training and math.prod((shape[0], *shape[2:])) == 1:
            raise ValueError(
                f"x of {label(self)} has shape {shape}, expected more than one value for each "
                "channel in training: a single one is its own mean, and all results bias"
            )
        else:
            y = dlprim.batch_norm(x, *statistics, *parameters, training, *how)
        if training:
            batches = HeldArray(self.batches, "num_batches_tracked")
            RUNNING.tracer.write(batches, batches + 1)
        y = y if residual is None else y + residual
        return y if self.activation is None else dlprim.relu(y)


class BatchNorm1d(BatchNorm2d):
    """`BatchNorm2d` of (N, C) or (N, C, W)."""

    _shapes: ClassVar = {2: "(N, C)", 3: "(N, C, W)"}


class BatchNorm3d(BatchNorm2d):
    """`BatchNorm2d` of (N, C, D, H, W)."""

    _shapes: ClassVar = {5: "(N, C, D, H, W)"}


class Affine(Layer):
    """What may be scaled and shifted behind a normalisation."""

    weight: Parameter | None
    bias: Parameter | None
    affine = elementwise_affine = Told(lambda self: self.weight is not None)

    def _begin(self, shape: int | tuple[int, ...], eps: float, affine: bool, bias: bool) -> None:
        """weight is 1 and bias 0 at first, where there are any."""
        self.eps = real("eps", eps, 0)
        self.weight = Parameter(filled(shape, 1)) if affine else None
        self.bias = Parameter(zeros(shape)) if affine and bias else None


class ChannelNorm(Affine):
    """What `GroupNorm` and `InstanceNorm2d` share.

    Attributes
    ----------
    extents : str
        Of the class: what an x with a fixed number of axes has behind its channels.
    """

    extents: ClassVar[str] = ""

    def _make(self, groups: int, channels: int, eps: float, affine: bool) -> None:
        self._groups, self._channels = groups, channels
        self._begin(channels, eps, flag("affine", affine), True)

    def forward(self, x: Any) -> Any:
        others = self.extents or "..."
        fits = x.ndim == 4 if self.extents else x.ndim >= 2
        if not fits or x.shape[1] != self._channels:
            raise ValueError(
                f"x of {label(self)} has shape {x.shape}, expected (N, {self._channels}, {others})"
            )
        return dlprim.group_norm(x, self._groups, self.weight, self.bias, self.eps)


class GroupNorm(ChannelNorm):
    """Normalisation of groups of channels; see `dlprim.group_norm`.

    Arguments are those of `torch.nn.GroupNorm`. weight is 1 and bias 0 at first.

    Parameters
    ----------
    num_groups : int
    num_channels : int
        The second axis of x; num_groups divides it.
    eps : float
    affine : bool
        Whether there are parameters.

    Attributes
    ----------
    weight, bias : Parameter or None
        float32, (num_channels,), whatever the dtype of activations.

    Raises
    ------
    TypeError, ValueError
        num_groups is no divisor of num_channels, eps is negative or no number, or affine no bool.
    """

    num_groups, num_channels = fixed(), fixed()

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True
    ) -> None:
        super().__init__()
        groups = integer("num_groups", num_groups, 1)
        channels = integer("num_channels", num_channels, 1)
        if channels % groups:
            raise ValueError(
                f"num_groups is {groups}, expected a divisor of num_channels = {channels}"
            )
        self._keep(num_groups=groups, num_channels=channels)
        self._make(groups, channels, eps, affine)


class InstanceNorm2d(ChannelNorm):
    """Normalisation of each channel, of (N, C, H, W); see `instance_norm`.

    Defaults are those of `torch.nn.InstanceNorm2d`. There are no running statistics: momentum and
    track_running_stats are missing, and what stands behind eps goes by name.

    Parameters
    ----------
    num_features : int
        C.
    eps : float
    affine : bool
        Whether there are parameters.

    Attributes
    ----------
    weight, bias : Parameter or None
        float32, (num_features,), 1 and 0 at first.

    Raises
    ------
    TypeError, ValueError
        num_features is no integer of at least 1, eps is negative or no number, or affine no bool.
    """

    extents = "H, W"
    num_features = fixed()

    def __init__(self, num_features: int, eps: float = 1e-5, *, affine: bool = False) -> None:
        super().__init__()
        channels = integer("num_features", num_features, 1)
        self._keep(num_features=channels)
        self._make(channels, channels, eps, affine)


class RowNorm(Affine):
    """What `LayerNorm` and `RMSNorm` share."""

    def _make(self, normalized_shape: Any, eps: float, affine: bool, bias: bool) -> None:
        self.normalized_shape = _extents(normalized_shape)
        self._begin(self.normalized_shape, eps, flag("elementwise_affine", affine), bias)

    def arguments(self) -> dict[str, Any]:
        shape = self.normalized_shape
        return super().arguments() | {"normalized_shape": shape if len(shape) > 1 else shape[0]}

    def _rows(self, x: Any) -> Any:
        """x, checked; its last axes as one where no weight says how many are meant."""
        shape, extents = x.shape, self.normalized_shape
        if shape[-len(extents) :] != extents:
            due = ", ".join(map(str, extents))
            raise ValueError(f"x of {label(self)} has shape {shape}, expected (..., {due})")
        if self.weight is not None:
            return x
        return x.reshape(*shape[: -len(extents)], math.prod(extents))


class LayerNorm(RowNorm):
    """``(x - mean) / sqrt(var + eps) * weight + bias`` over the last axes; see `dlprim.layer_norm`.

    Defaults are those of `torch.nn.LayerNorm`. weight is 1 and bias 0 at first.

    Parameters
    ----------
    normalized_shape : int or tuple of int
        The last axes of x.
    eps : float
    elementwise_affine : bool
        Whether there are parameters.
    bias : bool
        Whether bias is one of them.

    Attributes
    ----------
    weight, bias : Parameter or None
        float32, whatever the dtype of activations.

    Raises
    ------
    TypeError, ValueError
        normalized_shape holds no integers of at least 1, eps is negative or no number, or a flag is
        no bool.
    """

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self._make(normalized_shape, eps, elementwise_affine, flag("bias", bias))

    def arguments(self) -> dict[str, Any]:
        has_bias = self.bias is not None or self.weight is None  # without weight it says nothing
        return super().arguments() | {"bias": has_bias}

    def forward(self, x: Any) -> Any:
        return dlprim.layer_norm(self._rows(x), self.weight, self.bias, self.eps).reshape(x.shape)


class RMSNorm(RowNorm):
    """``x / sqrt(mean(x^2) + eps) * weight`` over the last axes; see `dlprim.rms_norm`.

    weight is 1 at first.

    Parameters
    ----------
    normalized_shape : int or tuple of int
        The last axes of x.
    eps : float
        `torch.nn.RMSNorm` has None for 1.19e-7, the step of float32 at 1.
    elementwise_affine : bool
        Whether there is a parameter.

    Attributes
    ----------
    weight : Parameter or None
        float32, whatever the dtype of activations.

    Raises
    ------
    TypeError, ValueError
        As from `LayerNorm`.
    """

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
    ) -> None:
        super().__init__()
        self._make(normalized_shape, eps, elementwise_affine, False)

    def forward(self, x: Any) -> Any:
        return dlprim.rms_norm(self._rows(x), self.weight, self.eps).reshape(x.shape)


def _extents(normalized_shape: Any) -> tuple[int, ...]:
    if not isinstance(normalized_shape, tuple | list):
        return (integer("normalized_shape", normalized_shape, 1),)
    if not normalized_shape:
        raise ValueError("normalized_shape is (), expected an integer or a tuple of some")
    places = enumerate(normalized_shape)
    return tuple(integer(f"normalized_shape[{place}]", it, 1) for place, it in places)
