"""RMSprop: steps by the root of the mean square of gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlprim.arguments.scalars import flag, fraction
from dlprim.optim.optimizer import Copies, Optimizer, Parameters

_VELOCITY, _SQUARE, _MEAN = range(3)  # states by number


class RMSprop(Optimizer):
    """Gradients divided by the root of the mean of their squares, as in PyTorch.

    For a parameter w with gradient g and the mean square s, which starts at zero, one step is::

        g = g + weight_decay * w
        s = alpha * s + (1 - alpha) * g**2
        w = w - lr * g / (sqrt(s) + eps)

    Centered, s is diminished by the square of the mean of gradients, which decays by alpha too; by
    rounding it falls below zero in PyTorch, and not here. With momentum the velocity
    ``v = momentum * v + g / (sqrt(s) + eps)`` takes the place of that quotient.

    Defaults are those of `torch.optim.RMSprop`, which has maximize besides.

    Parameters
    ----------
    parameters, copies
        As for `SGD`.
    lr : float
        As for `SGD`.
    alpha : float
        Decay of the means, in [0, 1).
    eps : float
        Added to the root, above 0.
    weight_decay : float
        Factor of the L2 penalty's gradient, at least 0, for biases too.
    momentum : float
        Fraction of the velocity that survives a step, in [0, 1).
    centered : bool
        Whether to divide by an estimate of the variance; stays as it was made.

    Raises
    ------
    TypeError, ValueError, AttributeError
        As `SGD` does.
    """

    alpha: float
    eps: float
    weight_decay: float
    momentum: float
    centered: bool
    _settings = ("learning_rate", "alpha", "eps", "weight_decay", "momentum")
    _shared = ("centered",)
    _kind = "RMSprop"

    def __init__(
        self,
        parameters: Parameters,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        *,
        copies: Copies | None = None,
    ) -> None:
        fraction("momentum", momentum, closed=False)
        super().__init__(parameters, copies, (momentum > 0, True, flag("centered", centered)))
        self._begin(lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum)
        self.centered = centered

    def _checked(self, name: str, value: Any) -> Any:
        if name == "alpha":
            return fraction(name, value, closed=False)
        if name == "momentum":
            return self._checked_momentum(value, _VELOCITY)
        if name != "centered":
            return super()._checked(name, value)
        made = self._states[_MEAN] is not None
        if flag(name, value) is not made:
            raise ValueError(f"centered is {value}, expected {made} as this RMSprop was made with.")
        return made

    def _rule(self, group: Mapping[str, Any]) -> tuple[str, tuple[float, ...]]:
        names = ("lr", "alpha", "eps", "weight_decay", "momentum")
        return "rmsprop", tuple(group[name] for name in names)
