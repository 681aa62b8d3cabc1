"""What stands for functions of NumPy and of dlprim in a trace; importing it fills the tables."""

from dlprim.tracing.functions import formulas as formulas
from dlprim.tracing.functions import indexing as indexing
from dlprim.tracing.functions import layers as layers
from dlprim.tracing.functions import moves as moves
from dlprim.tracing.functions import products as products
from dlprim.tracing.functions import reductions as reductions
from dlprim.tracing.functions import rows as rows
from dlprim.tracing.functions import ufuncs as ufuncs
