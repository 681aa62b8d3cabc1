"""What nodes compute: for each operator its kind, shapes and types of its results, its oracle."""

from dlprim.graph.operators import indexed as indexed  # which fills the table of calls
from dlprim.graph.operators import signals as signals  # which does, too
from dlprim.graph.operators.elements import ELEMENTS
from dlprim.graph.operators.moves import MOVES
from dlprim.graph.operators.operator import Operator, call
from dlprim.graph.operators.products import PRODUCTS
from dlprim.graph.operators.quantized import QUANTIZED
from dlprim.graph.operators.recurrent import RECURRENT
from dlprim.graph.operators.windows import WINDOWS

OPERATORS: dict[str, Operator] = {
    **ELEMENTS,
    **MOVES,
    **PRODUCTS,
    **QUANTIZED,
    **RECURRENT,
    **WINDOWS,
    "call": call,
}

__all__ = ["OPERATORS", "Operator"]
