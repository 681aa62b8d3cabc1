"""What a user writes whose editor knows types: `test_typing.py` runs it, and gives it to mypy and
pyright, which infer its types from dlprim's signatures.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias, assert_type

import numpy as np
import numpy.typing as npt

import dlprim
from dlprim import nn
from dlprim.nn import Module, Parameter
from dlprim.optim import SGD, AdamW
from dlprim.optim.schedules import CosineAnnealingLR

Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float32]

RNG = np.random.default_rng(0)


def random(*shape: int) -> Floats:
    return RNG.standard_normal(shape, np.float32)


def functions() -> float:
    """Layers on arrays, with their gradients."""
    x, w = random(2, 8, 6, 6), random(16, 8, 3, 3)
    y = assert_type(dlprim.conv2d(x, w, padding=1, activation="relu"), Array)
    dx, dw, db = dlprim.conv2d_backward(np.ones_like(y), x, w, padding=1, y=y, activation="relu")
    shapes: list[tuple[int, ...]] = [dx.shape, dw.shape, db.shape]
    assert shapes == [x.shape, w.shape, (16,)]
    z = dlprim.linear(y.reshape(2, -1), random(4, 16 * 36))
    halves: npt.NDArray[Any] = dlprim.to_bfloat16(z)
    return float(dlprim.to_float32(halves).sum())


def kernel() -> int:
    made = dlprim.Brgemm(8, 32, 16, bias=True, activation="relu")
    c = np.empty((8, 32), np.float32)
    made(random(3, 8, 16), random(3, 16, 32), c, bias=np.zeros(32, np.float32))
    rows, vectors = made.tile
    return rows * vectors + len(made.code) + len(made.isa)


def formulas() -> tuple[int, ...]:
    layer = dlprim.define("def f(float(N,C) x, float(K,C) w) -> (y) { y(n,k) +=! x(n,c) * w(k,c) }")
    compiled = layer.f.compile((5, 7), (3, 7))
    y: Floats = compiled(random(5, 7), random(3, 7))
    return y.shape


def loss(w: Floats, x: Floats, goal: Floats) -> Any:
    return np.mean((np.tanh(x @ w) - goal) ** 2)


def traced() -> list[float]:
    step: Callable[..., Any] = dlprim.value_and_grad(loss)
    x, goal = random(64, 8), random(64, 2)
    w, losses = random(8, 2), list[float]()
    for _ in range(5):
        value, slope = step(w, x, goal)
        losses.append(float(value))
        w -= 0.1 * slope
    return losses


class Scaled(Module):
    """A layer of one's own."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width, activation="gelu")
        self.scale = Parameter(np.ones(width, np.float32))

    def forward(self, x: Any) -> Any:
        return self.inner(x) * self.scale


def trained(folder: Path) -> nn.Module:
    model = nn.Sequential(Scaled(8), nn.Dropout(0.1), nn.Linear(8, 3))
    x, labels = random(96, 8), RNG.integers(0, 3, 96)
    optimizer = AdamW(model.parameters(), 1e-2)
    schedule = CosineAnnealingLR(optimizer, 6)
    history = nn.fit(
        model, (x, labels), optimizer=optimizer, epochs=2, schedule=schedule, progress=False
    )
    curve: list[float] = history["loss"]
    assert len(curve) == history.epochs == 2
    step = nn.Step(model, nn.CrossEntropyLoss(), SGD(model.parameters(), 0.1, momentum=0.9))
    value: float = step(x, labels)
    assert value > 0
    plain = nn.Sequential({"first": nn.Linear(8, 4), "last": nn.ReLU()})
    nn.save(plain, folder / "plain.dlprim")
    return nn.load(folder / "plain.dlprim")


def main() -> None:
    with dlprim.threads(1), TemporaryDirectory() as folder:
        again = trained(Path(folder))
    for name, parameter in again.named_parameters():
        print(name, parameter.shape, parameter.value.dtype)
    predicted: Array = nn.predict(again, random(4, 8))
    print(predicted.shape, again.summary((4, 8)).multiply_adds, functions(), kernel(), formulas())
    print(traced(), dlprim.get_num_threads(), dlprim.isa(), dlprim.__version__)


if __name__ == "__main__":
    main()
