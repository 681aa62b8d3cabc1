"""Trains ResNet-18 on the handwritten digits of scikit-learn.

python examples/torch/resnet18.py            # float32
python examples/torch/resnet18.py --bfloat16 # products under PyTorch's autocast

The network is the one of the paper (https://arxiv.org/abs/1512.03385), with the stem that is used
for small images: one 3x3 convolution and no pooling. It is plain PyTorch.
"""

from __future__ import annotations

import argparse
import time

import sklearn.datasets
import torch
from torch import nn
from torch.nn import functional

import dlprim.torch

HELD_OUT = 360  # images, a fifth


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut, which is a convolution where the shape changes."""

    def __init__(self, c: int, k: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(c, k, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(k)
        self.conv2 = nn.Conv2d(k, k, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(k)
        self.shortcut = nn.Sequential()
        if stride != 1 or c != k:
            self.shortcut = nn.Sequential(nn.Conv2d(c, k, 1, stride, bias=False), nn.BatchNorm2d(k))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """A stem, four stages of two blocks, and a classifier."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(channels, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()
        )
        blocks, c = [], 64
        for stage, k in enumerate((64, 128, 256, 512)):
            blocks += [Block(c, k, 1 if stage == 0 else 2), Block(k, k, 1)]
            c = k
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(c, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.blocks(self.stem(x)).mean((2, 3)))


def read_digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Images (N, 1, 8, 8) from 0 to 1 and what they show, in an order that is drawn."""
    found = sklearn.datasets.load_digits()
    order = torch.randperm(len(found.target))
    images = torch.tensor(found.images, dtype=torch.float32).unsqueeze(1) / 16
    return images[order], torch.tensor(found.target)[order]


def main() -> float:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--bfloat16", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    start = time.perf_counter()
    images, digits = read_digits()
    train, test = (images[HELD_OUT:], digits[HELD_OUT:]), (images[:HELD_OUT], digits[:HELD_OUT])

    model = ResNet18(1, 10)
    fast = torch.compile(model, backend="dlprim")
    optimizer = dlprim.torch.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=5e-4)
    batches = len(train[0]) // options.batch  # whole ones
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=0.05, total_steps=options.epochs * batches
    )
    for epoch in range(options.epochs):
        total = 0.0
        for chosen in torch.randperm(len(train[0]))[: batches * options.batch].split(options.batch):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.bfloat16):
                loss = functional.cross_entropy(fast(train[0][chosen]), train[1][chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        taken = time.perf_counter() - start
        print(f"epoch {epoch + 1}: loss {total / batches:.3f}, {taken:.0f} s since the start")

    model.eval()
    with torch.no_grad():
        accuracy = float((fast(test[0]).argmax(1) == test[1]).float().mean())
    print(f"accuracy {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
