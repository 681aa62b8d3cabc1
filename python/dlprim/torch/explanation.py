"""What runs where: pieces, reasons, and the share of the arithmetic."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch._functorch.config
from torch.fx import Node

from dlprim.torch.partition import Partition, name_of
from dlprim.torch.sizes import hints_of, tensors_of

if TYPE_CHECKING:
    from dlprim.torch.piece import Piece

_MOST_NODES = 6  # that are named for a reason
_waiting: list[list[Report]] = []


class Report(NamedTuple):
    """A graph that was compiled.

    Attributes
    ----------
    kind : str
        "inference", "forward" or "backward".
    partition : Partition
    pieces : tuple of Piece
    """

    kind: str
    partition: Partition
    pieces: tuple[Piece, ...]

    @property
    def flops(self) -> tuple[float, float]:
        """Floating-point operations of products: of dlprim, and of all."""
        done = [
            (turn.is_ours or name_of(node).startswith("dlprim."), flops_of(node))
            for turn in self.partition.turns
            for node in turn.nodes
        ]
        return sum(is_ours * it for is_ours, it in done), sum(it for _, it in done)

    def __str__(self) -> str:
        ours, whole = self.flops
        share = f"{ours / whole:.1%}" if whole else "none"
        turns = self.partition.turns
        count = sum(len(it.nodes) * it.is_ours for it in turns)
        nodes = sum(len(it.nodes) for it in turns)
        head = (
            f"{self.kind}: {len(self.pieces)} piece{'' if len(self.pieces) == 1 else 's'}, "
            f"{count} of {nodes} nodes, "
            f"{share} of {whole / 1e9:.3g} GFLOP by dlprim"
        )
        return "\n".join([head, *self._reasons(), *self._refused()])

    def _reasons(self) -> Iterator[str]:
        counted = Counter(
            (reason, name_of(node)) for node, reason in self.partition.reasons.items()
        )
        listed: dict[str, list[str]] = {}
        for (reason, name), times in counted.items():
            listed.setdefault(reason, []).append(f"{name} x {times}" if times > 1 else name)
        for reason, names in listed.items():
            more = [f"and {len(names) - _MOST_NODES} more"] if len(names) > _MOST_NODES else []
            yield f"  by PyTorch, {reason}: {', '.join([*names[:_MOST_NODES], *more])}"

    def _refused(self) -> Iterator[str]:
        for number, piece in enumerate(self.pieces):
            if piece.refused is not None:
                yield f"  piece {number} by PyTorch for some shapes: {piece.refused}"


def reports() -> list[list[Report]]:
    """Who wants to know what is compiled."""
    return _waiting


@contextmanager
def listening() -> Iterator[list[Report]]:
    """The graphs that are compiled meanwhile."""
    found: list[Report] = []
    _waiting.append(found)
    try:
        yield found
    finally:
        _waiting.remove(found)


def explain(model: Callable[..., Any], *inputs: Any, **named: Any) -> str:
    """Runs a model once with the backend and says which of its operators dlprim runs, and why not.

    Parameters
    ----------
    model : callable
        A module, or a function of tensors.
    *inputs, **named
        As in a call. Where gradients are wanted the backward pass is compiled, but not run.

    Returns
    -------
    str
        For each graph how many pieces there are, the share of the floating-point operations that
        dlprim does, and why nodes stay with PyTorch.
    """
    from dlprim.torch.backend import backend

    def anew(traced: Any, example_inputs: Any) -> Callable[..., Any]:
        return backend(traced, example_inputs)

    at_once = torch._functorch.config.patch(force_non_lazy_backward_lowering=True)
    with listening() as found, at_once:
        torch.compile(model, backend=anew)(*inputs, **named)
    return "\n".join(map(str, found)) or "PyTorch traced no graph"


# ---------------------------------------------------------------- arithmetic


def _shape(node: Any) -> tuple[int, ...]:
    (tensor,) = tensors_of(node)
    assert tensor is not None
    return hints_of(tensor.shape)


def _product(node: Node, a: int = 0) -> float:
    left, right = (_shape(node.args[at]) for at in (a, a + 1))
    return 2.0 * math.prod((*left, right[-1]))


def _convolution(node: Node, x: int = 0, transposed: int = 6) -> float:
    """By the pixels of the result, or those of the images where it is transposed."""
    images = x if node.args[transposed] else 0
    whole = _shape(node.args[images]) if x or node.args[transposed] else _shape(node)
    return 2.0 * whole[0] * math.prod(whole[2:]) * math.prod(_shape(node.args[x + 1]))


def _convolution_backward(node: Node) -> float:
    return _convolution(node, 1, 7) * _asked(node)


def _attention(node: Node, q: int, times: float) -> float:
    queries, keys = _shape(node.args[q]), _shape(node.args[q + 1])
    return times * 2.0 * math.prod(queries) * keys[-2]


def _windows(images: Any, weights: Any) -> float:
    n, _, *pixels = _shape(images)
    return 2.0 * n * math.prod(pixels) * math.prod(_shape(weights))


def _asked(node: Node) -> int:
    """How many of two products a gradient has."""
    mask: Any = node.args[-1]
    return sum(map(bool, mask[:2]))


def _rows_by(rows: Any, weights: Any) -> float:
    return 2.0 * math.prod(_shape(rows)[:-1]) * math.prod(_shape(weights))


def _recurrence(node: Node, x: int, times: float) -> float:
    weights: Any = node.args[x + 1]
    return times * sum(_rows_by(node.args[x], it) for it in weights if len(_shape(it)) > 1)


_FLOPS: dict[str, Callable[[Node], float]] = {
    "aten._scaled_dot_product_flash_attention_for_cpu.default": lambda it: _attention(it, 0, 2),
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": lambda it: _attention(
        it, 1, 5
    ),
    "aten.addmm.default": lambda it: _product(it, 1),
    "aten.baddbmm.default": lambda it: _product(it, 1),
    "aten.bmm.default": _product,
    "aten.convolution.default": _convolution,
    "aten.convolution_backward.default": _convolution_backward,
    "aten.mm.default": _product,
    "dlprim.attention.default": lambda it: _attention(it, 0, 2),
    "dlprim.wide_convolution_backward": _convolution_backward,
    "dlprim.wide_product": _product,
    "dlprim.attention_backward.default": lambda it: _attention(it, 1, 5),
    "dlprim.conv2d.default": lambda it: _windows(it, it.args[1]),
    "dlprim.conv2d_backward.default": lambda it: _windows(it.args[0], it.args[2]) * _asked(it),
    "dlprim.gru.default": lambda it: _recurrence(it, 0, 1),
    "dlprim.gru_backward.default": lambda it: _recurrence(it, 1, 2),
    "dlprim.linear.default": lambda it: _rows_by(it.args[0], it.args[1]),
    "dlprim.linear_backward.default": lambda it: _rows_by(it.args[1], it.args[2]) * _asked(it),
    "dlprim.lstm.default": lambda it: _recurrence(it, 0, 1),
    "dlprim.lstm_backward.default": lambda it: _recurrence(it, 1, 2),
}


def flops_of(node: Node) -> float:
    """Of products; all else counts as nothing."""
    count = _FLOPS.get(name_of(node).removeprefix("again."))
    return 0.0 if count is None else count(node)
