"""Optimisers: how a gradient changes a parameter.

An update is memory traffic, not arithmetic: every parameter, its gradient and its state pass
through the core once per step, and a bfloat16 copy of the parameter leaves in the same pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlprim import _core
from dlprim.arguments.arrays import aligned, contiguous, values_for
from dlprim.arguments.floats import bfloat16_dtype
from dlprim.arguments.scalars import fraction, integer, real

Gradients = Sequence[NDArray[np.float32] | None]
Copies = Sequence[NDArray[Any] | None]

_FLOAT32 = np.dtype(np.float32)


class _Optimizer:
    """What SGD and AdamW share: parameters, their copies and states."""

    learning_rate: float

    def __init__(
        self, parameters: Sequence[NDArray[np.float32]], copies: Copies | None, states: int
    ) -> None:
        if isinstance(parameters, np.ndarray) or not isinstance(parameters, Sequence):
            kind = type(parameters).__name__
            raise TypeError(f"parameters is of type {kind}, expected a list of float32 ndarrays.")
        for position, parameter in enumerate(parameters):
            _require_float32(f"parameters[{position}]", parameter)
            if not (parameter.flags.c_contiguous and parameter.flags.writeable):
                raise ValueError(
                    f"parameters[{position}] is not C-contiguous and writeable, but is updated in "
                    "place."
                )
        _require_apart(parameters)
        self._parameters = list(parameters)
        self._copies: list[NDArray[Any] | None] = [None] * len(self._parameters)
        if copies is not None:
            self._copies = list(copies)
        self._require_copies()
        self._states = [
            [aligned(it.shape, it.dtype, zeros=True) for it in self._parameters]
            for _ in range(states)
        ]

    def _require_copies(self) -> None:
        if len(self._copies) != len(self._parameters):
            raise ValueError(f"copies has {len(self._copies)} entries, expected one per parameter.")
        for position, (copy, parameter) in enumerate(
            zip(self._copies, self._parameters, strict=True)
        ):
            if copy is None:
                continue
            if not isinstance(copy, np.ndarray):
                raise TypeError(f"copies[{position}] is {copy!r}, expected a bfloat16 ndarray.")
            if copy.dtype not in (bfloat16_dtype(), np.dtype(np.uint16)):
                raise TypeError(f"copies[{position}] is {copy.dtype}, expected bfloat16.")
            if copy.shape != parameter.shape or not copy.flags.c_contiguous:
                raise ValueError(
                    f"copies[{position}] has shape {copy.shape}, expected a C-contiguous array of "
                    f"shape {parameter.shape}."
                )

    def _rows(self, gradients: Gradients) -> list[tuple[Any, ...]]:
        """(parameter, gradient, states..., copy, position) of those that have a gradient."""
        if not isinstance(gradients, Sequence):
            raise TypeError(f"gradients is of type {type(gradients).__name__}, expected a list.")
        for position, gradient in enumerate(gradients):
            if gradient is not None:
                _require_float32(f"gradients[{position}]", gradient)
        expected = [parameter.shape for parameter in self._parameters]
        got = [
            shape if gradient is None else gradient.shape
            for gradient, shape in zip(gradients, expected, strict=False)
        ]
        if len(gradients) != len(expected) or got != expected:
            shapes = [getattr(gradient, "shape", None) for gradient in gradients]
            raise ValueError(f"gradients have the shapes {shapes}, expected {expected}.")
        states: list[list[NDArray[np.float32] | None]] = [list(each) for each in self._states]
        while len(states) < 2:
            states.append([None] * len(self._parameters))
        positions = range(len(self._parameters))
        rows = zip(self._parameters, gradients, *states, self._copies, positions, strict=True)
        return [(row[0], contiguous(row[1]), *row[2:]) for row in rows if row[1] is not None]

    def state_dict(self) -> dict[str, Any]:
        """The state as plain arrays and numbers: copies, to store and to load again."""
        state: dict[str, Any] = {"learning_rate": self.learning_rate}
        for number, arrays in enumerate(self._states):
            state |= {f"state{number}.{i}": array.copy() for i, array in enumerate(arrays)}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from what `state_dict` returned.

        Raises:
            KeyError: an entry is missing; nothing was changed.
            TypeError, ValueError: an array has another shape or holds no numbers that fit, or a
                number is outside its range; nothing was changed.
        """
        if not isinstance(state, Mapping):
            raise TypeError(f"state is of type {type(state).__name__}, expected a dict.")
        found = []
        for number, arrays in enumerate(self._states):
            for i, array in enumerate(arrays):
                name = f"state{number}.{i}"
                found.append((array, values_for(name, _entry(state, name), array)))
        self.learning_rate = real("learning_rate", _entry(state, "learning_rate"), 0)
        for array, value in found:
            array[...] = value


class SGD(_Optimizer):
    """Stochastic gradient descent with (heavy-ball) momentum, updating the parameters in place.

    For a parameter w with gradient g and velocity v, which starts at zero, one step is::

        v = momentum * v + g + weight_decay * w
        w = w - learning_rate * v

    These are equations (1) and (2) of Sutskever et al., "On the importance of initialization and
    momentum in deep learning" (ICML 2013), with the learning rate outside the velocity, so that
    assigning to `learning_rate` between steps acts at once. With `nesterov` the step is along
    ``g + weight_decay * w + momentum * v`` instead of v, as in PyTorch.

    Args:
        parameters: C-contiguous float32 arrays of any shape; kept by reference and updated in
            place.
        learning_rate: step size, at least 0; assign to the attribute to follow a schedule.
        momentum: fraction of the velocity that survives a step, in [0, 1).
        weight_decay: factor of the L2 penalty's gradient, at least 0, for biases too.
        nesterov: look ahead; needs momentum.
        copies: for each parameter a bfloat16 array of its shape that receives it rounded in every
            step, or None.

    Raises:
        TypeError: a parameter is not a float32 array, a copy not a bfloat16 one, or an argument no
            number.
        ValueError: a number is outside its range, an array cannot be used, or two parameters share
            memory.
    """

    def __init__(
        self,
        parameters: Sequence[NDArray[np.float32]],
        learning_rate: float,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        copies: Copies | None = None,
    ) -> None:
        real("learning_rate", learning_rate, 0)
        fraction("momentum", momentum, closed=False)
        real("weight_decay", weight_decay, 0)
        if nesterov and momentum == 0:
            raise ValueError("nesterov is True, which needs a momentum above 0.")
        super().__init__(parameters, copies, 1 if momentum > 0 else 0)
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.nesterov = nesterov

    def step(self, gradients: Gradients) -> None:
        """Updates every parameter in place.

        Args:
            gradients: one float32 array per parameter, in their order and of their shapes, not
                modified; or None for a parameter to leave alone.

        Raises:
            TypeError: a gradient is not a float32 ndarray; nothing was updated.
            ValueError: the number of gradients or a shape is wrong, memory is shared, or
                `learning_rate` is not finite or below 0; nothing was updated.
        """
        _core.sgd_step(
            self._rows(gradients),
            real("learning_rate", self.learning_rate, 0),
            self.momentum,
            self.weight_decay,
            self.nesterov,
        )


class AdamW(_Optimizer):
    """Adam with decoupled weight decay (arXiv 1711.05101, algorithm 2), as in PyTorch.

    Args:
        parameters, learning_rate, copies: as for `SGD`.
        betas: decay of the means of gradients and of their squares, in [0, 1).
        epsilon: added to the root of the mean square, above 0.
        weight_decay: a step scales each parameter by ``1 - learning_rate * weight_decay`` first.

    Raises:
        TypeError, ValueError: as `SGD` does.
    """

    def __init__(
        self,
        parameters: Sequence[NDArray[np.float32]],
        learning_rate: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        weight_decay: float = 1e-2,
        copies: Copies | None = None,
    ) -> None:
        real("learning_rate", learning_rate, 0)
        if not isinstance(betas, Sequence) or len(betas) != 2:
            raise ValueError(f"betas is {betas!r}, expected two numbers in [0, 1).")
        for position, beta in enumerate(betas):
            fraction(f"betas[{position}]", beta, closed=False)
        if real("epsilon", epsilon) <= 0:
            raise ValueError(f"epsilon is {epsilon}, expected a finite number above 0.")
        real("weight_decay", weight_decay, 0)
        super().__init__(parameters, copies, 2)
        self.learning_rate = learning_rate
        self.betas, self.epsilon, self.weight_decay = betas, epsilon, weight_decay
        self.steps = 0

    def step(self, gradients: Gradients) -> None:
        """Updates every parameter in place; as `SGD.step`."""
        rows = self._rows(gradients)
        rate, steps = real("learning_rate", self.learning_rate, 0), self.steps + 1
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
        if isinstance(state, Mapping):
            steps = integer("steps", np.asarray(_entry(state, "steps")).tolist(), 0)
        super().load_state_dict(state)
        self.steps = steps


def _entry(state: Mapping[str, Any], name: str) -> Any:
    if name not in state:
        raise KeyError(f"{name} is missing in the state of the optimiser")
    return state[name]


def _require_float32(name: str, value: Any) -> None:
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{name} is of type {type(value).__name__}, expected a float32 ndarray.")
    if value.dtype != _FLOAT32:
        raise TypeError(f"{name} has dtype {value.dtype}, expected float32.")


def _require_apart(parameters: Sequence[NDArray[Any]]) -> None:
    """Of C-contiguous arrays."""
    filled = [place for place, it in enumerate(parameters) if it.size]
    places = sorted(filled, key=lambda place: parameters[place].ctypes.data)
    for one, two in pairwise(places):
        first, second = parameters[one], parameters[two]
        if first.ctypes.data + first.nbytes > second.ctypes.data:
            both = f"parameters[{min(one, two)}] and parameters[{max(one, two)}]"
            raise ValueError(f"{both} share memory, expected each array once.")
