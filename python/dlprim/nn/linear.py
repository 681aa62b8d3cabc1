"""Fully connected layers on plain arrays, and what stands between them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

import dlprim
from dlprim.arguments.floats import float_operand, widened
from dlprim.arguments.instead import LAYER, instead
from dlprim.arguments.names import activation_name
from dlprim.arguments.scalars import flag, fraction, integer, real
from dlprim.arguments.traced import RUNNING, HeldArray
from dlprim.nn.context import Images, array_of
from dlprim.nn.initial import generator_or_own, normal, uniform, zeros
from dlprim.nn.module import Array, Module, Ready, finished
from dlprim.nn.parameter import FloatArray, Parameter, of_layer
from dlprim.nn.passes import backward_pass, forward_pass
from dlprim.nn.recent import Recent

# Activations behind the product, and the gradients in front of them.
_BEHIND: dict[str, tuple[Any, Any]] = {
    "leaky_relu": (dlprim.leaky_relu, dlprim.leaky_relu_backward),
    "elu": (dlprim.elu, dlprim.elu_backward),
    "selu": (dlprim.selu, dlprim.selu_backward),
    "softplus": (dlprim.softplus, dlprim.softplus_backward),
    "mish": (dlprim.mish, dlprim.mish_backward),
}


class Linear(Module):
    """``activation(x @ weight.T + bias)`` on plain (..., C), in the dtype of activations.

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

    takes_images = False
    of_passes = ("_primitives", "_packed", "_used", "_kept")
    weight: Parameter = of_layer(Parameter)
    bias: Parameter | None = of_layer(Parameter, or_none=True)

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
        has_bias = flag("bias", bias)
        if not (isinstance(activation, str) and activation in _BEHIND):
            activation_name(activation, others=tuple(_BEHIND))
        if scale is not None:
            real("scale", scale, 0)
        self.activation = activation
        weight, first = _initial(C, K, generator, scale)
        self.weight = Parameter(weight)
        self.bias = Parameter(first) if has_bias else None
        self._primitives: Recent[tuple[Any, ...], dlprim.Linear] = Recent()
        # By the shape they are packed in, which few numbers of rows change.
        self._packed: dict[tuple[int, ...], Array] = {}  # for inference
        self._version = -1  # of the weights that are packed
        self._used: dict[tuple[int, ...], Array] = {}  # for training: room, packed in every step
        self._kept: _Kept | None = None

    @property
    def reads_result(self) -> bool:  # type: ignore[override]
        return self.activation in ("relu", "sigmoid", "tanh")

    @property
    def _behind(self) -> tuple[Any, Any] | None:
        return _BEHIND.get(self.activation or "")

    def arguments(self) -> dict[str, Any]:
        return {
            "C": self.weight.shape[1],
            "K": self.weight.shape[0],
            "bias": self.bias is not None,
            "activation": self.activation,
        }

    def changed(self) -> None:
        super().changed()
        self._packed.clear()

    def traced(self, x: Any) -> Any:
        if self._behind is None:
            return dlprim.linear(x, self.weight, self.bias, activation=self.activation)
        return self._behind[0](dlprim.linear(x, self.weight, self.bias))

    @forward_pass
    def forward(self, x: Any, training: bool | None = None) -> Array:
        C = self.weight.shape[1]
        if x.shape[-1:] != (C,):
            raise ValueError(f"x of Linear {self.name!r} has shape {x.shape}, expected (..., {C})")
        rows = self._as_activations("x", x).reshape(-1, x.shape[-1])
        linear = self._primitive(rows.shape[0])
        weights = self._weights(linear, training)
        bias = None if self.bias is None else self.bias.held
        with self.context.timed(self.name, "forward" if training else "inference", linear.flops):
            found = linear.forward(rows, weights, bias, training=bool(training))
        dst: Array = found[0] if training else found
        if self._behind is not None:
            value, _ = self._behind
            dst = value(dst, out=None if training else dst, dtype=self.context.bits)
        if training:
            self._kept = _Kept(linear, rows, found[1], x.shape, x.dtype)
        return dst.reshape(*x.shape[:-1], dst.shape[-1])

    @backward_pass
    def backward(self, dy: Any, ready: Ready | None = None) -> Array:
        assert self._kept is not None
        kept, self._kept = self._kept, None
        self._packed.clear()
        linear, buffers = kept.linear, self.context.buffers
        diff = self._as_activations("dy", dy).reshape(linear.y_shape)
        diff_weights = buffers.take(linear.diff_weights_shape, np.float32)
        with self.context.timed(self.name, "backward", 2 * linear.flops):
            if self._behind is not None:
                _, slope = self._behind
                diff = slope(diff, kept.saved, dtype=self.context.bits)
            if self.bias is not None or linear.activation is not None:
                total = None if self.bias is None else self.bias.gradient
                diff, _ = linear.backward_activation(diff, kept.saved, diff_bias=total)
            linear.backward_weights(kept.src, diff, diff_weights)
            linear.unpack_diff_weights(diff_weights, self.weight.gradient)
            diff_src = linear.backward_data(diff, self._used[linear.weights_shape])
        buffers.give(diff_weights)
        finished(ready, self.weight, self.bias)
        widens = kept.x_dtype == np.float32 and diff_src.dtype != np.float32
        plain: Array = dlprim.to_float32(diff_src, dtype="bfloat16") if widens else diff_src
        return plain.reshape(kept.x_shape)

    def _primitive(self, rows: int) -> dlprim.Linear:
        activation = self.activation if self._behind is None else None
        key = (rows, self.context.dtype_name, activation, self.bias is None)
        if key not in self._primitives:
            K, C = self.weight.shape
            self._primitives[key] = dlprim.Linear(
                (rows, C),
                K,
                dtype=key[1],
                activation=activation,
                bias=self.bias is not None,
                layout="plain",
            )
        return self._primitives[key]

    def _weights(self, linear: dlprim.Linear, training: bool | None) -> Array:
        """Packed: in every training step, for inference once until they are others."""
        shape = linear.weights_shape
        if not training:
            if self.weight.current != self._version:
                version = self.weight.version
                if version != self._version:
                    self._packed.clear()
                    self._version = version
            if shape in self._packed:
                return self._packed[shape]
        with self.context.timed(self.name, "pack"):
            plain = self.weight.held
            if not training:
                self._packed[shape] = linear.pack_weights(plain, backward=False)
                return self._packed[shape]
            self._used[shape] = linear.pack_weights(plain, self._used.get(shape))
            return self._used[shape]

    def _as_activations(self, name: str, value: Any) -> Array:
        """In the dtype of the model's activations, C-contiguous."""
        array = float_operand(name, value, self.context.bits is not None)
        if self.context.dtype == np.float32:
            return widened(array)
        return dlprim.to_bfloat16(array) if array.dtype == np.float32 else array


def _initial(
    C: int, K: int, generator: np.random.Generator | None, scale: float | None
) -> tuple[FloatArray, FloatArray]:
    """Weights and bias."""
    drawer = generator_or_own(generator)
    if generator is None and scale is None:
        bound = 1 / math.sqrt(C)
        return uniform((K, C), drawer, bound), uniform((K,), drawer, bound)
    return normal((K, C), drawer, math.sqrt(2 / C) if scale is None else scale), zeros((K,))


class _Kept(NamedTuple):
    """What `Linear.backward` needs of a training `forward`."""

    linear: dlprim.Linear
    src: Array
    saved: Array
    x_shape: tuple[int, ...]
    x_dtype: np.dtype[Any]


class Dropout(Module):
    """Sets a fraction p of the values to zero in training and scales the others by 1 / (1 - p).

    Takes plain arrays and `Images`. With ``training=False`` the result is x itself. p is 0.5 by
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

    keeps_input = False

    @instead(inplace="none: a new array is made")
    def __init__(self, p: float = 0.5, *, seed: int | None = None) -> None:
        super().__init__()
        fraction("p", p, closed=False)
        if seed is None:
            seed = int(generator_or_own(None).integers(2**63))
        self.p, self.seed = p, integer("seed", seed, 0, 2**64)
        self._steps = np.zeros((), np.int64)
        self._offset = 0  # of the latest training `forward`

    def arguments(self) -> dict[str, Any]:
        return {"p": self.p, "seed": self.seed}

    @property
    def step(self) -> int:
        return int(self._steps)

    @step.setter
    def step(self, step: int) -> None:
        self._steps[...] = integer("step", step, 0, 2**63)

    @property
    def passes_on(self) -> bool:  # type: ignore[override]
        return self.p == 0

    def traced(self, x: Any) -> Any:
        if not (self.is_training and self.p):
            return x
        steps = RUNNING.tracer.of_held(HeldArray(self._steps, "dropout"))
        y = dlprim.dropout(x, self.p, seed=self.seed, offset=steps)
        RUNNING.tracer.write(steps.held, steps + 1)
        return y

    @forward_pass
    def forward(self, x: Any, training: bool | None = None) -> Any:
        if not training or self.p == 0:
            return x
        self._offset = self.step
        self.step += 1
        src = array_of(x)
        dst = self.context.buffers.take(src.shape, src.dtype) if isinstance(x, Images) else None
        with self.context.timed(self.name, "forward"):
            dst = self._dropped(src, dst)
        return x._replace(array=dst) if isinstance(x, Images) else dst

    @backward_pass
    def backward(self, dy: Any, ready: Ready | None = None) -> Any:
        if self.p > 0:
            diff = array_of(dy)
            if not isinstance(dy, Images) and not (diff.flags.carray):
                dy = diff = diff.copy()  # to write to
            with self.context.timed(self.name, "backward"):
                self._dropped(diff, diff)
        return dy

    def _dropped(self, src: Array, out: Array | None) -> Array:
        how: dict[str, Any] = {"seed": self.seed, "offset": self._offset}
        return dlprim.dropout(src, self.p, **how, out=out, dtype=self.context.bits)
