"""What runs where: pieces, reasons, and the share of the arithmetic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch._functorch.config
from torch.fx import Node
from torch.fx.node import map_arg
from torch.utils.flop_counter import flop_registry

from dlprim.graph.builder import ValueNeededError
from dlprim.graph.networks import FAULTS
from dlprim.graph.work import multiply_adds
from dlprim.torch.operators import UnsupportedError
from dlprim.torch.partition import Partition, name_of, tried
from dlprim.torch.sizes import hint_of

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


def flops_of(node: Node) -> float:
    """Of products; all else counts as nothing."""
    try:
        b, made = tried(node)
    except (UnsupportedError, ValueNeededError, *FAULTS):
        return _by_pytorch(node)
    return 2.0 * sum(map(multiply_adds, b.graph([it for it in made if it is not None]).nodes))


def _by_pytorch(node: Node) -> float:
    """Of what has no rule, or is refused, where PyTorch counts it."""
    formula = flop_registry.get(getattr(node.target, "overloadPacket", None))
    if formula is None:
        return 0.0
    args, named = map_arg((node.args, node.kwargs), lambda it: it.meta["val"])
    return float(hint_of(formula(*args, **named, out_val=node.meta["val"])))
