"""Optimisers: how a gradient changes a parameter.

An update is memory traffic, not arithmetic: every parameter, its gradient and its state pass
through the core once per step, and a bfloat16 copy of the parameter leaves in the same pass.
"""

from dlprim.optim import schedules
from dlprim.optim.clipping import clip_grad_norm, clip_grad_value
from dlprim.optim.rules import LAMB, SGD, Adam, AdamW, RMSprop

__all__ = [
    "LAMB",
    "SGD",
    "Adam",
    "AdamW",
    "RMSprop",
    "clip_grad_norm",
    "clip_grad_value",
    "schedules",
]
