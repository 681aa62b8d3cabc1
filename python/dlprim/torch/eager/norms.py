"""Layer normalisation of tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

import dlprim
from dlprim.torch.eager.custom import (
    chosen,
    differentiate,
    given,
    operator,
    placed,
    require_shape,
    require_tensors,
)
from dlprim.torch.forms import array_of, tensor_of


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
    input : torch.Tensor of float32 or bfloat16, (..., *normalized_shape)
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
    require_tensors(input=input, **given(weight=weight, bias=bias))
    made: torch.Tensor = _FORWARD(input, list(normalized_shape), weight, bias, float(eps))
    return made


def _require(input: torch.Tensor, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> int:
    """The number of elements that are normalised together."""
    count = len(shape)
    if count == 0 or tuple(input.shape[-count:]) != tuple(shape):
        raise ValueError(
            f"input has shape {tuple(input.shape)} and normalized_shape is {tuple(shape)}, "
            "expected one that is the last axes of input"
        )
    for name, it in (("weight", weight), ("bias", bias)):
        require_shape(name, it, shape, "normalized_shape")
    if not 0 <= eps < math.inf:
        raise ValueError(f"eps is {eps}, expected a finite number of at least 0")
    return math.prod(shape)


def _rows(tensor: torch.Tensor | None, columns: int) -> Any:
    return None if tensor is None else array_of(tensor.reshape(-1, columns))


def _row(parameter: torch.Tensor | None) -> Any:
    return None if parameter is None else array_of(parameter.reshape(-1))


def _forward(
    input: torch.Tensor, shape: Sequence[int], weight: Any, bias: Any, eps: float
) -> torch.Tensor:
    columns = _require(input, shape, weight, bias, eps)
    if not input.numel():
        return _fake(input, shape, weight, bias, eps)
    y = dlprim.layer_norm(_rows(input, columns), _row(weight), _row(bias), eps)
    return tensor_of(y).view(input.shape)


def _fake(
    input: torch.Tensor, shape: Sequence[int], weight: Any, bias: Any, eps: float
) -> torch.Tensor:
    _require(input, shape, weight, bias, eps)
    return input.new_empty(input.shape)


def _backward(
    grad: torch.Tensor,
    input: torch.Tensor,
    shape: Sequence[int],
    weight: torch.Tensor | None,
    *how: Any,
) -> list[torch.Tensor]:
    eps, dtype, mask = how
    columns = math.prod(shape)
    if not input.numel():
        return [it.zero_() for it in _fake_backward(grad, input, shape, weight, *how)]
    dy, x = _rows(grad, columns), _rows(input, columns)
    found = dlprim.layer_norm_backward(dy, x, _row(weight), eps)
    dx = chosen(found[:1], mask[:1], input.dtype)
    return [
        *(it.view(input.shape) for it in dx),
        *(it.view(shape) for it in chosen(found[1:], mask[1:], dtype)),
    ]


def _fake_backward(
    grad: torch.Tensor,
    input: torch.Tensor,
    shape: Sequence[int],
    weight: torch.Tensor | None,
    *how: Any,
) -> list[torch.Tensor]:
    _, dtype, mask = how
    sums = [input.new_empty(shape, dtype=dtype) for wanted in mask[1:] if wanted]
    return [input.new_empty(input.shape), *sums] if mask[0] else sums


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    input, ctx.shape, weight, bias, ctx.eps = inputs
    ctx.dtype = next((it.dtype for it in (weight, bias) if it is not None), input.dtype)
    ctx.save_for_backward(input, weight)


def _gradient(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    input, weight = ctx.saved_tensors
    needed = ctx.needs_input_grad
    mask = [needed[0], needed[2], needed[3]]
    found = _BACKWARD(grad, input, ctx.shape, weight, ctx.eps, ctx.dtype, mask)
    dx, dw, db = placed(found, mask)
    return dx, None, dw, db, None


_FORWARD = operator(
    "layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps)"
    " -> Tensor",
    _forward,
    _fake,
)
_BACKWARD = operator(
    "layer_norm_backward(Tensor grad, Tensor input, SymInt[] normalized_shape, Tensor? weight, "
    "float eps, ScalarType dtype, bool[3] output_mask) -> Tensor[]",
    _backward,
    _fake_backward,
)
differentiate(_FORWARD, _gradient, _keep, _BACKWARD)
