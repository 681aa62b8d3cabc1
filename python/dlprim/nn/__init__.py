"""Small layers with a forward and a backward pass each, and containers that chain them.

A model is a `Module`: it has `parameters()`, `forward`, `backward` and a `state_dict` with
PyTorch's names. Between layers activations stay packed, in buffers that are taken once and reused.
"""

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
    "Summary",
    "Tanh",
    "TransformerDecoderLayer",
    "TransformerEncoderLayer",
    "Upsample",
    "ZeroPad2d",
    "bert",
    "gpt",
    "load",
    "mobilenet_v2",
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
