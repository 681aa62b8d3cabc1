"""What stands for functions of NumPy in a trace; importing it fills the tables."""

from dlprim.tracing.functions import comparisons as comparisons
from dlprim.tracing.functions import elements as elements
from dlprim.tracing.functions import indexing as indexing
from dlprim.tracing.functions import joins as joins
from dlprim.tracing.functions import methods as methods
from dlprim.tracing.functions import moves as moves
from dlprim.tracing.functions import products as products
from dlprim.tracing.functions import reductions as reductions
from dlprim.tracing.functions import ufuncs as ufuncs
