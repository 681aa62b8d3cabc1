"""Which tensors operators take, and what is said of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dlprim.torch.forms import array_of

FLOATS = (torch.float32, torch.bfloat16)


def require_tensors(**operands: Any) -> None:
    """Refuses what is no tensor of floats on the CPU, by the name of the argument."""
    for name, it in operands.items():
        require_tensor(name, it)
        if it.dtype not in FLOATS:
            raise TypeError(f"{name} is of {it.dtype}, expected torch.float32 or torch.bfloat16")


def given(**operands: Any) -> dict[str, Any]:
    """Those of optional operands that there are."""
    return {name: it for name, it in operands.items() if it is not None}


def require_tensor(name: str, it: Any) -> None:
    """Refuses what is no dense tensor on the CPU."""
    if not isinstance(it, torch.Tensor):
        raise TypeError(f"{name} is of type {type(it).__name__}, expected a torch.Tensor")
    if it.device.type not in ("cpu", "meta"):
        raise TypeError(f"{name} is on {it.device}, expected a tensor on the CPU")
    if it.layout is not torch.strided:
        raise TypeError(f"{name} is {it.layout}, expected a dense tensor")


def require_alike(**operands: torch.Tensor | None) -> None:
    """Refuses operands of another dtype than the first one."""
    (first, one), *rest = operands.items()
    for name, it in rest:
        if one is not None and it is not None and it.dtype != one.dtype:
            raise TypeError(f"{name} is of {it.dtype}, expected {one.dtype} as {first} is")


def sizes_of(known: dict[str, Any], **operands: tuple[torch.Tensor | None, str]) -> dict[str, Any]:
    """Extents by the letters of axes, in which all operands are found to agree.

    An operand is given with its axes, such as ``"... C"``; there may be none. ``known`` are extents
    that are known before.
    """
    found = dict(known)
    for name, (it, text) in operands.items():
        if it is None:
            continue
        axes = text.split()
        shape: list[Any] = list(it.shape)
        if axes[0] == "..." and len(shape) >= len(axes) - 1:
            count = len(shape) - len(axes) + 1
            shape = [tuple(shape[:count]), *shape[count:]]
        expected = [found.get(axis, n) for axis, n in zip(axes, shape, strict=False)]
        if len(shape) != len(axes) or shape != expected:
            said = ", ".join(f"{axis} = {found[axis]}" for axis in axes if axis in found)
            raise ValueError(
                f"{name} has shape {tuple(it.shape)}, expected ({', '.join(axes)})"
                f"{' with ' if said else ''}{said}"
            )
        found |= zip(axes, shape, strict=True)
    return found


def array_or_none(tensor: torch.Tensor | None) -> Any:
    """The memory of a tensor as an array, where there is one."""
    return None if tensor is None else array_of(tensor)


def asked(gradients: Sequence[Any], mask: Sequence[bool]) -> list[torch.Tensor]:
    """Those gradients that are asked for."""
    return [it for it, wanted in zip(gradients, mask, strict=True) if wanted]
