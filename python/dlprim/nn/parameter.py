"""A trained array: its float32 master value and the gradient of the latest backward pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dlprim.arguments.arrays import aligned

FloatArray = npt.NDArray[np.float32]


class Parameter:
    """A named float32 array and its gradient, both plain, C-contiguous and updated in place.

    Whatever dtype activations have, `value` is the master copy; layers round and pack it in every
    training step, so an optimiser or a collective may write it at any time between two steps.

    Parameters
    ----------
    value : ndarray of float32
        Kept by reference.
    name : str
        Set by the model: the key in its `state_dict`.

    Attributes
    ----------
    name : str
    value, gradient : ndarray of float32, of one shape
    """

    def __init__(self, value: npt.NDArray[Any], name: str = "") -> None:
        self.name = name
        self.value: FloatArray = np.ascontiguousarray(value, np.float32)
        self.gradient: FloatArray = aligned(self.value.shape, self.value.dtype, zeros=True)

    def __repr__(self) -> str:
        return f"<dlprim.nn.Parameter {self.name} {self.value.shape}>"
