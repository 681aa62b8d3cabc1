"""Arrays that everybody may write and that tell whether somebody may have written them.

What a layer makes of its weights for inference (packed, rounded, transformed, with normalisation
folded in) is good for as long as nobody writes them. NumPy calls nobody when an array is written.
But every view of an array refers to it, so its count of references says whether anybody but its
owner can write it; docs/decisions/0019-values-with-versions.md.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from dlprim.arguments.arrays import FloatArray, aligned, values_for
from dlprim.arguments.locks import Lock
from dlprim.arguments.traced import RUNNING, Held

_VERSIONS = count()  # of a process, so that another array in the same place has another one
_CHUNK = 1 << 15  # elements compared at a time: both sides and the result stay in the L2 cache
_count_of: Callable[[Any], int] | None = getattr(sys, "getrefcount", None)


class Tracked(Held):
    """A float32 array with versions: `version` is another number whenever values may be others.

    `current` is the version, or None once somebody has asked for `value`: then `version` finds it
    out, which costs, once, the packing that follows; and as long as somebody keeps the array, or a
    view of it, a comparison of all values with those of the last time.

    Parameters
    ----------
    value : array of numbers
        Copied, to a cache line.
    name : str
        In messages.
    """

    def __init__(self, value: npt.ArrayLike, name: str = "") -> None:
        self.name = name
        self._value: FloatArray = aligned(np.shape(value), np.float32)
        self._value[...] = values_for("value", value, self._value)
        self._version = next(_VERSIONS)
        self.current: int | None = self._version
        self._lock = Lock()
        self._seen: FloatArray | None = None  # the values of the version, while somebody holds them
        self._copy: tuple[int, weakref.ref[FloatArray]] | None = None
        self._alone = self._references()

    @property
    def value(self) -> FloatArray:
        if RUNNING.tracer is not None:
            raise TypeError(
                f"value of {self.name!r} is read where a module is traced, which would make it a "
                "constant, expected the parameter itself, which is an array there"
            )
        array = self._value  # referred to from here on, so that `version` does not miss it
        with self._lock:
            self.current = None
        return array

    @value.setter
    def value(self, value: npt.ArrayLike) -> None:
        if value is not self._value:  # which `p.value += ...` assigns
            self._value[...] = values_for(f"value of {self.name!r}", value, self._value)
            self.written()

    @property
    def held(self) -> FloatArray:
        """The array, for who does not write it, or calls `written`, and does not keep it."""
        return self._value

    def copied(self) -> FloatArray:
        """A copy that nobody writes: for one version one array, as long as somebody keeps it."""
        with self._lock:
            version = self.version
            known = self._copy and self._copy[1]()
            if known is None or self._copy is None or self._copy[0] != version:
                known = self._value.copy()
                self._copy = version, weakref.ref(known)
            return known

    @property
    def shape(self) -> Any:  # a tuple of as many integers as the layer knows
        return self._value.shape

    @property
    def version(self) -> int:
        with self._lock:
            if self.current is None:
                self._look()
            return self._version

    def written(self) -> None:
        """Says that `held` was written."""
        with self._lock:
            self._version, self._seen = next(_VERSIONS), None
            if self.current is not None:
                self.current = self._version

    def _look(self) -> None:
        """Finds out whether values are others since the last look, and whether they can be."""
        if _count_of is None or self._references() > self._alone:
            if self._seen is None or not _are_same(self._seen, self._value):
                self._seen = self._value.copy()
                self._version = next(_VERSIONS)
        else:
            self._version, self._seen = next(_VERSIONS), None
            self.current = self._version

    def _references(self) -> int:
        """To the array and to what it is a view of, which views of it refer to instead."""
        if _count_of is None:
            return 0
        strong = _count_of(self._value) + _count_of(self._value.base)
        return strong + weakref.getweakrefcount(self._value)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._value, self.name)


class Parameter(Tracked):
    """A trained array: its float32 master value and the gradient of the latest backward pass.

    Whatever dtype activations have, `value` is the master copy; networks round and pack it in every
    training step. It may be written at any time between two passes, by ``p.value[...] = array``,
    ``p.value *= 0.5``, ``p.value = array``, through any view of it that was taken at any time, by
    an optimiser or by `Module.load_state_dict`: the next inference is of the new values. Only who
    writes to a bare address (``p.value.ctypes.data``) calls `Module.changed` after it.

    Who keeps ``p.value``, or a view of it, makes each inference compare all its values with a copy
    of those before (10 to 50 GB/s); an optimiser that is given the `Parameter` itself does not.

    Parameters
    ----------
    value : array of numbers
        Copied, to a cache line.
    name : str
        Set by the model: the key in its `state_dict`.

    Attributes
    ----------
    name : str
    value, gradient : ndarray of float32, of one shape
        Plain and C-contiguous. What is assigned is copied into the array that is there.

    Raises
    ------
    TypeError, ValueError
        What is assigned to one of them holds no numbers, or has another shape; or None, as
        gradients are never cleared: the next backward pass overwrites them.

    Notes
    -----
    Copies and pickles have the value and the name; their gradient is zero.
    """

    def __init__(self, value: npt.ArrayLike, name: str = "") -> None:
        super().__init__(value, name)
        self._gradient: FloatArray = aligned(self.shape, np.float32, zeros=True)

    @property
    def gradient(self) -> FloatArray:
        return self._gradient

    @gradient.setter
    def gradient(self, gradient: npt.ArrayLike | None) -> None:
        if gradient is None:
            raise TypeError(
                f"gradient of {self.name!r} is None, expected an array: backward overwrites the "
                "one that is there, so nothing needs to be cleared"
            )
        if gradient is not self._gradient:  # which `p.gradient *= ...` assigns
            self._gradient[...] = values_for(f"gradient of {self.name!r}", gradient, self._gradient)

    def _refuse_grad(self, value: Any) -> None:
        raise AttributeError(
            f"grad of Parameter {self.name!r} is assigned, expected gradient, as in "
            "p.gradient = array; backward overwrites it, so nothing needs to be cleared"
        )

    # PyTorch's name of `gradient`: None clears nothing here.
    grad = property(None, _refuse_grad)

    def __getattr__(self, name: str) -> Any:
        if name == "grad":
            raise AttributeError(
                f"grad of Parameter {self.name!r} is called gradient, expected that"
            )
        return super().__getattr__(name)

    def hold_gradient(self, array: FloatArray) -> None:
        """From now on backward passes write the gradient to ``array``, which takes the values over.

        Raises
        ------
        TypeError, ValueError
            It is no float32 array of the shape of `value`, C-contiguous and writeable.
        """
        is_array = isinstance(array, np.ndarray) and not isinstance(array, np.ma.MaskedArray)
        if not is_array or array.dtype != np.float32:
            kind = getattr(array, "dtype", type(array).__name__)
            raise TypeError(f"array is {kind}, expected an ndarray of float32")
        if array.shape != self.shape:
            raise ValueError(f"array has shape {array.shape}, expected {self.shape}")
        if not (array.flags.c_contiguous and array.flags.aligned and array.flags.writeable):
            raise ValueError("array is expected to be C-contiguous, aligned and writeable")
        array[...] = self._gradient
        self._gradient = array

    def __repr__(self) -> str:
        return f"<dlprim.nn.Parameter {self.name} {self.shape}>"


class _OfLayer:
    """It has no ``__get__``, so that reading is as quick as without it."""

    def __init__(self, kind: type[Tracked], or_none: bool = False) -> None:
        self._kinds: tuple[type, ...] = (kind, type(None)) if or_none else (kind,)

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __set__(self, layer: Any, value: Any) -> None:
        if not isinstance(value, self._kinds):
            name, kind = self._name, type(layer).__name__
            raise TypeError(
                f"{name} of {kind} {layer.name!r} is assigned a {type(value).__name__}, expected "
                f"its value, as in layer.{name}.value = array, which copies it into the parameter"
            )
        vars(layer)[self._name] = value


def of_layer(kind: type[Tracked], or_none: bool = False) -> Any:
    """An attribute of a layer that refuses all but a `Parameter`, or other `Tracked`.

    Parameters
    ----------
    kind : type
    or_none : bool
        Whether None may be assigned too, as to a bias.
    """
    return _OfLayer(kind, or_none)


def _are_same(one: FloatArray, other: FloatArray) -> bool:
    """Bit for bit, so that NaN is itself and -0 is not 0."""
    first, second = one.reshape(-1).view(np.uint32), other.reshape(-1).view(np.uint32)
    return all(
        np.array_equal(first[begin : begin + _CHUNK], second[begin : begin + _CHUNK])
        for begin in range(0, first.size, _CHUNK)
    )
