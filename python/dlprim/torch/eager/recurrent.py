"""LSTM and GRU of tensors.

An operator takes steps in front of sequences and parameters in PyTorch's order, layer after layer.
Asked to train, it returns behind its results what its gradient needs: gates and states of all
steps, and what goes from layer to layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

import torch

from dlprim.functions.recurrent_arguments import GATES, Settings
from dlprim.functions.recurrent_stack import backward, forward, kept_by, restored
from dlprim.torch.eager.custom import differentiate, lower, operator
from dlprim.torch.eager.operands import (
    array_or_none,
    given,
    require_alike,
    require_tensors,
    sizes_of,
)
from dlprim.torch.forms import array_of, tensor_of

_NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
_OF_ARRAYS = ("w_ih", "w_hh", "b_ih", "b_hh")
STATES = {"lstm": ("h_0", "c_0"), "gru": ("h_0",)}

Tensors: TypeAlias = torch.Tensor | Sequence[torch.Tensor]


def lstm(
    input: torch.Tensor,
    weight_ih: Tensors,
    weight_hh: Tensors,
    bias_ih: Tensors | None = None,
    bias_hh: Tensors | None = None,
    hx: tuple[torch.Tensor, torch.Tensor] | None = None,
    *,
    num_layers: int = 1,
    bidirectional: bool = False,
    batch_first: bool = False,
) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    """A long short-term memory with the parameters and results of `torch.nn.LSTM`.

    With D directions, 2 if `bidirectional`, else 1, parameters are sequences of num_layers * D
    tensors for more than one: ``weight_ih_l0``, ``weight_ih_l0_reverse``, ``weight_ih_l1``, ...
    Under autocast operands become bfloat16; states are float32 from step to step.

    Parameters
    ----------
    input : torch.Tensor of float32 or bfloat16, (T, N, C) or (T, C)
        (N, T, C) with `batch_first`, which costs a copy.
    weight_ih : torch.Tensor of the same dtype, (4*K, C), or a sequence
        The gates i, f, g, o. (4*K, D*K) for the layers after the first.
    weight_hh : torch.Tensor of the same dtype, (4*K, K), or a sequence
    bias_ih, bias_hh : torch.Tensor of the same dtype, (4*K,), or a sequence, optional
        Both or none.
    hx : pair of torch.Tensor of the same dtype, (num_layers * D, N, K), optional
        h_0 and c_0, zeros by default; without N where input has none.
    num_layers : int
    bidirectional, batch_first : bool

    Returns
    -------
    output : torch.Tensor of the same dtype, (T, N, D*K)
        (N, T, D*K) with `batch_first`.
    (h_n, c_n) : pair of torch.Tensor of the same dtype, (num_layers * D, N, K)

    Raises
    ------
    TypeError
        An operand is no dense tensor of float32 or bfloat16 on the CPU, or dtypes differ.
    ValueError
        Shapes do not agree, or there are more or fewer parameters than layers and directions.
    """
    if hx is not None and (not isinstance(hx, tuple | list) or len(hx) != 2):
        raise TypeError(f"hx is of type {type(hx).__name__}, expected a pair (h_0, c_0)")
    parameters = (weight_ih, weight_hh, bias_ih, bias_hh)
    how = (num_layers, bidirectional, batch_first)
    output, h_n, c_n = _called("lstm", input, parameters, hx or (None, None), how)
    return output, (h_n, c_n)


def gru(
    input: torch.Tensor,
    weight_ih: Tensors,
    weight_hh: Tensors,
    bias_ih: Tensors | None = None,
    bias_hh: Tensors | None = None,
    hx: torch.Tensor | None = None,
    *,
    num_layers: int = 1,
    bidirectional: bool = False,
    batch_first: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """A gated recurrent unit with the parameters and results of `torch.nn.GRU`.

    Parameters
    ----------
    weight_ih : torch.Tensor of the dtype of input, (3*K, C), or a sequence
        The gates r, z, n. (3*K, D*K) for the layers after the first.
    weight_hh : torch.Tensor of the same dtype, (3*K, K), or a sequence
    bias_ih, bias_hh : torch.Tensor of the same dtype, (3*K,), or a sequence, optional
        Both or none.
    hx : torch.Tensor of the same dtype, (num_layers * D, N, K), optional
        h_0, zeros by default; without N where input has none.
    input, num_layers, bidirectional, batch_first
        As for `lstm`.

    Returns
    -------
    output, h_n : torch.Tensor
        As from `lstm`.

    Raises
    ------
    TypeError, ValueError
        As `lstm` does.
    """
    parameters = (weight_ih, weight_hh, bias_ih, bias_hh)
    how = (num_layers, bidirectional, batch_first)
    output, h_n = _called("gru", input, parameters, (hx,), how)
    return output, h_n


def _called(
    cell: str,
    input: torch.Tensor,
    parameters: tuple[Tensors | None, ...],
    states: Sequence[torch.Tensor | None],
    how: tuple[int, bool, bool],
) -> list[torch.Tensor]:
    """The results of an operator, for an input as the caller has it."""
    layers, bidirectional, batch_first = how
    require_tensors(input=input, **given(**dict(zip(STATES[cell], states, strict=True))))
    runs = layers * (2 if bidirectional else 1)
    if runs < 1:
        raise ValueError(f"num_layers is {layers}, expected at least 1")
    weights = _in_order(parameters, runs)
    is_alone = input.dim() == 2
    if is_alone:
        input = input[:, None]
        states = [it if it is None else it[:, None] for it in states]
    elif batch_first:
        input = input.transpose(0, 1)
    output, *last = recur(cell, input, weights, states, (layers, bidirectional))
    if is_alone:
        return [it.squeeze(1) for it in (output, *last)]
    return [output.transpose(0, 1) if batch_first else output, *last]


def recur(
    cell: str,
    input: torch.Tensor,
    weights: Sequence[torch.Tensor],
    states: Sequence[torch.Tensor | None],
    how: tuple[int, bool],
) -> list[torch.Tensor]:
    """The output (T, N, D*K) and last states of parameters in PyTorch's order.

    ``how`` are the number of layers and whether they run both ways.
    """
    layers, bidirectional = how
    trained = (input, *weights, *(it for it in states if it is not None))
    training = torch.is_grad_enabled() and any(it.requires_grad for it in trained)
    run = _OPERATORS[cell].named
    made = run(input, list(weights), *states, layers, bool(bidirectional), training)
    found: list[torch.Tensor] = made[: 1 + len(states)]
    return found


def _in_order(parameters: tuple[Tensors | None, ...], runs: int) -> list[torch.Tensor]:
    """Parameters of each layer and direction next to each other."""
    if (parameters[2] is None) != (parameters[3] is None):
        raise ValueError("bias_ih or bias_hh is None, expected both or none of them")
    listed: list[Any] = []
    for name, it in zip(_NAMES, parameters, strict=True):
        if it is None:
            continue
        entries = [it] if isinstance(it, torch.Tensor) else list(it)
        if len(entries) != runs:
            raise ValueError(
                f"{name} holds {len(entries)} tensors, expected {runs}: one for each layer and "
                "direction"
            )
        require_tensors(**{f"{name}[{at}]": entry for at, entry in enumerate(entries)})
        listed.append(entries)
    return [it for run in zip(*listed, strict=True) for it in run]


# ---------------------------------------------------------------- operators


def _require(
    cell: str, input: torch.Tensor, weights: Sequence[torch.Tensor], *rest: Any
) -> tuple[Any, ...]:
    """T, N, K and the number of directions, of operands that are found to agree."""
    *states, layers, bidirectional = rest
    width = 2 if bidirectional else 1
    runs = layers * width
    sizes = sizes_of({}, input=(input, "T N C"), weight_hh=(weights[1], "G K"))
    k, c = sizes["K"], sizes["C"]
    for at, it in enumerate(weights):
        run, place = divmod(at, len(weights) // runs)
        name = _NAMES[place] if runs == 1 else f"{_NAMES[place]}[{run}]"
        require_alike(input=input, **{name: it})
        known = {"G": len(GATES[cell]) * k, "C": c if run < width else width * k, "K": k}
        sizes_of(known, **{name: (it, ("G C", "G K", "G", "G")[place])})
    for name, state in zip(STATES[cell], states, strict=True):
        require_alike(input=input, **{name: state})
        sizes_of(sizes | {"R": runs}, **{name: (state, "R N K")})
    return sizes["T"], sizes["N"], k, width


def _fake(
    cell: str, input: torch.Tensor, weights: Sequence[torch.Tensor], *rest: Any
) -> list[torch.Tensor]:
    *others, training = rest
    t, n, k, width = _require(cell, input, weights, *others)
    layers = others[-2]
    runs, shape = layers * width, (t, n, width * k)
    results = [input.new_empty(shape), *(input.new_empty((runs, n, k)) for _ in STATES[cell])]
    if not training:
        return results
    widths = [len(GATES[cell]) * k, k] * runs
    kept = [input.new_empty((t, n, it), dtype=torch.float32) for it in widths]
    return [*results, *kept, *(input.new_empty(shape) for _ in range(1, layers))]


def _operands(
    cell: str, input: torch.Tensor, weights: Sequence[torch.Tensor], *rest: Any
) -> tuple[Any, dict[str, Any], Settings, dict[str, Any]]:
    """Of `dlprim.functions.recurrent_stack`: x, parameters, settings and first states."""
    *states, layers, bidirectional = rest
    each = len(weights) // (layers * (2 if bidirectional else 1))
    listed = [[array_of(it) for it in weights[place::each]] for place in range(each)]
    named = dict.fromkeys(_OF_ARRAYS) | dict(zip(_OF_ARRAYS, listed, strict=False))
    options = (("reset_after", True),) if cell == "gru" else ()
    first = dict(zip(STATES[cell], map(array_or_none, states), strict=True))
    return array_of(input), named, Settings(False, bidirectional, layers, False, options), first


def _forward(
    cell: str, input: torch.Tensor, weights: Sequence[torch.Tensor], *rest: Any
) -> list[torch.Tensor]:
    *others, training = rest
    _require(cell, input, weights, *others)
    found = forward(cell, *_operands(cell, input, weights, *others), (None, training, False))
    results = [tensor_of(it).to(input.dtype) for it in found[: 1 + len(STATES[cell])]]
    return [*results, *map(tensor_of, kept_by(found[-1]))] if training else results


def _fake_backward(cell: str, grads: Any, *operands: Any) -> list[torch.Tensor]:
    input, weights, *others, _ = operands
    _, *last = _fake(cell, input, weights, *others, False)
    return [*(input.new_empty(it.shape) for it in (input, *weights)), *last]


def _backward(
    cell: str, grads: Sequence[torch.Tensor | None], *operands: Any
) -> list[torch.Tensor]:
    """The gradients of input, of each parameter and of the states."""
    input, weights, *others, kept = operands
    saved = restored(cell, *_operands(cell, input, weights, *others), [*map(array_of, kept)])
    dy, *last = grads
    dy = torch.zeros_like(kept[0]) if dy is None else dy
    names = [f"diff_{it[0]}_n" for it in STATES[cell]]
    diffs = dict(zip(names, map(array_or_none, last), strict=True))
    found = backward(cell, array_of(dy), saved, diffs)
    lists = [getattr(found, f"diff_{name}") for name in _OF_ARRAYS]
    given = [it for it in lists if it is not None]
    parameters = [it for run in zip(*given, strict=True) for it in run]
    first = [getattr(found, f"diff_{name}") for name in STATES[cell]]
    return [tensor_of(it).to(input.dtype) for it in (found.diff_src, *parameters, *first)]


def _keep(count: int, ctx: Any, inputs: tuple[Any, ...], output: Sequence[torch.Tensor]) -> None:
    input, weights, *states, ctx.layers, ctx.bidirectional, ctx.training = inputs
    y, *others = output
    kept = others[count:]
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*kept)
    ctx.counts = len(weights), count
    ctx.save_for_backward(input, *states, *weights, y, *kept)


def _gradient(backward: Any, ctx: Any, grads: Sequence[torch.Tensor | None]) -> tuple[Any, ...]:
    if not ctx.training:
        raise RuntimeError("training is False, expected True: nothing was kept for the gradient")
    weights, states = ctx.counts
    input, *saved = ctx.saved_tensors
    first, saved = saved[:states], saved[states:]
    operands = input, saved[:weights], *first, ctx.layers, ctx.bidirectional
    found = backward.named(list(grads[: 1 + states]), *operands, saved[weights:])
    own = [None if it is None else g for it, g in zip(first, found[1 + weights :], strict=True)]
    return found[0], found[1 : 1 + weights], *own, None, None, None


def _registered(cell: str) -> Any:
    states = STATES[cell]
    first = ", ".join(f"Tensor? {it}" for it in states)
    operands = f"Tensor input, Tensor[] weights, {first}, int num_layers, bool bidirectional"
    made = operator(
        f"{cell}({operands}, bool training) -> Tensor[]",
        partial(_forward, cell),
        partial(_fake, cell),
    )
    gradient = operator(
        f"{cell}_backward(Tensor?[] grads, {operands}, Tensor[] kept) -> Tensor[]",
        partial(_backward, cell),
        partial(_fake_backward, cell),
    )
    differentiate(made, gradient, partial(_gradient, gradient), partial(_keep, len(states)))
    lower(made)
    return made


_OPERATORS = {cell: _registered(cell) for cell in STATES}
