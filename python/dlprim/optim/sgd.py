"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlprim.arguments.instead import instead
from dlprim.arguments.scalars import flag, fraction
from dlprim.optim.optimizer import Copies, Optimizer, Parameters


class SGD(Optimizer):
    """Stochastic gradient descent with (heavy-ball) momentum, updating the parameters in place.

    For a parameter w with gradient g and velocity v, which starts at zero, one step is::

        v = momentum * v + g + weight_decay * w
        w = w - lr * v

    These are equations (1) and (2) of Sutskever et al., "On the importance of initialization and
    momentum in deep learning" (ICML 2013), with the learning rate outside the velocity, so that
    assigning to `lr`, or `learning_rate`, between steps acts at once. With `nesterov` the step is
    along ``g + weight_decay * w + momentum * v`` instead of v, as in PyTorch.

    Defaults are those of `torch.optim.SGD`, which has dampening and maximize besides.

    Parameters
    ----------
    parameters : list of dlprim.nn.Parameter, or of C-contiguous ndarrays of float32
        What `dlprim.nn.Module.parameters` returns, or arrays of any shape; kept by reference and
        updated in place. Or groups of them, each a dict with ``"params"`` and settings of its own:
        ``[{"params": body, "lr": 1e-4}, {"params": head}]``; `param_groups` has them.
    lr : float
        Step size, at least 0; assign to the attribute, also called `learning_rate`, to follow a
        schedule.
    momentum : float
        Fraction of the velocity that survives a step, in [0, 1).
    weight_decay : float
        Factor of the L2 penalty's gradient, at least 0, for biases too.
    nesterov : bool
        Look ahead; needs momentum.
    copies : list, optional
        For each parameter a bfloat16 array of its shape that receives it rounded in every step, or
        None.

    Raises
    ------
    TypeError
        A parameter is not a float32 array, a copy not a bfloat16 one, or an argument no number; or
        the optimiser is copied or pickled, since its copy would update other arrays.
    ValueError
        A number is outside its range, an array cannot be used, or two of them share memory.
    AttributeError
        Something else than these settings is assigned.
    """

    momentum: float
    weight_decay: float
    nesterov: bool
    _settings = ("learning_rate", "momentum", "weight_decay", "nesterov")
    _kind = "SGD"

    @instead(
        learning_rate="lr",
        dampening="none",
        maximize="none: the gradient of minus the loss",
    )
    def __init__(
        self,
        parameters: Parameters,
        lr: float = 1e-3,
        momentum: float = 0.0,
        *,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        copies: Copies | None = None,
    ) -> None:
        fraction("momentum", momentum, closed=False)
        super().__init__(parameters, copies, (momentum > 0,))
        self._begin(lr=lr, momentum=momentum, weight_decay=weight_decay, nesterov=nesterov)

    def _checked(self, name: str, value: Any) -> Any:
        if name == "nesterov":
            return flag(name, value)
        if name == "momentum":
            return self._checked_momentum(value, 0)
        return super()._checked(name, value)

    def _require_together(self, settings: Mapping[str, Any], group: Mapping[str, Any]) -> None:
        momentum = settings.get("momentum", group.get("momentum", 0))
        if momentum > 0 or not settings.get("nesterov", group.get("nesterov", False)):
            return
        if "momentum" in settings:
            raise ValueError("momentum is 0, expected a number above 0 for nesterov.")
        raise ValueError("nesterov is True, which needs a momentum above 0.")

    def _rule(self, group: Mapping[str, Any]) -> tuple[str, tuple[float, ...]]:
        rule = "nesterov" if group["nesterov"] else "sgd"
        return rule, (group["lr"], group["momentum"], group["weight_decay"])
