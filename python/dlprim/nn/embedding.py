"""Rows of a table for integers: the entry of a language model."""

from __future__ import annotations

from typing import Any

import numpy as np

import dlprim
from dlprim.arguments.instead import LAYER, instead
from dlprim.arguments.scalars import integer, real
from dlprim.nn.calls import label
from dlprim.nn.initial import generator_or_own, normal
from dlprim.nn.module import Module
from dlprim.nn.parameter import Parameter, of_layer


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
