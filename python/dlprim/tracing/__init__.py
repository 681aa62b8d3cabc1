"""Functions written in NumPy, traced into graphs: compiled, and with gradients."""

from dlprim.tracing import functions as functions  # which fill the tables
from dlprim.tracing import layers as layers
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
