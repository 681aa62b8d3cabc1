"""A multilayer perceptron as one primitive: activations stay packed from layer to layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy.typing as npt

from dlprim.arguments.arrays import Array, FloatArray
from dlprim.arguments.names import activation_name, float_type_name
from dlprim.arguments.scalars import flag, integer, shown
from dlprim.primitives.linear import Linear


class LayerSaved(NamedTuple):
    """What `MLP.backward` needs of one layer.

    Attributes
    ----------
    src : packed ndarray
        The argument of the layer.
    saved : packed ndarray
        As for `LinearTrained`.
    """

    src: Any
    saved: Any


class MLPTrained(NamedTuple):
    """What `MLP.forward` returns with ``training=True``.

    Attributes
    ----------
    dst : packed ndarray
    saved : list of LayerSaved
        One per layer, in order.
    """

    dst: Array
    saved: list[LayerSaved]


class MLPGradients(NamedTuple):
    """Gradients for one minibatch, with lists in the order of the layers.

    Attributes
    ----------
    diff_src : packed ndarray, or None where it was not wanted
    diff_weights : list of packed ndarrays
        As from `Linear.backward_weights`.
    diff_biases : list of ndarrays of float32, (K,)
    """

    diff_src: Array | None
    diff_weights: list[Array]
    diff_biases: list[FloatArray]


class MLP:
    """Linear layers one after the other, each with a bias, and an activation between them.

    The packed result of one layer is the operand of the next; nothing is reordered in between.

    Parameters
    ----------
    x_shape : (N, C)
        Of the plain input.
    widths : sequence of int
        K of each layer.
    dtype : dtype
        float32 or bfloat16.
    activation : None or str
        "relu", "relu6", "sigmoid", "hardsigmoid", "tanh", "gelu", "gelu_tanh", "swish" or
        "hardswish", for all layers except the last.
    final_activation
        For the last layer; as `activation`.

    Attributes
    ----------
    layers : list of Linear
    pack_src, unpack_diff_src
        As for the first layer: `Linear.pack_src`, `Linear.unpack_diff_src`.
    pack_diff_dst, unpack_dst
        As for the last layer.
    flops : float
        Operations of one forward pass, two per multiply-add.

    Raises
    ------
    TypeError, ValueError
        As for `Linear`; ValueError if there is no layer.

    Notes
    -----
    The fully connected layers of arXiv 1906.06440.
    """

    def __init__(
        self,
        x_shape: tuple[int, int],
        widths: Sequence[int],
        *,
        dtype: npt.DTypeLike = "float32",
        activation: str | None = "relu",
        final_activation: str | None = None,
    ) -> None:
        if not isinstance(widths, Sequence) or isinstance(widths, str | bytes):
            raise TypeError(f"widths is {shown(widths)}, expected a sequence of integers")
        if len(widths) == 0:
            raise ValueError("widths is empty, expected at least one layer")
        float_type_name(dtype)
        activation_name(final_activation, "final_activation")
        ends = [integer(f"widths[{place}]", it, 0, 2**31) for place, it in enumerate(widths)]
        self.layers: list[Linear] = []
        for number, width in enumerate(ends):
            kind = final_activation if number == len(ends) - 1 else activation
            layer = Linear(x_shape, width, dtype=dtype, activation=kind, bias=True)
            self.layers.append(layer)
            x_shape = layer.y_shape
        first, last = self.layers[0], self.layers[-1]
        self.pack_src, self.unpack_diff_src = first.pack_src, first.unpack_diff_src
        self.pack_diff_dst, self.unpack_dst = last.pack_diff_dst, last.unpack_dst

    @property
    def flops(self) -> float:
        return sum(layer.flops for layer in self.layers)

    def pack_weights(self, weights: Sequence[Any]) -> list[Array]:
        """The weights of every layer in packed form.

        Parameters
        ----------
        weights : sequence of arrays, (K, C) each
            As for `Linear.pack_weights`.

        Returns
        -------
        list of packed ndarrays

        Raises
        ------
        TypeError, ValueError
            As for `Linear.pack_weights`; ValueError for a wrong number of weights.
        """
        self._require_layers("weights", weights)
        packed = []
        for number, (layer, w) in enumerate(zip(self.layers, weights, strict=True)):
            with _InLayer(number):
                packed.append(layer.pack_weights(w))
        return packed

    def unpack_diff_weights(self, diff_weights: Sequence[Any]) -> list[Array]:
        """The gradients of the weights of every layer as plain arrays.

        Parameters
        ----------
        diff_weights : sequence of packed arrays
            From `backward`.

        Returns
        -------
        list of ndarrays, (K, C) each

        Raises
        ------
        TypeError, ValueError
            As for `Linear.unpack_diff_weights`; ValueError for a wrong number of gradients.
        """
        self._require_layers("diff_weights", diff_weights)
        plain = []
        for number, (layer, each) in enumerate(zip(self.layers, diff_weights, strict=True)):
            with _InLayer(number):
                plain.append(layer.unpack_diff_weights(each))
        return plain

    def forward(
        self, src: Any, weights: Sequence[Any], biases: Sequence[Any], *, training: bool = False
    ) -> Any:
        """All layers in turn.

        Parameters
        ----------
        src : packed array, from `pack_src`
        weights : sequence of packed arrays, from `pack_weights`
        biases : sequence of arrays of float32 or bfloat16, (K,) each
        training : bool
            Also return what `backward` needs.

        Returns
        -------
        packed ndarray
            With training=True, `MLPTrained`, ``(dst, saved)``. saved contains no copies, so src
            must not change until `backward` has run.

        Raises
        ------
        TypeError, ValueError
            As for `Linear.forward`; ValueError for a wrong number of weights or biases.
        """
        flag("training", training)
        self._require_layers("weights", weights)
        self._require_layers("biases", biases)
        saved = []
        for number, layer in enumerate(self.layers):
            with _InLayer(number):
                found = layer.forward(src, weights[number], biases[number], training=training)
            if training:
                saved.append(LayerSaved(src, found.saved))
                found = found.dst
            src = found
        return MLPTrained(src, saved) if training else src

    def backward(
        self,
        diff_dst: Any,
        saved: Sequence[tuple[Any, Any]],
        weights: Sequence[Any],
        *,
        needs_diff_src: bool = True,
    ) -> MLPGradients:
        """Gradients of all operands.

        Parameters
        ----------
        diff_dst : packed array, from `pack_diff_dst`
            Not modified.
        saved : list of LayerSaved
            From ``forward(..., training=True)``.
        weights : sequence of packed arrays
            As in the forward pass.
        needs_diff_src : bool
            With False, the gradient with respect to src is not computed, which saves a pass of the
            first layer.

        Returns
        -------
        MLPGradients
            ``(diff_src, diff_weights, diff_biases)``.

        Raises
        ------
        TypeError, ValueError
            As the passes of `Linear` do; ValueError for a wrong number of weights.
        """
        flag("needs_diff_src", needs_diff_src)
        self._require_layers("weights", weights)
        self._require_layers("saved", saved)
        diff_weights: list[Array] = []
        diff_biases: list[FloatArray] = []
        diff: Any = diff_dst
        for number in reversed(range(len(self.layers))):
            layer, (src, kept) = self.layers[number], _saved_of(number, saved)
            in_place = diff if number < len(self.layers) - 1 else None
            with _InLayer(number):
                diff, diff_bias = layer.backward_activation(diff, kept, out=in_place)
                diff_weights.insert(0, layer.backward_weights(src, diff))
                diff_biases.insert(0, diff_bias)
                wanted = number > 0 or needs_diff_src
                diff = layer.backward_data(diff, weights[number]) if wanted else None
        return MLPGradients(diff, diff_weights, diff_biases)

    def __repr__(self) -> str:
        widths = [layer.y_shape[1] for layer in self.layers]
        return f"<dlprim.MLP {self.layers[0].x_shape} -> {widths} {self.layers[0].dtype}>"

    def __str__(self) -> str:
        return "".join(f"{layer!r}\n{layer}" for layer in self.layers)

    def _require_layers(self, name: str, values: Sequence[Any]) -> None:
        if not isinstance(values, Sequence):
            raise TypeError(f"{name} is of type {type(values).__name__}, expected a list")
        if len(values) != len(self.layers):
            raise ValueError(
                f"{name} has {len(values)} entries, expected {len(self.layers)}, one per layer"
            )


_LISTS = {"w": "weights", "weights": "weights", "bias": "biases", "diff_weights": "diff_weights",
          "saved": "saved"}  # fmt: skip


class _InLayer:
    """Errors of a layer name the list that its argument is from, and the place there."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, _: Any) -> None:
        name, space, rest = str(error).partition(" ")
        if isinstance(error, TypeError | ValueError) and name in _LISTS:
            raise type(error)(f"{_LISTS[name]}[{self.number}]{space}{rest}") from None


def _saved_of(number: int, saved: Sequence[Any]) -> tuple[Any, Any]:
    """What one layer saved, checked to be that."""
    kept = saved[number]
    if not isinstance(kept, tuple) or len(kept) != 2:
        raise TypeError(
            f"saved[{number}] is of type {type(kept).__name__}, expected what "
            "forward(..., training=True) returned"
        )
    return kept
