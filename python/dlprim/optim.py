"""Optimisers: how a gradient changes a parameter.

An update is memory traffic, not arithmetic: every parameter, its gradient and its state pass
through the core once per step, and a bfloat16 copy of the parameter leaves in the same pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar, NoReturn, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from dlprim import _core
from dlprim.arguments.arrays import aligned, contiguous, refuse_masked, values_for
from dlprim.arguments.floats import bfloat16_dtype
from dlprim.arguments.scalars import flag, fraction, integer, real
from dlprim.nn.parameter import Parameter

Gradients = Sequence[NDArray[np.float32] | None]
Copies = Sequence[NDArray[Any] | None]
Parameters = Sequence[NDArray[np.float32]] | Sequence[Parameter]

_FLOAT32 = np.dtype(np.float32)


_RATE, _EPSILON = float("1e-3"), float("1e-8")  # `is` tells them from an equal number given


def _either(name: str, value: Any, other: str, alias: Any) -> Any:
    """An argument that has PyTorch's name too."""
    if alias is not None and value is not _RATE and value is not _EPSILON:
        raise TypeError(f"{name} and {other} are given, which are one, expected one of them.")
    return value if alias is None else real(other, alias, 0)


class _Optimizer:
    """What SGD and AdamW share: parameters, their copies and states."""

    learning_rate: float
    _settings: ClassVar[tuple[str, ...]] = ()  # what may be assigned, after checks
    _kind: ClassVar[str] = ""  # what states say, those of subclasses too
    _of_state: ClassVar[tuple[str, ...]] = ("kind", "learning_rate")  # besides arrays

    def __init__(self, parameters: Parameters, copies: Copies | None, states: int) -> None:
        if isinstance(parameters, np.ndarray) or not isinstance(parameters, Sequence):
            kind = type(parameters).__name__
            raise TypeError(
                f"parameters is of type {kind}, expected a list of dlprim.nn.Parameter, as "
                "model.parameters() gives it, or of float32 ndarrays."
            )
        self._given: list[Any] = list(parameters)
        arrays = self._arrays()
        for position, parameter in enumerate(arrays):
            _require_float32(f"parameters[{position}]", parameter)
            if not (parameter.flags.c_contiguous and parameter.flags.writeable):
                raise ValueError(
                    f"parameters[{position}] is not C-contiguous and writeable, but is updated in "
                    "place."
                )
        self._copies: list[NDArray[Any] | None] = [None] * len(arrays)
        if copies is not None:
            if isinstance(copies, np.ndarray) or not isinstance(copies, Sequence):
                kind = type(copies).__name__
                raise TypeError(f"copies is of type {kind}, expected a list of bfloat16 ndarrays.")
            self._copies = list(copies)
        self._require_copies()
        _require_apart({"parameters": arrays, "copies": self._copies})
        self._states = [
            [aligned(it.shape, it.dtype, zeros=True) for it in arrays] for _ in range(states)
        ]

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        kind = type(self).__name__
        raise TypeError(
            f"{kind} cannot be copied or pickled: it updates the arrays of one model in place, and "
            f"its copy would update others. Make another {kind} for the parameters of the other "
            "model, and give its load_state_dict what state_dict of this one returns."
        )

    def __setattr__(self, name: str, value: Any) -> None:
        is_own = type(self).__module__ == __name__  # subclasses may have attributes of their own
        if name in self._settings:
            value = self._checked(name, value)
        elif is_own and name != "lr" and not name.startswith("_"):
            raise AttributeError(
                f"{type(self).__name__} has no attribute {name!r} to assign, expected one of "
                f"{', '.join(self._settings)} and lr."
            )
        super().__setattr__(name, value)

    def _checked(self, name: str, value: Any) -> Any:
        """A value for one of `_settings`."""
        return real(name, value, 0)

    @property
    def lr(self) -> float:
        """PyTorch's name of `learning_rate`."""
        return self.learning_rate

    @lr.setter
    def lr(self, value: float) -> None:
        self.learning_rate = real("lr", value, 0)

    def _arrays(self) -> list[NDArray[np.float32]]:
        """What is updated; not kept of a `Parameter`, which compares values that somebody holds."""
        return [it.held if isinstance(it, Parameter) else it for it in self._given]

    def _require_copies(self) -> None:
        if len(self._copies) != len(self._given):
            raise ValueError(f"copies has {len(self._copies)} entries, expected one per parameter.")
        for position, (copy, parameter) in enumerate(
            zip(self._copies, self._arrays(), strict=True)
        ):
            if copy is None:
                continue
            refuse_masked({f"copies[{position}]": copy})
            if not isinstance(copy, np.ndarray):
                raise TypeError(f"copies[{position}] is {copy!r}, expected a bfloat16 ndarray.")
            if copy.dtype not in (bfloat16_dtype(), np.dtype(np.uint16)):
                raise TypeError(f"copies[{position}] is {copy.dtype}, expected bfloat16.")
            if copy.shape != parameter.shape or not copy.flags.c_contiguous:
                raise ValueError(
                    f"copies[{position}] has shape {copy.shape}, expected a C-contiguous array of "
                    f"shape {parameter.shape}."
                )
            if not copy.flags.writeable:
                raise ValueError(
                    f"copies[{position}] is read-only, but every step writes to it; expected a "
                    "writeable array."
                )

    def _rows(self, gradients: Gradients | None) -> list[tuple[Any, ...]]:
        """(parameter, gradient, states..., copy, position) of those that have a gradient."""
        if gradients is None:
            gradients = [it.gradient for it in self._given if isinstance(it, Parameter)]
            if len(gradients) < len(self._given):
                raise TypeError(
                    "gradients is None, expected one per parameter: only a dlprim.nn.Parameter "
                    "has its own."
                )
        if not isinstance(gradients, Sequence):
            raise TypeError(f"gradients is of type {type(gradients).__name__}, expected a list.")
        for position, gradient in enumerate(gradients):
            if gradient is not None:
                _require_float32(f"gradients[{position}]", gradient)
        arrays = self._arrays()
        expected = [parameter.shape for parameter in arrays]
        got = [
            shape if gradient is None else gradient.shape
            for gradient, shape in zip(gradients, expected, strict=False)
        ]
        if len(gradients) != len(expected) or got != expected:
            shapes = [getattr(gradient, "shape", None) for gradient in gradients]
            raise ValueError(f"gradients have the shapes {shapes}, expected {expected}.")
        states: list[list[NDArray[np.float32] | None]] = [list(each) for each in self._states]
        while len(states) < 2:
            states.append([None] * len(arrays))
        positions = range(len(arrays))
        rows = zip(arrays, gradients, *states, self._copies, positions, strict=True)
        for it in self._given:
            if isinstance(it, Parameter):
                it.written()
        return [(row[0], contiguous(row[1]), *row[2:]) for row in rows if row[1] is not None]

    def state_dict(self) -> dict[str, Any]:
        """The state as plain arrays and numbers, and whose it is: copies, to store and to load.

        Of the settings it holds the learning rate alone; the others are arguments of a new one.
        """
        state: dict[str, Any] = {"kind": self._kind, "learning_rate": self.learning_rate}
        for number, arrays in enumerate(self._states):
            state |= {f"state{number}.{i}": array.copy() for i, array in enumerate(arrays)}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from what `state_dict` returned.

        Raises:
            KeyError: an entry is missing; nothing was changed.
            TypeError, ValueError: the state is of another kind of optimiser, an array has another
                shape or holds no numbers that fit, or a number is outside its range; nothing was
                changed.
        """
        self._require_own(state)
        found = []
        for number, arrays in enumerate(self._states):
            for i, array in enumerate(arrays):
                name = f"state{number}.{i}"
                found.append((array, values_for(name, _entry(state, name), array)))
        self.learning_rate = real("learning_rate", _entry(state, "learning_rate"), 0)
        for array, value in found:
            array[...] = value

    def _require_own(self, state: Mapping[str, Any]) -> None:
        if not isinstance(state, Mapping):
            raise TypeError(f"state is of type {type(state).__name__}, expected a dict.")
        own = self._kind
        kind = str(state.get("kind", own))  # which states stored by version 0.1 do not say
        if kind != own:
            raise ValueError(f"state is one of {kind}, expected one of {own}.")
        known = set(self._of_state)
        for number, arrays in enumerate(self._states):
            known |= {f"state{number}.{i}" for i in range(len(arrays))}
        unknown = [str(name) for name in state if name not in known]
        if unknown:
            raise ValueError(
                f"state has {unknown[0]!r}, which an {own} with these parameters and settings does "
                "not have, expected what state_dict of one like it returned."
            )


class SGD(_Optimizer):
    """Stochastic gradient descent with (heavy-ball) momentum, updating the parameters in place.

    For a parameter w with gradient g and velocity v, which starts at zero, one step is::

        v = momentum * v + g + weight_decay * w
        w = w - learning_rate * v

    These are equations (1) and (2) of Sutskever et al., "On the importance of initialization and
    momentum in deep learning" (ICML 2013), with the learning rate outside the velocity, so that
    assigning to `learning_rate`, or `lr`, between steps acts at once. With `nesterov` the step is
    along ``g + weight_decay * w + momentum * v`` instead of v, as in PyTorch.

    Defaults are those of `torch.optim.SGD`, which has dampening and maximize besides.

    Args:
        parameters: what `dlprim.nn.Module.parameters` returns, or C-contiguous float32 arrays of
            any shape; kept by reference and updated in place.
        learning_rate: step size, at least 0; assign to the attribute, also called `lr`, to follow
            a schedule.
        momentum: fraction of the velocity that survives a step, in [0, 1).
        weight_decay: factor of the L2 penalty's gradient, at least 0, for biases too.
        nesterov: look ahead; needs momentum.
        copies: for each parameter a bfloat16 array of its shape that receives it rounded in every
            step, or None.
        lr: PyTorch's name of learning_rate, in its place.

    Raises:
        TypeError: a parameter is not a float32 array, a copy not a bfloat16 one, or an argument no
            number; or the optimiser is copied or pickled, since its copy would update other arrays.
        ValueError: a number is outside its range, an array cannot be used, or two of them share
            memory.
        AttributeError: something else than these settings is assigned.
    """

    momentum: float
    weight_decay: float
    nesterov: bool
    _settings = ("learning_rate", "momentum", "weight_decay", "nesterov")
    _kind = "SGD"

    def __init__(
        self,
        parameters: Parameters,
        learning_rate: float = _RATE,
        momentum: float = 0.0,
        *,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        copies: Copies | None = None,
        lr: float | None = None,
    ) -> None:
        fraction("momentum", momentum, closed=False)
        super().__init__(parameters, copies, 1 if momentum > 0 else 0)
        self.learning_rate = _either("learning_rate", learning_rate, "lr", lr)
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.nesterov = nesterov

    def _checked(self, name: str, value: Any) -> Any:
        if name == "nesterov":
            value = flag(name, value)
            if value and self.momentum == 0:
                raise ValueError("nesterov is True, which needs a momentum above 0.")
            return value
        if name != "momentum":
            return real(name, value, 0)
        value = fraction(name, value, closed=False)
        if value > 0 and not self._states:
            raise ValueError(f"momentum is {value}, expected 0 as this SGD was made with.")
        if value == 0 and getattr(self, "nesterov", False):
            raise ValueError("momentum is 0, expected a number above 0 for nesterov.")
        return value

    def step(self, gradients: Gradients | None = None) -> None:
        """Updates every parameter in place.

        Args:
            gradients: one float32 array per parameter, in their order and of their shapes, not
                modified; or None for a parameter to leave alone. By default those of the
                `dlprim.nn.Parameter` that it was made with.

        Raises:
            TypeError: a gradient is not a float32 ndarray; nothing was updated.
            ValueError: the number of gradients or a shape is wrong, or memory is shared; nothing
                was updated.
        """
        _core.sgd_step(
            self._rows(gradients),
            self.learning_rate,
            self.momentum,
            self.weight_decay,
            self.nesterov,
        )


class AdamW(_Optimizer):
    """Adam with decoupled weight decay (arXiv 1711.05101, algorithm 2), as in PyTorch.

    Defaults are those of `torch.optim.AdamW`, which has amsgrad and maximize besides.

    Args:
        parameters, learning_rate, copies: as for `SGD`.
        betas: decay of the means of gradients and of their squares, in [0, 1).
        epsilon: added to the root of the mean square, above 0.
        weight_decay: a step scales each parameter by ``1 - learning_rate * weight_decay`` first.
        lr, eps: PyTorch's names of learning_rate and epsilon, in their place.

    Raises:
        TypeError, ValueError, AttributeError: as `SGD` does.
    """

    betas: tuple[float, float]
    epsilon: float
    weight_decay: float
    steps: int
    _settings = ("learning_rate", "betas", "epsilon", "weight_decay", "steps")
    _kind = "AdamW"
    _of_state = ("kind", "learning_rate", "steps")

    def __init__(
        self,
        parameters: Parameters,
        learning_rate: float = _RATE,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = _EPSILON,
        weight_decay: float = 1e-2,
        *,
        copies: Copies | None = None,
        lr: float | None = None,
        eps: float | None = None,
    ) -> None:
        super().__init__(parameters, copies, 2)
        self.learning_rate = _either("learning_rate", learning_rate, "lr", lr)
        self.betas, self.weight_decay = betas, weight_decay
        self.epsilon = _either("epsilon", epsilon, "eps", eps)
        self.steps = 0

    def _checked(self, name: str, value: Any) -> Any:
        if name == "steps":
            return integer(name, value, 0)
        if name == "epsilon":
            if real(name, value) <= 0:
                raise ValueError(f"epsilon is {value}, expected a finite number above 0.")
            return real(name, value)
        if name != "betas":
            return real(name, value, 0)
        if not isinstance(value, Sequence) or len(value) != 2:
            raise ValueError(f"betas is {value!r}, expected two numbers in [0, 1).")
        return tuple(
            fraction(f"betas[{position}]", beta, closed=False)
            for position, beta in enumerate(value)
        )

    def step(self, gradients: Gradients | None = None) -> None:
        """Updates every parameter in place; as `SGD.step`."""
        rows = self._rows(gradients)
        rate, steps = self.learning_rate, self.steps + 1
        beta1, beta2 = self.betas
        _core.adamw_step(
            rows,
            1 - rate * self.weight_decay,
            beta1,
            beta2,
            rate / (1 - beta1**steps),
            1 / math.sqrt(1 - beta2**steps),
            self.epsilon,
        )
        self.steps = steps

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._require_own(state)
        steps = integer("steps", np.asarray(_entry(state, "steps")).tolist(), 0)
        super().load_state_dict(state)
        self.steps = steps


def _entry(state: Mapping[str, Any], name: str) -> Any:
    if name not in state:
        raise KeyError(f"{name} is missing in the state of the optimiser")
    return state[name]


def _require_float32(name: str, value: Any) -> None:
    if isinstance(getattr(value, "gradient", None), np.ndarray):
        raise TypeError(
            f"{name} is a {type(value).__name__}, expected its float32 ndarray, as in "
            "[it.gradient for it in model.parameters()]."
        )
    if type(value) is not np.ndarray:
        refuse_masked({name: value})
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{name} is of type {type(value).__name__}, expected a float32 ndarray.")
    if value.dtype != _FLOAT32:
        raise TypeError(f"{name} has dtype {value.dtype}, expected float32.")


def _require_apart(lists: Mapping[str, Copies]) -> None:
    """Of C-contiguous arrays, by what the lists are called."""
    filled = [
        (array.ctypes.data, array.nbytes, name, place)
        for name, arrays in lists.items()
        for place, array in enumerate(arrays)
        if array is not None and array.size
    ]
    for first, second in pairwise(sorted(filled)):
        if first[0] + first[1] > second[0]:
            one, two = sorted((first[2:], second[2:]))
            both = f"{one[0]}[{one[1]}] and {two[0]}[{two[1]}]"
            raise ValueError(f"{both} share memory, expected each array once.")
