"""Calls every public method with values that no argument wants: run by `test_wrong_values`.

As `wrong_values` does, of functions and constructors; here also with operands of other primitives.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np

import dlprim
from dlprim import nn, optim
from public_methods import METHODS, Calls, ones
from wrong_values import WRONG, complaint

CONV = dlprim.Conv2d((2, 5, 6, 6), (7, 5, 3, 3), padding=1)
NET = dlprim.MLP((3, 4), [5])
FOREIGN: list[Any] = [
    CONV, CONV.pack_src(ones(*CONV.x_shape)), CONV.pack_weights(ones(*CONV.w_shape)),
    dlprim.GRU((3, 4, 5), 6).pack_weights(ones(18, 5), ones(18, 6)),
    dlprim.lstm(ones(3, 4, 5), ones(24, 5), ones(24, 6), training=True).saved,
    NET.forward(NET.pack_src(ones(3, 4)), NET.pack_weights([ones(5, 4)]), [ones(5)],
                training=True).saved,
    ones(3, dtype=np.uint16),
]  # fmt: skip


def _layers() -> list[tuple[Any, Any, Any]]:
    """Layers, what goes in and the gradient of what comes out."""
    rows, images = ones(2, 3), ones(2, 3, 6, 6)
    return [
        (nn.Linear(3, 4), rows, ones(2, 4)),
        (nn.ReLU(), rows, ones(2, 3)),
        *((kind(), rows, ones(2, 3)) for kind in
          (nn.GELU, nn.Sigmoid, nn.Tanh, nn.SiLU, nn.LeakyReLU, nn.ELU, nn.SELU, nn.Hardswish,
           nn.Hardsigmoid, nn.Softplus, nn.Mish, nn.Softmax, nn.LogSoftmax)),
        (nn.LayerNorm(3), rows, ones(2, 3)),
        (nn.RMSNorm(3), rows, ones(2, 3)),
        (nn.GroupNorm(3, 3), images, images),
        (nn.InstanceNorm2d(3), images, images),
        (nn.PReLU(3), rows, ones(2, 3)),
        (nn.Dropout(0.5, seed=1), rows, ones(2, 3)),
        (nn.Concat(nn.ReLU(), nn.Linear(3, 2)), rows, ones(2, 5)),
        *((kind(1), images, ones(2, 3, 8, 8)) for kind in
          (nn.ZeroPad2d, nn.ReflectionPad2d, nn.ReplicationPad2d, nn.CircularPad2d)),
        (nn.Embedding(5, 4), np.zeros((2, 3), np.int64), ones(2, 3, 4)),
        (nn.Recurrent("lstm", 3, 4), ones(2, 3, 3), ones(2, 3, 4)),
        (
            nn.Sequential({"conv": nn.Conv2d(3, 4, 3),
                           "norm": nn.BatchNorm2d(4), "most": nn.MaxPool2d(2),
                           "mean": nn.AvgPool2d(1), "up": nn.Upsample(scale_factor=2),
                           "down": nn.AdaptiveAvgPool2d(2), "whole": nn.GlobalAvgPool2d(),
                           "last": nn.Linear(4, 2)}),
            images, ones(2, 2),
        ),
    ]  # fmt: skip


def _modules() -> Calls:
    """Layers, and their backward passes behind a forward pass of their own."""
    calls: Calls = {}
    for layer, x, dy in _layers():
        layer.use(nn.Context(), "model")

        def backward(dy: Any, layer: Any = layer, x: Any = x) -> Any:
            layer.forward(x)
            return layer.backward(dy)

        name = f"nn.{type(layer).__name__}"
        calls |= {f"{name}.forward": (layer.forward, {"x": x})}
        calls |= {f"{name}.backward": (backward, {"dy": dy})}
    return calls


def _made() -> Calls:
    """Constructors of layers."""
    size = {"C": 4, "K": 4}
    steps = {"kernel": 3, "stride": 1, "padding": 1}
    flags: dict[str, Any] = {"activation": None, "generator": None}
    cell = {**size, "layers": 1, "bidirectional": False, "generator": None}
    return {
        "nn.Linear": (nn.Linear, {**size, **flags, "bias": True}),
        "nn.Conv2d": (
            nn.Conv2d,
            {**size, **steps, **flags, "dilation": 1, "groups": 1, "bias": True, "first": False},
        ),
        "nn.BatchNorm2d": (
            nn.BatchNorm2d, {"C": 4, "activation": None, "eps": 1e-5, "momentum": 0.1},
        ),
        "nn.Embedding": (nn.Embedding, {"V": 4, "K": 4, "generator": None, "scale": 1.0}),
        "nn.Recurrent": (nn.Recurrent, {"cell": "lstm", **cell}),
        "nn.LSTM": (nn.LSTM, cell),
        "nn.GRU": (nn.GRU, cell),
        "nn.MaxPool2d": (nn.MaxPool2d, steps),
        "nn.AvgPool2d": (nn.AvgPool2d, {**steps, "count_include_pad": True}),
        "nn.GroupNorm": (
            nn.GroupNorm, {"num_groups": 2, "num_channels": 4, "eps": 1e-5, "affine": True},
        ),
        "nn.InstanceNorm2d": (
            nn.InstanceNorm2d, {"num_features": 4, "eps": 1e-5, "affine": True},
        ),
        "nn.PReLU": (nn.PReLU, {"num_parameters": 4, "init": 0.25}),
        "nn.AdaptiveAvgPool2d": (nn.AdaptiveAvgPool2d, {"output_size": 2}),
        "nn.Upsample": (
            nn.Upsample,
            {"size": None, "scale_factor": 2, "mode": "bilinear", "align_corners": True},
        ),
        "nn.ZeroPad2d": (nn.ZeroPad2d, {"padding": 1}),
        "nn.Concat": (lambda dim: nn.Concat(nn.ReLU(), dim=dim), {"dim": 1}),
        "nn.Dropout": (nn.Dropout, {"p": 0.5, "seed": 1}),
    }  # fmt: skip


def _asked() -> Calls:
    """What models are asked besides passes, and settings of optimisers."""
    model = nn.Sequential(nn.Linear(3, 4))
    return {
        "nn.Context": (
            nn.Context, {"dtype": "float32", "algorithm": "auto"},
        ),
        "nn.Parameter": (nn.Parameter, {"value": ones(3)}),
        "nn.Module.train": (model.train, {"mode": True}),
        "nn.Module.use": (model.use, {"context": nn.Context()}),
        "nn.Module.summary": (model.summary, {"x": (2, 3)}),
        "optim.SGD of": (
            lambda **given: optim.SGD([ones(3)], **given),
            {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.0, "nesterov": True},
        ),
        "optim.AdamW of": (
            lambda **given: optim.AdamW([ones(3)], **given),
            {"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.0},
        ),
        "optim.RMSprop of": (
            lambda **given: optim.RMSprop([ones(3)], **given),
            {"lr": 0.1, "alpha": 0.9, "eps": 1e-8, "weight_decay": 0.0, "momentum": 0.9,
             "centered": True},
        ),
        "tune": (
            dlprim.tune,
            {"primitive": dlprim.Conv2d((1, 4, 3, 3), (4, 1, 1, 1), groups=4), "budget_s": 0.01,
             "workers": 1, "path": None, "progress": None},
        ),
    }  # fmt: skip


def _optimisers() -> Calls:
    calls: Calls = {}
    for kind in (optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop):
        made = kind([ones(3)], 0.1)
        name = f"optim.{kind.__name__}"
        calls |= {name: (kind, {"parameters": [ones(3)]})}
        calls |= {f"{name}.step": (made.step, {"gradients": [ones(3)]})}
    given = {"parameters": [nn.Parameter(ones(3))]}
    norm = {"max_norm": 1.0, "norm_type": 2.0, "error_if_nonfinite": True}
    calls |= {"optim.clip_grad_norm": (optim.clip_grad_norm, given | norm)}
    calls |= {"optim.clip_grad_value": (optim.clip_grad_value, given | {"clip_value": 1.0})}
    return calls


def _losses() -> Calls:
    elements = {"x": ones(2, 3), "y": ones(2, 3)}
    named = {"logits": ones(2, 3), "targets": ones(2, 3)}
    classes = {"logits": ones(2, 3), "targets": np.zeros(2, np.int64)}
    more = {"gradient": True, "out": ones(2, 3)}
    weights = {"weight": ones(3), "pos_weight": ones(3), "reduction": "sum"}
    smoothed = {"ignore_index": -1, "reduction": "sum", "label_smoothing": 0.1}
    return {
        "nn.MSELoss": (nn.MSELoss, {"reduction": "sum"}),
        "nn.MSELoss of": (nn.MSELoss(), elements | more),
        "nn.BCEWithLogitsLoss": (nn.BCEWithLogitsLoss, weights),
        "nn.BCEWithLogitsLoss of": (nn.BCEWithLogitsLoss(), named | more),
        "nn.CrossEntropyLoss": (nn.CrossEntropyLoss, {"weight": ones(3), **smoothed}),
        "nn.CrossEntropyLoss of": (nn.CrossEntropyLoss(), classes | more),
    }


def by_position(kernel: dlprim.Brgemm) -> list[str]:
    """A kernel's methods with too few arguments, or too many."""
    found = []
    for method in (kernel, kernel.measure):
        for given in ((), (ones(4, 4),), [ones(4, 4) for _ in range(3)], [ones(4, 4)] * 5):
            try:
                method(*given)  # type: ignore[operator]
            except TypeError as error:
                if "incompatible" in str(error) or "expected" not in str(error):
                    found.append(str(error))
    return found


def main() -> int:
    warnings.simplefilter("ignore")
    complaints = by_position(dlprim.Brgemm(4, 4, 4))
    every = METHODS | _modules() | _made() | _asked() | _optimisers() | _losses()
    for name, (call, fine) in every.items():
        for argument in (None, *fine):
            for value in [*WRONG, *FOREIGN] if argument else [None]:
                is_large = isinstance(value, int) and value == 2**31
                if is_large and (argument == "repeats" or name.startswith("nn.")):
                    continue  # which would be done, or takes memory
                given = fine | ({argument: value} if argument else {})
                found = complaint(call, given, argument)
                if found:
                    complaints.append(f"{name}({argument}={value!r}): {found}")
    print("\n".join(complaints))
    return len(complaints)


if __name__ == "__main__":
    sys.exit(main() > 0)
