"""Models whose caches of keys and values stay between calls and are written where they lie."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from dlprim.arguments.scalars import integer
from dlprim.graph.graph import Array
from dlprim.onnx.model import OnnxModel
from dlprim.onnx.program import Port
from dlprim.onnx.proto import dtype_named

_FLOATS = ("float32", "bfloat16")


class CachedModel:
    """A model with caches; `OnnxModel.cached` makes it.

    One call at a time may run: a call writes the caches. A call that raises leaves them as they
    were.

    Attributes
    ----------
    caches : mapping of str to ndarray
        The caches by the names of the inputs that they are. What is written there holds for the
        next call.
    inputs, outputs : mapping of str to Port
        What a call takes and gives.
    """

    def __init__(self, model: OnnxModel, caches: Mapping[str, Array]) -> None:
        self.caches = MappingProxyType(dict(caches))
        inputs = {name: it for name, it in model.inputs.items() if name not in caches}
        self.inputs, self.outputs = MappingProxyType(inputs), model.outputs
        self._model = model

    @classmethod
    def of(
        cls, model: OnnxModel, places: int, batch: int, pairs: Mapping[str, str] | None
    ) -> CachedModel:
        """The model with caches of so many places."""
        room = integer("places", places, 1, 1 << 31)
        samples = integer("batch", batch, 1, 1 << 31)
        known = _pairs(model) if pairs is None else dict(pairs)
        if not known:
            raise ValueError(
                "pairs is None and no input has an output of its name with 'present' for 'past'"
            )
        for name, then in known.items():
            if name not in model.inputs or then not in model.outputs:
                raise ValueError(
                    f"pairs has {name!r}: {then!r}, expected an input and an output of the model"
                )
        caches = {it: _cache(model.inputs[it], room, samples, model.dtype) for it in known}
        return cls(model.with_states(known), caches)

    def __call__(self, /, *inputs: Any, **named: Any) -> Array | tuple[Array, ...]:
        """The outputs but for the caches: one array, or a tuple in the order of ``outputs``.

        Parameters
        ----------
        *inputs : ndarray
            In the order of ``inputs``.
        **named : ndarray
            The others by name.

        Returns
        -------
        ndarray or tuple of ndarray
            New arrays.

        Raises
        ------
        TypeError
            Where an input is missing, unknown, or of another dtype.
        ValueError
            Where a shape is not what the model says, or cannot be computed with; as `ModelError`,
            where a cache has not the places that are written.
        """
        if len(inputs) > len(self.inputs):
            raise TypeError(f"{len(inputs)} inputs are given, expected at most {len(self.inputs)}")
        given = {**dict(zip(self.inputs, inputs, strict=False)), **self.caches}
        for name, array in named.items():
            if name in given:
                raise TypeError(f"input '{name}' is given twice, or is a cache")
            given[name] = array
        results = self._model.run(given)
        return results[0] if len(results) == 1 else tuple(results)

    def explain(self) -> str:
        """As of `OnnxModel`."""
        return self._model.explain()


def _pairs(model: OnnxModel) -> dict[str, str]:
    """Inputs with a past in their name, and the outputs called so with a present."""
    found = {}
    for name in model.inputs:
        then = name.replace("past_key_values", "present").replace("past", "present")
        if then != name and then in model.outputs:
            found[name] = then
    return found


def _cache(port: Port, places: int, batch: int, dtype: str | None) -> Array:
    """An array of zeros for the input."""
    is_float = port.dtype == "float32" or (port.dtype in _FLOATS and dtype is None)
    if port.kind != "tensor" or not is_float or port.shape is None or len(port.shape) not in (3, 4):
        raise ValueError(
            f"the input {port.name!r} is no array of {' or '.join(_FLOATS)} with three or four "
            "axes, expected a cache"
        )
    shape = tuple(
        it if isinstance(it, int) else places if axis else batch
        for axis, it in enumerate(port.shape)
    )
    return np.zeros(shape, dtype_named(str(port.dtype)))
