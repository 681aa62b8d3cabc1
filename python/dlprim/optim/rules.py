"""The optimisers: what each makes of a gradient is a rule of the core, by its name and settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlprim.arguments.instead import instead
from dlprim.arguments.scalars import flag, fraction, integer
from dlprim.optim.optimizer import Copies, Optimizer, Parameters

_MEAN = 2  # the number of a state of RMSprop


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
        As for `SGD`.

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
        settings = group["lr"], *group["betas"], group["eps"], group["weight_decay"]
        return self._kind.lower(), settings

    def _checked(self, name: str, value: Any) -> Any:
        if name != "steps":
            return super()._checked(name, value)
        # One number for all, as in states of version 0.1, or one for each parameter.
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
        As for `SGD`.
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
        As for `SGD`.
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
        As for `SGD`.
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
        if name != "centered":
            return super()._checked(name, value)
        made = self._states[_MEAN] is not None
        if flag(name, value) is not made:
            raise ValueError(f"centered is {value}, expected {made} as this RMSprop was made with.")
        return made

    def _rule(self, group: Mapping[str, Any]) -> tuple[str, tuple[float, ...]]:
        names = ("lr", "alpha", "eps", "weight_decay", "momentum")
        return "rmsprop", tuple(group[name] for name in names)
