"""Models in ONNX's format that are trained: gradients beside PyTorch's, files of the result."""

from __future__ import annotations

import copy
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import nn
from dlprim.optim import SGD

parser: Any = pytest.importorskip("onnx.parser", reason="onnx makes the models that are read here")
helper: Any = pytest.importorskip("onnx.numpy_helper", reason="onnx makes the models, too")
pytestmark = pytest.mark.any_level

TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[N, 3, 8, 8] x) => (float[N, 4] y) {
    a = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w1, b1)
    n = BatchNormalization<epsilon=1e-5>(a, scale, shift, mean, var)
    r = Relu(n)
    p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(r)
    g = GlobalAveragePool(p)
    f = Flatten(g)
    m = MatMul(f, w2)
    s = Add(m, b2)
    y = LayerNormalization<axis=-1>(s, gain, bias)
}
"""
SHAPES = {
    "w1": (6, 3, 3, 3), "b1": (6,), "scale": (6,), "shift": (6,), "mean": (6,), "var": (6,),
    "w2": (6, 4), "b2": (4,), "gain": (4,), "bias": (4,),
}  # fmt: skip


def drawn() -> tuple[Any, dict[str, Any]]:
    rng = np.random.default_rng(0)
    model = parser.parse_model(TEXT)
    arrays = {name: rng.random(shape, np.float32) + 0.1 for name, shape in SHAPES.items()}
    for name, array in arrays.items():
        model.graph.initializer.append(helper.from_array(array, name))
    return model, arrays


def test_gradients_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is the peer here")
    file, arrays = drawn()
    model = dlprim.onnx.load(file, trainable=True)
    assert {*model.state_dict()} == {*SHAPES} - {"mean", "var"}
    x = np.random.default_rng(1).standard_normal((2, 3, 8, 8), np.float32)
    dy = np.random.default_rng(2).standard_normal((2, 4), np.float32)
    y = model(x)
    np.testing.assert_allclose(y, dlprim.onnx.load(file)(x), rtol=1e-4, atol=1e-5)
    dx = model.backward(dy.copy())
    of = {name: torch.from_numpy(it.copy()).requires_grad_() for name, it in arrays.items()}
    f, given = torch.nn.functional, torch.from_numpy(x.copy()).requires_grad_()
    h = f.conv2d(given, of["w1"], of["b1"], padding=1)
    statistics = of["mean"].detach(), of["var"].detach()
    h = f.max_pool2d(torch.relu(f.batch_norm(h, *statistics, of["scale"], of["shift"])), 2)
    h = h.mean((2, 3)) @ of["w2"] + of["b2"]
    due = f.layer_norm(h, (4,), of["gain"], of["bias"])
    due.backward(torch.from_numpy(dy))
    np.testing.assert_allclose(y, due.detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(dx, given.grad.numpy(), rtol=1e-3, atol=1e-5)
    for name, parameter in model.named_parameters():
        np.testing.assert_allclose(parameter.gradient, of[name].grad, rtol=1e-3, atol=1e-4)


def test_it_learns_among_other_layers_and_goes_back_into_a_file(tmp_path: Path) -> None:
    file, _ = drawn()
    nn.seed(0)
    inner = dlprim.onnx.load(file, trainable=True)
    model = nn.Sequential({"body": inner, "head": nn.Linear(4, 3)})
    assert "body.w1" in model.state_dict()
    labels, optimizer = np.arange(12) % 3, SGD(model.parameters(), 0.1, momentum=0.9)
    x = np.random.default_rng(1).standard_normal((3, 3, 8, 8), np.float32)[labels]
    losses = []
    for _ in range(30):
        loss, dy = nn.CrossEntropyLoss()(model(x), labels)
        model.backward(dy)
        optimizer.step()
        losses.append(float(loss))
    assert losses[-1] < 0.8 * losses[0]
    trained = inner.trained()
    inner.eval()
    np.testing.assert_allclose(trained(x), inner(x), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(copy.deepcopy(inner)(x), inner(x))
    trained.save(tmp_path / "trained.dlprim")
    np.testing.assert_array_equal(dlprim.load(tmp_path / "trained.dlprim")(x), trained(x))


def test_what_cannot_be_trained_is_refused() -> None:
    file, _ = drawn()
    model = dlprim.onnx.load(file, trainable=True)
    with pytest.raises(TypeError, match="input 'x' is missing"):
        model()
    with pytest.raises(TypeError, match="trainable is 1, expected True or False"):
        dlprim.onnx.load(file, trainable=1)
    random = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> '
        "net (float[N] x) => (int64[R, K] y) { y = NonZero(x) }"
    )
    with pytest.raises(dlprim.onnx.ModelError):
        dlprim.onnx.load(random, trainable=True)(np.ones(3, np.float32))


@pytest.mark.filterwarnings("ignore")  # of the exporter
@pytest.mark.parametrize("name", ["vgg", "unet", "bert", "vit", "llama", "whisper", "gru"])
def test_exported_networks_have_the_gradients_of_pytorch(name: str) -> None:
    """By all weights that the exporter left as they are, or turned."""
    for package in ("torch.onnx", "onnxscript", "transformers"):
        pytest.importorskip(package, reason=f"{package} makes the models that are read here")
    import torch

    exported: Any = import_module("exported")
    module, arrays = exported.built(name), exported.inputs(name)
    form = exported.CLIENTS[name].forms[0]
    model = dlprim.onnx.load(exported.export(module, arrays, form), trainable=True)
    of = {key: it for key, it in module.named_parameters() if it.detach().numpy().std() > 0}
    for it in of.values():
        it.requires_grad_()
    found, due = model(*arrays.values()), module(*map(torch.from_numpy, arrays.values()))
    results, expected = (it if isinstance(it, tuple) else (it,) for it in (found, due))
    rng = np.random.default_rng(0)
    dys = [rng.standard_normal(it.shape).astype(np.float32) for it in results]
    model.backward(dys[0] if len(dys) == 1 else tuple(dys))
    sum((y * torch.from_numpy(dy)).sum() for y, dy in zip(expected, dys, strict=True)).backward()
    known = {it.value.tobytes(): it for it in model.parameters()}
    compared = 0
    for it in of.values():
        values, slope = it.detach().numpy(), it.grad.numpy()
        parameter = known.get(values.tobytes())
        if parameter is None:
            parameter, slope = known.get(values.T.tobytes()), slope.T
        if parameter is not None:
            compared += 1
            error = np.linalg.norm(parameter.gradient.ravel() - slope.ravel())
            assert error < 1e-4 * max(1e-3, np.linalg.norm(slope))
    assert compared >= 4
