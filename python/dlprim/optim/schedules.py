"""Schedules: what the learning rate of each group is after so many steps.

Names, arguments and values are those of `torch.optim.lr_scheduler`. A rate follows from the number
of steps alone, not from the one before, so that a run that resumes needs only that number.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from dlprim.arguments.scalars import flag, fraction, integer, real
from dlprim.optim.optimizer import Optimizer

__all__ = ["CosineAnnealingLR", "LinearLR", "OneCycleLR", "Schedule", "SequentialLR", "StepLR"]


class Schedule(ABC):
    """Sets the learning rate of an optimiser's groups, at once and with each `step`.

    Rates start from those that the groups have when the first schedule of the optimiser is made;
    they are kept in the groups as ``initial_lr``.

    Parameters
    ----------
    optimizer : Optimizer

    Attributes
    ----------
    last_epoch : int
        How often `step` was called: after each epoch, or after each update, as is agreed with the
        numbers that the schedule was made with.
    base_lrs : list of float
        What the rate of each group starts from.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(
                f"optimizer is of type {type(optimizer).__name__}, expected one of dlprim.optim"
            )
        self.optimizer, self.last_epoch = optimizer, 0
        self.base_lrs = [
            float(it.setdefault("initial_lr", it["lr"])) for it in optimizer.param_groups
        ]
        self.move(0)

    @abstractmethod
    def settings(self, group: int, count: int) -> dict[str, Any]:
        """What a group has after so many steps, by the names of its settings."""

    def move(self, count: int) -> None:
        """Goes to where so many steps lead."""
        self.last_epoch = count
        for number, group in enumerate(self.optimizer.param_groups):
            group.update(self.settings(number, count))

    def step(self) -> None:
        """Sets the rates of the next update or epoch, behind an `Optimizer.step`."""
        self.move(self.last_epoch + 1)

    def get_last_lr(self) -> list[float]:
        """The rate of each group."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Where it stands, and what it started from."""
        return {
            "kind": type(self).__name__,
            "last_epoch": self.last_epoch,
            "base_lrs": list(self.base_lrs),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `state_dict` of a schedule that was made alike returned.

        Raises
        ------
        KeyError, TypeError, ValueError
            It is of another kind, of another number of groups, or holds no such numbers.
        """
        kind = type(self).__name__
        if state["kind"] != kind:
            raise ValueError(f"state is one of {state['kind']}, expected one of {kind}")
        rates = [real("base_lrs", it, 0) for it in state["base_lrs"]]
        if len(rates) != len(self.base_lrs):
            raise ValueError(f"base_lrs has {len(rates)} rates, expected {len(self.base_lrs)}")
        count = integer("last_epoch", state["last_epoch"], 0)
        self.start_from(rates)
        self.move(count)

    def start_from(self, rates: list[float]) -> None:
        """Takes other rates of the groups to start from, which act with the next `move`."""
        self.base_lrs = rates


class StepLR(Schedule):
    """Multiplies the rate by ``gamma`` every ``step_size`` steps.

    Parameters
    ----------
    optimizer : Optimizer
    step_size : int
        At least 1.
    gamma : float
        At least 0.

    Raises
    ------
    TypeError, ValueError
        An argument is of another kind or outside its range.
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        self.step_size = integer("step_size", step_size, 1)
        self.gamma = real("gamma", gamma, 0)
        super().__init__(optimizer)

    def settings(self, group: int, count: int) -> dict[str, Any]:
        return {"lr": self.base_lrs[group] * self.gamma ** (count // self.step_size)}


class LinearLR(Schedule):
    """Multiplies the rate by a factor that goes from one number to another: a warm-up, by default.

    Parameters
    ----------
    optimizer : Optimizer
    start_factor : float
        In (0, 1].
    end_factor : float
        In [0, 1].
    total_iters : int
        Steps that it takes, at least 1; then the factor stays.

    Raises
    ------
    TypeError, ValueError
        An argument is of another kind or outside its range.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
    ) -> None:
        self.start_factor = fraction("start_factor", start_factor)
        if self.start_factor == 0:
            raise ValueError("start_factor is 0, expected a number in (0, 1]")
        self.end_factor = fraction("end_factor", end_factor)
        self.total_iters = integer("total_iters", total_iters, 1)
        super().__init__(optimizer)

    def settings(self, group: int, count: int) -> dict[str, Any]:
        part = min(count, self.total_iters) / self.total_iters
        factor = self.start_factor + (self.end_factor - self.start_factor) * part
        return {"lr": self.base_lrs[group] * factor}


class CosineAnnealingLR(Schedule):
    """Half a cosine from the rate down to another (arXiv 1608.03983), and up again behind its end.

    Parameters
    ----------
    optimizer : Optimizer
    T_max : int
        Steps until the lowest rate, at least 1.
    eta_min : float
        The lowest rate, at least 0.

    Raises
    ------
    TypeError, ValueError
        An argument is of another kind or outside its range.
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0) -> None:
        self.T_max, self.eta_min = integer("T_max", T_max, 1), real("eta_min", eta_min, 0)
        super().__init__(optimizer)

    def settings(self, group: int, count: int) -> dict[str, Any]:
        return {"lr": _cosine(self.base_lrs[group], self.eta_min, count / self.T_max)}


class OneCycleLR(Schedule):
    """Up to the highest rate and far down (arXiv 1708.07120), while the momentum does the reverse.

    It is stepped after each update, ``total_steps`` times at most.

    Parameters
    ----------
    optimizer : Optimizer
    max_lr : float, or a list of one for each group
    total_steps : int, optional
        Or, in its place, both of the following.
    epochs, steps_per_epoch : int, optional
    pct_start : float
        The part of the steps that the way up takes, in [0, 1].
    anneal_strategy : "cos" or "linear"
    cycle_momentum : bool
        Whether ``momentum``, or the first of ``betas``, falls and rises.
    base_momentum, max_momentum : float
    div_factor : float
        The first rate is max_lr / div_factor.
    final_div_factor : float
        The last one is the first / final_div_factor.
    three_phase : bool
        Whether it falls to the first rate, in as many steps as it rose, before it falls further.

    Raises
    ------
    TypeError, ValueError
        An argument is of another kind or outside its range, or the optimiser has no momentum.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
    ) -> None:
        self.total_steps = _total(total_steps, epochs, steps_per_epoch)
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy is {anneal_strategy!r}, expected 'cos' or 'linear'")
        self._between = _cosine if anneal_strategy == "cos" else _line
        up = fraction("pct_start", pct_start) * self.total_steps
        inner = [2 * up - 2] if flag("three_phase", three_phase) else []
        self._ends = [0, up - 1, *inner, self.total_steps - 1]
        groups = getattr(optimizer, "param_groups", [])
        highest = [max_lr] * len(groups) if isinstance(max_lr, int | float) else list(max_lr)
        if len(highest) != len(groups):
            raise ValueError(f"max_lr has {len(highest)} rates, expected {len(groups)}")
        self._divisor = real("div_factor", div_factor, 1)
        self._last = self._divisor * real("final_div_factor", final_div_factor, 0)
        self._momenta = (
            [fraction("max_momentum", max_momentum), fraction("base_momentum", base_momentum)]
            if flag("cycle_momentum", cycle_momentum)
            else []
        )
        for group, rate in zip(groups, highest, strict=True):
            group["initial_lr"] = real("max_lr", rate, 0) / self._divisor
            if self._momenta and "betas" not in group and not group.get("momentum"):
                raise ValueError(
                    "cycle_momentum is True, which needs an optimiser with momentum or betas"
                )
        super().__init__(optimizer)

    def settings(self, group: int, count: int) -> dict[str, Any]:
        if count > self.total_steps:
            raise ValueError(f"step was called {count} times, expected at most {self.total_steps}")
        first = self.base_lrs[group]
        highest, lowest = first * self._divisor, first * self._divisor / self._last
        rates = [first, highest, *[first] * (len(self._ends) - 3), lowest]
        count = min(count, self.total_steps - 1)
        place = next(
            (it for it, end in enumerate(self._ends[1:-1]) if count <= end), len(self._ends) - 2
        )
        begin, end = self._ends[place : place + 2]
        part = (count - begin) / (end - begin) if end > begin else 1.0
        found: dict[str, Any] = {"lr": self._between(rates[place], rates[place + 1], part)}
        if self._momenta:
            most, least = self._momenta
            momenta = [most, least, *[most] * (len(self._ends) - 2)]
            momentum = self._between(momenta[place], momenta[place + 1], part)
            betas = self.optimizer.param_groups[group].get("betas")
            found |= {"momentum": momentum} if betas is None else {"betas": (momentum, betas[1])}
        return found


class SequentialLR(Schedule):
    """One schedule after the other, each from its own beginning.

    Parameters
    ----------
    optimizer : Optimizer
    schedulers : list of Schedule
        Of this optimiser.
    milestones : list of int
        The steps at which the second and all further ones begin, rising.

    Raises
    ------
    TypeError, ValueError
        There is not one milestone fewer than schedules, they do not rise, or a schedule is of
        another optimiser.
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[Schedule], milestones: Sequence[int]
    ) -> None:
        self._parts = list(schedulers)
        self.milestones = [integer("milestones", it, 1) for it in milestones]
        if any(getattr(it, "optimizer", None) is not optimizer for it in self._parts):
            raise ValueError("schedulers holds one of another optimizer, expected those of this")
        if len(self._parts) != len(self.milestones) + 1:
            raise ValueError(
                f"milestones has {len(self.milestones)} steps, expected one fewer than the "
                f"{len(self._parts)} schedulers"
            )
        if any(one >= other for one, other in pairwise(self.milestones)):
            raise ValueError(f"milestones is {self.milestones}, expected rising steps")
        super().__init__(optimizer)

    def settings(self, group: int, count: int) -> dict[str, Any]:
        place = bisect_right(self.milestones, count)
        begin = self.milestones[place - 1] if place else 0
        return self._parts[place].settings(group, count - begin)

    def start_from(self, rates: list[float]) -> None:
        super().start_from(rates)
        for it in self._parts:
            it.start_from(rates)


def _cosine(first: float, last: float, part: float) -> float:
    return last + (first - last) * (1 + math.cos(math.pi * part)) / 2


def _line(first: float, last: float, part: float) -> float:
    return first + (last - first) * part


def _total(total: int | None, epochs: int | None, steps: int | None) -> int:
    if total is not None:
        return integer("total_steps", total, 1)
    if epochs is None or steps is None:
        raise ValueError("total_steps is None, expected a number, or epochs and steps_per_epoch")
    return integer("epochs", epochs, 1) * integer("steps_per_epoch", steps, 1)
