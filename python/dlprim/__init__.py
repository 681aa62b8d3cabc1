"""Deep-learning primitives for NumPy on one JIT-assembled batch-reduce GEMM kernel.

Every multiply-add runs in kernels that are generated for the machine at hand:
``C = epilogue(beta*C + sum_i A_i @ B_i)`` (arXiv 1906.06440). Arrays go in, arrays come out.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

try:
    from dlprim import _core as _core
except ImportError as error:
    raise ImportError(
        "dlprim's compiled core is missing or does not fit this Python; "
        f"build it with: pip install . ({error})"
    ) from error

from dlprim.arguments.floats import to_bfloat16, to_float32
from dlprim.functions.attention import attention, attention_backward
from dlprim.functions.conv.ordinary import conv1d, conv1d_backward, conv3d, conv3d_backward
from dlprim.functions.conv.transposed import (
    conv_transpose1d,
    conv_transpose1d_backward,
    conv_transpose2d,
    conv_transpose2d_backward,
    conv_transpose3d,
    conv_transpose3d_backward,
)
from dlprim.functions.convolution import conv2d, conv2d_backward
from dlprim.functions.elementwise import add, dropout, relu, relu_backward, stop_gradient
from dlprim.functions.embedding import embedding, embedding_backward
from dlprim.functions.extents.adaptive_pooling import (
    adaptive_avg_pool2d,
    adaptive_avg_pool2d_backward,
)
from dlprim.functions.extents.interpolation import interpolate, interpolate_backward
from dlprim.functions.extents.joining import concat, split
from dlprim.functions.extents.padding import pad, pad_backward
from dlprim.functions.extents.pooling import (
    avg_pool1d,
    avg_pool1d_backward,
    avg_pool2d,
    avg_pool2d_backward,
    avg_pool3d,
    avg_pool3d_backward,
    max_pool1d,
    max_pool1d_backward,
    max_pool2d,
    max_pool2d_backward,
    max_pool3d,
    max_pool3d_backward,
)
from dlprim.functions.folding import fold_batch_norm
from dlprim.functions.linear import linear, linear_backward
from dlprim.functions.loss import softmax_cross_entropy
from dlprim.functions.packing import pack_b, unpack_b
from dlprim.functions.quantized_weights import QuantizedWeights, quantize_weights
from dlprim.functions.recurrent import gru, gru_backward, lstm, lstm_backward, rnn
from dlprim.functions.rows.activations import (
    elu,
    elu_backward,
    gelu,
    gelu_backward,
    hardsigmoid,
    hardsigmoid_backward,
    hardswish,
    hardswish_backward,
    leaky_relu,
    leaky_relu_backward,
    mish,
    mish_backward,
    selu,
    selu_backward,
    sigmoid,
    sigmoid_backward,
    silu,
    silu_backward,
    softplus,
    softplus_backward,
    tanh,
    tanh_backward,
)
from dlprim.functions.rows.batch_norm import batch_norm, batch_norm_backward
from dlprim.functions.rows.group_norm import (
    group_norm,
    group_norm_backward,
    instance_norm,
    instance_norm_backward,
)
from dlprim.functions.rows.losses import (
    binary_cross_entropy_with_logits,
    binary_cross_entropy_with_logits_backward,
    mse_loss,
    mse_loss_backward,
)
from dlprim.functions.rows.normalization import (
    layer_norm,
    layer_norm_backward,
    rms_norm,
    rms_norm_backward,
)
from dlprim.functions.rows.places import argmax, argmin
from dlprim.functions.rows.prelu import prelu, prelu_backward
from dlprim.functions.rows.quantization import dequantize, quantization_parameters, quantize
from dlprim.functions.rows.reductions import reduce_max, reduce_mean, reduce_min, reduce_sum
from dlprim.functions.rows.residual_norm import (
    add_layer_norm,
    add_layer_norm_backward,
    add_rms_norm,
    add_rms_norm_backward,
)
from dlprim.functions.rows.softmax import (
    log_softmax,
    log_softmax_backward,
    softmax,
    softmax_backward,
)
from dlprim.kernel import pools as _pools
from dlprim.kernel.brgemm import Brgemm, brgemm
from dlprim.kernel.cache import kernel_cache_clear, kernel_cache_info, warmup
from dlprim.kernel.machine import (
    allowed_speedup,
    get_num_threads,
    isa,
    set_num_threads,
    threads,
)
from dlprim.lang import contract, define, einsum, matmul
from dlprim.loading import load
from dlprim.primitives.activations import Activations
from dlprim.primitives.batch_norm import BatchNorm
from dlprim.primitives.conv import Conv2d
from dlprim.primitives.conv_algorithm import get_conv_algorithm, set_conv_algorithm
from dlprim.primitives.linear import Linear
from dlprim.primitives.mlp import MLP
from dlprim.primitives.pooling import AvgPool2d, GlobalAvgPool2d, MaxPool2d
from dlprim.primitives.rnn import GRU, LSTM, RNN
from dlprim.tuning.tune import tune

if TYPE_CHECKING:
    from dlprim import distributed as distributed
    from dlprim import llm as llm
    from dlprim import nn as nn
    from dlprim import onnx as onnx
    from dlprim import optim as optim
    from dlprim import testing as testing
    from dlprim import tracing as tracing
    from dlprim import train as train
    from dlprim.tracing import compile, grad, value_and_grad, vjp

    __version__: str

__all__ = [
    "GRU", "LSTM", "MLP", "RNN", "Activations", "AvgPool2d", "BatchNorm", "Brgemm", "Conv2d",
    "GlobalAvgPool2d", "Linear", "MaxPool2d", "QuantizedWeights", "__version__",
    "adaptive_avg_pool2d", "adaptive_avg_pool2d_backward", "add", "add_layer_norm",
    "add_layer_norm_backward", "add_rms_norm", "add_rms_norm_backward", "allowed_speedup", "argmax",
    "argmin", "attention", "attention_backward", "avg_pool1d", "avg_pool1d_backward", "avg_pool2d",
    "avg_pool2d_backward", "avg_pool3d", "avg_pool3d_backward", "batch_norm", "batch_norm_backward",
    "binary_cross_entropy_with_logits", "binary_cross_entropy_with_logits_backward", "brgemm",
    "compile", "concat", "contract", "conv1d", "conv1d_backward", "conv2d", "conv2d_backward",
    "conv3d", "conv3d_backward", "conv_transpose1d", "conv_transpose1d_backward",
    "conv_transpose2d", "conv_transpose2d_backward", "conv_transpose3d",
    "conv_transpose3d_backward", "define", "dequantize", "dropout", "einsum", "elu", "elu_backward",
    "embedding", "embedding_backward", "fold_batch_norm", "gelu", "gelu_backward",
    "get_conv_algorithm", "get_num_threads", "grad", "group_norm", "group_norm_backward", "gru",
    "gru_backward", "hardsigmoid", "hardsigmoid_backward", "hardswish", "hardswish_backward",
    "instance_norm", "instance_norm_backward", "interpolate", "interpolate_backward", "isa",
    "kernel_cache_clear", "kernel_cache_info", "layer_norm", "layer_norm_backward", "leaky_relu",
    "leaky_relu_backward", "linear", "linear_backward", "load", "log_softmax",
    "log_softmax_backward", "lstm", "lstm_backward", "matmul", "max_pool1d", "max_pool1d_backward",
    "max_pool2d", "max_pool2d_backward", "max_pool3d", "max_pool3d_backward", "mish",
    "mish_backward", "mse_loss", "mse_loss_backward", "pack_b", "pad", "pad_backward", "prelu",
    "prelu_backward", "quantization_parameters", "quantize", "quantize_weights", "reduce_max",
    "reduce_mean", "reduce_min", "reduce_sum", "relu", "relu_backward", "rms_norm",
    "rms_norm_backward", "rnn", "selu", "selu_backward", "set_conv_algorithm", "set_num_threads",
    "sigmoid", "sigmoid_backward", "silu", "silu_backward", "softmax", "softmax_backward",
    "softmax_cross_entropy", "softplus", "softplus_backward", "split", "stop_gradient", "tanh",
    "tanh_backward", "threads", "to_bfloat16", "to_float32", "tune", "unpack_b", "value_and_grad",
    "vjp", "warmup",
]  # fmt: skip

_pools.register()

_SUBMODULES = ("distributed", "llm", "nn", "onnx", "optim", "testing", "tracing", "train")
# Of a package that takes long to import.
_TRACING = ("compile", "grad", "value_and_grad", "vjp")


def _installed_version() -> str:
    from importlib import metadata

    try:
        return metadata.version("dlprim")
    except metadata.PackageNotFoundError:
        return "unknown"


if not TYPE_CHECKING:  # which would then take every name for one of these

    def __getattr__(name: str) -> Any:
        """What takes long to import, when it is first asked for: submodules, functions that trace,
        and the version, which the package's metadata have.
        """
        if name in _SUBMODULES:
            return import_module(f"dlprim.{name}")
        if name in _TRACING:
            globals().update({it: getattr(import_module("dlprim.tracing"), it) for it in _TRACING})
            return globals()[name]
        if name == "__version__":
            globals()[name] = _installed_version()
            return globals()[name]
        raise AttributeError(f"module 'dlprim' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, and submodules, which are imported when they are first asked for."""
    own = {name for name in globals() if name.startswith("__") and name.endswith("__")}
    return sorted(own | set(__all__) | set(_SUBMODULES))
