"""Convolutions and fully connected layers of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import dlprim
from dlprim.functions.convolution import conv2d_gradients
from dlprim.torch.eager.custom import Layer, registered
from dlprim.torch.eager.operands import (
    array_or_none,
    given,
    require_alike,
    require_tensors,
    sizes_of,
)
from dlprim.torch.forms import array_of, tensor_of


def linear(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """``input @ weight.T + bias``: `torch.nn.functional.linear`.

    Under autocast operands become bfloat16.

    Parameters
    ----------
    input : torch.Tensor of float32 or bfloat16, (..., C)
    weight : torch.Tensor of the same dtype, (K, C)
    bias : torch.Tensor of the same dtype, (K,), optional

    Returns
    -------
    torch.Tensor of the same dtype, (..., K)

    Raises
    ------
    TypeError
        An operand is no dense tensor of float32 or bfloat16 on the CPU, or dtypes differ.
    ValueError
        Shapes do not agree.
    """
    return _call_linear(input, weight, bias)


def _fake_linear(input: torch.Tensor, weight: torch.Tensor, bias: Any) -> torch.Tensor:
    require_alike(input=input, weight=weight, bias=bias)
    found = sizes_of({}, weight=(weight, "K C"), input=(input, "... C"), bias=(bias, "K"))
    return input.new_empty((*found["..."], found["K"]))


def _linear(input: torch.Tensor, weight: torch.Tensor, bias: Any) -> torch.Tensor:
    added = None if bias is None else array_of(bias.float())  # as the shortest way has it
    try:
        require_alike(input=input, weight=weight, bias=bias)
        return tensor_of(dlprim.linear(array_of(input), array_of(weight), added))
    except ValueError:
        _fake_linear(input, weight, bias)  # names the argument
        raise


def _linear_gradients(
    grad: torch.Tensor, input: torch.Tensor, weight: torch.Tensor, mask: Sequence[bool]
) -> Any:
    dy, x, w = array_of(grad), array_of(input), array_of(weight)
    if mask[0] and mask[1]:
        return dlprim.linear_backward(dy, x, w)
    rows = grad.reshape(-1, len(w))
    return (
        dlprim.linear(dy, w.T) if mask[0] else None,
        dlprim.linear(array_of(rows.T), x.reshape(-1, w.shape[1]).T) if mask[1] else None,
        array_of(rows.float().sum(0)) if mask[2] else None,
    )


def _alike(input: torch.Tensor, weight: torch.Tensor, *_: Any) -> list[torch.Tensor]:
    """Like operands and the bias; images lie as the input does."""
    by_input = _empty_pixels(input, input.shape)
    return [by_input, *(input.new_empty(it) for it in (weight.shape, weight.shape[:1]))]


_call_linear = registered(
    Layer(
        "linear(Tensor input, Tensor weight, Tensor? bias)",
        *(_linear, _fake_linear, _linear_gradients, _alike),
    ),
    is_lowered=True,
)


# ---------------------------------------------------------------- convolutions


def conv2d(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: str | int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> torch.Tensor:
    """A two-dimensional convolution: `torch.nn.functional.conv2d`.

    A tensor in channels-last is read in place and gives a result in channels-last; one in C order
    is copied to and from the packed form. Under autocast operands become bfloat16.

    Parameters
    ----------
    input : torch.Tensor of float32 or bfloat16, (N, C, H, W) or (C, H, W)
    weight : torch.Tensor of the same dtype, (K, C/groups, R, S)
    bias : torch.Tensor of the same dtype, (K,), optional
    stride, dilation : int or pair of int
    padding : int, pair of int, "valid" or "same"
        With "same", which takes a stride of 1, the result is as large as input.
    groups : int

    Returns
    -------
    torch.Tensor of the same dtype, (N, K, P, Q) or (K, P, Q)

    Raises
    ------
    TypeError
        An operand is no dense tensor of float32 or bfloat16 on the CPU, or dtypes differ.
    ValueError
        Shapes do not agree, or the geometry is impossible.
    """
    require_tensors(input=input, weight=weight, **given(bias=bias))
    strides, dilations = _pair("stride", stride, 1), _pair("dilation", dilation, 1)
    if isinstance(padding, str):
        rims = _named_rims(padding, strides, dilations, weight)
    else:
        vertical, horizontal = _pair("padding", padding, 0)
        rims = [vertical, vertical, horizontal, horizontal]
    operands = (weight, bias, strides, rims, dilations, groups)
    if input.dim() == 3:
        return _call_conv2d(input[None], *operands)[0]
    return _call_conv2d(input, *operands)


def _pair(name: str, given: Any, least: int) -> list[int]:
    listed = list(given) if isinstance(given, Sequence) else [given]
    pair = listed * 2 if len(listed) == 1 else listed
    if len(pair) != 2 or any(not isinstance(it, int) for it in pair) or min(pair) < least:
        raise ValueError(f"{name} is {given!r}, expected one or two integers of at least {least}")
    return pair


def _named_rims(
    padding: str, stride: list[int], dilation: list[int], weight: torch.Tensor
) -> list[int]:
    """Above, below, left and right."""
    if padding == "valid":
        return [0] * 4
    if padding != "same":
        raise ValueError(f"padding is {padding!r}, expected integers, 'valid' or 'same'")
    if stride != [1, 1]:
        raise ValueError(f"padding is 'same' and stride is {stride}, expected a stride of 1")
    totals = [step * (n - 1) for step, n in zip(dilation, weight.shape[2:], strict=True)]
    return [it for total in totals for it in (total // 2, total - total // 2)]


def _is_last(input: torch.Tensor) -> bool:
    """Whether they are images whose pixels hold their channels side by side."""
    last = torch.channels_last
    return not input.is_contiguous() and input.is_contiguous(memory_format=last)


def _as_pixels(tensor: torch.Tensor, is_last: bool) -> Any:
    return array_of(tensor.permute(0, 2, 3, 1) if is_last else tensor)


def _fake_conv2d(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *how: Any
) -> torch.Tensor:
    strides, rims, dilations, groups = how
    require_alike(input=input, weight=weight, bias=bias)
    operands = {"input": (input, "N C H W"), "weight": (weight, "K D R S"), "bias": (bias, "K")}
    n, c, h, w, k, depth, *taps = sizes_of({}, **operands).values()
    if groups < 1 or depth * groups != c or k % groups:
        raise ValueError(
            f"weight has shape {tuple(weight.shape)} and groups is {groups}, expected "
            f"(K, {c} / groups, R, S) with K of whole groups: input has {c} channels"
        )
    made = [n, k]
    for at, (extent, tap) in enumerate(zip((h, w), taps, strict=True)):
        room = extent + sum(rims[2 * at : 2 * at + 2]) - dilations[at] * (tap - 1) - 1
        if tap < 1 or room < 0:
            raise ValueError(
                f"weight has shape {tuple(weight.shape)}, expected windows of 1 to as many pixels "
                f"as input has with its padding; input has shape {tuple(input.shape)}"
            )
        made.append(room // strides[at] + 1)
    return _empty_pixels(input, made)


def _empty_pixels(input: torch.Tensor, shape: Sequence[Any]) -> torch.Tensor:
    """Of a shape (N, C, H, W), which lie as those of the input."""
    if not _is_last(input):
        return input.new_empty(shape)
    n, c, h, w = shape
    return input.new_empty((n, h, w, c)).permute(0, 3, 1, 2)


def _conv2d(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *how: Any
) -> torch.Tensor:
    made, is_last = _fake_conv2d(input, weight, bias, *how), _is_last(input)
    if not input.numel() or not made.numel():
        return made if bias is None else made.copy_(bias[:, None, None].expand_as(made))
    operands = _as_pixels(input, is_last), array_of(weight), array_or_none(bias)
    layout, out = _layout(is_last), _as_pixels(made, is_last)
    dlprim.conv2d(*operands, *_steps(how), layout=layout, out=out)
    return made


def _steps(how: Sequence[Any]) -> tuple[Any, ...]:
    strides, (top, bottom, left, right), dilations, groups = how
    return tuple(strides), ((top, bottom), (left, right)), tuple(dilations), groups


def _layout(is_last: bool) -> str:
    return "NHWC" if is_last else "NCHW"


def _conv2d_gradients(
    grad: torch.Tensor, input: torch.Tensor, weight: torch.Tensor, *how: Any
) -> Any:
    *geometry, mask = how
    if not input.numel():
        return None
    is_last = _is_last(input)
    operands = _as_pixels(grad, is_last), _as_pixels(input, is_last), array_of(weight)
    wanted = mask[0], mask[1] or mask[2]
    by_x, *others = conv2d_gradients(*operands, _steps(geometry), _layout(is_last), wanted)
    return by_x if by_x is None or not is_last else by_x.transpose(0, 3, 1, 2), *others


_call_conv2d = registered(
    Layer(
        "conv2d(Tensor input, Tensor weight, Tensor? bias, int[2] stride, int[4] padding, "
        "int[2] dilation, int groups)",
        *(_conv2d, _fake_conv2d, _conv2d_gradients, _alike),
    ),
    is_lowered=True,
)
