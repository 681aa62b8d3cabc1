"""Schedules of learning rates against those of PyTorch, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dlprim.optim import SGD, AdamW, schedules
from dlprim.optim.schedules import (
    CosineAnnealingLR,
    LinearLR,
    OneCycleLR,
    Schedule,
    SequentialLR,
    StepLR,
)

pytestmark = pytest.mark.any_level

Make = Callable[[Any, Any], Any]  # of a module with these names, and an optimiser
MAKE: dict[str, Make] = {
    "step": lambda them, o: them.StepLR(o, 3),
    "step by halves": lambda them, o: them.StepLR(o, step_size=1, gamma=0.5),
    "warm-up": lambda them, o: them.LinearLR(o),
    "line to zero": lambda them, o: them.LinearLR(o, 1.0, 0.0, 7),
    "cosine": lambda them, o: them.CosineAnnealingLR(o, 6, eta_min=0.01),
    "one cycle": lambda them, o: them.OneCycleLR(o, 0.5, 15),
    "one cycle of three phases": lambda them, o: them.OneCycleLR(
        o, [0.5, 0.25], epochs=3, steps_per_epoch=5, three_phase=True
    ),
    "one straight cycle": lambda them, o: them.OneCycleLR(
        o, 0.5, total_steps=15, pct_start=0.5, anneal_strategy="linear", cycle_momentum=False,
        div_factor=10.0, final_div_factor=100.0,
    ),
    "warm-up, then cosine": lambda them, o: them.SequentialLR(
        o, [them.LinearLR(o, 0.1, total_iters=4), them.CosineAnnealingLR(o, 8)], [4]
    ),
    "three": lambda them, o: them.SequentialLR(
        o, [them.LinearLR(o, 0.5), them.StepLR(o, 2), them.CosineAnnealingLR(o, 9)], [3, 7]
    ),
}  # fmt: skip


def optimizer(kind: str = "SGD") -> SGD | AdamW:
    one, other = np.ones(3, np.float32), np.ones(2, np.float32)
    groups: Any = [{"params": [one], "lr": 0.1}, {"params": [other], "lr": 0.02}]
    return SGD(groups, 1.0, 0.9) if kind == "SGD" else AdamW(groups)


@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
@pytest.mark.parametrize("name", MAKE)
def test_agrees_with_pytorch(name: str, kind: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an optional peer")
    ours = optimizer(kind)
    tensors = [torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(2))]
    groups = [{"params": [it], "lr": lr} for it, lr in zip(tensors, (0.1, 0.02), strict=True)]
    theirs = torch.optim.SGD(groups, momentum=0.9) if kind == "SGD" else torch.optim.AdamW(groups)
    one, other = MAKE[name](schedules, ours), MAKE[name](torch.optim.lr_scheduler, theirs)
    for step in range(15):
        assert one.last_epoch == step
        np.testing.assert_allclose(one.get_last_lr(), other.get_last_lr(), 1e-12, 1e-15)
        for mine, its in zip(ours.param_groups, theirs.param_groups, strict=True):
            for key in {"lr", "momentum", "betas"} & set(mine):
                np.testing.assert_allclose(mine[key], its[key], 1e-12, 1e-15)
        if step < 14:
            theirs.step()
            one.step()
            other.step()


@pytest.mark.parametrize("name", MAKE)
def test_state_goes_on_with_other_rates(name: str) -> None:
    first = optimizer()
    schedule = MAKE[name](schedules, first)
    for _ in range(5):
        schedule.step()
    second = optimizer()
    second.lr = 0.7
    other = MAKE[name](schedules, second)
    other.load_state_dict(schedule.state_dict())
    for _ in range(6):
        assert other.get_last_lr() == schedule.get_last_lr()
        assert other.last_epoch == schedule.last_epoch
        other.step()
        schedule.step()


def test_momentum_goes_with_one_cycle() -> None:
    adam = optimizer("AdamW")
    OneCycleLR(adam, 0.1, 10)
    assert adam.param_groups[1]["betas"] == (0.95, 0.999)


def test_wrong_arguments_are_refused() -> None:
    sgd = optimizer()
    wrong: list[tuple[Callable[[], Schedule], type[Exception], str]] = [
        (lambda: StepLR(None, 3), TypeError, "optimizer is of type NoneType"),  # type: ignore[arg-type]
        (lambda: StepLR(sgd, 0), ValueError, "step_size is 0, expected an integer of at least 1"),
        (lambda: LinearLR(sgd, 0.0), ValueError, r"start_factor is 0, expected a number in \(0, 1"),
        (lambda: LinearLR(sgd, 0.5, 2.0), ValueError, "end_factor is 2.0"),
        (lambda: CosineAnnealingLR(sgd, 0), ValueError, "T_max is 0"),
        (lambda: OneCycleLR(sgd, 0.1), ValueError, "total_steps is None, expected a number, or"),
        (lambda: OneCycleLR(sgd, [0.1], 5), ValueError, "max_lr has 1 rates, expected 2"),
        (lambda: OneCycleLR(sgd, 0.1, 5, anneal_strategy="x"), ValueError, "anneal_strategy is"),
        (
            lambda: OneCycleLR(SGD([np.ones(2, np.float32)], 0.1), 0.1, 5),
            ValueError,
            "cycle_momentum is True, which needs",
        ),
        (lambda: SequentialLR(sgd, [StepLR(sgd, 1)], [1]), ValueError, "milestones has 1 steps"),
        (
            lambda: SequentialLR(sgd, [StepLR(sgd, 1), StepLR(optimizer(), 1)], [1]),
            ValueError,
            "schedulers holds one of another",
        ),
        (
            lambda: SequentialLR(sgd, [StepLR(sgd, 1) for _ in range(3)], [4, 4]),
            ValueError,
            "expected rising steps",
        ),
    ]
    for make, error, said in wrong:
        with pytest.raises(error, match=said):
            make()
    cycle = OneCycleLR(sgd, 0.1, 2)
    cycle.step()
    cycle.step()
    with pytest.raises(ValueError, match="step was called 3 times, expected at most 2"):
        cycle.step()
    with pytest.raises(ValueError, match="state is one of OneCycleLR, expected one of StepLR"):
        StepLR(sgd, 1).load_state_dict(cycle.state_dict())
    with pytest.raises(ValueError, match="base_lrs has 1 rates, expected 2"):
        StepLR(sgd, 1).load_state_dict({"kind": "StepLR", "last_epoch": 1, "base_lrs": [0.1]})
