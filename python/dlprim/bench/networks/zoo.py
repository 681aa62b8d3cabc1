"""The networks of graphs.csv as PyTorch modules with random weights, and their inputs.

Multilayer perceptrons and attention as oneDNN Graph Compiler has them, image networks, and models
of transformers. Imported where PyTorch is installed only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from dlprim.bench import tables
from dlprim.bench.networks import models

# Expansion, channels, blocks and stride of MobileNetV2's stages.
STAGES = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
    (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip


class Network(NamedTuple):
    """A row: what is not a network's is empty or zero."""

    name: str
    kind: str  # mlp, mha, net
    layers: tuple[int, ...]
    seq: int
    hidden: int
    heads: int
    batches: tuple[int, ...]


def load_networks(path: Path) -> list[Network]:
    """Raises `TableError`."""
    columns = ("name", "kind", "layers", "seq", "hidden", "heads", "batches")
    return [
        Network(
            row["name"],
            row["kind"],
            tuple(map(int, row["layers"].split("x"))) if row["layers"] else (),
            int(row["seq"] or 0),
            int(row["hidden"] or 0),
            int(row["heads"] or 0),
            tuple(map(int, row["batches"].split())),
        )
        for row in tables.read(path, columns)
    ]


class Attention(nn.Module):
    """Products of the heads with scale and mask between them; heads side by side in the result."""

    def forward(self, q: Any, k: Any, v: Any, mask: Any) -> Any:
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + mask
        heads = torch.softmax(scores, -1) @ v
        return heads.transpose(1, 2).reshape(q.shape[0], q.shape[2], -1)


class Inverted(nn.Module):
    """A block of MobileNetV2."""

    def __init__(self, inputs: int, outputs: int, expansion: int, stride: int) -> None:
        super().__init__()
        wide = inputs * expansion
        layers = [] if expansion == 1 else _conv(inputs, wide, 1)
        layers += _conv(wide, wide, 3, stride, wide)
        self.body = nn.Sequential(*layers, *_conv(wide, outputs, 1)[:2])
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Any) -> Any:
        return x + self.body(x) if self.shortcut else self.body(x)


def _conv(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> list[Any]:
    conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outputs), nn.ReLU6()]


def mobilenet_v2(stages: Sequence[tuple[int, int, int, int]] = STAGES) -> nn.Module:
    layers, channels = _conv(3, 32, 3, 2), 32
    for expansion, outputs, blocks, stride in stages:
        for block in range(blocks):
            layers.append(Inverted(channels, outputs, expansion, stride if block == 0 else 1))
            channels = outputs
    layers += [*_conv(channels, 1280, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(1280, 1000))


class _Named(nn.Module):
    """A model of transformers that is called with positional inputs and gives one result."""

    def __init__(self, model: Any, names: tuple[str, ...], result: str, **fixed: Any) -> None:
        super().__init__()
        self.model, self.names, self.result, self.fixed = model, names, result, fixed

    def forward(self, first: Any, second: Any = None) -> Any:
        named = dict(zip(self.names, (first, second), strict=False))
        return getattr(self.model(**named, **self.fixed), self.result)


def _bert() -> nn.Module:
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig(), add_pooling_layer=False)
    return _Named(model, ("input_ids", "attention_mask"), "last_hidden_state")


def _gpt2() -> nn.Module:
    """With the scores of the next token only, which is what a prompt is run for."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config())
    return _Named(model, ("input_ids",), "logits", use_cache=False, logits_to_keep=1)


def _vit() -> nn.Module:
    from transformers import ViTConfig, ViTModel

    model = ViTModel(ViTConfig(), add_pooling_layer=False)
    return _Named(model, ("pixel_values",), "last_hidden_state")


_BUILDERS: dict[str, Callable[[], nn.Module]] = {
    "resnet50": lambda: models.ResNet((3, 4, 6, 3), 64, 1000),
    "mobilenet_v2": mobilenet_v2,
    "bert_base": _bert,
    "bert_base_384": _bert,
    "gpt2_prefill": _gpt2,
    "vit_b16": _vit,
}


def is_image(network: Network) -> bool:
    """Whether it convolves images all through."""
    return network.name in ("resnet50", "mobilenet_v2")


def build(network: Network) -> nn.Module:
    torch.manual_seed(0)
    if network.kind == "mha":
        return Attention().eval()
    if network.kind == "mlp":
        pairs = zip(network.layers[:-1], network.layers[1:], strict=True)
        return nn.Sequential(
            *(layer for pair in pairs for layer in (nn.Linear(*pair), nn.ReLU()))
        ).eval()
    module = _BUILDERS[network.name]()
    if is_image(network):
        _settle(module)
    return module.eval()


def _settle(module: nn.Module) -> None:
    """Statistics of noise, without which values shrink from layer to layer to nothing."""
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = None
    with torch.no_grad():
        module.train()(torch.randn(4, 3, 96, 96))


def inputs(network: Network, batch: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Arrays by the names of the inputs."""
    random = np.random.default_rng(seed)
    seq = network.seq
    if network.kind == "mlp":
        return {"x": random.standard_normal((batch, network.layers[0]), np.float32)}
    if network.kind == "mha":
        shape = (batch, network.heads, seq, network.hidden // network.heads)
        arrays = {name: random.standard_normal(shape, np.float32) for name in "qkv"}
        masked = random.random((batch, 1, 1, seq), np.float32) < 0.1
        return arrays | {"mask": np.where(masked, np.float32(-1e4), np.float32(0))}
    if is_image(network) or network.name == "vit_b16":
        return {"x": random.standard_normal((batch, 3, 224, 224), np.float32)}
    ids = random.integers(0, 30000, (batch, seq))
    if network.name == "gpt2_prefill":
        return {"input_ids": ids}
    mask = np.ones_like(ids)
    mask[-1, -8:] = 0  # as in a batch of texts
    return {"input_ids": ids, "attention_mask": mask}
