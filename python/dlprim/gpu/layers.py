"""Linear layers and convolutions on a GPU, as the formulas that the CPU's drivers are made of.

The statements are those that cpp/primitives reads with the same parser: a convolution is a product
whose batch are its taps. Gradients are derived from them. Arrays may lie in any order; of images,
channels last is the fastest, because what is summed are neighbours then.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar, TypeAlias

import torch

from dlprim.arguments.names import activation_name
from dlprim.gpu.arrays import as_given, tensors_of
from dlprim.gpu.formulas import contract
from dlprim.lang.definitions import Definition, define
from dlprim.primitives.conv_arguments import geometry

LINEAR = "dst(n,k) +=! src(n,c) * weights(k,c)"
CONVOLUTION = "dst(n,g,k,p,q) +=! src?(n,g,c,{u}*p+{d}*r-{t},{v}*q+{e}*s-{l}) * weights(g,k,c,r,s)"
_NAMES = {"x": "src", "w": "weights"}  # of arguments in the statements


@lru_cache(maxsize=256)
def layer(statement: str, arrays: tuple[tuple[str, str], ...], activation: str) -> Definition:
    """A statement of two arrays, and its end: a scale, what is added, then the activation."""
    value = target = statement.partition(" ")[0]
    for name, axes in arrays[2:]:
        value += f" {'*' if name == 'scale' else '+'} {name}{axes.lower()}"
    value = value if activation == "none" else f"{activation}({value})"
    end = f"    {target} = {value}\n" if value != target else ""
    parameters = ", ".join(f"float{axes} {name}" for name, axes in arrays)
    head = f"def layer({parameters}) -> ({target.partition('(')[0]})"
    return define(f"{head} {{\n    {statement}\n{end}}}").layer


class _Linear:
    """A layer's statement, and how that sees arrays."""

    statement = LINEAR
    axes: ClassVar = {"src": "(N,C)", "weights": "(K,C)", "bias": "(K)"}
    order = torch.contiguous_format

    def __init__(self, x: Any, w: Any) -> None:
        if x.ndim < 1 or w.ndim != 2 or w.shape[1] != x.shape[-1]:
            shape = tuple(x.shape)
            raise ValueError(
                f"w has shape {tuple(w.shape)}, expected (K, C) for x of shape {shape}"
            )
        self.shape = (*x.shape[:-1], w.shape[0])

    def seen(self, name: str, it: Any) -> Any:
        if name in ("weights", "bias"):
            return it
        return it.reshape(it.shape[:-1].numel(), it.shape[-1])


class _Convolution:
    """The same of a convolution, whose channels are in groups."""

    axes: ClassVar = {
        "src": "(N,G,C,H,W)", "weights": "(G,K,C,R,S)", "bias": "(G,K)", "residual": "(N,G,K,P,Q)",
    }  # fmt: skip

    def __init__(self, x: Any, w: Any, *steps: Any) -> None:
        of = geometry(tuple(x.shape), tuple(w.shape), *steps)
        if w.shape[0] % of.groups:
            filters = w.shape[0]
            raise ValueError(f"w has {filters} filters, expected a multiple of {of.groups} groups")
        (u, v), (d, e), ((t, below), (left, right)) = of.stride, of.dilation, of.padding
        p = (x.shape[2] + t + below - d * (w.shape[2] - 1) - 1) // u + 1
        q = (x.shape[3] + left + right - e * (w.shape[3] - 1) - 1) // v + 1
        if min(p, q) < 1:
            raise ValueError(f"w has shape {tuple(w.shape)}, expected a filter that fits x")
        text = CONVOLUTION.format(u=u, d=d, t=t, v=v, e=e, l=left)
        self.statement = f"{text} where p in 0:{p}, q in 0:{q}"
        self.shape, self._groups = (x.shape[0], w.shape[0], p, q), of.groups
        is_last = x.stride(1) == 1 and x.shape[1] > 1
        self.order = torch.channels_last if is_last else torch.contiguous_format

    def seen(self, name: str, it: Any) -> Any:
        axis = 0 if name in ("weights", "bias") else 1
        return it.unflatten(axis, (self._groups, it.shape[axis] // self._groups))


_Layer: TypeAlias = _Linear | _Convolution


def _tensors(**arrays: Any) -> dict[str, Any]:
    """Those that are given, by their names in the statements."""
    given = {name: it for name, it in arrays.items() if it is not None}
    tensors = tensors_of(list(given), list(given.values()), ["float"] * len(given))
    return {_NAMES.get(name, name): it for name, it in zip(given, tensors, strict=True)}


def _require(it: dict[str, Any], name: str, shape: tuple[int, ...]) -> None:
    if name in it and it[name].shape != shape:
        raise ValueError(f"{name} has shape {tuple(it[name].shape)}, expected {tuple(shape)}")


def _empty(of: _Layer, shape: tuple[int, ...], like: Any) -> Any:
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=of.order)


def _forward(of: _Layer, it: dict[str, Any], activation: str | None, tf32: bool) -> Any:
    _require(it, "bias", it["weights"].shape[:1])
    _require(it, "residual", of.shape)
    if of.order == torch.channels_last:  # in any other order of images filters stay as they lie
        it["weights"] = it["weights"].contiguous(memory_format=of.order)
    arrays = tuple((name, of.axes[name]) for name in it)
    made = layer(of.statement, arrays, activation_name(activation))
    y = _empty(of, of.shape, it["src"])
    seen = [of.seen(name, each) for name, each in it.items()]
    contract(made, *seen, out=of.seen("dst", y), tf32=tf32)
    return y


def _backward(of: _Layer, it: dict[str, Any], tf32: bool) -> tuple[Any, Any, Any]:
    _require(it, "dy", of.shape)
    made = layer(of.statement, tuple((name, of.axes[name]) for name in _NAMES.values()), "none")
    seen = [of.seen(name, it[name]) for name in ("src", "weights", "dy")]
    dx, dw = (_empty(of, it[name].shape, it[name]) for name in _NAMES.values())
    for name, out in (("src", dx), ("weights", dw)):
        contract(made.gradient(name), *seen, out=of.seen(name, out), tf32=tf32)
    target = of.statement.partition(" ")[0].replace("dst", "dy")
    return dx, dw, contract(f"db{of.axes['bias'].lower()} +=! {target}", seen[2]).flatten()


def linear(
    x: Any, w: Any, bias: Any = None, *, activation: str | None = None, tf32: bool = False
) -> Any:
    """``activation(x @ w.T + bias)`` for x of shape (..., C) and w of shape (K, C).

    Parameters
    ----------
    x, w, bias : arrays on a GPU
        float32, bfloat16 or float16, of which the result is that of x; bias (K,).
    activation, tf32
        As of `dlprim.linear` and of `compile`.

    Raises
    ------
    TypeError, ValueError
        Where arrays do not fit each other.
    """
    it = _tensors(x=x, w=w, bias=bias)
    return as_given(_forward(_Linear(it["src"], it["weights"]), it, activation, tf32), [x])


def linear_backward(dy: Any, x: Any, w: Any, *, tf32: bool = False) -> tuple[Any, ...]:
    """``(dx, dw, db)`` of `linear` without an activation, for dy of the shape of its result.

    Raises
    ------
    TypeError, ValueError
        As `linear`.
    """
    it = _tensors(dy=dy, x=x, w=w)
    made = _backward(_Linear(it["src"], it["weights"]), it, tf32)
    return tuple(as_given(each, [x]) for each in made)


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
    stride, padding, dilation, groups, activation, tf32
        As of `dlprim.conv2d` and of `compile`.

    Raises
    ------
    TypeError, ValueError
        Where arrays do not fit each other.
    """
    it = _tensors(x=x, w=w, bias=bias, residual=residual)
    of = _Convolution(it["src"], it["weights"], stride, padding, dilation, groups)
    return as_given(_forward(of, it, activation, tf32), [x])


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
    it = _tensors(dy=dy, x=x, w=w)
    of = _Convolution(it["src"], it["weights"], stride, padding, dilation, groups)
    return tuple(as_given(each, [x]) for each in _backward(of, it, tf32))
