"""Batch normalisation as a layer, fused with the residual and the relu that follow it."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

import dlprim
from dlprim.arguments.instead import LAYER, instead
from dlprim.arguments.names import relu_or_none
from dlprim.arguments.scalars import fraction, integer, real
from dlprim.arguments.traced import RUNNING, HeldArray
from dlprim.nn.arguments import fixed
from dlprim.nn.calls import label
from dlprim.nn.initial import filled, zeros
from dlprim.nn.module import Module
from dlprim.nn.parameter import FloatArray, Parameter, Tracked, of_layer
from dlprim.primitives.populations import Population


class BatchNorm2d(Module):
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
    activation = fixed("activation")
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
        self._activation = relu_or_none(activation)
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
        self._require_channels(x.shape)
        training = self.training
        statistics: tuple[Any, Any] = self.mean, self.var
        if training and self.population is not None:
            from dlprim.tracing.layers.batches import in_population  # which takes long to import

            y = in_population(self.population, x, statistics, (self.weight, self.bias), self._how)
        else:
            if training:
                self._require_several(x.shape)
            parameters = self.weight, self.bias
            y = dlprim.batch_norm(x, *statistics, *parameters, training, *self._how)
        if training:
            batches = HeldArray(self.batches, "num_batches_tracked")
            RUNNING.tracer.write(batches, batches + 1)
        y = y if residual is None else y + residual
        return y if self.activation is None else dlprim.relu(y)

    @property
    def _how(self) -> tuple[float, float]:
        return self.momentum, self.eps

    def _require_channels(self, shape: Any) -> None:
        (C,) = self.weight.shape
        if len(shape) not in self._shapes or shape[1] != C:
            due = " or ".join(self._shapes.values()).replace("C", str(C))
            raise ValueError(f"x of {label(self)} has shape {shape}, expected {due}")

    def _require_several(self, shape: Any) -> None:
        if math.prod((shape[0], *shape[2:])) == 1:
            raise ValueError(
                f"x of {label(self)} has shape {shape}, expected more than one value for each "
                "channel in training: a single one is its own mean, and all results bias"
            )


class BatchNorm1d(BatchNorm2d):
    """`BatchNorm2d` of (N, C) or (N, C, W)."""

    _shapes: ClassVar = {2: "(N, C)", 3: "(N, C, W)"}


class BatchNorm3d(BatchNorm2d):
    """`BatchNorm2d` of (N, C, D, H, W)."""

    _shapes: ClassVar = {5: "(N, C, D, H, W)"}
