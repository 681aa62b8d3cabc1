"""Small layers with a forward and a backward pass each, and containers that chain them.

A model is a `Module`: it has `parameters()`, `forward`, `backward` and a `state_dict` with
PyTorch's names. Between layers activations stay packed, in buffers that are taken once and reused.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dlprim.model_file import ModelFileError
from dlprim.nn.containers import Pack, Sequential
from dlprim.nn.context import Context, Images
from dlprim.nn.conv import Conv2d
from dlprim.nn.conv_batch_norm import ConvBatchNorm
from dlprim.nn.embedding import Embedding
from dlprim.nn.extents.concat import Concat
from dlprim.nn.extents.padding import CircularPad2d, ReflectionPad2d, ReplicationPad2d, ZeroPad2d
from dlprim.nn.extents.resampled import AdaptiveAvgPool2d, Upsample
from dlprim.nn.flatten import Flatten
from dlprim.nn.initial import seed
from dlprim.nn.linear import Dropout, Linear
from dlprim.nn.models.images import mobilenet_v2, unet, vgg16, vit
from dlprim.nn.models.text import bert, gpt
from dlprim.nn.module import Module
from dlprim.nn.norm import BatchNorm2d
from dlprim.nn.parameter import Parameter
from dlprim.nn.pool import AvgPool2d, GlobalAvgPool2d, MaxPool2d
from dlprim.nn.recurrent import GRU, LSTM, Recurrent
from dlprim.nn.residual import Residual
from dlprim.nn.resnet import resnet, resnet18, resnet34, resnet50, resnet101
from dlprim.nn.rows.activations import (
    ELU,
    GELU,
    SELU,
    Hardsigmoid,
    Hardswish,
    LeakyReLU,
    Mish,
    ReLU,
    Sigmoid,
    SiLU,
    Softplus,
    Tanh,
)
from dlprim.nn.rows.group_norm import GroupNorm, InstanceNorm2d
from dlprim.nn.rows.losses import BCEWithLogitsLoss, CrossEntropyLoss, MSELoss
from dlprim.nn.rows.prelu import PReLU
from dlprim.nn.rows.row_norm import LayerNorm, RMSNorm
from dlprim.nn.rows.softmax import LogSoftmax, Softmax
from dlprim.nn.saving import load, save
from dlprim.nn.step import Step
from dlprim.nn.summary import Summary
from dlprim.nn.traced.attention import (
    MultiheadAttention,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
)
from dlprim.nn.traced.plain import Add, BatchNorm1d, BatchNorm3d, Identity, ReLU6
from dlprim.nn.traced.positions import LearnedPositions, RotaryPositions, SinusoidalPositions
from dlprim.nn.traced.windows import (
    AvgPool1d,
    AvgPool3d,
    Conv1d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    MaxPool1d,
    MaxPool3d,
)

if TYPE_CHECKING:
    from dlprim.train.fit.asking import predict
    from dlprim.train.fit.history import History
    from dlprim.train.fit.training import fit

__all__ = [
    "ELU",
    "GELU",
    "GRU",
    "LSTM",
    "SELU",
    "AdaptiveAvgPool2d",
    "Add",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "BCEWithLogitsLoss",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "CircularPad2d",
    "Concat",
    "Context",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvBatchNorm",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "Flatten",
    "GlobalAvgPool2d",
    "GroupNorm",
    "Hardsigmoid",
    "Hardswish",
    "History",
    "Identity",
    "Images",
    "InstanceNorm2d",
    "LayerNorm",
    "LeakyReLU",
    "LearnedPositions",
    "Linear",
    "LogSoftmax",
    "MSELoss",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "Mish",
    "ModelFileError",
    "Module",
    "MultiheadAttention",
    "PReLU",
    "Pack",
    "Parameter",
    "RMSNorm",
    "ReLU",
    "ReLU6",
    "Recurrent",
    "ReflectionPad2d",
    "ReplicationPad2d",
    "Residual",
    "RotaryPositions",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "SinusoidalPositions",
    "Softmax",
    "Softplus",
    "Step",
    "Summary",
    "Tanh",
    "TransformerDecoderLayer",
    "TransformerEncoderLayer",
    "Upsample",
    "ZeroPad2d",
    "bert",
    "fit",
    "gpt",
    "load",
    "mobilenet_v2",
    "predict",
    "resnet",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "save",
    "seed",
    "unet",
    "vgg16",
    "vit",
]

_TRAINING = {"History": "history", "fit": "training", "predict": "asking"}

if not TYPE_CHECKING:  # which would then take every name for one of these

    def __getattr__(name: str) -> Any:
        """What stands on optimisers, which stand on this package, imported when asked for."""
        if name not in _TRAINING:
            raise AttributeError(f"module 'dlprim.nn' has no attribute {name!r}")
        module = import_module(f"dlprim.train.fit.{_TRAINING[name]}")
        globals()[name] = getattr(module, name)
        return globals()[name]
