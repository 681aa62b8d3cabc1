"""Adam, and with decoupled weight decay."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dlprim import _core
from dlprim.arguments.instead import instead
from dlprim.arguments.scalars import fraction, integer
from dlprim.optim.groups import Group
from dlprim.optim.optimizer import Copies, Gradients, Optimizer, Parameters


class Adam(Optimizer):
    """Adam (arXiv 1412.6980) with an L2 penalty, as in PyTorch.

    Defaults are those of `torch.optim.Adam`, which has amsgrad and maximize besides. Steps are
    counted for every parameter by itself: one that had no gradient at first, such as those of a
    layer that is thawed later, is corrected as a new one. For a decay of the weights themselves
    take `AdamW`.

    Parameters
    ----------
    parameters, lr, copies
        As for `SGD`.
    betas : pair of float
        Decay of the means of gradients and of their squares, in [0, 1).
    eps : float
        Added to the root of the mean square, above 0.
    weight_decay : float
        Factor of the L2 penalty's gradient, at least 0, for biases too.

    Raises
    ------
    TypeError, ValueError, AttributeError
        As `SGD` does.

    Attributes
    ----------
    steps : tuple of int
        How often each parameter was updated; assign a number for all, or one for each.
    """

    betas: tuple[float, float]
    eps: float
    weight_decay: float
    steps: tuple[int, ...]
    _settings = ("learning_rate", "betas", "eps", "weight_decay")
    _shared = ("steps",)
    _kind = "Adam"
    _required = ("learning_rate", "steps")

    def __init__(
        self,
        parameters: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        copies: Copies | None = None,
    ) -> None:
        super().__init__(parameters, copies, (True, True))
        self._begin(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        self.steps = (0,) * len(self._given)

    def _checked(self, name: str, value: Any) -> Any:
        if name == "steps":
            return self._checked_steps(value)
        if name != "betas":
            return super()._checked(name, value)
        if not isinstance(value, Sequence) or len(value) != 2:
            raise ValueError(f"betas is {value!r}, expected two numbers in [0, 1).")
        return tuple(
            fraction(f"betas[{position}]", beta, closed=False)
            for position, beta in enumerate(value)
        )

    def _checked_steps(self, value: Any) -> tuple[int, ...]:
        """One number for all, as in states of version 0.1, or one for each parameter."""
        count = len(self._given)
        if not isinstance(value, Sequence) or isinstance(value, str):
            return (integer("steps", value, 0),) * count
        if len(value) != count:
            raise ValueError(f"steps has {len(value)} numbers, expected {count}, as parameters.")
        return tuple(integer(f"steps[{place}]", it, 0) for place, it in enumerate(value))

    def _decay_and_penalty(self, group: Group) -> tuple[float, float]:
        """What a step multiplies weights by, and what part of them it adds to the gradient."""
        return 1, group["weight_decay"]

    def step(self, gradients: Gradients | None = None) -> None:
        """Updates every parameter in place; as `SGD.step`."""
        groups = self._grouped(gradients)
        steps = list(self.steps)
        for _, rows in groups:
            for row in rows:
                steps[row[-1]] += 1
        try:
            for group, rows in groups:
                self._step_of(group, rows, [steps[row[-1]] for row in rows])
        finally:
            self._written()
        self._common.hold("steps", tuple(steps))

    def _step_of(self, group: Group, rows: list[tuple[Any, ...]], steps: list[int]) -> None:
        """The step of a group, which for its parameters has those numbers."""
        of_count = {count: corrections(group, count) for count in set(steps)}
        decay_and_penalty = self._decay_and_penalty(group)
        scales = [of_count[count] for count in steps]
        _core.adam_step(rows, decay_and_penalty, group["betas"], group["eps"], scales)


def corrections(group: Mapping[str, Any], steps: int) -> tuple[float, float]:
    """The step size and what scales the root, of a parameter in the step of that number."""
    beta1, beta2 = group["betas"]
    return group["lr"] / (1 - beta1**steps), 1 / math.sqrt(1 - beta2**steps)


class AdamW(Adam):
    """Adam with decoupled weight decay (arXiv 1711.05101, algorithm 2), as in PyTorch.

    Defaults are those of `torch.optim.AdamW`, which has amsgrad and maximize besides.

    Parameters
    ----------
    parameters, lr, copies
        As for `SGD`.
    betas, eps
        As for `Adam`.
    weight_decay : float
        A step scales each parameter by ``1 - lr * weight_decay`` first.

    Raises
    ------
    TypeError, ValueError, AttributeError
        As `SGD` does.
    """

    _kind = "AdamW"

    @instead(
        learning_rate="lr",
        epsilon="eps",
        amsgrad="none",
        maximize="none: the gradient of minus the loss",
    )
    def __init__(
        self,
        parameters: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        copies: Copies | None = None,
    ) -> None:
        super().__init__(parameters, lr, betas, eps, weight_decay, copies=copies)

    def _decay_and_penalty(self, group: Group) -> tuple[float, float]:
        return 1 - group["lr"] * group["weight_decay"], 0
