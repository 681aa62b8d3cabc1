"""One network on both sides: the same weights and batches for dlprim and for PyTorch.

PyTorch has channels-last images and, for bfloat16, autocast; both keep float32 master weights and
update them with the same optimiser.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

import dlprim
from dlprim import nn
from dlprim.nn.watching import times
from dlprim.optim import SGD, AdamW
from dlprim.train.models import LanguageModel
from dlprim.train.tasks import seeded

CHARACTERS, EMBEDDED = 97, 64
CLASSES = 1000


@dataclass(frozen=True)
class Setting:
    """What is measured."""

    model: str  # "resnet50", "lstm" or "gru"
    dtype: str
    batch: int = 16  # images, or sequences
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
        """Images or characters of a step."""
        return self.batch if self.is_images else self.batch * self.length


def batch_of(setting: Setting, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of a step. Images have a class's own mean, so there is something to
    learn; characters follow from those before them."""
    random = seeded(setting.seed, 7, step)
    if setting.is_images:
        labels = random.integers(0, CLASSES, setting.batch)
        shape = (setting.batch, 3, setting.size, setting.size)
        images = random.standard_normal(shape, dtype=np.float32)
        images += (labels / CLASSES).astype(np.float32).reshape(-1, 1, 1, 1)
        return images, labels
    text = np.empty((setting.length + 1, setting.batch), np.int64)
    text[0] = random.integers(0, CHARACTERS, setting.batch)
    for t in range(setting.length):
        text[t + 1] = (3 * text[t] + random.integers(0, 4, setting.batch)) % CHARACTERS
    return np.ascontiguousarray(text[:-1]), text[1:].reshape(-1)


class Ours:
    """dlprim's side."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        random = seeded(setting.seed, 1)
        context = nn.Context(setting.dtype, algorithm=setting.algorithm)
        if setting.is_images:
            self.model: nn.Module = nn.resnet50(CLASSES, random, context)
        else:
            self.model = LanguageModel(
                setting.model, CHARACTERS, setting.hidden, 1, random, EMBEDDED
            )
            self.model.use(context)
        values = self.model.parameters()
        self.optimizer: SGD | AdamW
        if setting.is_images:
            self.optimizer = SGD(values, 0.01, 0.9, weight_decay=1e-4)
        else:
            self.optimizer = AdamW(values, 2e-3)

    def step(self, step: int) -> float:
        """Trains on a batch; the loss."""
        src, targets = batch_of(self.setting, step)
        return self.train(src, targets)

    def train(self, src: np.ndarray, targets: np.ndarray) -> float:
        loss, diff = dlprim.softmax_cross_entropy(self.model.forward(src), targets)
        self.model.backward(diff)
        self.optimizer.step()
        return loss

    def infer(self, src: np.ndarray) -> np.ndarray:
        """Logits, in the dtype of the activations."""
        return self.model.forward(src, training=False)

    def operations(self, src: np.ndarray, training: bool) -> float:
        """Nominal ones, of the products in a pass."""
        return sum(it.flops for it in times(self.model, src, training, runs=1).values())


class Theirs:
    """PyTorch's side, from the weights of `Ours`, or its own."""

    def __init__(self, torch: Any, setting: Setting, state: dict[str, np.ndarray] | None) -> None:
        import torch_models

        self.torch, self.setting = torch, setting
        if setting.is_images:
            model: Any = torch_models.ResNet((3, 4, 6, 3), 64, CLASSES)
        else:
            model = torch_models.LanguageModel(
                setting.model, CHARACTERS, EMBEDDED, setting.hidden, 1
            )
        if state is not None:
            model.load_state_dict({name: torch.tensor(it) for name, it in state.items()})
        self.format = torch.channels_last if setting.is_images else torch.contiguous_format
        self.model = model.to(memory_format=self.format) if setting.is_images else model
        if setting.is_images:
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


def seconds_of(call: Any, *arguments: Any) -> float:
    """Of one call."""
    begin = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - begin
