"""Parameters as constants of a network, and how it is noticed that they changed.

PyTorch counts most writes to a tensor (`_version`), but neither those of its fused optimisers nor
those through ``.data`` or NumPy. So a few elements are compared, too, and a step of any optimiser
counts. A single element that is written through ``.data`` may be missed: PyTorch's own frozen
graphs see none of these.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from dlprim.torch.forms import array_of

_SAMPLES = 8
_steps = 0


def _count_step(*_: Any) -> None:
    global _steps
    _steps += 1


register_optimizer_step_post_hook(_count_step)


class Constant:
    """A tensor as it was when a network was made.

    Attributes
    ----------
    place : int
        Among the operands.
    array : ndarray
        Its memory, not copied.
    """

    __slots__ = ("_address", "_form", "_sample", "_seen", "_steps", "_version", "array", "place")

    def __init__(self, place: int, tensor: torch.Tensor) -> None:
        self.place = place
        self.array = array_of(tensor)
        self._form = (tensor.shape, tensor.stride(), tensor.dtype)
        self._address, self._version, self._steps = tensor.data_ptr(), tensor._version, _steps
        seen = self.array.reshape(-1) if self.array.flags.c_contiguous else self.array
        most = _SAMPLES if seen.ndim == 1 else 2
        self._seen = seen[tuple(slice(None, None, n // most + 1) for n in seen.shape)]
        self._sample = self._seen.tobytes()

    def is_fresh(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor is the same, with the same elements."""
        return (
            tensor.data_ptr() == self._address
            and tensor._version == self._version
            and self._steps == _steps
            and self._seen.tobytes() == self._sample
            and (tensor.shape, tensor.stride(), tensor.dtype) == self._form
        )


def may_be_constant(tensor: Any) -> bool:
    """Whether PyTorch counts what is written to it."""
    return isinstance(tensor, torch.Tensor) and not tensor.is_inference()
