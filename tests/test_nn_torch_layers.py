"""Layers that are traced beside those of PyTorch: results, and gradients by x and by parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlprim import nn
from nn_modules import drawn

torch: Any = pytest.importorskip("torch", reason="PyTorch is the peer here")
pytestmark = pytest.mark.any_level

Case = tuple[Callable[[], nn.Module], Callable[[], Any], tuple[tuple[int, ...], ...]]
ENCODER = {"dropout": 0.0, "batch_first": True}
CASES: dict[str, Case] = {
    "conv1d": (
        lambda: nn.Conv1d(4, 6, 3, 2, 1, dilation=2, groups=2),
        lambda: torch.nn.Conv1d(4, 6, 3, 2, 1, dilation=2, groups=2),
        ((2, 4, 11),),
    ),
    "conv3d": (
        lambda: nn.Conv3d(3, 5, (2, 3, 1), padding=(1, 0, 0), bias=False),
        lambda: torch.nn.Conv3d(3, 5, (2, 3, 1), padding=(1, 0, 0), bias=False),
        ((2, 3, 4, 5, 6),),
    ),
    "transposed 1d": (
        lambda: nn.ConvTranspose1d(4, 6, 3, 2, 1, 1, groups=2),
        lambda: torch.nn.ConvTranspose1d(4, 6, 3, 2, 1, 1, groups=2),
        ((2, 4, 7),),
    ),
    "transposed 2d": (
        lambda: nn.ConvTranspose2d(4, 3, 2, 2),
        lambda: torch.nn.ConvTranspose2d(4, 3, 2, 2),
        ((2, 4, 5, 6),),
    ),
    "transposed 3d": (
        lambda: nn.ConvTranspose3d(2, 3, 2, dilation=2),
        lambda: torch.nn.ConvTranspose3d(2, 3, 2, dilation=2),
        ((2, 2, 3, 4, 5),),
    ),
    "max pool 1d": (lambda: nn.MaxPool1d(3, 2), lambda: torch.nn.MaxPool1d(3, 2), ((2, 3, 9),)),
    "max pool 3d": (lambda: nn.MaxPool3d(2), lambda: torch.nn.MaxPool3d(2), ((2, 3, 4, 5, 6),)),
    "mean pool 1d": (lambda: nn.AvgPool1d(2), lambda: torch.nn.AvgPool1d(2), ((2, 3, 8),)),
    "mean pool 3d": (lambda: nn.AvgPool3d(2), lambda: torch.nn.AvgPool3d(2), ((2, 3, 4, 4, 4),)),
    "batch norm 1d": (lambda: nn.BatchNorm1d(5), lambda: torch.nn.BatchNorm1d(5), ((6, 5),)),
    "batch norm 3d": (
        lambda: nn.BatchNorm3d(3),
        lambda: torch.nn.BatchNorm3d(3),
        ((2, 3, 2, 3, 4),),
    ),
    "relu6": (nn.ReLU6, torch.nn.ReLU6, ((40, 5),)),
    "encoder": (
        lambda: nn.TransformerEncoderLayer(12, 3, 20, 0.0),
        lambda: torch.nn.TransformerEncoderLayer(12, 3, 20, **ENCODER),
        ((2, 5, 12),),
    ),
    "encoder with norms first": (
        lambda: nn.TransformerEncoderLayer(12, 3, 20, 0.0, "gelu", norm_first=True),
        lambda: torch.nn.TransformerEncoderLayer(
            12, 3, 20, activation="gelu", norm_first=True, **ENCODER
        ),
        ((2, 5, 12),),
    ),
    "encoder with the other gelu": (
        lambda: nn.TransformerEncoderLayer(12, 3, 20, 0.0, "gelu_tanh"),
        lambda: torch.nn.TransformerEncoderLayer(
            12, 3, 20, activation=partial(torch.nn.functional.gelu, approximate="tanh"), **ENCODER
        ),
        ((2, 5, 12),),
    ),
    "decoder": (
        lambda: nn.TransformerDecoderLayer(12, 2, 16, 0.0),
        lambda: torch.nn.TransformerDecoderLayer(12, 2, 16, **ENCODER),
        ((2, 5, 12), (2, 7, 12)),
    ),
}  # fmt: skip


def close(found: Any, due: Any) -> None:
    due = due.detach().numpy()
    np.testing.assert_allclose(found, due, rtol=1e-4, atol=2e-5 * max(1, np.abs(due).max()))


@pytest.mark.parametrize("name", CASES)
def test_layers_are_those_of_pytorch(name: str, tmp_path: Path) -> None:
    make, peer, shapes = CASES[name]
    torch.manual_seed(0)
    model, theirs = make(), peer()
    model.load_state_dict({key: it.numpy() for key, it in theirs.state_dict().items()})
    assert list(model.state_dict()) == list(theirs.state_dict())
    arrays = [2 * drawn(*shape, seed=place) for place, shape in enumerate(shapes)]
    tensors = [torch.from_numpy(it.copy()).requires_grad_() for it in arrays]
    y, due = model(*arrays), theirs(*tensors)
    close(y, due)
    dy = drawn(*y.shape, seed=9)
    due.backward(torch.from_numpy(dy.copy()))
    found = model.backward(dy)
    for one, other in zip(found if len(arrays) > 1 else [found], tensors, strict=True):
        close(one, other.grad)
    parameters = dict(theirs.named_parameters())
    for key, parameter in model.named_parameters():
        close(parameter.gradient, parameters[key].grad)
    for key, it in theirs.state_dict().items():
        np.testing.assert_allclose(model.state_dict()[key], it.numpy(), rtol=1e-5, atol=1e-6)
    model.eval()
    close(model(*arrays), theirs.eval()(*tensors))
    nn.save(model, tmp_path / "layer.dlprim")
    np.testing.assert_array_equal(nn.load(tmp_path / "layer.dlprim")(*arrays), model(*arrays))


@pytest.mark.parametrize("kind", ["causal", "bool", "float", "dropout"])
def test_attention_hides_what_it_should(kind: str) -> None:
    torch.manual_seed(0)
    theirs = torch.nn.MultiheadAttention(12, 3, batch_first=True)
    model = nn.MultiheadAttention(12, 3, causal=kind == "causal")
    if kind == "dropout":
        model = nn.MultiheadAttention(12, 3, 0.5, causal=True)
        model.drop.p = 1e-9  # by the shares, of which next to none is dropped
    model.load_state_dict({key: it.numpy() for key, it in theirs.state_dict().items()})
    x, dy = drawn(2, 5, 12), drawn(2, 5, 12, seed=1)
    seen = np.tri(5, dtype=bool)
    floats = drawn(5, 5, seed=2)
    mask = {"bool": seen, "float": floats}.get(kind)
    hidden = torch.from_numpy(floats if kind == "float" else ~seen)
    tensor = torch.from_numpy(x.copy()).requires_grad_()
    due, _ = theirs(tensor, tensor, tensor, attn_mask=hidden)
    close(model(x) if mask is None else model(x, None, mask), due)
    due.backward(torch.from_numpy(dy.copy()))
    found = model.backward(dy)
    close(found if mask is None else found[0], tensor.grad)
    close(model.in_proj_weight.gradient, theirs.in_proj_weight.grad)


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_rows_that_see_nothing_are_zero_where_shares_are_dropped(kind: str) -> None:
    model = nn.MultiheadAttention(12, 3, 0.5)
    model.drop.p = 1e-9
    seen = np.tri(5, dtype=bool)
    seen[1] = False
    mask = seen if kind == "bool" else np.where(seen, 0, -np.inf).astype(np.float32)
    x, dy = drawn(2, 5, 12), drawn(2, 5, 12, seed=1)
    dx = []
    for dropout in (0.5, 0.0):
        model.dropout = dropout
        y = model(x, None, mask)
        np.testing.assert_allclose(y[:, 1], np.broadcast_to(model.out_proj.bias.value, (2, 12)))
        close(y, torch.from_numpy(model.eval()(x, None, mask)))
        model.train()
        model(x, None, mask)
        dx.append(model.backward(dy)[0])
    close(dx[0], torch.from_numpy(dx[1]))
