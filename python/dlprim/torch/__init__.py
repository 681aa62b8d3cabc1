"""PyTorch's models on dlprim's networks: ``torch.compile(model, backend="dlprim")``.

Graphs that `torch.compile` traces, forward and backward, become networks of `dlprim.graph`; what
dlprim does not have stays with PyTorch. Functions on tensors, `conv2d` and others, are for those
who do not compile. Importing this module imports PyTorch.
"""

import torch._dynamo

from dlprim.torch.backend import backend
from dlprim.torch.eager import attention, conv2d, gru, layer_norm, linear, lstm
from dlprim.torch.explanation import explain
from dlprim.torch.optimizers import SGD, AdamW

# Else TorchDynamo leaves whole functions uncompiled that call an LSTM or a GRU.
torch._dynamo.config.allow_rnn = True

if "dlprim" not in torch._dynamo.list_backends(exclude_tags=()):
    torch._dynamo.register_backend(backend, name="dlprim")

__all__ = [
    "SGD",
    "AdamW",
    "attention",
    "backend",
    "conv2d",
    "explain",
    "gru",
    "layer_norm",
    "linear",
    "lstm",
]
