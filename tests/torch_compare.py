"""A module of PyTorch compiled by dlprim beside the same one run eagerly."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch


def tensors(tree: Any) -> Iterator[torch.Tensor]:
    """The floating-point tensors of dicts, lists and tuples."""
    if isinstance(tree, torch.Tensor):
        if tree.is_floating_point():
            yield tree
    elif isinstance(tree, dict):
        for it in tree.values():
            yield from tensors(it)
    elif isinstance(tree, list | tuple):
        for it in tree:
            yield from tensors(it)


def close(ours: torch.Tensor, theirs: torch.Tensor, bound: float, name: str = "") -> None:
    """Apart by no more than a share of what is largest."""
    assert ours.shape == theirs.shape, name
    assert ours.dtype == theirs.dtype, name
    ours, theirs = ours.detach().double(), theirs.detach().double()
    assert torch.equal(ours.isnan(), theirs.isnan()), name
    if ours.numel():
        largest = max(1e-3, theirs.nan_to_num().abs().max().item())
        apart = (ours - theirs).nan_to_num().abs().max().item() / largest
        assert apart <= bound, f"{name}: {apart:.2e} of the largest, expected {bound:.0e}"


def compiled(model: Callable[..., Any], **how: Any) -> Callable[..., Any]:
    """By the backend."""
    import dlprim.torch  # which PyTorch then knows by name

    assert dlprim.torch.backend is not None
    return torch.compile(model, backend="dlprim", **how)


def run_both(
    model: torch.nn.Module, inputs: Callable[[], tuple[Any, ...]], bound: float = 2e-4
) -> None:
    """Inference, then a step of training: results, gradients, buffers."""
    torch._dynamo.reset()
    ours, theirs = model, copy.deepcopy(model)
    run = compiled(ours)
    ours.eval()
    theirs.eval()
    with torch.no_grad():
        for _ in range(2):  # the second call is another way through
            _close_all(run(*inputs()), theirs(*inputs()), bound, "inference")
    ours.train()
    theirs.train()
    for seed in range(2):
        for it in (ours, theirs):
            it.zero_grad()
        torch.manual_seed(seed)
        found = run(*inputs())
        torch.manual_seed(seed)
        expected = theirs(*inputs())
        _close_all(found, expected, bound, "training")
        for tree in (found, expected):
            total = sum(
                (it.float() * it.float()).mean() + it.float().mean() for it in tensors(tree)
            )
            total.backward()  # type: ignore[union-attr]
        named = dict(theirs.named_parameters())
        for name, parameter in ours.named_parameters():
            if named[name].grad is None:
                assert parameter.grad is None, name
            else:
                close(parameter.grad, named[name].grad, 10 * bound, f"gradient of {name}")
        buffers = dict(theirs.named_buffers())
        for name, buffer in ours.named_buffers():
            close(buffer, buffers[name], bound, name)


def _close_all(found: Any, expected: Any, bound: float, name: str) -> None:
    for one, other in zip(tensors(found), tensors(expected), strict=True):
        close(one, other, bound, name)
