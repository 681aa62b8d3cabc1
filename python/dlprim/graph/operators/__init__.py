"""What nodes compute: for each operator its kind, shapes and types of its results, its oracle."""

import numpy as np

from dlprim.graph.operators import indexed as indexed  # which fills the table of calls
from dlprim.graph.operators import panels as panels  # which does, too
from dlprim.graph.operators import running as running  # and so does this
from dlprim.graph.operators import signals as signals
from dlprim.graph.operators.attention import ATTENTION
from dlprim.graph.operators.batch_norms import BATCH_NORMS
from dlprim.graph.operators.caches import CACHES
from dlprim.graph.operators.convolutions import CONVOLUTIONS
from dlprim.graph.operators.dropout import DROPOUT
from dlprim.graph.operators.elements import ELEMENTS
from dlprim.graph.operators.experts import EXPERTS
from dlprim.graph.operators.formulas import FORMULAS
from dlprim.graph.operators.losses import LOSSES
from dlprim.graph.operators.moves import MOVES
from dlprim.graph.operators.norm_gradients import NORM_GRADIENTS
from dlprim.graph.operators.norms import NORMS
from dlprim.graph.operators.operator import CALLS, Operator, call
from dlprim.graph.operators.populations import POPULATIONS
from dlprim.graph.operators.products import PRODUCTS
from dlprim.graph.operators.quantized import QUANTIZED
from dlprim.graph.operators.recurrent import RECURRENT
from dlprim.graph.operators.updates import UPDATES
from dlprim.graph.operators.windows import WINDOWS

_quiet = np.errstate(all="ignore")  # what is no number is a result like others, without warnings

OPERATORS: dict[str, Operator] = {
    name: entry._replace(compute=_quiet(entry.compute))
    for name, entry in {
        **ATTENTION,
        **BATCH_NORMS,
        **CACHES,
        **CONVOLUTIONS,
        **DROPOUT,
        **ELEMENTS,
        **FORMULAS,
        **EXPERTS,
        **LOSSES,
        **MOVES,
        **NORMS,
        **NORM_GRADIENTS,
        **POPULATIONS,
        **PRODUCTS,
        **QUANTIZED,
        **RECURRENT,
        **UPDATES,
        **WINDOWS,
        "call": call,
    }.items()
}

__all__ = ["CALLS", "OPERATORS", "Operator"]
