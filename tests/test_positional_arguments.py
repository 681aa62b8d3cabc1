"""What a caller may pass by position: what PyTorch's order says, and nothing that it says else."""

from __future__ import annotations

import inspect

import pytest

import dlprim
from wrong_values import SETTINGS

pytestmark = pytest.mark.any_level

POSITIONAL = {
    "conv2d": "x w bias stride padding dilation groups",
    "conv2d_backward": "dy x w stride padding dilation groups",
    **{f"conv{axes}": "x w bias stride padding dilation groups" for axes in ("1d", "3d")},
    **{f"conv{axes}_backward": "dy x w stride padding dilation groups" for axes in ("1d", "3d")},
    **{
        f"conv_transpose{axes}{which}": (f"{arrays} stride padding output_padding groups dilation")
        for axes in ("1d", "2d", "3d")
        for which, arrays in (("", "x w bias"), ("_backward", "dy x w"))
    },
    "linear": "x w bias",
    "linear_backward": "dy x w",
    "lstm": "x w_ih w_hh b_ih b_hh",
    "gru": "x w_ih w_hh b_ih b_hh",
    "rnn": "x w_ih w_hh b_ih b_hh",
    "lstm_backward": "dy saved",
    "gru_backward": "dy saved",
    "relu": "x",
    "relu_backward": "dy y",
    **{name: " ".join(["x", *settings]) for name, settings in SETTINGS.items()},
    **{f"{name}_backward": " ".join(["dy x", *it]) for name, it in SETTINGS.items()},
    **{name: "x axis" for name in ("softmax", "log_softmax")},
    **{f"{name}_backward": "dy y axis" for name in ("softmax", "log_softmax")},
    "layer_norm": "x weight bias eps",
    "rms_norm": "x weight eps",
    **{f"{name}_backward": "dy x weight eps" for name in ("layer_norm", "rms_norm")},
    "add_layer_norm": "x residual weight bias eps",
    "add_rms_norm": "x residual weight eps",
    **{f"add_{name}_backward": "dy dsum sum weight eps" for name in ("layer_norm", "rms_norm")},
    "group_norm": "x num_groups weight bias eps",
    "group_norm_backward": "dy x num_groups weight eps",
    "instance_norm": "x weight bias eps",
    "instance_norm_backward": "dy x weight eps",
    "batch_norm": "x running_mean running_var weight bias training momentum eps",
    "batch_norm_backward": "dy x running_mean running_var weight training eps",
    **{
        f"{kind}_pool{axes}d{which}": f"{'dy ' if which else ''}x kernel stride padding"
        for kind in ("max", "avg")
        for axes in (1, 2, 3)
        for which in ("", "_backward")
    },
    "prelu": "x weight",
    "prelu_backward": "dy x weight",
    **{f"reduce_{name}": "x axis keepdims" for name in ("sum", "mean", "max", "min")},
    **{name: "x axis keepdims" for name in ("argmax", "argmin")},
    "quantize": "x scale zero_point dtype axis",
    "dequantize": "q scale zero_point axis dtype",
    "quantization_parameters": "x dtype axis",
    "adaptive_avg_pool2d": "x output_size",
    "adaptive_avg_pool2d_backward": "dy x_shape",
    "interpolate": "x size scale_factor mode align_corners",
    "interpolate_backward": "dy x_shape scale_factor mode align_corners",
    "pad": "x pad mode value",
    "pad_backward": "dy pad mode",
    "concat": "arrays axis",
    "split": "x sizes axis",
    "add": "x other",
    "dropout": "x p",
    "attention": "q k v mask",
    "attention_backward": "dy q k v mask",
    "softmax_cross_entropy": "logits targets",
    "mse_loss": "x y",
    "mse_loss_backward": "dy x y",
    "binary_cross_entropy_with_logits": "logits targets weight",
    "binary_cross_entropy_with_logits_backward": "dy logits targets weight",
    "embedding": "indices w",
    "embedding_backward": "dy indices rows",
    "fold_batch_norm": "w bias",
    "load": "path",
    "pack_b": "b dtype",
    "brgemm": "a b c",
    "to_bfloat16": "x",
    "tune": "primitive budget_s",
    "Brgemm": "m n k dtype",
    "Conv2d": "x_shape w_shape stride padding dilation groups",
    "Linear": "x_shape K",
    "MLP": "x_shape widths",
    "LSTM": "x_shape K",
    "GRU": "x_shape K",
    "BatchNorm": "shape",
    "Activations": "shape",
    "MaxPool2d": "shape kernel stride padding",
    "AvgPool2d": "shape kernel stride padding",
    "GlobalAvgPool2d": "shape",
}


@pytest.mark.parametrize("name", POSITIONAL)
def test_everything_else_is_named(name: str) -> None:
    """So that a third 2 of `add(x, y, 2)`, alpha in PyTorch, is not taken for relu."""
    found = inspect.signature(getattr(dlprim, name)).parameters.values()
    named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    assert [it.name for it in found if it.kind not in named] == POSITIONAL[name].split()
