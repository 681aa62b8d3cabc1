"""Steps whose gradients others have a part in, without MPI: what is told when, and failures."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dlprim import nn, optim
from dlprim.tracing import steps


class Recorder:
    """An exchange with nobody: gradients stay as they are, and failures come where asked for."""

    def __init__(self, step: nn.Step) -> None:
        self.step, self.parameters = step, list(step.model.parameters())
        self.told: list[int] = []
        self.threads: set[str] = set()
        self.broken = ""

    def _break_in(self, where: str) -> None:
        if where == self.broken:
            raise ConnectionError(f"nobody answers in {where}")

    def gradients(self) -> list[NDArray[np.float32]]:
        return [it.gradient for it in self.parameters]

    def ready(self, row: int) -> None:
        self._break_in("ready")
        self.told.append(row)
        self.threads.add(threading.current_thread().name)

    def wait(self) -> None:
        self._break_in("wait")

    def update(self) -> float | None:
        norm = self.step.clip_norm
        found = None if norm is None else optim.clip_grad_norm(self.parameters, norm)
        self.step.optimizer.step(self.gradients())
        return found

    def loss(self, own: Any) -> Any:
        self._break_in("loss")
        return own


def step_of(make: Callable[..., Any], **how: Any) -> tuple[nn.Step, Recorder]:
    """A step of a model with statistics, and its exchange, which is not yet in use."""
    nn.seed(0)
    model = nn.Sequential(
        nn.Linear(12, 16),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.Linear(16, 16),
        nn.ReLU(),
        nn.Linear(16, 5),
    )
    step = nn.Step(model, nn.CrossEntropyLoss(), make(model.parameters()), **how)
    return step, Recorder(step)


def sgd(parameters: Any) -> Any:
    return optim.SGD(parameters, 0.1, momentum=0.9)


def adam(parameters: Any) -> Any:
    return optim.AdamW(parameters, 0.01)


def batch(seed: int, samples: int = 8) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    generator = np.random.default_rng(seed)
    return generator.random((samples, 12), np.float32), generator.integers(0, 5, samples)


def arrays_of(step: nn.Step) -> list[NDArray[Any]]:
    moments = [it for row in step.optimizer.update().rows for it in row if it is not None]
    counts = step.optimizer.update().counts
    found = [*step.model.state_dict().values(), *moments, *([] if counts is None else [counts])]
    return [it.copy() for it in found]


def require_same(found: list[NDArray[Any]], expected: list[NDArray[Any]]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("make", [sgd, adam])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_an_exchange_with_nobody_changes_no_bit(make: Callable[..., Any], accumulate: int) -> None:
    (alone, _), (step, exchange) = (step_of(make, accumulate=accumulate) for _ in range(2))
    step.exchange_by(exchange)
    for turn in range(6):
        assert step(*batch(turn)) == alone(*batch(turn))
        require_same(arrays_of(step), arrays_of(alone))
    assert len(exchange.told) == 6 // accumulate * len(exchange.parameters)


def test_each_gradient_is_told_of_once_beside_the_run_last_layers_first() -> None:
    step, exchange = step_of(sgd)
    step.exchange_by(exchange)
    step(*batch(0))
    assert sorted(exchange.told) == list(range(len(exchange.parameters)))
    weights = [it for it in exchange.told if exchange.parameters[it].value.ndim == 2]
    assert weights == sorted(weights, reverse=True)
    assert exchange.threads == {"dlprim-events"}


def test_an_exchange_that_waits_for_the_end_is_told_of_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (alone, _), (step, exchange) = (step_of(adam) for _ in range(2))
    monkeypatch.setattr(exchange, "ready", None)
    monkeypatch.setattr(steps, "run_telling", None)  # which would start a thread
    step.exchange_by(exchange)
    for turn in range(3):
        assert step(*batch(turn)) == alone(*batch(turn))
        require_same(arrays_of(step), arrays_of(alone))


def test_the_norm_is_that_of_exchanged_gradients() -> None:
    (alone, _), (step, exchange) = (step_of(sgd, clip_norm=0.1) for _ in range(2))
    step.exchange_by(exchange)
    for turn in range(3):
        alone(*batch(turn))
        step(*batch(turn))
        assert step.norm == pytest.approx(alone.norm, rel=1e-6)


@pytest.mark.parametrize("broken", ["ready", "wait", "loss"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_an_exchange_that_fails_leaves_all_as_it_was(broken: str, accumulate: int) -> None:
    (alone, _), (step, exchange) = (step_of(adam, accumulate=accumulate) for _ in range(2))
    step.exchange_by(exchange)
    for turn in range(2 * accumulate - 1):  # the next one updates
        step(*batch(turn))
        alone(*batch(turn))
    before = arrays_of(step)
    exchange.broken = broken
    with pytest.raises(ConnectionError, match=f"nobody answers in {broken}"):
        step(*batch(9))
    require_same(arrays_of(step), before)
    assert not any(it.name == "dlprim-events" for it in threading.enumerate())
    exchange.broken = ""
    assert step(*batch(9)) == alone(*batch(9))  # as if it had not failed, sums included
    require_same(arrays_of(step), arrays_of(alone))


def test_a_label_that_is_refused_tells_of_nothing() -> None:
    step, exchange = step_of(sgd)
    step.exchange_by(exchange)
    x, labels = batch(0)
    before = arrays_of(step)
    with pytest.raises((IndexError, ValueError)):
        step(x, labels + 5)
    assert exchange.told == []
    require_same(arrays_of(step), before)
    step(x, labels)


def test_threads_take_turns_in_one_step() -> None:
    (alone, _), (step, exchange) = (step_of(sgd) for _ in range(2))
    step.exchange_by(exchange)
    x, labels = batch(0)
    threads = [threading.Thread(target=step, args=(x, labels)) for _ in range(8)]
    for it in threads:
        it.start()
    for it in threads:
        it.join()
    for _ in threads:
        alone(x, labels)
    require_same(arrays_of(step), arrays_of(alone))
    assert len(exchange.told) == 8 * len(exchange.parameters)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_goes_on_with_the_step_of_its_parent() -> None:
    step, exchange = step_of(sgd)
    step.exchange_by(exchange)
    step(*batch(0))
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if np.isfinite(step(*batch(1))) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert np.isfinite(step(*batch(1)))
