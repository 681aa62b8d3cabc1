"""Shapes of a traced graph, in which PyTorch may have written symbols."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from dlprim.torch.operators.table import UnsupportedError

SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)


def hint_of(size: Any) -> Any:
    """The number that a symbol stood for when the graph was traced."""
    if not isinstance(size, SYMBOLS):
        return size
    if not size.node.has_hint():
        raise UnsupportedError("a size follows from elements of a tensor")
    return size.node.hint


def hints_of(sizes: Sequence[Any]) -> tuple[int, ...]:
    """The numbers of a shape or of strides."""
    return tuple(hint_of(it) for it in sizes)


def tensors_of(node: Node) -> tuple[torch.Tensor | None, ...]:
    """What a node makes, as PyTorch has traced it; None for what is no tensor."""
    made = node.meta.get("val")
    listed = made if isinstance(made, tuple | list) else (made,)
    return tuple(it if isinstance(it, torch.Tensor) else None for it in listed)


def makes_tensors(node: Node) -> bool:
    """Whether a node makes tensors and no numbers."""
    return any(it is not None for it in tensors_of(node))
