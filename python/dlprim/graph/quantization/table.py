"""What has been decided on the quantisation of a model, by names that graphs of it share.

A model is made into a graph for each set of shapes that it meets; a name says the node of the
model and the operator, which do not depend on shapes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlprim.graph.graph import Graph, Value
from dlprim.graph.passes.precision.parameters import Parameters

# That float32 holds.
_LEAST_SCALE = float(np.finfo(np.float32).smallest_subnormal)
_MOST_SCALE = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Table:
    """Which arrays of a model are kept in 8 bits, and which layers multiply them.

    Attributes
    ----------
    arrays : mapping of str to Parameters
        By the names of `names_of`.
    layers : mapping of str to float
        By the names of their results, and how far quantising it alone moved the result, as a part
        of the result's norm.
    excluded : mapping of str to float
        The same of layers that stay in floats because that was too far.
    """

    arrays: Mapping[str, Parameters]
    layers: Mapping[str, float]
    excluded: Mapping[str, float]

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "arrays": {name: list(it) for name, it in self.arrays.items()},
            "layers": dict(self.layers),
            "excluded": dict(self.excluded),
        }

    @staticmethod
    def of(document: Any) -> Table:
        """The table of a document.

        Raises
        ------
        ValueError
            Where it is none.
        """
        try:
            arrays = {
                str(name): Parameters(float(scale), int(zero_point), str(dtype))
                for name, (scale, zero_point, dtype) in document["arrays"].items()
            }
            layers, excluded = (
                {str(name): float(error) for name, error in document[part].items()}
                for part in ("layers", "excluded")
            )
        except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"its quantisation table cannot be read: {error}") from error
        if not all(_are_of_bytes(it) for it in arrays.values()):
            raise ValueError("its quantisation table has parameters of no 8 bits")
        return Table(arrays, layers, excluded)


def _are_of_bytes(it: Parameters) -> bool:
    if it.dtype not in ("uint8", "int8") or not _LEAST_SCALE <= it.scale <= _MOST_SCALE:
        return False
    limits = np.iinfo(it.dtype)
    return bool(limits.min <= it.zero_point <= limits.max)


def names_of(graph: Graph) -> dict[Value, str]:
    """A name for each array that is computed or given."""
    names = {value: value.name for value in graph.inputs}
    counts: Counter[tuple[str, str]] = Counter()
    for node in graph.nodes:
        same = (node.name, node.operator)
        counts[same] += 1
        order = f"#{counts[same]}" if counts[same] > 1 else ""
        for place, value in enumerate(node.outputs):
            names[value] = f"{node.name}:{node.operator}{order}" + (f".{place}" if place else "")
    return names


def is_image(value: Value) -> bool:
    """Whether it has pixels, which are kept in 8 bits between layers."""
    return len(value.shape) >= 4
