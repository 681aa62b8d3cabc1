"""Formulas in a trace: nodes of the graph as the user wrote them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from dlprim.graph.graph import Value
from dlprim.lang.operands import integers
from dlprim.tracing.array import TracedArray
from dlprim.tracing.layers.operands import checked_layer, floats
from dlprim.tracing.tracer import tracer_of

_BYTES = ("int8", "uint8")


@checked_layer
def formula(definition: Any, arrays: Sequence[Any], sizes: Mapping[str, int]) -> Any:
    tracer = tracer_of(arrays)
    operands = []
    for name, it, due in zip(definition.parameters, arrays, definition._types, strict=True):
        operands.append(_operand(name, it, due, tracer).value)
    how = {
        "text": _text(definition, operands),
        "sizes": tuple(integers(sizes).items()),
        "shapes": (),
    }
    results = tracer.build.emit("formula", operands, **how)
    made = tuple(TracedArray(tracer, it) for it in results)
    return made[0] if len(made) == 1 else made


def _text(definition: Any, operands: Sequence[Value]) -> str:
    """The definition alone: of several that were written together, or of a formula without one."""
    text: str = definition.text
    if not definition.name:
        declared = []
        for name, value in zip(definition.parameters, operands, strict=True):
            kind = value.dtype.name if value.dtype.kind in "iu" else "float"
            sizes = ",".join(f"{name}_{axis}" for axis in range(len(value.shape)))
            declared.append(f"{kind}({sizes}) {name}" if sizes else f"{kind} {name}")
        returns = ", ".join(definition.returns)
        return f"def formula({', '.join(declared)}) -> ({returns}) {{ {text} }}"
    found = re.search(rf"\bdef\s+{re.escape(definition.name)}\b", text)
    assert found is not None
    end = text.index("}", found.start()) + 1  # statements have no braces
    return text[found.start() : end]


def _operand(name: str, x: Any, due: str, tracer: Any) -> Any:
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
    return found
