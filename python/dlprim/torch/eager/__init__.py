"""Functions on PyTorch's tensors with gradients, for those who do not compile.

Each is an operator of PyTorch's, ``torch.ops.dlprim``, that `torch.compile` and `torch.export` take
as one node; a gradient is one more operator.
"""

from dlprim.torch.eager.attention import attention
from dlprim.torch.eager.norms import layer_norm
from dlprim.torch.eager.products import conv2d, linear
from dlprim.torch.eager.recurrent import gru, lstm

__all__ = ["attention", "conv2d", "gru", "layer_norm", "linear", "lstm"]
