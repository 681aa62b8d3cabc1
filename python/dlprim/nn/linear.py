"""Fully connected layers, rows of a table, and what stands between them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import dlprim
from dlprim.arguments.instead import LAYER, instead
from dlprim.arguments.names import activation_name
from dlprim.arguments.scalars import fraction, integer, real
from dlprim.arguments.traced import RUNNING, HeldArray
from dlprim.nn.calls import label
from dlprim.nn.initial import generator_or_own, normal
from dlprim.nn.layer import Layer, Weighted
from dlprim.nn.module import Module
from dlprim.nn.parameter import Parameter, of_layer

# Activations that the product does not do.
_BEHIND: dict[str, Any] = {
    "leaky_relu": dlprim.leaky_relu,
    "elu": dlprim.elu,
    "selu": dlprim.selu,
    "softplus": dlprim.softplus,
    "mish": dlprim.mish,
}


class Linear(Weighted):
    """``activation(x @ weight.T + bias)`` of (..., C), in the dtype of activations.

    Defaults are those of `torch.nn.Linear`, which has no activation.
    In a bfloat16 model products are of bfloat16, sums and gradients of parameters are float32.

    Parameters
    ----------
    C, K : int
        Input and output channels.
    bias : bool
    activation : None or str
        "relu", "relu6", "sigmoid", "hardsigmoid", "tanh", "gelu", "gelu_tanh", "swish" or "silu",
        "hardswish", which the product does; or "leaky_relu", "elu", "selu", "softplus", "mish" with
        the settings that they have by default, which take a pass of their own.
    generator : numpy.random.Generator, optional
        Draws normal weights, and the bias is zero. Without it `dlprim.nn.seed`'s draws weights and
        bias uniformly from +-1 / sqrt(C), as PyTorch does.
    scale : float, optional
        Standard deviation of the weights, which makes them normal and the bias zero without a
        generator too; sqrt(2 / C) with one by default (arXiv 1502.01852, 2.2).

    Raises
    ------
    TypeError, ValueError
        A number is no integer or outside its range, bias is no bool, or activation is unknown.
    """

    @instead(in_features="C", out_features="K", **LAYER)
    def __init__(
        self,
        C: int,
        K: int,
        bias: bool = True,
        *,
        activation: str | None = None,
        generator: np.random.Generator | None = None,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        integer("C", C, 1)
        integer("K", K, 1)
        if not (isinstance(activation, str) and activation in _BEHIND):
            activation_name(activation, others=tuple(_BEHIND))
        if scale is not None:
            real("scale", scale, 0)
        elif generator is not None:
            scale = math.sqrt(2 / C)
        self.activation = activation
        self._draw((K, C), K, bias, generator, scale)

    def arguments(self) -> dict[str, Any]:
        K, C = self.weight.shape
        bias = self.bias is not None
        return {"C": C, "K": K, "bias": bias, "activation": self.activation}

    def forward(self, x: Any) -> Any:
        C = self.weight.shape[1]
        if x.shape[-1:] != (C,):
            raise ValueError(f"x of {label(self)} has shape {x.shape}, expected (..., {C})")
        behind = _BEHIND.get(self.activation or "")
        if behind is None:
            return dlprim.linear(x, self.weight, self.bias, activation=self.activation)
        return behind(dlprim.linear(x, self.weight, self.bias))


class Dropout(Layer):
    """Sets a fraction p of the values to zero in training and scales the others by 1 / (1 - p).

    In inference the result is x itself. p is 0.5 by
    default as in `torch.nn.Dropout`, whose p may be 1.

    Parameters
    ----------
    p : float
        In [0, 1).
    seed : int, optional
        Of this layer: layers, or ranks, of one seed drop the same places. `dlprim.nn.seed`'s
        generator draws one by default.

    Attributes
    ----------
    step : int
        Which values are dropped follows from `seed` and this number alone; each training `forward`
        adds 1. Assign it to repeat a step, or where a run goes on that was interrupted.
    """

    @instead(inplace="none: a new array is made")
    def __init__(self, p: float = 0.5, *, seed: int | None = None) -> None:
        super().__init__()
        fraction("p", p, closed=False)
        if seed is None:
            seed = int(generator_or_own(None).integers(2**63))
        self.p, self.seed = p, integer("seed", seed, 0, 2**64)
        self._steps = np.zeros((), np.int64)

    @property
    def step(self) -> int:
        return int(self._steps)

    @step.setter
    def step(self, step: int) -> None:
        self._steps[...] = integer("step", step, 0, 2**63)

    def forward(self, x: Any) -> Any:
        if not (self.training and self.p):
            return x
        steps = RUNNING.tracer.of_held(HeldArray(self._steps, "dropout"))
        y = dlprim.dropout(x, self.p, seed=self.seed, offset=steps)
        RUNNING.tracer.write(steps.held, steps + 1)
        return y


class Embedding(Module):
    """``weight[x]`` for integers x of any shape, in the dtype of the model's activations.

    Defaults are those of `torch.nn.Embedding`, which has padding_idx and max_norm besides.

    Parameters
    ----------
    V, K : int
        Rows of the table and values in each.
    generator : numpy.random.Generator, optional
        Draws the rows, normal; without it `dlprim.nn.seed`'s does, as PyTorch.
    scale : float
        Standard deviation of the rows.

    Raises
    ------
    TypeError, ValueError
        A number is no integer or outside its range, or generator is none.
    """

    weight: Parameter = of_layer(Parameter)

    @instead(num_embeddings="V", embedding_dim="K", padding_idx="none: every row learns", **LAYER)
    def __init__(
        self,
        V: int,
        K: int,
        *,
        generator: np.random.Generator | None = None,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        integer("V", V, 1)
        integer("K", K, 1)
        self.weight = Parameter(
            normal((V, K), generator_or_own(generator), real("scale", scale, 0))
        )

    def arguments(self) -> dict[str, Any]:
        return dict(zip("VK", self.weight.shape, strict=True))

    def forward(self, x: Any) -> Any:
        if x.dtype.kind not in "iu":
            how = ": convert it with x.astype(np.int64)" if x.dtype.kind == "f" else ""
            raise TypeError(f"x of {label(self)} has dtype {x.dtype}, expected integers{how}")
        return dlprim.embedding(x, self.weight)
