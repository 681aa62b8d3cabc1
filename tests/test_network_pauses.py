"""Networks that pause between two parts, and modules whose way back is the second one."""

from __future__ import annotations

import copy
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import nn
from network_cases import FLOATS, core, formula, normal

pytestmark = pytest.mark.any_level

_SHAPE = (3, 4)


def squared(in_order: bool = True) -> core.Network:
    """The square of x, and behind a pause its gradient 2 x g and the square again."""
    network = core.Network()
    x = network.input(_SHAPE, FLOATS, "x")
    g = network.input(_SHAPE, FLOATS, "g")
    y, dx, again = (network.temporary(_SHAPE, FLOATS) for _ in range(3))
    square = formula("y(n,m) = x(n,m) * x(n,m)", normal(3, 4))
    back = formula(
        "y(n,m) = 2 * x(n,m) * g(n,m)",
        *(normal(3, 4) for _ in range(2)),
    )
    if in_order:
        network.formula(square, [x], [y], "square")
    network.pause(1, 1)
    if not in_order:
        network.formula(square, [x], [y], "square")
    network.formula(back, [x, g], [dx], "back")
    network.copy(y, again, "again")
    network.finish([y, dx, again])
    return network


def test_the_second_part_reads_what_the_first_left() -> None:
    network, x, g = squared(), normal(*_SHAPE), normal(*_SHAPE)
    run, y = network.begin_if_exact((x,))
    np.testing.assert_array_equal(y, x * x)
    y[...] = 0  # which is the caller's
    dx, again = run.resume([g])
    np.testing.assert_array_equal(again, x * x)
    np.testing.assert_allclose(dx, 2 * x * g, rtol=1e-6)
    for one, other in zip(network.run([x, g]), (x * x, dx, x * x), strict=True):
        np.testing.assert_array_equal(one, other)


def test_results_of_the_second_part_may_lie_in_arrays_that_are_given() -> None:
    network, x, g = squared(), normal(*_SHAPE), normal(*_SHAPE)
    run, _ = network.begin_if_exact((x,))
    dx = np.empty(_SHAPE, np.float32)
    found = run.resume([g[::-1]], [dx, None])
    assert found[0] is dx
    np.testing.assert_allclose(dx, 2 * x * g[::-1], rtol=1e-6)


def test_runs_pause_side_by_side() -> None:
    network, inputs = squared(), [normal(*_SHAPE) for _ in range(5)]
    runs = [network.begin_if_exact((x,))[0] for x in inputs]
    g = normal(*_SHAPE)
    for x, run in reversed(list(zip(inputs, runs, strict=True))):
        np.testing.assert_array_equal(run.resume([g])[1], x * x)


def test_what_is_refused() -> None:
    network, x = squared(), normal(*_SHAPE)
    assert network.begin_if_exact((x.astype(np.float64),)) is None
    assert network.begin_if_exact((x, x)) is None
    run, _ = network.begin_if_exact((x,))
    with pytest.raises(TypeError, match="resume takes 1 arrays and out 2"):
        run.resume([])
    with pytest.raises(ValueError, match=r"input g is float32 \(3,\), expected float32 \(3, 4\)"):
        run.resume([np.zeros(3, np.float32)])
    run.resume([x])
    with pytest.raises(RuntimeError, match="the run has ended, expected one call of resume"):
        run.resume([x])
    with pytest.raises(ValueError, match="the network is not finished, or does not pause"):
        core.Network().begin_if_exact(())
    with pytest.raises(ValueError, match="result 0 is made behind the pause"):
        squared(in_order=False)
    twice = core.Network()
    with pytest.raises(ValueError, match="takes 1 inputs of 0 and makes 1 results"):
        twice.pause(1, 1)
    twice.pause(0, 0)
    with pytest.raises(ValueError, match="the network has a pause, expected one"):
        twice.pause(0, 0)


def test_events_of_the_second_part_are_of_its_steps_alone() -> None:
    network, x, g = squared(), normal(*_SHAPE), normal(*_SHAPE)
    run, _ = network.begin_if_exact((x,))
    refused, events = core.RunEvents(), core.RunEvents()
    with pytest.raises(ValueError, match="input g"):
        run.resume([np.zeros(3, np.float32)], None, refused)
    assert not refused.wait(3, 60.0)
    run.resume([g], None, events)
    assert all(events.wait(it, 60.0) for it in range(5))
    with pytest.raises(ValueError, match="array is 5, but the run has 5"):
        events.wait(5, 0.0)


# ------------------------------------------------------------ modules


class Whole(nn.Module):
    """A model that is traced."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.inner = nn.Sequential(*layers)

    def forward(self, x: Any) -> Any:
        return self.inner(x)


def gradients(model: nn.Module, x: Any, dy: Any) -> list[np.ndarray]:
    model(x)
    return [model.backward(dy), *(it.gradient.copy() for it in model.parameters())]


def conv_model() -> Whole:
    nn.seed(3)
    return Whole(
        nn.Conv2d(3, 5, 3, padding=1),
        nn.BatchNorm2d(5, activation="relu"),
        nn.GlobalAvgPool2d(),
        nn.Linear(5, 4),
    )


def test_backward_tells_of_each_gradient_beside_the_rest() -> None:
    model, told = conv_model(), []
    dy = np.ones_like(model(x := normal(4, 3, 6, 5)))
    expected = gradients(model, x, dy)[1:]
    model(x)
    model.backward(dy, lambda it: told.append((it.name, it.gradient.copy())))
    names = [it.name for it in model.parameters()]
    assert sorted(it for it, _ in told) == sorted(names)
    assert told[0][0] in names[-2:]  # of the last layer
    for name, gradient in told:
        np.testing.assert_array_equal(gradient, expected[names.index(name)], name)


def test_gradients_are_those_of_central_differences() -> None:
    model, x, dy = conv_model(), normal(4, 3, 6, 5), normal(4, 4)
    dx, first, *_ = gradients(model, x, dy)
    for array, found in ((x, dx), (model.parameters()[0].value, first)):
        ways = np.sign(found).astype(np.float32)
        sides = []
        for step in (1e-3, -1e-3):
            before = array.copy()
            array += step * ways
            sides.append(float(np.sum(np.float64(model.forward(x, training=True)) * dy)))
            array[...] = before
        assert (sides[0] - sides[1]) / 2e-3 == pytest.approx(np.sum(np.abs(found)), rel=2e-2)


def test_a_result_may_be_written_before_backward() -> None:
    nn.seed(1)
    model = Whole(nn.Linear(4, 6, activation="tanh"))  # whose gradient reads the result
    x, dy = normal(5, 4), normal(5, 6)
    expected = gradients(model, x, dy)
    y = model(x)
    y[...] = 7
    dx = model.backward(dy)
    np.testing.assert_array_equal(dx, expected[0])


def test_an_input_that_is_seen_otherwise_is_watched_too() -> None:
    model = Whole(nn.Flatten(), nn.Linear(6, 2))
    x = normal(3, 2, 3)
    y = model(x)
    x += 1
    with pytest.raises(RuntimeError, match="x of Whole was written between"):
        model.backward(y)


def test_statistics_and_counters_are_those_of_the_forward_pass() -> None:
    model = Whole(nn.Dropout(0.5, seed=5), nn.Linear(8, 8, bias=False))
    model.inner[1].weight.value = np.eye(8)
    x = np.ones((16, 8), np.float32)
    for _ in range(3):  # each with places of its own
        y = model(x)
        np.testing.assert_array_equal(model.backward(np.ones_like(y)), y)


def test_a_forward_pass_without_backward_leaves_no_memory() -> None:
    model, x = conv_model(), normal(4, 3, 6, 5)
    expected = gradients(copy.deepcopy(model), x, np.ones((4, 4), np.float32))
    for _ in range(5):
        model(normal(4, 3, 6, 5))
    found = gradients(model, x, np.ones((4, 4), np.float32))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_models_pause_in_threads() -> None:
    models = [conv_model() for _ in range(8)]
    inputs = [normal(4, 3, 6, 5) for _ in models]
    dy = normal(4, 4)
    expected = [gradients(copy.deepcopy(it), x, dy) for it, x in zip(models, inputs, strict=True)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda at: gradients(models[at], inputs[at], dy), range(8)))
    for one, other in zip(found, expected, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_child_of_fork_takes_the_second_part() -> None:
    model, x, dy = conv_model(), normal(4, 3, 6, 5), normal(4, 4)
    expected = gradients(copy.deepcopy(model), x, dy)[0]
    model(x)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(model.backward(dy), expected) else 1)
    np.testing.assert_array_equal(model.backward(dy), expected)
    assert os.waitpid(child, 0)[1] == 0


def test_a_pullback_may_be_called_again() -> None:
    x = normal(3, 4)
    y, pullback = dlprim.vjp(lambda x: np.tanh(x) * x, x)
    first = pullback(np.ones_like(y))[0]
    x += 1
    np.testing.assert_array_equal(pullback(np.ones_like(y))[0], first)
