"""The models of the benchmark of `torch.compile`, in PyTorch alone, and what they are trained on.

Each gives scores of classes: (N, classes), (N, classes, places) or (rows, classes), which is what
`cross_entropy` takes. ``tiny`` makes them of a size that tests have time for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from dlprim.bench.networks import models, zoo


class Case(NamedTuple):
    """A model with random weights, and a batch."""

    model: nn.Module
    src: torch.Tensor
    targets: torch.Tensor
    is_images: bool = False  # that are channels-last on all sides
    is_adam: bool = True  # which optimiser people train it with, else SGD


class Unet(nn.Module):
    """Two convolutions at each of five sizes, joined across (https://arxiv.org/abs/1505.04597)."""

    def __init__(self, classes: int, width: int, sizes: int = 5) -> None:
        super().__init__()
        wide = [width << at for at in range(sizes)]
        self.down = nn.ModuleList(map(_twice, [3, *wide[:-1]], wide))
        self.widen = nn.ModuleList(nn.ConvTranspose2d(2 * k, k, 2, 2) for k in reversed(wide[:-1]))
        self.up = nn.ModuleList(_twice(2 * k, k) for k in reversed(wide[:-1]))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for at, layer in enumerate(self.down):
            x = layer(nn.functional.max_pool2d(x, 2) if at else x)
            kept.append(x)
        for widen, layer, across in zip(self.widen, self.up, kept[-2::-1], strict=True):
            x = layer(torch.cat([across, widen(x)], 1))
        return self.head(x)


def _twice(c: int, k: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs in (c, k):
        layers += [nn.Conv2d(inputs, k, 3, padding=1, bias=False), nn.BatchNorm2d(k), nn.ReLU()]
    return nn.Sequential(*layers)


class _Scores(nn.Module):
    """A model of transformers that gives its scores alone."""

    def __init__(self, model: Any, **fixed: Any) -> None:
        super().__init__()
        self.model, self.fixed = model, fixed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x, **self.fixed).logits


def _images(model: nn.Module, batch: int, size: int, classes: int) -> Case:
    src = torch.randn(batch, 3, size, size)
    targets = torch.randint(classes, (batch,))
    return Case(model, src, targets, is_images=True, is_adam=False)


def _resnet50(batch: int, tiny: bool, dropout: float) -> Case:
    blocks, width = ((1, 1), 8) if tiny else ((3, 4, 6, 3), 64)
    return _images(models.ResNet(blocks, width, 1000), batch, 64 if tiny else 224, 1000)


def _mobilenet_v2(batch: int, tiny: bool, dropout: float) -> Case:
    model = zoo.mobilenet_v2(*([zoo.STAGES[:2]] if tiny else []))
    return _images(model, batch, 64 if tiny else 224, 1000)


def _bert(batch: int, tiny: bool, dropout: float) -> Case:
    from transformers import BertConfig, BertForSequenceClassification

    more = {"hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 64} if tiny else {}
    heads = {"num_attention_heads": 2} if tiny else {}
    drops = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    model = BertForSequenceClassification(BertConfig(**more, **heads, **drops))
    src = torch.randint(1000, 30000, (batch, 16 if tiny else 128))
    return Case(_Scores(model), src, torch.randint(2, (batch,)))


_TINY = {"vocab_size": 97, "n_embd": 32, "n_layer": 1, "n_head": 2}
_SMALL = {"vocab_size": 97, "n_embd": 256, "n_layer": 4, "n_head": 4, "n_positions": 128}


def _gpt2(batch: int, tiny: bool, dropout: float) -> Case:
    return _gpt(batch, _TINY if tiny else {}, dropout)


def _gpt4(batch: int, tiny: bool, dropout: float) -> Case:
    return _gpt(batch, _TINY if tiny else _SMALL, dropout)


def _gpt(batch: int, size: dict[str, int], dropout: float) -> Case:
    """Every token from those before it."""
    from transformers import GPT2Config, GPT2LMHeadModel

    drops = {f"{it}_pdrop": dropout for it in ("attn", "embd", "resid")}
    config = GPT2Config(**size, **drops)
    tiny = size is _TINY
    text = torch.randint(config.vocab_size, (batch, 17 if tiny else 129))
    model = _Scores(GPT2LMHeadModel(config), use_cache=False)
    return Case(_Flat(model), text[:, :-1].contiguous(), text[:, 1:].flatten())


class _Flat(nn.Module):
    """Scores of places (N, T, classes) as rows."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x).flatten(0, 1)


def _vit(batch: int, tiny: bool, dropout: float) -> Case:
    from transformers import ViTConfig, ViTForImageClassification

    more = {"hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 64} if tiny else {}
    heads = {"num_attention_heads": 2, "image_size": 32} if tiny else {}
    config = ViTConfig(**more, **heads, num_labels=1000)  # without dropout, as published
    size = config.image_size
    model = _Scores(ViTForImageClassification(config))
    return Case(model, torch.randn(batch, 3, size, size), torch.randint(1000, (batch,)))


def _lstm(batch: int, tiny: bool, dropout: float) -> Case:
    characters, hidden = 97, 16 if tiny else 512
    model = models.LanguageModel("lstm", characters, 64, hidden, 1)
    text = torch.randint(characters, (9 if tiny else 65, batch))
    return Case(model, text[:-1].contiguous(), text[1:].flatten())


def _unet(batch: int, tiny: bool, dropout: float) -> Case:
    size, width, sizes = (16, 4, 3) if tiny else (128, 64, 5)
    model = Unet(2, width, sizes)
    targets = torch.randint(2, (batch, size, size))
    return Case(model, torch.randn(batch, 3, size, size), targets, is_images=True)


def _perceptron(*widths: int) -> Callable[[int, bool, float], Case]:
    def make(batch: int, tiny: bool, dropout: float) -> Case:
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(widths):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        targets = torch.randint(widths[-1], (batch,))
        return Case(nn.Sequential(*layers[:-1]), torch.randn(batch, widths[0]), targets)

    return make


def _digits(batch: int, tiny: bool, dropout: float) -> Case:
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 10),
    )  # fmt: skip
    return Case(model, torch.randn(batch, 1, 28, 28), torch.randint(10, (batch,)), is_images=True)


# What a model is made by, of how many samples a batch is.
MODELS: dict[str, tuple[Callable[[int, bool, float], Case], int]] = {
    "resnet50": (_resnet50, 16),
    "mobilenet_v2": (_mobilenet_v2, 16),
    "bert_base": (_bert, 8),
    "gpt2_small": (_gpt2, 4),
    "vit_b16": (_vit, 8),
    "lstm": (_lstm, 32),
    "unet": (_unet, 4),
    "gpt": (_gpt4, 16),
    "mlp_784": (_perceptron(784, 256, 256, 10), 64),
    "mlp_64": (_perceptron(64, 128, 128, 10), 256),
    "digits": (_digits, 32),
}


def make(name: str, batch: int | None, tiny: bool, dropout: float) -> Case:
    """The same weights and numbers in every process."""
    torch.manual_seed(0)
    build, usual = MODELS[name]
    return build(batch or usual, tiny, dropout)
