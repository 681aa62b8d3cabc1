"""Layers, containers that chain them, models of them, and training steps.

A `Module` is its parameters and a `forward` on arrays. What runs, forward and backward, are
networks that are made of it; `state_dict` has PyTorch's names.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dlprim.model_file import ModelFileError
from dlprim.nn.activations import (
    ELU,
    GELU,
    SELU,
    Hardsigmoid,
    Hardswish,
    LeakyReLU,
    LogSoftmax,
    Mish,
    PReLU,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Tanh,
)
from dlprim.nn.containers import Add, Concat, Identity, Sequential
from dlprim.nn.context import Context
from dlprim.nn.conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from dlprim.nn.extents import (
    AdaptiveAvgPool2d,
    CircularPad2d,
    ReflectionPad2d,
    ReplicationPad2d,
    Upsample,
    ZeroPad2d,
)
from dlprim.nn.initial import seed
from dlprim.nn.linear import Dropout, Embedding, Linear
from dlprim.nn.losses import BCEWithLogitsLoss, CrossEntropyLoss, MSELoss
from dlprim.nn.models.images import mobilenet_v2, unet, vgg16, vit
from dlprim.nn.models.text import bert, gpt
from dlprim.nn.module import Module
from dlprim.nn.norm import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    InstanceNorm2d,
    LayerNorm,
    RMSNorm,
)
from dlprim.nn.parameter import Parameter
from dlprim.nn.pool import (
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    Flatten,
    GlobalAvgPool2d,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
)
from dlprim.nn.recurrent import GRU, LSTM, Recurrent
from dlprim.nn.residual import ConvBatchNorm, Residual
from dlprim.nn.resnet import resnet, resnet18, resnet34, resnet50, resnet101
from dlprim.nn.saving import load, save
from dlprim.nn.step import Step
from dlprim.nn.summary import Summary
from dlprim.nn.transformers import (
    LearnedPositions,
    MultiheadAttention,
    RotaryPositions,
    SinusoidalPositions,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
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
_GONE = {
    "Images": "plain arrays, which all layers take and give",
    "Pack": "nothing in its place: networks pack images themselves",
}

if not TYPE_CHECKING:  # which would then take every name for one of these

    def __getattr__(name: str) -> Any:
        """What stands on optimisers, which stand on this package, imported when asked for."""
        if name in _GONE:
            raise AttributeError(f"dlprim.nn.{name} is no more since 0.3, expected {_GONE[name]}")
        if name not in _TRAINING:
            raise AttributeError(f"module 'dlprim.nn' has no attribute {name!r}")
        module = import_module(f"dlprim.train.fit.{_TRAINING[name]}")
        globals()[name] = getattr(module, name)
        return globals()[name]
