"""Layer normalisation of tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

import dlprim
from dlprim.torch.eager.custom import Layer, registered
from dlprim.torch.eager.operands import given
from dlprim.torch.forms import array_of


def layer_norm(
    input: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """``(input - mean) / sqrt(var + eps) * weight + bias`` over the last axes.

    `torch.nn.functional.layer_norm`, computed in float32 and rounded once. Autocast changes
    nothing, as it does for PyTorch's on the CPU.

    Parameters
    ----------
    input : torch.Tensor of float32 or bfloat16, ``(..., *normalized_shape)``
    normalized_shape : sequence of int
    weight, bias : torch.Tensor of float32 or bfloat16, of normalized_shape, optional
        1 and 0 by default.
    eps : float
        At least 0.

    Returns
    -------
    torch.Tensor of the dtype and shape of input

    Raises
    ------
    TypeError
        An operand is no dense tensor of float32 or bfloat16 on the CPU.
    ValueError
        Shapes do not agree, or eps is out of range.
    """
    return _call(input, weight, bias, list(normalized_shape), float(eps))


def _fake(
    input: torch.Tensor, weight: Any, bias: Any, shape: Sequence[int], eps: float
) -> torch.Tensor:
    count, expected = len(shape), tuple(shape)
    if count == 0 or tuple(input.shape[-count:]) != expected:
        raise ValueError(
            f"input has shape {tuple(input.shape)} and normalized_shape is {expected}, "
            "expected one that is the last axes of input"
        )
    for name, it in given(weight=weight, bias=bias).items():
        if tuple(it.shape) != expected:
            raise ValueError(f"{name} has shape {tuple(it.shape)}, expected {expected}")
    if not 0 <= eps < math.inf:
        raise ValueError(f"eps is {eps}, expected a finite number of at least 0")
    return input.new_empty(input.shape)


def _rows(tensor: torch.Tensor, shape: Sequence[int]) -> Any:
    return array_of(tensor.reshape(-1, math.prod(shape)))


def _row(parameter: torch.Tensor | None) -> Any:
    return None if parameter is None else array_of(parameter.reshape(-1))


def _forward(
    input: torch.Tensor, weight: Any, bias: Any, shape: Sequence[int], eps: float
) -> torch.Tensor:
    made = _fake(input, weight, bias, shape, eps)
    if input.numel():
        out = _rows(made, shape)
        dlprim.layer_norm(_rows(input, shape), _row(weight), _row(bias), eps, out=out)
    return made


def _alike(input: torch.Tensor, weight: Any, shape: Sequence[int], *_: Any) -> list[torch.Tensor]:
    dtype = input.dtype if weight is None else weight.dtype
    sums = [input.new_empty(shape, dtype=dtype) for _ in range(2)]
    return [input.new_empty(input.shape), *sums]


def _gradients(
    grad: torch.Tensor, input: torch.Tensor, weight: Any, shape: Sequence[int], *how: Any
) -> Any:
    rows = _rows(grad, shape), _rows(input, shape)
    return dlprim.layer_norm_backward(*rows, _row(weight), how[0])


_call = registered(
    Layer(
        "layer_norm(Tensor input, Tensor? weight, Tensor? bias, SymInt[] normalized_shape, "
        "float eps)",
        *(_forward, _fake, _gradients, _alike),
    )
)
