"""Adam, and with decoupled weight decay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlprim.arguments.instead import instead
from dlprim.arguments.scalars import fraction, integer
from dlprim.optim.optimizer import Copies, Optimizer, Parameters


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
    _counts: NDArray[np.int64]
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
        self._counts = np.zeros(len(self._given), np.int64)

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(self._counts.tolist())

    @steps.setter
    def steps(self, steps: tuple[int, ...]) -> None:
        self._counts[...] = steps

    def _rule(self, group: Mapping[str, Any]) -> tuple[str, tuple[float, ...]]:
        return "adam", (group["lr"], *group["betas"], group["eps"], group["weight_decay"])

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

    def _rule(self, group: Mapping[str, Any]) -> tuple[str, tuple[float, ...]]:
        return "adamw", super()._rule(group)[1]


class LAMB(Adam):
    """LAMB (arXiv 1904.00962, algorithm 2): Adam with steps as long as each parameter asks for.

    What AdamW would add to a parameter w, its decay ``weight_decay * w`` included, is stretched to
    the length of w; where one of the two is zero it is taken as it is. PyTorch has no such
    optimiser.

    Parameters
    ----------
    parameters, lr, copies
        As for `SGD`.
    betas, eps
        As for `Adam`.
    weight_decay : float
        At least 0, for biases too.

    Raises
    ------
    TypeError, ValueError, AttributeError
        As `SGD` does.
    """

    _kind = "LAMB"

    def __init__(
        self,
        parameters: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 1e-2,
        *,
        copies: Copies | None = None,
    ) -> None:
        super().__init__(parameters, lr, betas, eps, weight_decay, copies=copies)

    def _rule(self, group: Mapping[str, Any]) -> tuple[str, tuple[float, ...]]:
        return "lamb", super()._rule(group)[1]
