"""Arrays whose elements follow from extents, such as masks and tables of places.

What NumPy does with them is done again for other extents. Whoever looks at elements decides by
them, which becomes a condition: of `all` or a comparison what it came to, else the whole array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from dlprim.graph.extents import Recorded, derived

# Of an array's methods those that are called again.
_METHODS = ("all", "any", "astype", "item", "max", "min", "reshape", "sum", "transpose")


class RecordedArray(Recorded, NDArrayOperatorsMixin):
    """An array that follows from extents of inputs."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self.value.dtype
        return dtype

    @property
    def ndim(self) -> int:
        return int(self.value.ndim)

    @property
    def base(self) -> None:
        """It lies in no file."""

    @property
    def shape(self) -> tuple[Any, ...]:
        return tuple(derived(_extent, self, axis) for axis in range(self.ndim))

    @property
    def size(self) -> Any:
        return derived(np.size, self)

    @property
    def nbytes(self) -> Any:
        return self.size * self.dtype.itemsize

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in _METHODS:
            raise AttributeError(f"a recorded array has no {name}")
        return lambda *arguments, **named: derived(_method, self, name, arguments, named)

    def __getitem__(self, key: Any) -> Any:
        return derived(_item, self, key)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **named: Any) -> Any:
        if not all(
            isinstance(it, Recorded | np.ndarray | np.generic | int | float) for it in inputs
        ):
            return NotImplemented
        return derived(_method, ufunc, method, inputs, named)

    def tolist(self) -> Any:
        """Extents, in lists: as many again."""
        return [it.tolist() for it in self] if self.ndim else self.item()

    def __len__(self) -> int:
        return int(self.shape[0])

    def __iter__(self) -> Iterator[Any]:
        return (self[at] for at in range(len(self)))

    def __bool__(self) -> bool:
        return bool(derived(bool, self))

    def __float__(self) -> float:
        return float(self.item())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if not derived(_is_same, self, self.value):
            raise AssertionError("an array is not itself")
        return np.array(self.value, dtype)


def as_array(array: Any) -> Any:
    """As np.asarray, but of recorded arrays, which stay."""
    return array if isinstance(array, RecordedArray) else np.asarray(array)


def _extent(array: Any, axis: int) -> int:
    return int(array.shape[axis])


def _method(of: Any, name: str, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
    """Of arrays an array, which NumPy makes a number of where it has no axes."""
    found = getattr(of, name)(*arguments, **named)
    return found if name in ("all", "any", "item") else np.asarray(found)


def _item(array: Any, key: Any) -> Any:
    return np.asarray(array[key])


def _is_same(one: Any, other: Any) -> bool:
    is_alike = (one.shape, one.dtype) == (other.shape, other.dtype)
    return bool(is_alike and one.tobytes() == other.tobytes())
