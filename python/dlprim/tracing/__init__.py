"""Functions written in NumPy, traced into graphs: compiled, and with gradients."""

from dlprim.tracing import indexing as indexing  # which fill the tables of functions
from dlprim.tracing import moves as moves
from dlprim.tracing import products as products
from dlprim.tracing import reductions as reductions
from dlprim.tracing import ufuncs as ufuncs
from dlprim.tracing.compiled import CompiledFunction, compile
from dlprim.tracing.gradients import GradientFunction, grad, value_and_grad
from dlprim.tracing.pullbacks import vjp
from dlprim.tracing.refusals import TraceError

__all__ = [
    "CompiledFunction",
    "GradientFunction",
    "TraceError",
    "compile",
    "grad",
    "value_and_grad",
    "vjp",
]
