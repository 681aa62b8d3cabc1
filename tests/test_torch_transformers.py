"""Architectures of transformers with small random configurations, compiled and run eagerly."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="PyTorch is what compiles")
pytest.importorskip("transformers", reason="the models are its own")

from torch_compare import run_both
from torch_transformers import MODELS, UNCACHED, Without, built, inputs_of

pytestmark = [
    pytest.mark.any_level,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of transformers
]


@pytest.mark.parametrize("name", list(MODELS))
def test_an_architecture_is_as_it_is_eagerly(name: str) -> None:
    from dlprim.torch.explanation import listening

    whole = Without(built(name), name not in UNCACHED)
    inputs = inputs_of(name)
    with listening() as found:
        run_both(whole, lambda: (inputs,), 1e-3)
    assert all(ours >= 0.95 * whole for ours, whole in (it.flops for it in found))
