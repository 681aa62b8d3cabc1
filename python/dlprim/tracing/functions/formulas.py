"""Formulas in a trace: nodes of the graph as the user wrote them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from dlprim.lang.operands import integers
from dlprim.tracing.array import TracedArray
from dlprim.tracing.functions.operands import checked_layer, floats
from dlprim.tracing.tracer import tracer_of

_BYTES = ("int8", "uint8")


@checked_layer
def formula(definition: Any, arrays: Sequence[Any], sizes: Mapping[str, int]) -> Any:
    tracer = tracer_of(arrays)
    operands = []
    for name, it, due in zip(definition.parameters, arrays, definition._types, strict=True):
        operands.append(_operand(name, it, due, tracer).value)
    how = {
        "name": definition.name,
        "text": definition.text,
        "sizes": tuple(integers(sizes).items()),
    }
    results = tracer.build.emit("formula", operands, **how)
    made = tuple(TracedArray(tracer, it) for it in results)
    return made[0] if len(made) == 1 else made


def _operand(name: str, x: Any, due: str, tracer: Any) -> TracedArray:
    is_place = "int" in due and "int8" not in due
    if not isinstance(x, TracedArray):
        kind = np.int64 if is_place else np.float32
        array = np.asarray(x, kind) if isinstance(x, Real) else x
        x = TracedArray(tracer, tracer.value(array))
    if is_place:
        if x.dtype.name not in ("int32", "int64"):
            raise TypeError(f"{name} has dtype {x.dtype}, expected int32 or int64")
        return x
    if x.dtype.name in _BYTES and due in ("", x.dtype.name):
        return x
    if "int8" in due:
        raise TypeError(f"{name} has dtype {x.dtype}, expected {due}")
    (found,) = floats(**{name: x})
    return found  # type: ignore[no-any-return]
