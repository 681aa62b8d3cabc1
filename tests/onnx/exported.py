"""Networks of PyTorch, what `torch.onnx.export` writes for them, inputs and PyTorch's results.

`CLIENTS` names every network once; `export` makes a model of one in a form: `dynamo` with the
shapes of the example, `dynamic` with batch (and sequence) left open, `opset23` with whole attention
and RMS norm as operators, `legacy` by the exporter of old, `opset11` by that with old operators.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, NamedTuple

import image_classics
import image_maps
import image_mobiles
import numpy as np
import sequence_models
import torch
from torch import nn


class Client(NamedTuple):
    build: Callable[[], nn.Module]
    inputs: str  # their kind: image, vector, text, tokens, pixels, mel
    forms: tuple[str, ...]


_STATIC = ("dynamo", "legacy")
_OPEN = ("dynamic", "legacy")
CLIENTS = {
    "resnet18": Client(image_classics.ResNet, "image", ("dynamic", "legacy", "opset11")),
    "resnet50": Client(lambda: image_classics.ResNet(1), "image", _STATIC),
    "resnext": Client(lambda: image_classics.ResNet(4), "image", ("dynamo",)),
    "vgg": Client(image_classics.vgg, "image", _STATIC),
    "densenet": Client(image_classics.densenet, "image", _STATIC),
    "inception": Client(image_classics.Inception, "image", _STATIC),
    "squeezenet": Client(image_classics.squeezenet, "image", ("dynamo",)),
    "mobilenet_v2": Client(image_mobiles.mobilenet_v2, "image", _OPEN),
    "mobilenet_v3": Client(image_mobiles.mobilenet_v3, "image", ("dynamo", "opset11")),
    "efficientnet": Client(image_mobiles.efficientnet, "image", _STATIC),
    "shufflenet": Client(image_mobiles.shufflenet, "image", _OPEN),
    "unet": Client(image_maps.UNet, "image", _STATIC),
    "detector": Client(image_maps.Detector, "image", _STATIC),
    "decoder": Client(image_maps.decoder, "vector", _STATIC),
    "segmenter": Client(image_maps.Segmenter, "image", _STATIC),
    "bert": Client(sequence_models.bert, "text", ("dynamo", "dynamic", "opset23", "legacy")),
    "roberta": Client(sequence_models.roberta, "text", ("dynamic",)),
    "distilbert": Client(sequence_models.distilbert, "text", ("dynamo",)),
    "gpt2": Client(sequence_models.gpt2, "text", _OPEN),
    "t5": Client(sequence_models.t5, "text", ("dynamic", "opset11")),
    "vit": Client(sequence_models.vit, "pixels", _STATIC),
    "whisper": Client(sequence_models.whisper, "mel", ("dynamo",)),
    "llama": Client(sequence_models.llama, "text", ("dynamo", "dynamic", "opset23")),
    "qwen2": Client(sequence_models.qwen2, "text", ("dynamo",)),
    "mistral": Client(sequence_models.mistral, "text", ("dynamo",)),
    "lstm": Client(sequence_models.lstm, "mel", _STATIC),
    "bidirectional_lstm": Client(sequence_models.bidirectional_lstm, "mel", _OPEN),
    "gru": Client(sequence_models.gru, "mel", ("dynamo", "opset11")),
    "encoder_layer": Client(sequence_models.Mixer, "tokens", ("dynamo",)),
}
_NAMES = {"text": ["input_ids", "attention_mask"], "tokens": ["input_ids"]}


def built(name: str) -> nn.Module:
    """The network; parameters and statistics of its normalisations are not those of a new one."""
    torch.manual_seed(len(name))
    module = CLIENTS[name].build().eval()
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, nn.BatchNorm2d | nn.GroupNorm | nn.LayerNorm):
                nn.init.uniform_(layer.weight, 0.5, 1.5)
                nn.init.normal_(layer.bias, std=0.2)
            if isinstance(layer, nn.BatchNorm2d):
                nn.init.normal_(layer.running_mean, std=0.2)
                nn.init.uniform_(layer.running_var, 0.5, 1.5)
    return module


def inputs(name: str, batch: int = 2, steps: int = 9) -> dict[str, np.ndarray]:
    """Arrays by the names of the model's inputs."""
    kind = CLIENTS[name].inputs
    random = np.random.default_rng(batch + steps)
    if kind in _NAMES:
        ids = random.integers(1, 20, (batch, steps))
        mask = np.ones_like(ids)
        mask[-1, steps // 2 :] = 0
        return dict(zip(_NAMES[kind], (ids, mask), strict=False))
    shape = {"image": (3, 32, 32), "pixels": (3, 32, 32), "vector": (6,), "mel": (8, 40)}[kind]
    return {"x": random.standard_normal((batch, *shape), np.float32)}


def expected(module: nn.Module, arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    with torch.no_grad():
        results = module(*map(torch.from_numpy, arrays.values()))
    return [y.numpy() for y in (results if isinstance(results, tuple) else (results,))]


def export(module: nn.Module, arrays: dict[str, np.ndarray], form: str) -> bytes:
    """The model's bytes."""
    names = list(arrays)
    examples = tuple(map(torch.from_numpy, arrays.values()))
    opset = {"opset23": 23, "opset11": 11}.get(form)
    if form in ("legacy", "opset11"):
        file = io.BytesIO()
        torch.onnx.export(
            module, examples, file, dynamo=False, input_names=names, opset_version=opset
        )
        return file.getvalue()
    open_axes: Any = None
    if form == "dynamic":
        axes = (0, 1) if names[0] == "input_ids" else (0,)
        open_axes = tuple({axis: torch.export.Dim.DYNAMIC for axis in axes} for _ in names)
    program = torch.onnx.export(
        module, examples, dynamo=True, input_names=names, dynamic_shapes=open_axes, verbose=False,
        opset_version=opset,
    )  # fmt: skip
    return bytes(program.model_proto.SerializeToString())
