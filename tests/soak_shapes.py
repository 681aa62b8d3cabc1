"""Memory of a process that serves for long: shapes drawn anew for as many seconds as are asked for.

ONNX models, `dlprim.nn` in inference and training, formulas, functions and recurrent layers meet
shapes that mostly were not there before; what is resident must not grow any more once the bounds of
all that is kept are reached.

    python tests/soak_shapes.py 600
"""

from __future__ import annotations

import gc
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "onnx"))

import streamed_models

import dlprim
import dlprim.onnx
from dlprim import nn

# What is resident after a third of the time, and at the end: at most so many times as much.
GROWTH = 1.2


def resident() -> float:
    """Megabytes."""
    gc.collect()
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def works(draw: random.Random) -> list[Callable[[], object]]:
    """Calls on drawn shapes."""
    models = {
        it: dlprim.onnx.load(streamed_models.model(it)) for it in ("words", "lines", "images")
    }
    images = nn.resnet((1, 1), 16, 5, np.random.default_rng(0))
    layer = nn.LSTM(24, 32)
    scaled = dlprim.define("def f(float(N,M) x) -> (y) { y(i,j) = 2 * x(i,j) + 1 }").f
    weights = np.ones((16, 8, 3, 3), np.float32)

    def drawn(*shape: int) -> np.ndarray:
        return np.ones(shape, np.float32)

    def network(name: str) -> object:
        plane = (draw.randint(9, 120),) * (2 if name == "images" else 1)
        return models[name].run(streamed_models.inputs(name, draw.randint(1, 4), *plane))

    def trained(module: nn.Module, x: np.ndarray) -> object:
        return module.backward(np.ones_like(module.forward(x, training=True)))

    def side() -> int:
        return draw.randint(8, 120)

    return [
        *(lambda name=name: network(name) for name in models),
        lambda: images.forward(drawn(2, 3, side(), side()), training=False),
        lambda: trained(images, drawn(2, 3, side(), side())),
        lambda: trained(layer, drawn(draw.randint(1, 200), 4, 24)),
        lambda: scaled(drawn(side(), side())),
        lambda: dlprim.conv2d(drawn(1, 8, side(), side()), weights, padding=1),
        lambda: dlprim.linear(drawn(side(), 40), drawn(30, 40)),
        lambda: dlprim.softmax(drawn(side(), side())),
    ]


def main(seconds: float) -> None:
    draw = random.Random(0)
    calls = works(draw)
    begin, early, count = time.monotonic(), 0.0, 0
    while (passed := time.monotonic() - begin) < seconds:
        draw.choice(calls)()
        count += 1
        if not early and passed > seconds / 3:
            early = resident()
            print(f"{early:.0f} MB after {count} calls", flush=True)
    late = resident()
    print(f"{late:.0f} MB after {count} calls: {late / early:.2f}")
    if late > GROWTH * early:
        raise SystemExit(f"memory grows: {early:.0f} to {late:.0f} MB, expected {GROWTH} at most")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 600)
