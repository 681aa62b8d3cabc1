"""Which of PyTorch's operators become nodes, and how."""

from dlprim.torch.operators import convolutions as convolutions  # each fills the table
from dlprim.torch.operators import elements as elements
from dlprim.torch.operators import indexed as indexed
from dlprim.torch.operators import moves as moves
from dlprim.torch.operators import norms as norms
from dlprim.torch.operators import products as products
from dlprim.torch.operators import recurrent as recurrent
from dlprim.torch.operators import reductions as reductions
from dlprim.torch.operators.table import DTYPES, RULES, Call, UnsupportedError

__all__ = ["DTYPES", "RULES", "Call", "UnsupportedError"]
