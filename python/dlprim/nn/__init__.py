"""Small layers with a forward and a backward pass each, and containers that chain them.

A model is a `Module`: it has `parameters()`, `forward`, `backward` and a `state_dict` with
PyTorch's names. Between layers activations stay packed, in buffers that are taken once and reused.
"""

from dlprim.nn.containers import Pack, Residual, Sequential
from dlprim.nn.context import Context, Images
from dlprim.nn.conv import Conv2d
from dlprim.nn.conv_batch_norm import ConvBatchNorm
from dlprim.nn.embedding import Embedding
from dlprim.nn.flatten import Flatten
from dlprim.nn.initial import seed
from dlprim.nn.linear import Dropout, Linear
from dlprim.nn.model_file import ModelFileError
from dlprim.nn.module import Module
from dlprim.nn.norm import BatchNorm2d
from dlprim.nn.parameter import Parameter
from dlprim.nn.pool import AvgPool2d, GlobalAvgPool2d, MaxPool2d
from dlprim.nn.recurrent import GRU, LSTM, Recurrent
from dlprim.nn.relu import ReLU
from dlprim.nn.resnet import resnet, resnet50
from dlprim.nn.saving import load, save
from dlprim.nn.summary import Summary

__all__ = [
    "GRU",
    "LSTM",
    "AvgPool2d",
    "BatchNorm2d",
    "Context",
    "Conv2d",
    "ConvBatchNorm",
    "Dropout",
    "Embedding",
    "Flatten",
    "GlobalAvgPool2d",
    "Images",
    "Linear",
    "MaxPool2d",
    "ModelFileError",
    "Module",
    "Pack",
    "Parameter",
    "ReLU",
    "Recurrent",
    "Residual",
    "Sequential",
    "Summary",
    "load",
    "resnet",
    "resnet50",
    "save",
    "seed",
]
