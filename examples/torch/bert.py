"""Fine-tunes a small BERT to tell which of two packages of Python a line of source is from.

python examples/torch/bert.py

The model is plain PyTorch: what makes it run on dlprim is the argument of `torch.compile`, and
`dlprim.torch.AdamW` in place of `torch.optim.AdamW`. The text is Python's own standard library.
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import re
import sysconfig
import time

import torch
from torch import nn
from torch.nn import functional

import dlprim.torch

PACKAGES = ("asyncio", "email")
LENGTH = 32  # tokens of a line that the model sees
PAD, UNKNOWN, FIRST = 0, 1, 2  # tokens that are no words
WORDS = 2000
HELD_OUT = 6  # one line of so many is not trained on


def lines_of(package: str) -> list[list[str]]:
    """The words of the lines of a package, each line once, without the shortest."""
    folder = pathlib.Path(sysconfig.get_path("stdlib")) / package
    lines = {
        line.strip()
        for path in sorted(folder.rglob("*.py"))
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
    }
    split = (re.findall(r"\w+|[^\w\s]", line.lower()) for line in sorted(lines))
    return [words for words in split if len(words) >= 4]


def read_text() -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens (lines, LENGTH), the first of each line FIRST, and the number of its package."""
    lines = [(words, label) for label, name in enumerate(PACKAGES) for words in lines_of(name)]
    counts = collections.Counter(word for words, _ in lines for word in words)
    known = {word: at for at, (word, _) in enumerate(counts.most_common(WORDS), FIRST + 1)}
    tokens = torch.full((len(lines), LENGTH), PAD)
    for row, (words, _) in zip(tokens, lines, strict=True):
        found = [FIRST, *(known.get(word, UNKNOWN) for word in words[: LENGTH - 1])]
        row[: len(found)] = torch.tensor(found)
    order = torch.randperm(len(lines))
    return tokens[order], torch.tensor([label for _, label in lines])[order]


class Layer(nn.Module):
    """Attention and two linear layers, each with a residual and a norm behind it."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.share = heads, dropout
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def dropped_out(self, x: torch.Tensor) -> torch.Tensor:
        return functional.dropout(x, self.share, self.training)

    def forward(self, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, seen)
        y = self.out(y.transpose(1, 2).flatten(2))
        x = self.norms[0](x + self.dropped_out(y))
        y = self.down(functional.gelu(self.up(x)))
        return self.norms[1](x + self.dropped_out(y))


class Bert(nn.Module):
    """An encoder after BERT with a classifier on the state of the first token."""

    def __init__(self, width: int = 128, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(FIRST + 1 + WORDS, width, padding_idx=PAD)
        self.places = nn.Parameter(0.02 * torch.randn(LENGTH, width))
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(Layer(width, heads, 0.1) for _ in range(layers))
        self.pooler, self.classifier = nn.Linear(width, width), nn.Linear(width, len(PACKAGES))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        seen = (tokens != PAD)[:, None, None, :]
        x = self.norm(self.words(tokens) + self.places)
        for layer in self.layers:
            x = layer(x, seen)
        return self.classifier(torch.tanh(self.pooler(x[:, 0])))


def main() -> float:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    options = parser.parse_args()
    torch.manual_seed(0)
    start = time.perf_counter()
    tokens, labels = read_text()
    held = len(tokens) // HELD_OUT
    train, test = (tokens[held:], labels[held:]), (tokens[:held], labels[:held])
    print(f"{len(train[0])} lines to learn from, {held} to be asked about")

    model = Bert()
    fast = torch.compile(model, backend="dlprim")
    optimizer = dlprim.torch.AdamW(model.parameters(), 1e-3)
    batches = len(train[0]) // options.batch  # whole ones
    for epoch in range(options.epochs):
        total = 0.0
        for chosen in torch.randperm(len(train[0]))[: batches * options.batch].split(options.batch):
            loss = functional.cross_entropy(fast(train[0][chosen]), train[1][chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        taken = time.perf_counter() - start
        print(f"epoch {epoch + 1}: loss {total / batches:.3f}, {taken:.0f} s since the start")

    model.eval()
    with torch.no_grad():
        right = sum(
            int((fast(x).argmax(1) == y).sum())
            for x, y in zip(*(it.split(options.batch) for it in test), strict=True)
            if len(x) == options.batch
        )
    accuracy = right / (held // options.batch * options.batch)
    print(f"accuracy {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
