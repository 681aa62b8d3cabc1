"""`dlprim.nn` beside PyTorch: names of state dicts, and losses of the first steps of training."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import nn
from dlprim.optim import SGD
from dlprim.train.models import LanguageModel

torch: Any = pytest.importorskip("torch", reason="PyTorch is the peer here")
torch_models: Any = import_module("dlprim.bench.networks.models")  # which needs it


def pairs() -> dict[str, tuple[nn.Module, Any, Any, Any]]:
    """Both sides of each network, inputs and targets."""
    random = np.random.default_rng(0)
    language = LanguageModel("gru", 9, 16, 2, embedded=4)
    language.use(nn.Context())
    images = random.standard_normal((4, 3, 32, 32), dtype=np.float32)
    characters = random.integers(0, 9, (5, 3))
    return {
        "resnet": (
            nn.resnet((1, 2), 16, 4),
            torch_models.ResNet((1, 2), 16, 4),
            images,
            np.arange(4),
        ),
        "gru": (
            language,
            torch_models.LanguageModel("gru", 9, 4, 16, 2),
            characters,
            random.integers(0, 9, 15),
        ),
    }


@pytest.mark.parametrize("name", ["resnet", "gru"])
def test_losses_follow_those_of_pytorch(name: str) -> None:
    torch.manual_seed(0)
    ours, theirs, x, targets = pairs()[name]
    ours.load_state_dict({key: it.numpy() for key, it in theirs.state_dict().items()})
    own = SGD([it.value for it in ours.parameters()], 0.05, 0.9, weight_decay=1e-4)
    other = torch.optim.SGD(theirs.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
    for _ in range(5):
        loss, diff = dlprim.softmax_cross_entropy(ours.forward(x), targets)
        ours.backward(diff)
        own.step([it.gradient for it in ours.parameters()])
        other.zero_grad()
        expected = torch.nn.functional.cross_entropy(
            theirs(torch.from_numpy(x)), torch.from_numpy(targets)
        )
        expected.backward()
        other.step()
        assert loss == pytest.approx(float(expected.detach()), rel=1e-3)
    if name == "resnet":
        theirs.eval()
        result = theirs(torch.from_numpy(x)).detach().numpy()
        np.testing.assert_allclose(ours.forward(x, training=False), result, rtol=2e-2, atol=2e-2)


def test_names_and_shapes_of_resnet50() -> None:
    ours = nn.resnet50(10).state_dict()
    theirs = torch_models.ResNet((3, 4, 6, 3), 64, 10).state_dict()
    assert {name: it.shape for name, it in ours.items()} == {
        name: tuple(it.shape) for name, it in theirs.items()
    }
