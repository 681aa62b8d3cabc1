"""Rows of a table for integers: the entry of a language model."""

from __future__ import annotations

from typing import Any

import numpy as np

import dlprim
from dlprim.arguments.arrays import places_of
from dlprim.arguments.instead import LAYER, instead
from dlprim.arguments.scalars import integer, real
from dlprim.nn.initial import generator_or_own, normal
from dlprim.nn.module import Array, Module, Ready, finished
from dlprim.nn.parameter import Parameter, of_layer
from dlprim.nn.passes import backward_pass, forward_pass, label


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

    Attributes
    ----------
    indices : ndarray of int64, or None
        Of the latest training `forward`.
    """

    takes_images = False
    takes_integers = True
    of_passes = ("indices",)
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
        self.indices: Array | None = None

    def arguments(self) -> dict[str, Any]:
        return dict(zip("VK", self.weight.shape, strict=True))

    def traced(self, x: Any) -> Any:
        return dlprim.embedding(x, self.weight)

    @forward_pass
    def forward(self, x: Any, training: bool | None = None) -> Array:
        x = places_of(f"x of {label(self)}", x)
        table: Array = self.weight.held
        if self.context.dtype != np.float32:
            table = dlprim.to_bfloat16(table)
        with self.context.timed(self.name, "forward" if training else "inference"):
            dst: Array = dlprim.embedding(x, table, dtype=self.context.bits)
        if training:
            self.indices = x
        return dst

    @backward_pass
    def backward(self, dy: Any, ready: Ready | None = None) -> None:
        """Integers have no gradient, so nothing is returned."""
        assert self.indices is not None
        with self.context.timed(self.name, "backward"):
            rows = self.weight.shape[0]
            out, bits = self.weight.gradient, self.context.bits
            dlprim.embedding_backward(dy, self.indices, rows, out=out, dtype=bits)
        finished(ready, self.weight)
