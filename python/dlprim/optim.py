"""Optimisers: how a gradient changes a parameter.

An update is memory traffic, not arithmetic: every parameter, its gradient and its velocity pass
through the core once per step and nothing is reused. So there is no kernel here, only NumPy
element-wise operations on arrays that already exist; the optimiser allocates its state once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class SGD:
    """Stochastic gradient descent with (heavy-ball) momentum, updating the parameters in place.

    For a parameter w with gradient g and velocity v, which starts at zero, one step is::

        v = momentum * v + g + weight_decay * w
        w = w - learning_rate * v

    These are equations (1) and (2) of Sutskever et al., "On the importance of initialization and
    momentum in deep learning" (ICML 2013), with the learning rate outside the velocity, so that
    assigning to `learning_rate` between steps acts at once.

    Args:
        parameters: float32 arrays of any shape; kept by reference and updated in place.
        learning_rate: step size, at least 0; assign to the attribute to follow a schedule.
        momentum: fraction of the velocity that survives a step, in [0, 1).
        weight_decay: factor of the L2 penalty's gradient, at least 0, for biases too.

    Raises:
        TypeError: a parameter is not a float32 array.
        ValueError: a number is outside its range.
    """

    def __init__(
        self,
        parameters: Sequence[NDArray[np.float32]],
        learning_rate: float,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
    ) -> None:
        for index, parameter in enumerate(parameters):
            if not isinstance(parameter, np.ndarray) or parameter.dtype != np.float32:
                kind = getattr(parameter, "dtype", type(parameter).__name__)
                raise TypeError(f"parameters[{index}] is {kind}, expected a float32 ndarray.")
        if not (math.isfinite(learning_rate) and learning_rate >= 0):
            raise ValueError(f"learning_rate is {learning_rate}, expected a finite number >= 0.")
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum is {momentum}, expected a number in [0, 1).")
        if not (math.isfinite(weight_decay) and weight_decay >= 0):
            raise ValueError(f"weight_decay is {weight_decay}, expected a finite number >= 0.")
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.weight_decay = weight_decay
        self._parameters = list(parameters)
        self._velocities = [np.zeros_like(parameter) for parameter in parameters]
        self._scratch = [np.empty_like(parameter) for parameter in parameters]

    def step(self, gradients: Sequence[NDArray[np.float32]]) -> None:
        """Updates every parameter in place.

        Args:
            gradients: one float32 array per parameter, in their order and of their shapes; not
                modified.

        Raises:
            ValueError: the number of gradients or a shape is wrong; nothing was updated.
        """
        got = [gradient.shape for gradient in gradients]
        expected = [parameter.shape for parameter in self._parameters]
        if got != expected:
            raise ValueError(f"gradients have the shapes {got}, expected {expected}.")
        state = zip(self._parameters, gradients, self._velocities, self._scratch, strict=True)
        for parameter, gradient, velocity, scratch in state:
            velocity *= self.momentum
            velocity += gradient
            if self.weight_decay != 0:
                np.multiply(parameter, self.weight_decay, out=scratch)
                velocity += scratch
            np.multiply(velocity, self.learning_rate, out=scratch)
            parameter -= scratch
