"""PReLU as a layer, on plain arrays and images."""

from __future__ import annotations

import math
from typing import Any

import dlprim
from dlprim.arguments.scalars import integer, real
from dlprim.nn.context import Images
from dlprim.nn.initial import filled
from dlprim.nn.module import Array, Module, Ready, finished
from dlprim.nn.parameter import Parameter
from dlprim.nn.passes import backward_pass, forward_pass, label
from dlprim.nn.rows.plain_images import packed, unpacked


class PReLU(Module):
    """x or ``weight * x``, on plain arrays and `Images`; see `dlprim.prelu`.

    Arguments are those of `torch.nn.PReLU`. Images of the blocked layout are unpacked and packed
    again, unless there is one slope and no channel beside theirs in the blocks.

    Parameters
    ----------
    num_parameters : int
        1, or one slope for each channel, the second axis of x.
    init : float
        What all slopes are at first.

    Attributes
    ----------
    weight : Parameter
        float32, (num_parameters,), whatever the dtype of activations.

    Raises
    ------
    TypeError, ValueError
        num_parameters is no integer of at least 1, or init no finite number.
    """

    of_passes = ("_src",)

    def __init__(self, num_parameters: int = 1, init: float = 0.25) -> None:
        super().__init__()
        count = integer("num_parameters", num_parameters, 1)
        self._init = real("init", init)
        self.weight = Parameter(filled(count, self._init))
        self._src: Any = None

    @property
    def num_parameters(self) -> int:
        (count,) = self.weight.shape
        return int(count)

    @property
    def init(self) -> float:
        return self._init

    def arguments(self) -> dict[str, Any]:
        return {"num_parameters": self.num_parameters, "init": self.init}

    def traced(self, x: Any) -> Any:
        self._require_channels(x.shape)
        return dlprim.prelu(x, self.weight)

    @forward_pass
    def forward(self, x: Any, training: bool | None = None) -> Any:
        self._require_channels(x.shape)
        if training:
            self._src = x
        which = "forward" if training else "inference"
        if not isinstance(x, Images):
            return self._value(x, which, None)
        if not self._is_direct(x):
            plain = unpacked(self, x)
            return packed(self, self._value(plain, which, plain), x)
        dst = self.context.buffers.take(x.array.shape, x.array.dtype)
        self._value(self._rows(x.array), which, self._rows(dst))
        return x._replace(array=dst)

    @backward_pass
    def backward(self, dy: Any, ready: Ready | None = None) -> Any:
        src, self._src = self._src, None
        if not isinstance(src, Images):
            dx: Any = self._slope(dy, src, None)
        elif self._is_direct(src):
            self._slope(*map(self._rows, (dy.array, src.array, dy.array)))
            dx = dy
        else:
            plain, diff = unpacked(self, src), unpacked(self, dy)
            dx = packed(self, self._slope(diff, plain, diff), dy, dy.array)
            self.context.buffers.give(plain)
        finished(ready, self.weight)
        return dx

    def _value(self, x: Array, which: str, out: Array | None) -> Array:
        with self.context.timed(self.name, which):
            return dlprim.prelu(x, self.weight.held, out=out, dtype=self.context.bits)

    def _slope(self, dy: Array, x: Array, out: Array | None) -> Array:
        with self.context.timed(self.name, "backward"):
            found = dlprim.prelu_backward(dy, x, self.weight.held, out=out, dtype=self.context.bits)
        self.weight.gradient[...] = found.dw
        return found.dx

    def _is_direct(self, x: Images) -> bool:
        """Whether packed elements are those of the channels, and slopes are had without a copy."""
        is_whole = x.array.size == math.prod(x.shape)
        return is_whole and (x.array.ndim == 4 or self.num_parameters == 1)

    def _rows(self, array: Array) -> Array:
        """A packed array, of channels-last images with the channels as second axis."""
        return array.reshape(-1, array.shape[-1])

    def _require_channels(self, shape: tuple[int, ...]) -> None:
        count = self.num_parameters
        if count != 1 and (len(shape) < 2 or shape[1] != count):
            raise ValueError(f"x of {label(self)} has shape {shape}, expected (N, {count}, ...)")
