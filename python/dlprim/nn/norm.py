"""Batch normalisation as a layer, fused with the residual and the relu that follow it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

import dlprim
from dlprim.arguments.instead import LAYER, instead
from dlprim.arguments.names import relu_or_none
from dlprim.arguments.scalars import fraction, integer, real
from dlprim.arguments.traced import RUNNING, HeldArray
from dlprim.nn.arguments import fixed
from dlprim.nn.context import Images
from dlprim.nn.initial import filled, zeros
from dlprim.nn.module import Array, Module, Ready, finished
from dlprim.nn.parameter import FloatArray, Parameter, Tracked, of_layer
from dlprim.nn.passes import backward_pass, forward_pass
from dlprim.nn.recent import Recent
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
    population : dlprim.populations.Population or None
        Whose statistics are taken in training; None for those of the batch. Copies and pickles
        have none.

    Raises
    ------
    TypeError, ValueError
        C is no integer of at least 1, activation another one, eps negative, momentum outside
        [0, 1], or relu given, as the activation was called in version 0.1; or `forward` trains
        with a single value for each channel.
    """

    takes_images = True
    of_passes = ("_primitives", "_kept", "population")
    weight: Parameter = of_layer(Parameter)
    bias: Parameter = of_layer(Parameter)
    mean: Tracked = of_layer(Tracked)
    var: Tracked = of_layer(Tracked)
    activation = fixed("activation")
    takes_single = False  # values of a channel in training, as where only shapes are asked for

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
        self._saved = np.empty((2, C), np.float32)
        self._unread = np.empty((2, C), np.float32)  # what inference saves
        self._primitives: Recent[tuple[object, ...], dlprim.BatchNorm] = Recent()
        self._kept: tuple[dlprim.BatchNorm, Images, Array | None] | None = None

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

    def own_statistics(self) -> dict[str, Array]:
        return {
            "running_mean": self.running_mean,
            "running_var": self.running_var,
            "num_batches_tracked": self.batches,
        }

    def traced(self, x: Any, residual: Any = None) -> Any:
        if self.population is not None:
            raise ValueError(
                f"population of BatchNorm2d {self.name!r} is set, expected None in a model that is "
                "traced"
            )
        training = self.is_training
        statistics: tuple[Any, Any] = self.mean, self.var
        if training:
            self._require_several(x.shape)
        y = dlprim.batch_norm(
            x, *statistics, self.weight, self.bias, training, self.momentum, self.eps
        )
        if training:
            batches = HeldArray(self.batches, "num_batches_tracked")
            RUNNING.tracer.write(batches, batches + 1)
        y = y if residual is None else y + residual
        return y if self.activation is None else dlprim.relu(y)

    @forward_pass
    def forward(
        self,
        x: Images,
        training: bool | None = None,
        residual: Array | None = None,
        out: Array | None = None,
    ) -> Images:
        """``out`` may be the residual itself."""
        if training and self.population is None:
            self._require_several(x.shape)
        norm, buffers = self._primitive(x, residual is not None), self.context.buffers
        dst = buffers.take(norm.src_shape, self.context.dtype) if out is None else out
        mask = None
        if training and self.activation is not None:
            mask = buffers.take(norm.relu_mask_shape, np.uint8)
        with self.context.timed(self.name, "forward" if training else "inference"):
            norm.forward(
                x.array,
                running_mean=self.mean.held,
                running_var=self.var.held,
                weights=self.weight.held,
                bias=self.bias.held,
                residual=residual,
                training=bool(training),
                momentum=self.momentum,
                out=dst,
                relu_mask=mask,
                saved=self._saved if training else self._unread,
                population=self.population,
            )
        if training:
            self._kept = norm, x, mask
            self.batches += 1
            self.mean.written()
            self.var.written()
        return Images(dst, x.shape, x.groups)

    @backward_pass
    def backward(self, dy: Images, ready: Ready | None = None) -> Images:
        return self.backward_branches(dy, ready)[0]

    def backward_branches(
        self, dy: Images, ready: Ready | None = None
    ) -> tuple[Images, Array | None]:
        """The gradients with respect to x, in the place of x, and to the residual, of dy.

        dy may be two terms where relu follows a residual.
        """
        assert self._kept is not None
        (norm, src, mask), self._kept = self._kept, None
        with self.context.timed(self.name, "backward"):
            found = norm.backward(
                dy.array,
                src.array,
                self._saved,
                weights=self.weight.held,
                bias=self.bias.held,
                relu_mask=mask,
                out=src.array,
                diff_residual=dy.array if norm.residual and self.activation is not None else None,
                diff_weights=self.weight.gradient,
                diff_bias=self.bias.gradient,
                population=self.population,
                diff_addend=dy.addend,
            )
        self.context.buffers.give(mask, dy.addend)
        if found.diff_residual is None:
            self.context.buffers.give(dy.array)
        finished(ready, self.weight, self.bias)
        return Images(found.diff_src, src.shape, src.groups), found.diff_residual

    def _require_several(self, shape: Any) -> None:
        if math.prod((shape[0], *shape[2:])) == 1 and not self.takes_single:
            raise ValueError(
                f"x of BatchNorm2d {self.name!r} has shape {shape}, expected more than one value "
                "for each channel in training: a single one is its own mean, and all results bias"
            )

    def _primitive(self, x: Images, residual: bool) -> dlprim.BatchNorm:
        context = self.context
        kind = (residual, self.activation, self.eps)
        key = (x.shape, x.groups, *kind, context.dtype_name, context.layout)
        if key not in self._primitives:
            if x.shape[1] != self.weight.shape[0]:
                raise ValueError(
                    f"x of BatchNorm2d {self.name!r} has {x.shape[1]} channels, expected "
                    f"{self.weight.shape[0]}"
                )
            self._primitives[key] = dlprim.BatchNorm(
                x.shape,
                layout=context.layout,
                dtype=context.dtype_name,
                activation=self.activation,
                residual=residual,
                eps=self.eps,
                groups=x.groups,
            )
        return self._primitives[key]
