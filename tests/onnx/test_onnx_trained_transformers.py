"""Architectures of transformers, exported to ONNX and trained: gradients beside PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlprim

for package in ("torch.onnx", "onnxscript", "transformers"):
    pytest.importorskip(package, reason=f"{package} makes the models that are read here")

import torch  # noqa: E402

from torch_transformers import MODELS, UNCACHED, Without, built, inputs_of  # noqa: E402

pytestmark = [
    pytest.mark.any_level,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of transformers and the exporter
]


class ByPosition(torch.nn.Module):
    """A model whose inputs have no names."""

    def __init__(self, whole: Without, names: list[str]) -> None:
        super().__init__()
        self.whole, self.names = whole, names

    def forward(self, *inputs: Any) -> Any:
        return self.whole(dict(zip(self.names, inputs, strict=True)))


def distinct(model: Any) -> None:
    """No two parameters alike, which an exporter would write as one."""
    with torch.no_grad():
        for it in model.parameters():
            it.requires_grad_()
            it += 0.05 * torch.randn_like(it)


def slope_in(model: Any, values: np.ndarray) -> np.ndarray | None:
    """The sum of the gradients of all parameters with these values, some of them transposed."""
    kept, turned = values.tobytes(), values.T.tobytes()
    found = [it.gradient for it in model.parameters() if it.value.tobytes() == kept]
    if values.ndim == 2:
        alike = (it for it in model.parameters() if it.value.tobytes() == turned != kept)
        found += [it.gradient.T for it in alike]
    return sum(it.reshape(values.shape) for it in found) if found else None


@pytest.mark.parametrize("name", list(MODELS))
def test_an_architecture_has_the_gradients_of_pytorch(name: str) -> None:
    made = built(name).eval()
    made.set_attn_implementation("eager")  # windows of Swin have none of the others' operators
    distinct(made)
    inputs = inputs_of(name)
    whole = ByPosition(Without(made, name not in UNCACHED), list(inputs))
    given = tuple(inputs.values())
    program = torch.onnx.export(whole, given, dynamo=True, verbose=False)
    file = bytes(program.model_proto.SerializeToString())
    model = dlprim.onnx.load(file, trainable=True)
    found, due = model(*(it.numpy() for it in given)), whole(*given)
    np.testing.assert_allclose(found, due.detach().numpy(), rtol=1e-4, atol=1e-5)
    dy = np.random.default_rng(0).standard_normal(found.shape).astype(np.float32)
    model.backward(dy)
    (due * torch.from_numpy(dy)).sum().backward()
    compared = 0
    for key, it in made.named_parameters():
        slope = slope_in(model, it.detach().numpy())
        if slope is None or it.grad is None:
            continue
        compared += 1
        error = np.linalg.norm(slope - it.grad.numpy())
        assert error < 1e-4 * max(1.0, float(it.grad.norm())), key
    assert compared >= 0.7 * len(list(made.parameters()))  # others are folded by the exporter
