"""Linear layers and convolutions on a GPU, as the formulas that the CPU's drivers are made of.

The statements are those that cpp/primitives reads with the same parser: a convolution is a product
whose batch are its taps. Gradients are derived from them. Arrays may lie in any order; of images,
channels last is the fastest, because what is summed are neighbours then.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch

from dlprim.arguments.names import activation_name
from dlprim.gpu.arrays import as_given, tensors_of
from dlprim.gpu.formulas import contract
from dlprim.lang.definitions import Definition, define
from dlprim.primitives.conv_arguments import geometry

LINEAR = "dst(n,k) +=! src(n,c) * weights(k,c)"
CONVOLUTION = "dst(n,g,k,p,q) +=! src?(n,g,c,u*p+d*r-t,v*q+e*s-l) * weights(g,k,c,r,s)"
_LINEAR = {"src": "N,C", "weights": "K,C", "bias": "K"}
_CONVOLUTION = {"src": "N,G,C,H,W", "weights": "G,K,C,R,S", "bias": "G,K", "residual": "N,G,K,P,Q"}


@lru_cache(maxsize=256)
def _layer(statement: str, arrays: tuple[tuple[str, str], ...], activation: str) -> Definition:
    """The statement and its end: arrays that are added, then the activation."""
    target = statement.partition(" ")[0]
    parameters = ", ".join(f"float({shape}) {name}" for name, shape in arrays)
    value = " + ".join([target, *(f"{name}({at.lower()})" for name, at in arrays[2:])])
    value = value if activation == "none" else f"{activation}({value})"
    end = f"    {target} = {value}\n" if value != target else ""
    return define(f"def layer({parameters}) -> (dst) {{\n    {statement}\n{end}}}").layer


def _tensors(**arrays: Any) -> dict[str, Any]:
    given = {name: it for name, it in arrays.items() if it is not None}
    return dict(zip(given, tensors_of(list(given), list(given.values())), strict=True))


def _named(shapes: Mapping[str, str], ends: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((name, it) for name, it in shapes.items() if name in ("src", "weights", *ends))


def linear(
    x: Any, w: Any, bias: Any = None, *, activation: str | None = None, tf32: bool = False
) -> Any:
    """``activation(x @ w.T + bias)`` for x of shape (..., C) and w of shape (K, C).

    Parameters
    ----------
    x, w, bias : arrays on a GPU
        float32, bfloat16 or float16, of which the result is that of x; bias (K,).
    activation : None or str
        As of `dlprim.linear`.
    tf32 : bool
        As of `compile`.

    Raises
    ------
    TypeError, ValueError
        Where arrays do not fit each other.
    """
    src, weights, *ends = _tensors(x=x, w=w, bias=bias).values()
    arrays = _named(_LINEAR, {"bias": 0} if ends else {})
    layer = _layer(LINEAR, arrays, activation_name(activation))
    flat = src.reshape(-1, src.shape[-1])
    y = torch.empty(len(flat), len(weights), dtype=src.dtype, device=src.device)
    contract(layer, flat, weights, *ends, out=y, tf32=tf32)
    return as_given(y.reshape(*src.shape[:-1], -1), [x])


def linear_backward(dy: Any, x: Any, w: Any, *, tf32: bool = False) -> tuple[Any, ...]:
    """``(dx, dw, db)`` of `linear` without an activation, for dy of the shape of its result.

    Raises
    ------
    TypeError, ValueError
        As `linear`.
    """
    diff_dst, src, weights = _tensors(dy=dy, x=x, w=w).values()
    layer = _layer(LINEAR, _named(_LINEAR, {}), "none")
    flat = src.reshape(-1, src.shape[-1]), weights, diff_dst.reshape(-1, weights.shape[0])
    dx, dw = (contract(layer.gradient(it), *flat, tf32=tf32) for it in ("src", "weights"))
    db = contract("db(k) +=! dy(n,k)", flat[2])
    return tuple(as_given(it, [x]) for it in (dx.reshape(src.shape), dw, db))


class _Convolution:
    """A convolution's statement, and its arrays as that sees them: channels in groups."""

    def __init__(
        self, x: Any, w: Any, steps: tuple[Any, Any, Any], groups: int, last: bool
    ) -> None:
        of = geometry(tuple(x.shape), tuple(w.shape), *steps, groups)
        self.groups, self.last = of.groups, last
        if w.shape[0] % groups:
            raise ValueError(f"w has {w.shape[0]} filters, expected a multiple of {groups} groups")
        (u, v), (d, e), ((t, below), (left, right)) = of.stride, of.dilation, of.padding
        p = (x.shape[2] + t + below - d * (w.shape[2] - 1) - 1) // u + 1
        q = (x.shape[3] + left + right - e * (w.shape[3] - 1) - 1) // v + 1
        if min(p, q) < 1:
            raise ValueError(f"w has shape {tuple(w.shape)}, expected a filter that fits x")
        self.pixels = (p, q)
        text = CONVOLUTION
        for letter, number in zip("udtvel", (u, d, t, v, e, left), strict=True):
            for place in (f"{letter}*", f"-{letter}"):
                text = text.replace(place, place.replace(letter, str(number)))
        self.statement = f"{text} where p in 0:{p}, q in 0:{q}"
        order = torch.channels_last if last else torch.preserve_format
        self.operands = self.grouped(x, 1), self.grouped(w.contiguous(memory_format=order), 0)

    def grouped(self, it: Any, axis: int) -> Any:
        return it.unflatten(axis, (self.groups, it.shape[axis] // self.groups))

    def new(self, shape: tuple[int, ...], like: Any) -> Any:
        order = torch.channels_last if self.last else torch.contiguous_format
        return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=order)


def _is_last(x: Any) -> bool:
    return bool(x.ndim == 4 and x.stride(1) == 1 and x.shape[1] > 1)


def conv2d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    activation: str | None = None,
    residual: Any = None,
    tf32: bool = False,
) -> Any:
    """``activation(x * w + bias + residual)``, a cross-correlation as PyTorch has it.

    Parameters
    ----------
    x, w, bias, residual : arrays on a GPU
        (N, C, H, W), (K, C/groups, R, S), (K,), the shape of the result; float32, bfloat16 or
        float16. The result has the type of x, and is channels last where x is.
    stride, padding, dilation, groups
        As of `dlprim.conv2d`.
    activation : None or str
        As of `dlprim.conv2d`.
    tf32 : bool
        As of `compile`.

    Raises
    ------
    TypeError, ValueError
        Where arrays do not fit each other.
    """
    it = _tensors(x=x, w=w, bias=bias, residual=residual)
    of = _Convolution(it["x"], it["w"], (stride, padding, dilation), groups, _is_last(it["x"]))
    ends = {name: axis for name, axis in (("bias", 0), ("residual", 1)) if name in it}
    layer = _layer(of.statement, _named(_CONVOLUTION, ends), activation_name(activation))
    added = [of.grouped(it[name], axis) for name, axis in ends.items()]
    y = of.new((it["x"].shape[0], it["w"].shape[0], *of.pixels), it["x"])
    contract(layer, *of.operands, *added, out=of.grouped(y, 1), tf32=tf32)
    return as_given(y, [x])


def conv2d_backward(
    dy: Any,
    x: Any,
    w: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    tf32: bool = False,
) -> tuple[Any, ...]:
    """``(dx, dw, db)`` of `conv2d` without an activation, for dy of the shape of its result.

    Raises
    ------
    TypeError, ValueError
        As `conv2d`.
    """
    diff_dst, src, weights = _tensors(dy=dy, x=x, w=w).values()
    of = _Convolution(src, weights, (stride, padding, dilation), groups, _is_last(src))
    layer = _layer(of.statement, _named(_CONVOLUTION, {}), "none")
    made = []
    for name, like, axis in (("src", src, 1), ("weights", weights, 0)):
        out = of.new(tuple(like.shape), like)
        arrays = (*of.operands, of.grouped(diff_dst, 1))
        contract(layer.gradient(name), *arrays, out=of.grouped(out, axis), tf32=tf32)
        made.append(out)
    made.append(contract("db(k) +=! dy(n,k,p,q)", diff_dst))
    return tuple(as_given(it, [x]) for it in made)
