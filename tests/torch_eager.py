"""Functions of `dlprim.torch` beside those of PyTorch in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

BOUNDS = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


def ours(name: str) -> Callable[..., Any]:
    """A function of `dlprim.torch`."""
    import dlprim.torch

    found: Callable[..., Any] = getattr(dlprim.torch, name)
    return found


def leaf(tensor: Any, dtype: torch.dtype | None = None) -> Any:
    """A copy that lies as the tensor does and requires a gradient; all else as it is."""
    if isinstance(tensor, list):
        return [leaf(it, dtype) for it in tensor]
    if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
        return tensor
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=dtype or tensor.dtype)
    return made.copy_(tensor).requires_grad_()


def leaves(tree: Any) -> list[torch.Tensor]:
    """The tensors that require a gradient."""
    if isinstance(tree, list | tuple):
        return [it for each in tree for it in leaves(each)]
    return [tree] if isinstance(tree, torch.Tensor) and tree.requires_grad else []


def near(ours: Any, theirs: Any, bound: float | None = None) -> None:
    """Apart by no more than a share of what is largest, by default what the dtype allows."""
    assert ours.shape == theirs.shape
    if ours.numel():
        largest = max(0.1, theirs.abs().max().item())
        apart = (ours.detach().double() - theirs.detach()).abs().max().item() / largest
        assert apart <= (bound or BOUNDS[ours.dtype]), apart


def results(made: Any) -> list[torch.Tensor]:
    """Tensors, in a tuple or not, flat."""
    if isinstance(made, torch.Tensor):
        return [made]
    return [it for each in made for it in results(each)]


def same_as_theirs(
    ours: Callable[..., Any], theirs: Callable[..., Any], operands: Sequence[Any], **how: Any
) -> list[torch.Tensor]:
    """Results and gradients are PyTorch's in float64; the results are returned."""
    first = [leaf(it) for it in operands]
    second = [leaf(it, torch.float64) for it in operands]
    made, expected = results(ours(*first, **how)), results(theirs(*second, **how))
    diffs = [torch.randn(it.shape).to(it.dtype) for it in made]
    torch.autograd.backward(made, diffs)
    torch.autograd.backward(expected, [it.double() for it in diffs])
    for one, two in zip(made, expected, strict=True):
        near(one, two)
    for one, two in zip(leaves(first), leaves(second), strict=True):
        assert one.grad is not None
        assert one.grad.dtype == one.dtype
        near(one.grad, two.grad)
    return made
