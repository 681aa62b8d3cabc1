"""The networks of `bench_threads.py`: ONNX files with random weights, and inputs beside them.

S is a speech network, whose hundreds of small steps pay most for every wait; C is ConvNeXt-tiny, R
ResNet-50 and MLP three layers. A file is made once and every side reads that one, and its inputs
from the ``.npz`` beside it, so that a worker has to import neither PyTorch nor this module.

    python bench/threads_models.py FOLDER
"""

from __future__ import annotations

import argparse
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from dlprim.bench.networks import zoo

_FEATURES, _FRONT, _HIDDEN, _CLASSES = 80, 64, 128, 29


class Speech(nn.Module):
    """Two convolutions over time, an LSTM in both directions, a classifier of every frame."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv1d(_FEATURES, _FRONT, 3, padding=1), nn.ReLU(),
            nn.Conv1d(_FRONT, _FRONT, 3, padding=1), nn.ReLU(),
        )  # fmt: skip
        self.recurrent = nn.LSTM(_FRONT, _HIDDEN, batch_first=True, bidirectional=True)
        self.last = nn.Linear(2 * _HIDDEN, _CLASSES)

    def forward(self, x: Any) -> Any:
        states, _ = self.recurrent(self.front(x).transpose(1, 2))
        return self.last(states)


class Logits(nn.Module):
    """ConvNeXt-tiny of transformers, called with an array and giving one."""

    def __init__(self) -> None:
        from transformers import ConvNextConfig, ConvNextForImageClassification

        super().__init__()
        config: Any = ConvNextConfig()
        config.num_labels = 1000
        self.model: Any = ConvNextForImageClassification(config)
        for name, values in self.model.named_parameters():
            if name.endswith("layer_scale_parameter"):  # 1e-6 at first: branches would not count
                nn.init.uniform_(values, 0.1, 0.5)

    def forward(self, x: Any) -> Any:
        return self.model(x).logits


def _resnet50() -> nn.Module:
    return zoo.build(zoo.Network("resnet50", "net", (), 0, 0, 0, (1,)))


def _mlp() -> nn.Module:
    return nn.Sequential(*(it for _ in range(3) for it in (nn.Linear(512, 512), nn.ReLU())))


_IMAGE = (1, 3, 224, 224)
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "S": (Speech, (8, _FEATURES, 400)),
    "C": (Logits, _IMAGE),
    "R": (_resnet50, _IMAGE),
    "MLP": (_mlp, (64, 512)),
}


def _export(name: str, path: Path) -> None:
    build, shape = MODELS[name]
    torch.manual_seed(0)
    module = build().eval()
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    program: Any = torch.onnx.export(
        module, (torch.from_numpy(x),), dynamo=True, input_names=["x"], verbose=False
    )
    np.savez(path.with_suffix(".npz"), x=x)
    made = path.with_suffix(".new")
    made.write_bytes(program.model_proto.SerializeToString())
    made.rename(path)


def file_of(name: str, folder: Path) -> Path:
    """The model's file in ``folder``, made unless it is there."""
    path = folder / f"{name}.onnx"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        logging.disable(logging.WARNING)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _export(name, path)
        logging.disable(logging.NOTSET)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    for name in MODELS:
        print(file_of(name, parser.parse_args().folder))


if __name__ == "__main__":
    main()
