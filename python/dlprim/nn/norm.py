"""Batch normalisation as a layer, fused with the residual and the relu that follow it."""

from __future__ import annotations

import numpy as np

import dlprim
from dlprim.arguments.scalars import flag, fraction, integer, real
from dlprim.nn.context import Images
from dlprim.nn.module import Array, Module, Ready, finished
from dlprim.nn.parameter import Parameter
from dlprim.nn.passes import backward_pass, forward_pass
from dlprim.primitives.populations import Population


class BatchNorm2d(Module):
    """``relu(normalised(x) * weight + bias + residual)``; see `dlprim.BatchNorm`.

    Parameters
    ----------
    C : int
    relu : bool
        relu follows.
    weight : float
        What all weights are at first; 0 makes a residual block begin as the identity.
    epsilon, momentum : float

    Attributes
    ----------
    population : dlprim.populations.Population or None
        Whose statistics are taken in training; None for those of the batch. Copies and pickles
        have none.

    Raises
    ------
    TypeError, ValueError
        C is no integer of at least 1, relu no bool, epsilon negative, or momentum
        outside [0, 1]. PyTorch's cumulative average, momentum=None, is not offered.
    """

    takes_images = True
    of_passes = ("_primitives", "_kept", "population")

    def __init__(
        self,
        C: int,
        *,
        relu: bool = False,
        weight: float = 1.0,
        epsilon: float = 1e-5,
        momentum: float = 0.1,
    ) -> None:
        super().__init__()
        integer("C", C, 1)
        real("epsilon", epsilon, 0)
        fraction("momentum", momentum)
        real("weight", weight)
        self.relu, self.epsilon, self.momentum = flag("relu", relu), epsilon, momentum
        self.weight = Parameter(np.full(C, weight, np.float32))
        self.bias = Parameter(np.zeros(C, np.float32))
        self.running_mean = np.zeros(C, np.float32)
        self.running_var = np.ones(C, np.float32)
        self.batches = np.zeros((), np.int64)
        self.population: Population | None = None
        self._saved = np.empty((2, C), np.float32)
        self._unread = np.empty((2, C), np.float32)  # what inference saves
        self._primitives: dict[tuple[object, ...], dlprim.BatchNorm] = {}
        self._kept: tuple[dlprim.BatchNorm, Images, Array | None] | None = None

    def own_parameters(self) -> dict[str, Parameter]:
        return {"weight": self.weight, "bias": self.bias}

    def own_statistics(self) -> dict[str, Array]:
        return {
            "running_mean": self.running_mean,
            "running_var": self.running_var,
            "num_batches_tracked": self.batches,
        }

    @forward_pass
    def forward(
        self,
        x: Images,
        training: bool = True,
        residual: Array | None = None,
        out: Array | None = None,
    ) -> Images:
        """``out`` may be the residual itself."""
        norm, buffers = self._primitive(x, residual is not None), self.context.buffers
        dst = buffers.take(norm.src_shape, self.context.dtype) if out is None else out
        mask = None
        if training and self.relu:
            mask = buffers.take(norm.relu_mask_shape, np.uint8)
        with self.context.timed(self.name, "forward" if training else "inference"):
            norm.forward(
                x.array,
                running_mean=self.running_mean,
                running_var=self.running_var,
                weights=self.weight.value,
                bias=self.bias.value,
                residual=residual,
                training=training,
                momentum=self.momentum,
                out=dst,
                relu_mask=mask,
                saved=self._saved if training else self._unread,
                population=self.population,
            )
        if training:
            self._kept = norm, x, mask
            self.batches += 1
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
                weights=self.weight.value,
                bias=self.bias.value,
                relu_mask=mask,
                out=src.array,
                diff_residual=dy.array if norm.residual and self.relu else None,
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

    def _primitive(self, x: Images, residual: bool) -> dlprim.BatchNorm:
        context = self.context
        key = (x.shape, x.groups, residual, context.dtype_name, context.layout)
        if key not in self._primitives:
            if x.shape[1] != self.weight.value.size:
                raise ValueError(
                    f"x of BatchNorm2d {self.name!r} has {x.shape[1]} channels, expected "
                    f"{self.weight.value.size}"
                )
            self._primitives[key] = dlprim.BatchNorm(
                x.shape,
                layout=context.layout,
                dtype=context.dtype_name,
                activation="relu" if self.relu else None,
                residual=residual,
                eps=self.epsilon,
                groups=x.groups,
            )
        return self._primitives[key]
