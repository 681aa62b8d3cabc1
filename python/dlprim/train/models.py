"""The models that can be trained, made of `dlprim.nn`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from dlprim import nn
from dlprim.nn.initial import drawn_from
from dlprim.train.config import TRANSFORMERS, TrainConfig

_EMBEDDED = 64  # channels of an embedded character
_HEAD = 32  # channels of a head of attention


class LanguageModel(nn.Module):
    """Embedding, recurrent layers and a linear decoder.

    Maps int64 (T, N) characters to (T * N, V) logits of the character behind each, in the dtype of
    the activations.

    Parameters
    ----------
    cell : "lstm" or "gru"
    V, hidden, layers : int
        Characters, channels of the states, recurrent layers.
    generator : numpy.random.Generator, optional
    embedded : int
        Channels of an embedded character.
    """

    def __init__(
        self,
        cell: str,
        V: int,
        hidden: int,
        layers: int,
        generator: np.random.Generator | None = None,
        embedded: int = _EMBEDDED,
    ) -> None:
        super().__init__()
        self._sizes: dict[str, Any] = {"cell": cell, "V": V, "hidden": hidden, "layers": layers}
        self._sizes |= {"embedded": embedded}
        self.encoder = nn.Embedding(V, embedded, generator=generator, scale=0.5)
        self.rnn = nn.Recurrent(cell, embedded, hidden, layers, generator=generator)
        self.decoder = nn.Linear(hidden, V, generator=generator, scale=hidden**-0.5)

    def arguments(self) -> dict[str, Any]:
        return self._sizes

    def forward(self, x: Any) -> Any:
        y = self.rnn(self.encoder(x))
        return self.decoder(y.reshape(-1, y.shape[-1]))


def mlp(widths: tuple[int, ...], generator: np.random.Generator | None) -> nn.Sequential:
    """Linear layers of the given widths, with relu after every one but the last.

    Raises:
        ValueError: fewer than two widths, or one below 1.
    """
    if len(widths) < 2 or min(widths) < 1:
        raise ValueError(f"widths is {list(widths)}, expected two or more integers >= 1.")
    layers: dict[str, nn.Module] = {}
    for place, (c, k) in enumerate(pairwise(widths)):
        activation = "relu" if place < len(widths) - 2 else None
        layers[str(place)] = nn.Linear(c, k, activation=activation, generator=generator)
    return nn.Sequential(layers)


def cnn(
    channels: int, widths: tuple[int, ...], classes: int, generator: np.random.Generator | None
) -> nn.Sequential:
    """Two 3x3 convolutions of each width, the first of each but the first with stride 2."""
    layers: dict[str, nn.Module] = {}
    for stage, width in enumerate(widths):
        for place in range(2):
            stride = 2 if stage > 0 and place == 0 else 1
            first = stage == 0 and place == 0
            conv = nn.Conv2d(
                channels, width, 3, stride, 1, bias=False, generator=generator, first=first
            )
            name = f"{stage}.{place}"
            names = (f"conv{name}", f"bn{name}")
            block = nn.ConvBatchNorm(conv, nn.BatchNorm2d(width, activation="relu"), names)
            layers[f"stage{name}"] = block
            channels = width
    layers["pool"] = nn.GlobalAvgPool2d()
    layers["fc"] = nn.Linear(channels, classes, generator=generator, scale=channels**-0.5)
    return nn.Sequential(layers)


def patch_of(side: int) -> int:
    """The side of a patch of a vision transformer: 16, or a quarter of small images."""
    return 16 if side % 16 == 0 and side > 64 else max(side // 4, 1)


def build(
    config: TrainConfig, shape: tuple[int, ...], classes: int, generator: np.random.Generator
) -> nn.Module:
    """The model that a configuration names, for samples of a shape, with its first weights."""
    context = nn.Context(config.dtype, algorithm=config.algorithm)
    model: nn.Module
    width, depth = max(config.hidden, default=0), {"layers": config.layers}
    if config.model == "mlp":
        inputs = int(np.prod(shape))
        model = mlp((inputs, *config.hidden, classes), generator)
    elif config.model == "cnn":
        model = cnn(shape[0], config.hidden, classes, generator)
    elif config.model == "resnet50":
        return nn.resnet50(classes, generator, context)
    elif config.model in TRANSFORMERS:
        blocks = {"C": width, "heads": max(1, width // _HEAD), **depth}
        with drawn_from(generator):
            if config.model == "gpt":
                model = nn.gpt(classes, config.length, **blocks)
            else:
                model = nn.vit(classes, image=shape[1], patch=patch_of(shape[1]), **blocks)
    else:
        model = LanguageModel(config.model, classes, config.hidden[0], config.layers, generator)
    model.use(context)
    return model
