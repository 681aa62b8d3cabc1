"""nn.Step: the loop by hand as one network, on models of nn."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import nn, optim
from dlprim.tracing import compiled as tracing

Array = np.ndarray[Any, Any]


class Residual(nn.Module):
    """A forward alone."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 4)

    def forward(self, x: Any) -> Any:
        return self.last(x + np.tanh(self.first(self.norm(x))))


def images() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8, activation="relu"),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * 3 * 3, 4),
    )


MODELS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "layers": (lambda: nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 4)), (6,)),
    "a forward alone": (Residual, (6,)),
    "images": (images, (2, 6, 6)),
}


def made(name: str) -> nn.Module:
    nn.seed(3)
    model: nn.Module = MODELS[name][0]()
    return model


def batch(name: str, seed: int) -> tuple[Array, Array]:
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((5, *MODELS[name][1]), np.float32)
    return x, generator.integers(4, size=5)


def by_hand(model: nn.Module, optimizer: Any, given: tuple[Array, Array], limit: float) -> Any:
    x, labels = given
    loss, dy = nn.CrossEntropyLoss()(model(x), labels)
    model.backward(dy)
    optim.clip_grad_norm(model.parameters(), limit)
    optimizer.step()
    return loss


@pytest.mark.parametrize("name", MODELS)
def test_a_step_is_the_loop_by_hand_and_takes_turns_with_it(name: str) -> None:
    model, expected = made(name), made(name)
    optimizer, second = (optim.AdamW(it.parameters(), 0.01) for it in (model, expected))
    step = nn.Step(model, nn.CrossEntropyLoss(), optimizer, clip_norm=0.5)
    for seed in range(4):
        given = batch(name, seed)
        right = by_hand(expected, second, given, 0.5)
        found = by_hand(model, optimizer, given, 0.5) if seed == 2 else step(*given)
        np.testing.assert_allclose(found, right, rtol=1e-4)
        for key, it in expected.state_dict().items():
            np.testing.assert_allclose(model.state_dict()[key], it, rtol=2e-3, atol=2e-4)
    assert optimizer.steps == second.steps
    model.eval()
    expected.eval()
    x = batch(name, 9)[0]
    np.testing.assert_allclose(model(x), expected(x), rtol=1e-2, atol=2e-3)


def test_a_model_that_changes_between_calls() -> None:
    model = Residual()
    optimizer = optim.SGD(model.parameters(), 0.1)
    step = nn.Step(model, nn.CrossEntropyLoss(), optimizer)
    given = batch("a forward alone", 0)
    first = step(*given)
    model.parameters()[0].value[...] = 0
    assert step(*given) != first
    model.norm = nn.LayerNorm(6)
    model.norm.weight.value[...] = 2
    expected = nn.CrossEntropyLoss()(model(given[0]), given[1])[0]
    np.testing.assert_allclose(step(*given), expected, rtol=1e-5)
    optimizer.lr = 0.0
    before = {name: it.copy() for name, it in model.state_dict().items()}
    step(*given)
    for name, it in model.state_dict().items():
        np.testing.assert_array_equal(it, before[name])


def test_a_step_that_raises_leaves_statistics_and_parameters_as_they_were() -> None:
    model = made("images")
    step = nn.Step(model, nn.CrossEntropyLoss(), optim.SGD(model.parameters(), 0.1))
    x, labels = batch("images", 0)
    step(x, labels)
    before = {name: it.copy() for name, it in model.state_dict().items()}
    with pytest.raises((IndexError, ValueError)):
        step(x, labels + 4)
    for name, it in model.state_dict().items():
        np.testing.assert_array_equal(it, before[name])
    step(x, labels)


def test_gradients_of_several_calls_make_one_update() -> None:
    model, expected = made("layers"), made("layers")
    step = nn.Step(
        model, nn.MSELoss(reduction="sum"), optim.SGD(model.parameters(), 0.01), accumulate=2
    )
    whole = nn.Step(expected, nn.MSELoss(reduction="sum"), optim.SGD(expected.parameters(), 0.01))
    x = batch("layers", 0)[0]
    target = np.zeros((5, 4), np.float32)
    parts = step(x[:2], target[:2]), step(x[2:], target[2:])
    np.testing.assert_allclose(sum(parts), whole(x, target), rtol=1e-5)
    for key, it in expected.state_dict().items():
        np.testing.assert_allclose(model.state_dict()[key], it, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["AdamW", "SGD"])
@pytest.mark.parametrize("limit", [0.2, 1e9])
def test_groups_have_their_settings(kind: str, limit: float) -> None:
    def optimizer_of(model: nn.Module) -> Any:
        one, *others = model.parameters()
        rest = {"params": others, "lr": 0.003}
        if kind == "AdamW":
            return optim.AdamW([{"params": [one], "weight_decay": 0.5}, rest], 0.01)
        first = {"params": [one], "momentum": 0.9, "nesterov": True}
        return optim.SGD([first, rest], 0.1, momentum=0.5)

    model, expected = made("a forward alone"), made("a forward alone")
    optimizer, second = optimizer_of(model), optimizer_of(expected)
    step = nn.Step(model, nn.CrossEntropyLoss(), optimizer, clip_norm=limit)
    for seed in range(4):
        for it in (optimizer, second):
            it.param_groups[1]["lr"] *= 2
        given = batch("a forward alone", seed)
        by_hand(expected, second, given, limit)
        step(*given)
    for key, it in expected.state_dict().items():
        np.testing.assert_allclose(model.state_dict()[key], it, rtol=1e-3, atol=1e-5)


class Either(nn.Module):
    """Which parameters it meets is an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.both = nn.Linear(6, 4), nn.Linear(6, 4), True

    def forward(self, x: Any) -> Any:
        return self.one(x) + self.other(x) if self.both else self.one(x)


@pytest.mark.parametrize("kind", ["AdamW", "momentum", "clipped"])
def test_parameters_that_are_not_met_go_as_by_hand(kind: str) -> None:
    def optimizer_of(model: nn.Module) -> Any:
        if kind == "AdamW":
            return optim.AdamW(model.parameters(), 0.1, weight_decay=0.5)
        return optim.SGD(model.parameters(), 0.1, momentum=0.9)

    nn.seed(1)
    model = Either()
    expected = copy.deepcopy(model)
    optimizer, second = optimizer_of(model), optimizer_of(expected)
    limit = 0.2 if kind == "clipped" else 1e9
    step = nn.Step(model, nn.CrossEntropyLoss(), optimizer, clip_norm=limit)
    for seed, both in enumerate((True, False, False)):
        model.both = expected.both = both
        given = batch("layers", seed)
        by_hand(expected, second, given, limit)
        step(*given)
    for key, it in expected.state_dict().items():
        np.testing.assert_allclose(model.state_dict()[key], it, rtol=1e-4, atol=1e-5)
    assert kind != "AdamW" or optimizer.steps == second.steps


def test_calls_of_one_update_may_meet_other_parameters() -> None:
    nn.seed(1)
    model = Either()
    expected = copy.deepcopy(model)
    step = nn.Step(model, nn.CrossEntropyLoss(), optim.SGD(model.parameters(), 1.0), accumulate=2)
    second, sums = optim.SGD(expected.parameters(), 1.0), []
    for seed, both in enumerate((True, False, True, True, False, True, False, False)):
        model.both = expected.both = both
        x, labels = batch("layers", seed)
        step(x, labels)
        expected.backward(nn.CrossEntropyLoss()(expected(x), labels)[1])
        sums.append([it.gradient.copy() for it in expected.parameters()])
        if len(sums) == 2:
            second.step([one + other for one, other in zip(*sums, strict=True)])
            sums = []
        for key, it in expected.state_dict().items():
            np.testing.assert_allclose(model.state_dict()[key], it, rtol=1e-4, atol=1e-5)


def test_settings_of_the_loss_are_those_of_each_call() -> None:
    model, criterion = made("layers"), nn.CrossEntropyLoss()
    step = nn.Step(model, criterion, optim.SGD(model.parameters(), 0.0))
    x, labels = batch("layers", 0)
    settings: dict[str, Any] = {
        "label_smoothing": 0.5,
        "reduction": "sum",
        "ignore_index": int(labels[0]),
    }
    for name, value in settings.items():
        before = step(x, labels)
        setattr(criterion, name, value)
        expected = criterion(model(x), labels)[0]
        np.testing.assert_allclose(step(x, labels), expected, rtol=1e-5)
        assert abs(before - expected) > 1e-4


def test_a_function_as_the_loss() -> None:
    model = made("layers")
    step = nn.Step(model, lambda y, t: np.mean((y - t) ** 2), optim.SGD(model.parameters(), 0.1))
    x = batch("layers", 0)[0]
    first = step(x, np.zeros((5, 4), np.float32))
    assert step(x, np.zeros((5, 4), np.float32)) < first


def test_arguments_are_checked() -> None:
    model = made("layers")
    optimizer = optim.SGD(model.parameters(), 0.1)
    with pytest.raises(TypeError, match="model is"):
        nn.Step(3, nn.MSELoss(), optimizer)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="loss is"):
        nn.Step(model, 3, optimizer)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="optimizer is"):
        nn.Step(model, nn.MSELoss(), 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="accumulate"):
        nn.Step(model, nn.MSELoss(), optimizer, accumulate=0)
    assert dlprim.nn.Step is nn.Step
    step = nn.Step(model, nn.MSELoss(), optimizer)
    x = batch("layers", 0)[0]
    for given in ((), (x,)):
        with pytest.raises(TypeError, match=rf"^step is given {len(given)} arguments, expected"):
            step(*given)
    with pytest.raises(
        TypeError, match=r"^x of Sequential is a list of numbers, expected an array"
    ):
        step(x.tolist(), np.zeros((5, 4), np.float32))


def test_settings_that_take_turns_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And of those that do not come back nothing is kept."""
    model, loss = nn.Sequential(nn.Linear(4, 3)), nn.CrossEntropyLoss()
    step = nn.Step(model, loss, optim.SGD(model.parameters(), lr=0.01))
    compiled, alive = [], []
    compile_graph = tracing.compile_graph

    def counted(*args: Any) -> Any:
        compiled.append(args)
        alive.append(weakref.ref(step._step.function))
        return compile_graph(*args)

    monkeypatch.setattr(tracing, "compile_graph", counted)
    x, labels = np.ones((2, 4), np.float32), np.array([0, 2])
    for turn in range(12):
        loss.label_smoothing = 0.1 * (turn % 3)
        step(x, labels)
    assert len(compiled) == 3
    for turn in range(30):
        loss.label_smoothing = 0.3 + 0.01 * turn
        step(x, labels)
    assert len(compiled) == 33
    compiled.clear()
    gc.collect()
    assert sum(it() is not None for it in alive) <= 4
