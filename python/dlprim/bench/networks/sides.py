"""One network on both sides: the same weights and batches for dlprim and for PyTorch.

PyTorch has channels-last images and, for bfloat16, autocast; both keep float32 master weights and
update them with the same optimiser.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

import dlprim
from dlprim import nn
from dlprim.nn.watching import times
from dlprim.optim import SGD, AdamW
from dlprim.train.models import LanguageModel
from dlprim.train.tasks import seeded

MODELS = ("resnet50", "lstm", "gru", "mlp")
CHARACTERS, EMBEDDED, CLASSES = 97, 64, 1000
WIDTHS = (1024, 2048, 2048, 2048, CLASSES)
BATCHES = {"resnet50": 16, "lstm": 32, "gru": 32, "mlp": 256}


@dataclass(frozen=True)
class Setting:
    """What is measured."""

    model: str
    dtype: str = "float32"
    batch: int = 16  # images, sequences, or rows
    size: int = 224  # pixels of a side
    length: int = 64  # characters of a sequence
    hidden: int = 512
    algorithm: str = "auto"
    seed: int = 0

    @property
    def is_images(self) -> bool:
        return self.model == "resnet50"

    @property
    def samples(self) -> int:
        """Images, characters or rows of a step."""
        return self.batch * (self.length if self.model in ("lstm", "gru") else 1)


def batch_of(setting: Setting, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of a step. Images have a class's own mean, so there is something to
    learn; characters follow from those before them."""
    random = seeded(setting.seed, 7, step)
    if setting.model in ("lstm", "gru"):
        text = np.empty((setting.length + 1, setting.batch), np.int64)
        text[0] = random.integers(0, CHARACTERS, setting.batch)
        for t in range(setting.length):
            text[t + 1] = (3 * text[t] + random.integers(0, 4, setting.batch)) % CHARACTERS
        return np.ascontiguousarray(text[:-1]), text[1:].reshape(-1)
    labels = random.integers(0, CLASSES, setting.batch)
    extents = (3, setting.size, setting.size) if setting.is_images else WIDTHS[:1]
    values = random.standard_normal((setting.batch, *extents), dtype=np.float32)
    values += (labels / CLASSES).astype(np.float32).reshape(-1, *(1 for _ in extents))
    return values, labels


class Ours:
    """dlprim's side."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        random = seeded(setting.seed, 1)
        context = nn.Context(setting.dtype, algorithm=setting.algorithm)
        self.model: nn.Module
        if setting.is_images:
            self.model = nn.resnet50(CLASSES, random, context)
        elif setting.model == "mlp":
            self.model = _perceptron(random)
        else:
            self.model = LanguageModel(
                setting.model, CHARACTERS, setting.hidden, 1, random, EMBEDDED
            )
        self.model.use(context)
        values = self.model.parameters()
        self.optimizer: SGD | AdamW
        if setting.is_images or setting.model == "mlp":
            self.optimizer = SGD(values, 0.01, 0.9, weight_decay=1e-4)
        else:
            self.optimizer = AdamW(values, 2e-3)

    def step(self, step: int) -> float:
        """Trains on a batch; the loss."""
        return self.train(*batch_of(self.setting, step))

    def train(self, src: np.ndarray, targets: np.ndarray) -> float:
        loss, diff = dlprim.softmax_cross_entropy(self.model.forward(src), targets)
        self.model.backward(diff)
        self.optimizer.step()
        return float(loss)

    def infer(self, src: np.ndarray) -> Any:
        """Logits, in the dtype of the activations."""
        return self.model.forward(src, training=False)

    def operations(self, src: np.ndarray, training: bool) -> float:
        """Nominal ones, of the products in a pass."""
        return float(sum(it.flops for it in times(self.model, src, training, runs=1).values()))


def _perceptron(random: np.random.Generator) -> nn.Module:
    layers: list[nn.Module] = []
    for place, (c, k) in enumerate(pairwise(WIDTHS)):
        layers.append(nn.Linear(c, k, generator=random))
        if place < len(WIDTHS) - 2:
            layers.append(nn.ReLU())
    return nn.Sequential(*layers)


class Theirs:
    """PyTorch's side, from the weights of `Ours`, or its own."""

    def __init__(
        self, torch: Any, setting: Setting, state: dict[str, np.ndarray] | None = None
    ) -> None:
        from dlprim.bench.networks import models

        self.torch, self.setting = torch, setting
        if setting.is_images:
            model: Any = models.ResNet((3, 4, 6, 3), 64, CLASSES)
        elif setting.model == "mlp":
            model = models.perceptron(WIDTHS)
        else:
            model = models.LanguageModel(setting.model, CHARACTERS, EMBEDDED, setting.hidden, 1)
        if state is not None:
            model.load_state_dict({name: torch.tensor(it) for name, it in state.items()})
        self.format = torch.channels_last if setting.is_images else torch.contiguous_format
        self.model = model.to(memory_format=self.format) if setting.is_images else model
        if setting.is_images or setting.model == "mlp":
            self.optimizer = torch.optim.SGD(
                model.parameters(), 0.01, momentum=0.9, weight_decay=1e-4
            )
        else:
            self.optimizer = torch.optim.AdamW(model.parameters(), 2e-3)

    def step(self, step: int) -> float:
        return self.train(*batch_of(self.setting, step))

    def train(self, src: np.ndarray, targets: np.ndarray) -> float:
        torch = self.torch
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        with self._autocast():
            dst = self.model(self._tensor(src))
            loss = torch.nn.functional.cross_entropy(dst.float(), torch.from_numpy(targets))
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def infer(self, src: np.ndarray) -> Any:
        """Logits, a tensor of PyTorch."""
        self.model.eval()
        with self.torch.inference_mode(), self._autocast():
            return self.model(self._tensor(src))

    def _tensor(self, src: np.ndarray) -> Any:
        tensor = self.torch.from_numpy(src)
        return tensor.to(memory_format=self.format) if self.setting.is_images else tensor

    def _autocast(self) -> Any:
        narrow = self.setting.dtype == "bfloat16"
        return self.torch.autocast("cpu", self.torch.bfloat16, enabled=narrow)
