"""How gradients are written on the wire: float32 as they are, or bfloat16 with the error kept.

bfloat16 halves the bytes. Sums are still taken in float32, and what rounding took from a message
is added to the next message of the same elements, so that errors do not accumulate over steps
(error feedback: Seide et al., "1-bit stochastic gradient descent", Interspeech 2014, section 3.1;
Karimireddy et al., arXiv 1901.09847). MPI has no bfloat16 type, so its bits travel as uint16.
"""

from __future__ import annotations

import numpy as np

from dlprim import _core
from dlprim.arguments.arrays import Array, FloatArray

# The conversions run on the communication thread. Parts that are one task of the core start no
# team of threads there, which would compete with the one that computes.
PART = 1 << 15  # elements


class Wire:
    """Numbers (float32) to a message of the same length and back.

    Here the message is the numbers themselves: the same memory, so that nothing is copied.

    Attributes
    ----------
    lost : ndarray of float32
        What the next message is to make up for.
    """

    lost: FloatArray = np.empty(0, np.float32)

    def write(self, values: FloatArray, message: Array) -> None:
        """Makes the message that says `values`, which may be overwritten."""

    def read(self, message: Array, values: FloatArray) -> None:
        """Overwrites `values` with what the message says."""

    def term(self, message: Array, scratch: FloatArray) -> FloatArray:
        """What the message says, to be read at once: in scratch, or in the message itself."""
        return message


class Bfloat16Wire(Wire):
    """A message is the numbers rounded to nearest even; what is lost is added to the next one.

    Parameters
    ----------
    size : int
        Elements of the messages that are written.
    """

    def __init__(self, size: int) -> None:
        self.lost = np.zeros(size, np.float32)

    def write(self, values: FloatArray, message: Array) -> None:
        for part in parts(values.size):
            corrected, lost = values[part], self.lost[part]
            corrected += lost
            _core.round_to_bfloat16(corrected, message[part])
            _core.widen_to_float32(message[part], lost)
            np.subtract(corrected, lost, out=lost)

    def read(self, message: Array, values: FloatArray) -> None:
        for part in parts(values.size):
            _core.widen_to_float32(message[part], values[part])

    def term(self, message: Array, scratch: FloatArray) -> FloatArray:
        term = scratch[: message.size]
        _core.widen_to_float32(message, term)
        return term


def parts(size: int) -> list[slice]:
    """Of `size` elements, short enough to stay in a core's cache."""
    return [slice(begin, min(begin + PART, size)) for begin in range(0, size, PART)]
