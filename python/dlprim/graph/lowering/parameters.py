"""Parameters of layers, a number for each channel or column, as steps read them: in float32."""

from __future__ import annotations

import numpy as np

from dlprim.graph.extents import derived
from dlprim.graph.graph import Value
from dlprim.graph.lowering.formulas import is_computed, map_formula
from dlprim.graph.lowering.lowering import Lowering

_SINGLE = np.dtype(np.float32)


def row_of(to: Lowering, value: Value, count: int) -> int | None:
    """A row of so many numbers, known or computed; None for anything else.

    What a run computes in bfloat16 is widened by a step.
    """
    if value.size != count:
        return None
    array = to.graph.constants.get(value)
    if array is not None:
        return to.constant(derived(np.ascontiguousarray, array.reshape(-1), _SINGLE))
    if not is_computed(value.dtype):
        return None
    row = to.dense(value).reshaped((count,))
    assert row is not None
    if value.dtype != _SINGLE:
        wide = to.new((count,), _SINGLE)
        formula = map_formula(("input", 0), [row], wide)
        assert formula is not None
        to.formula(*formula, f"{value.name} widened")
        row = wide
    return to.number(row)
