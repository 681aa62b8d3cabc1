"""Models beside PyTorch's: names, results, gradients by every parameter, statistics, files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import nn
from nn_modules import drawn

torch: Any = pytest.importorskip("torch", reason="PyTorch is the peer here")
peers: Any = pytest.importorskip("torch_peers", reason="PyTorch is the peer here")
pytestmark = pytest.mark.any_level

IDS = np.random.default_rng(0).integers(0, 11, (3, 6))
MASK = np.arange(6) < np.array([[6], [4], [2]])
Case = tuple[Callable[[], nn.Module], Callable[[], Any], Callable[[], tuple[Any, ...]]]
MODELS: dict[str, Case] = {
    "resnet18": (
        lambda: nn.resnet((2, 1), 8, 5, bottleneck=False),
        lambda: peers.ResNet((2, 1), 8, 5, False),
        lambda: (drawn(4, 3, 32, 32),),
    ),
    "resnet50": (
        lambda: nn.resnet((1, 2), 8, 5),
        lambda: peers.ResNet((1, 2), 8, 5, True),
        lambda: (drawn(4, 3, 32, 32),),
    ),
    "mobilenet_v2": (
        lambda: nn.mobilenet_v2(5, width=0.25, dropout=0.0),
        lambda: peers.MobileNet(5),
        lambda: (drawn(8, 3, 32, 32),),
    ),
    "vgg16": (
        lambda: nn.vgg16(5, hidden=16, dropout=0.0),
        lambda: peers.vgg16(5, 16),
        lambda: (drawn(2, 3, 32, 32),),
    ),
    "unet": (
        lambda: nn.unet(3, 2, width=8, depth=2),
        lambda: peers.UNet(3, 2, (8, 16, 32)),
        lambda: (drawn(2, 3, 16, 24),),
    ),
    "vit": (
        lambda: nn.vit(5, image=16, patch=4, C=12, layers=2, heads=3),
        lambda: peers.ViT(16, 4, 12, 3, 5),
        lambda: (drawn(2, 3, 16, 16),),
    ),
    "gpt": (
        lambda: nn.gpt(11, 8, 16, 2, heads=2),
        lambda: peers.GPT(11, 8, 16),
        lambda: (IDS,),
    ),
    "bert": (
        lambda: nn.bert(11, 8, 16, 2, classes=3, heads=2),
        lambda: peers.BERT(11, 8, 16, 3),
        lambda: (IDS, np.minimum(IDS, 1), MASK.astype(np.int64)),
    ),
}


def close(found: Any, due: Any) -> None:
    due = due.detach().numpy()
    np.testing.assert_allclose(found, due, rtol=1e-3, atol=2e-4 * max(1e-2, np.abs(due).max()))


def near(found: Any, due: Any, least: float = 0.0) -> None:
    """As gradients are: where an activation turns, rounding decides about single elements."""
    due = due.numpy()
    assert np.linalg.norm(found - due) <= 0.02 * max(np.linalg.norm(due), least)


@pytest.mark.parametrize("name", MODELS)
def test_models_are_those_of_pytorch(name: str, tmp_path: Path) -> None:
    make, peer, inputs = MODELS[name]
    torch.manual_seed(0)
    model, theirs = make(), peer()
    state = {key: it.numpy() for key, it in theirs.state_dict().items()}
    model.load_state_dict(state)
    arrays = inputs()
    tensors = [torch.from_numpy(it.copy()) for it in arrays]
    for it in tensors:
        it.requires_grad = it.is_floating_point()
    y, due = model(*arrays), theirs(*tensors)
    close(y, due)
    dy = drawn(*y.shape, seed=9)
    due.backward(torch.from_numpy(dy.copy()))
    dx = model.backward(dy)
    if tensors[0].requires_grad and dx is not None:
        near(dx, tensors[0].grad)
    parameters = dict(theirs.named_parameters())
    largest = max(float(it.grad.norm()) for it in parameters.values())
    for key, parameter in model.named_parameters():
        near(parameter.gradient, parameters[key].grad, 1e-3 * largest)
    for key, it in theirs.state_dict().items():
        np.testing.assert_allclose(model.state_dict()[key], it.numpy(), rtol=1e-3, atol=1e-5)
    model.eval()
    close(model(*arrays), theirs.eval()(*tensors))
    nn.save(model, tmp_path / "model.dlprim")
    np.testing.assert_array_equal(nn.load(tmp_path / "model.dlprim")(*arrays), model(*arrays))


@pytest.mark.parametrize("depth", [18, 34, 50, 101])
def test_depths_have_their_parameters(depth: int) -> None:
    """Counts as torchvision's documentation has them."""
    counts = {18: 11_689_512, 34: 21_797_672, 50: 25_557_032, 101: 44_549_160}
    model = getattr(nn, f"resnet{depth}")()
    assert sum(it.value.size for it in model.parameters()) == counts[depth]


def test_a_small_gpt_learns() -> None:
    from dlprim.optim import Adam

    nn.seed(0)
    model = nn.gpt(11, 8, 32, 2, heads=2, dropout=0.1)
    optimizer, x = Adam(model.parameters(), 3e-3), np.tile(IDS, (4, 1))
    losses = []
    for _ in range(60):
        loss, dy = dlprim.softmax_cross_entropy(model(x[:, :-1]), x[:, 1:])
        model.backward(dy)
        optimizer.step()
        losses.append(float(loss))
    assert losses[-1] < 0.5 * losses[0]
