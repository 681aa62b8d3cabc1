"""Models for images after 26 papers: compiled as they are eagerly, forward and backward."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is what compiles")

from torch import nn  # noqa: E402

import torch_pixels  # noqa: E402
import torch_vision  # noqa: E402
from torch_compare import run_both  # noqa: E402

MODELS = [*torch_vision.MODELS, *torch_pixels.MODELS]
pytestmark = [pytest.mark.any_level, pytest.mark.slow]


@pytest.mark.parametrize("make", MODELS, ids=lambda it: it.__name__.lower())
def test_a_paper_is_as_it_is_eagerly(make: Callable[[], nn.Module]) -> None:
    from dlprim.torch.explanation import listening

    torch.manual_seed(0)
    model, x = make(), torch.randn(4, 3, 32, 32)
    with listening() as found:
        run_both(model, lambda: (x,))
    assert [it.kind for it in found] == ["inference", "forward", "backward"]  # nothing broke off
    assert all(ours >= 0.95 * whole for ours, whole in (it.flops for it in found))
    assert all(piece.refused is None for it in found for piece in it.pieces)
