"""What the layers of one model share: type and layout of activations, buffers, observers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlprim.arguments.floats import bfloat16_dtype
from dlprim.arguments.names import dtype_name
from dlprim.functions.elementwise import add
from dlprim.nn.buffers import Buffers
from dlprim.primitives.activations import Activations
from dlprim.primitives.conv_algorithm import require_algorithm

Array = npt.NDArray[Any]
Timer = Callable[[str, str, float], AbstractContextManager[None]]

_UNTIMED = nullcontext()


class Images(NamedTuple):
    """Packed activations and their plain shape, which flow from layer to layer.

    A gradient may be two terms, array + addend, on its way from `Module.backward_terms` to a layer
    that takes them so.
    """

    array: Array
    shape: tuple[int, int, int, int]  # (N, C, H, W)
    groups: int = 1  # of channels that no block crosses, as for `dlprim.Activations`
    addend: Array | None = None

    def __add__(self, other: Any) -> Images:
        """The sum of activations that are packed alike, not both tuples in one."""
        if not isinstance(other, Images):
            kind = type(other).__name__
            raise TypeError(f"Images are added to a value of type {kind}, expected Images")
        one, two = self._whole(), other._whole()
        form = (self.shape, self.groups, one.shape, one.dtype)
        found = (other.shape, other.groups, two.shape, two.dtype)
        if form != found:
            raise ValueError(
                f"Images of shape, groups, packed shape and dtype {form} are added to Images of "
                f"{found}, expected the same"
            )
        return Images(add(one, two, dtype=self._bits()), self.shape, self.groups)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        raise TypeError("Images hold packed activations, expected images.unpack(), a plain array")

    def _bits(self) -> str | None:
        return "bfloat16" if self.array.dtype == np.uint16 else None

    def _whole(self) -> Array:
        if self.addend is None:
            return self.array
        return add(self.array, self.addend, dtype=self._bits())

    def unpack(self) -> Array:
        """The plain array, (N, C, H, W), of the same dtype: a new one."""
        blocked = {"layout": "blocked", "groups": self.groups}
        how: dict[str, Any] = {"layout": "NHWC"} if self.array.ndim == 4 else blocked
        kind = "float32" if self.array.dtype == np.float32 else "bfloat16"
        return Activations(self.shape, dtype=kind, **how).unpack(self._whole())


class Context:
    """Shared by all layers of a model; copies and pickles have its parameters alone.

    Parameters
    ----------
    dtype : dtype
        Of activations: float32 or bfloat16. Parameters and statistics are float32.
    layout : "blocked" or "NHWC"
        Of packed activations, as for `Conv2d`.
    algorithm : "auto", "direct" or "winograd"
        Of convolutions.

    Attributes
    ----------
    buffers : Buffers
    timer : callable or None
        ``timer(name, pass, flops)`` makes a context manager around the work of a layer.
    observer : callable or None
        Called as ``observer(name, array)`` with what each layer's forward pass returns.

    Raises
    ------
    TypeError, ValueError
        An argument is none of these.
    """

    def __init__(
        self, dtype: npt.DTypeLike = "float32", layout: str = "blocked", algorithm: str = "auto"
    ) -> None:
        self.dtype_name = dtype_name("dtype", dtype)
        if self.dtype_name not in ("float32", "bfloat16"):
            raise TypeError(f"dtype is {self.dtype_name}, expected float32 or bfloat16")
        is_narrow = self.dtype_name == "bfloat16"
        self.dtype = bfloat16_dtype() if is_narrow else np.dtype(np.float32)
        # What uint16 arrays hold in this model.
        self.bits = "bfloat16" if is_narrow else None
        if not isinstance(layout, str) or layout not in ("blocked", "NHWC"):
            raise ValueError(f"layout is {layout!r}, expected 'blocked' or 'NHWC'")
        self.layout, self.algorithm = layout, require_algorithm("algorithm", algorithm)
        self.buffers = Buffers()
        self.timer: Timer | None = None
        self.observer: Callable[[str, Array], None] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.dtype_name, self.layout, self.algorithm)

    def timed(self, name: str, which: str, flops: float = 0.0) -> AbstractContextManager[None]:
        """Around the work of a layer in one pass."""
        return _UNTIMED if self.timer is None else self.timer(name, which, flops)

    def observe(self, name: str, value: Images | Array) -> None:
        """A layer's result, shown to the observer."""
        if self.observer is not None:
            self.observer(name, array_of(value))


def array_of(value: Images | Array) -> Array:
    """The ndarray that holds a layer's input or result."""
    return value.array if isinstance(value, Images) else value
