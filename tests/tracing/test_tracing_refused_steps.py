"""A training step that refuses what it is given changes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import optim
from dlprim.tracing.steps import training_step
from drawing import RNG


@pytest.mark.parametrize("threads", [1, 2])
def test_a_refused_label_leaves_states_beside_it_as_they_were(threads: int) -> None:
    """Means of weights share nothing with the loss: they might run beside it, or before."""
    weights = [RNG.standard_normal((256, 256)).astype(np.float32) * 0.05 for _ in range(3)]
    weights.append(RNG.standard_normal((256, 10)).astype(np.float32) * 0.05)
    means = [np.zeros_like(it) for it in weights]

    def loss(parameters: Any, means: Any, x: Any, labels: Any) -> Any:
        h = x
        for it in parameters[:-1]:
            h = np.maximum(h @ it, 0)
        moved = [
            np.float32(0.9) * a + np.float32(0.1) * b
            for a, b in zip(means, parameters, strict=True)
        ]
        return dlprim.softmax_cross_entropy(h @ parameters[-1], labels).loss, moved

    step = training_step(loss, weights, optim.SGD(weights, lr=0.1), states=means)
    x = RNG.standard_normal((64, 256)).astype(np.float32)
    labels = np.array([0] * 63 + [10])
    with dlprim.threads(threads), pytest.raises(IndexError):
        step(x, labels)
    assert not any(it.any() for it in means)
    step(x, labels.clip(max=9))
    assert all(it.any() for it in means)
