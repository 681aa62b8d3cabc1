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
        `value` is written in place, ``p.value[...] = array``, and then `Module.changed` is called:
        optimisers and collectives hold the array. Another array is refused with AttributeError.

    Notes
    -----
    Copies and pickles have the value and the name; their gradient is zero.
    """

    def __init__(self, value: npt.NDArray[Any], name: str = "") -> None:
        self.name = name
        self._value: FloatArray = np.ascontiguousarray(value, np.float32)
        self.gradient: FloatArray = aligned(self._value.shape, self._value.dtype, zeros=True)

    @property
    def value(self) -> FloatArray:
        return self._value

    @value.setter
    def value(self, value: FloatArray) -> None:
        if value is not self._value:  # which `p.value += ...` assigns
            raise AttributeError(
                f"value of parameter {self.name!r} cannot be another array, expected "
                "parameter.value[...] = array and then changed() of the model: its optimiser holds "
                "the array that is there"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._value, self.name)

    def __repr__(self) -> str:
        return f"<dlprim.nn.Parameter {self.name} {self.value.shape}>"


def _restored(value: FloatArray, name: str) -> Parameter:
    """A parameter with a copy of the value, on a cache line."""
    own: FloatArray = aligned(value.shape, np.float32)
    own[...] = value
    return Parameter(own, name)
