"""What stands for public functions of dlprim in a trace; importing it fills the table."""

from dlprim.tracing.layers import batches as batches
from dlprim.tracing.layers import convolutions as convolutions
from dlprim.tracing.layers import drawn as drawn
from dlprim.tracing.layers import formulas as formulas
from dlprim.tracing.layers import losses as losses
from dlprim.tracing.layers import products as products
from dlprim.tracing.layers import recurrent as recurrent
from dlprim.tracing.layers import rows as rows
