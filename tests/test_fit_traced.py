"""`nn.fit` of modules without a backward of their own, and of several inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import nn
from dlprim.optim import AdamW
from fit_cases import QUIET, bits, data

pytestmark = pytest.mark.any_level


class Own(nn.Module):
    """A forward of arrays alone."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(6, 16), nn.Dropout(0.2), nn.Linear(16, 2)

    def forward(self, x: Any) -> Any:
        return self.last(self.drop(np.tanh(self.first(x))))


def own() -> Own:
    nn.seed(0)
    return Own()


def test_a_module_of_ones_own_learns_and_resumes(tmp_path: Path) -> None:
    def run(epochs: int, **more: Any) -> tuple[Own, nn.History]:
        module = own()
        optimizer = AdamW(module.parameters(), 0.02)
        return module, nn.fit(
            module, data(), optimizer=optimizer, epochs=epochs, validation=0.2, **more, **QUIET
        )

    whole, history = run(12)
    assert history["loss"][-1] < 0.6 * history["loss"][0]
    kept = {"checkpoint": tmp_path / "fit.npz", "resume": True}
    run(5, **kept)
    resumed, _ = run(12, **kept)
    assert bits(resumed) == bits(whole)
    assert nn.predict(whole, data()[0]).shape == (90, 2)


def test_models_of_several_inputs() -> None:
    random = np.random.default_rng(0)
    words, lengths = random.integers(0, 11, (64, 6)), random.integers(2, 7, 64)
    mask = (np.arange(6) < lengths[:, None]).astype(np.int64)
    y = (words[:, 0] > 5).astype(np.int64)
    nn.seed(0)
    model = nn.bert(11, 6, 16, 1, classes=2, heads=2)
    inputs = {"x": words, "mask": mask}
    optimizer = AdamW(model.parameters(), 0.01)
    history = nn.fit(model, (inputs, y), optimizer=optimizer, epochs=25, **QUIET)
    assert history["accuracy"][-1] > 0.95
    found = nn.predict(model, inputs, batch_size=20)
    model.eval()
    np.testing.assert_allclose(found, model(words, mask=mask), 1e-3, 1e-4)


def test_language_models_are_fitted_by_every_place() -> None:
    text = np.tile(np.arange(7), 40)
    windows = np.lib.stride_tricks.sliding_window_view(text, 9)
    nn.seed(0)
    model = nn.gpt(7, 8, 16, 1, heads=2)
    optimizer = AdamW(model.parameters(), 0.02)
    pairs = (windows[:, :-1], windows[:, 1:])
    history = nn.fit(model, pairs, optimizer=optimizer, epochs=5, clip_norm=1.0, **QUIET)
    assert history["accuracy"][-1] > 0.95
    loss, _ = dlprim.softmax_cross_entropy(nn.predict(model, pairs[0]), pairs[1])
    assert loss < 0.2
