"""Calls every public callable with values that no argument wants: run by `test_wrong_values`.

A process of its own, for what is looked for includes a crash. Writes a line per answer that is
neither a result nor a TypeError or ValueError in words.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

import dlprim


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


class Nothing:
    """Not an array, not a number."""


class Raising:
    def __array__(self, *_: Any, **__: Any) -> Any:
        raise ValueError("this array cannot be had, whoever asks for it")


WRONG: list[Any] = [
    None, True, "x", "", b"relu", 0, -1, 2**31, 2**63, 2**70, 0.5, -1.5, float("nan"),
    float("inf"), 1j, Fraction(1, 3), (), (1,), (0, 0, 0, 0), [-1, 2], {}, {"forward": 1},
    Nothing(), Raising(), len, int, np.float64(1), np.zeros(()), np.zeros((0, 3), np.float32),
    ones(2, 3, 4)[::-1], np.ones(3, "O"), np.array(["x"]), np.ones(4, "M8[s]"), 
    ones(4).astype(">f4"),
    np.ma.masked_array(ones(4)), np.bool_(True), Ellipsis, slice(1), np.zeros(3, np.uint16),
    np.zeros(3, [("a", "f4")]), (1,) * 70, -(2**70), [[1, 2], [3]], bytearray(b"a"),
]  # fmt: skip
UNFIT = [it for it in WRONG if it is len or isinstance(it, Nothing)]  # for whatever argument

T, N, C, K = 2, 2, 3, 4
STEPS = {"stride": 1, "padding": 1, "dilation": 1, "groups": 1}
SPREAD = STEPS | {"output_padding": 0}
IMAGE, FILTER = (1, 2, 4, 4), (3, 2, 3, 3)
GATES = {"lstm": 4, "gru": 3, "rnn": 1}
# What not all cells have.
CELLS: dict[str, dict[str, Any]] = {
    "lstm": {"training": True}, "gru": {"reset_after": True, "training": True},
    "rnn": {"activation": "relu"},
}  # fmt: skip
INDICES = np.zeros(N, np.int64)
SETTINGS: dict[str, dict[str, Any]] = {  # of activations
    "sigmoid": {}, "tanh": {}, "gelu": {"approximate": "tanh"}, "silu": {},
    "leaky_relu": {"negative_slope": 0.1}, "elu": {"alpha": 2.0}, "selu": {}, "hardsigmoid": {},
    "hardswish": {}, "softplus": {"beta": 1.0, "threshold": 20.0}, "mish": {},
}  # fmt: skip
CALLS: dict[str, dict[str, Any]] = {
    "add": {"x": ones(3), "other": ones(3), "activation": "relu", "out": ones(3),
            "dtype": None},
    "relu": {"x": ones(3), "out": ones(3), "dtype": None},
    "relu_backward": {"dy": ones(3), "y": ones(3), "out": ones(3)},
    **{
        name: {"x": ones(3), **settings, "out": ones(3), "dtype": None}
        for name, settings in SETTINGS.items()
    },
    **{
        f"{name}_backward": {"dy": ones(3), "x": ones(3), **settings, "out": ones(3)}
        for name, settings in SETTINGS.items()
    },
    **{
        name: {"x": ones(N, C), "axis": 0, "out": ones(N, C)}
        for name in ("softmax", "log_softmax")
    },
    **{
        f"{name}_backward": {"dy": ones(N, C), "y": ones(N, C), "axis": -1, "out": ones(N, C)}
        for name in ("softmax", "log_softmax")
    },
    "layer_norm": {"x": ones(N, C), "weight": ones(C), "bias": ones(C), "eps": 1e-5,
                   "out": ones(N, C)},
    "rms_norm": {"x": ones(N, C), "weight": ones(C), "eps": 1e-5, "out": ones(N, C)},
    **{
        f"{name}_backward": {"dy": ones(N, C), "x": ones(N, C), "weight": ones(C), "eps": 1e-5,
                             "out": ones(N, C)}
        for name in ("layer_norm", "rms_norm")
    },
    "group_norm": {"x": ones(N, K, 3), "num_groups": 2, "weight": ones(K), "bias": ones(K),
                   "eps": 1e-5, "out": ones(N, K, 3), "dtype": None},
    "group_norm_backward": {"dy": ones(N, K, 3), "x": ones(N, K, 3), "num_groups": 2,
                            "weight": ones(K), "eps": 1e-5, "out": ones(N, K, 3)},
    "instance_norm": {"x": ones(N, C, 3), "weight": ones(C), "bias": ones(C), "eps": 1e-5,
                      "out": ones(N, C, 3)},
    "instance_norm_backward": {"dy": ones(N, C, 3), "x": ones(N, C, 3), "weight": ones(C),
                               "eps": 1e-5, "out": ones(N, C, 3)},
    "batch_norm": {"x": ones(N, C, 3), "running_mean": ones(C), "running_var": ones(C),
                   "weight": ones(C), "bias": ones(C), "training": True, "momentum": 0.1,
                   "eps": 1e-5, "out": ones(N, C, 3), "dtype": None},
    "batch_norm_backward": {"dy": ones(N, C, 3), "x": ones(N, C, 3), "running_mean": ones(C),
                            "running_var": ones(C), "weight": ones(C), "training": False,
                            "eps": 1e-5, "out": ones(N, C, 3), "dtype": None},
    **{
        f"{kind}_pool{axes}d{which}": {
            **({"dy": ones(N, C, *(2,) * axes)} if which else {}), "x": ones(N, C, *(4,) * axes),
            "kernel": 2, "stride": 2, "padding": 0,
            **({"count_include_pad": True} if kind == "avg" else {}),
            **({} if which else {"out": ones(N, C, *(2,) * axes)}), "dtype": None,
        }
        for kind in ("max", "avg") for axes in (1, 2, 3) for which in ("", "_backward")
    },
    "prelu": {"x": ones(N, C, 3), "weight": ones(C), "out": ones(N, C, 3), "dtype": None},
    "prelu_backward": {"dy": ones(N, C, 3), "x": ones(N, C, 3), "weight": ones(1),
                       "out": ones(N, C, 3)},
    "add_layer_norm": {"x": ones(N, C), "residual": ones(N, C), "weight": ones(C),
                       "bias": ones(C), "eps": 1e-5, "out": ones(N, C), "dtype": None},
    "add_rms_norm": {"x": ones(N, C), "residual": ones(N, C), "weight": ones(C), "eps": 1e-5,
                     "out": ones(N, C)},
    **{
        f"{name}_backward": {"dy": ones(N, C), "dsum": ones(N, C), "sum": ones(N, C),
                             "weight": ones(C), "eps": 1e-5, "out": ones(N, C)}
        for name in ("add_layer_norm", "add_rms_norm")
    },
    **{
        f"reduce_{name}": {"x": ones(N, C, K), "axis": (0, -1), "keepdims": False, "out": ones(C),
                           "dtype": None}
        for name in ("sum", "mean", "max", "min")
    },
    **{
        name: {"x": ones(N, C), "axis": 0, "keepdims": True, "out": np.zeros((1, C), np.int64)}
        for name in ("argmax", "argmin")
    },
    "quantize": {"x": ones(N, C), "scale": ones(C), "zero_point": np.zeros(C, np.int8),
                 "dtype": "int8", "axis": 1, "out": np.ones((N, C), np.int8)},
    "dequantize": {"q": np.ones((N, C), np.uint8), "scale": 0.5, "zero_point": 3, "axis": None,
                   "dtype": "float32", "out": ones(N, C)},
    "quantization_parameters": {"x": ones(N, C), "dtype": "int8", "axis": 0, "symmetric": True},
    "adaptive_avg_pool2d": {"x": ones(*IMAGE), "output_size": 2, "layout": "NCHW",
                            "out": ones(1, 2, 2, 2)},
    "adaptive_avg_pool2d_backward": {"dy": ones(1, 2, 2, 2), "x_shape": IMAGE, "layout": "NCHW",
                                     "out": ones(*IMAGE)},
    "interpolate": {"x": ones(*IMAGE), "size": None, "scale_factor": 0.5, "mode": "bilinear",
                    "align_corners": True, "layout": "NCHW", "out": ones(1, 2, 2, 2)},
    "interpolate_backward": {"dy": ones(1, 2, 2, 2), "x_shape": IMAGE, "scale_factor": 0.5,
                             "mode": "nearest", "align_corners": False, "layout": "NCHW",
                             "out": ones(*IMAGE)},
    "pad": {"x": ones(N, C), "pad": (1, 1), "mode": "constant", "value": 2.0,
            "out": ones(N, C + 2)},
    "pad_backward": {"dy": ones(N, C), "pad": (1, 0), "mode": "reflect", "out": ones(N, C - 1)},
    "concat": {"arrays": [ones(N, C), ones(N, K)], "axis": 1, "out": ones(N, C + K)},
    "split": {"x": ones(N, C), "sizes": 1, "axis": 1},
    "dropout": {"x": ones(3), "p": 0.5, "seed": 1, "offset": 2, "out": ones(3)},
    "attention": {"q": ones(N, 2, T, C), "k": ones(N, 1, K, C), "v": ones(N, 1, K, C),
                  "mask": ones(T, K), "scale": 0.5, "causal": False, "softcap": 2.0, "past": 0,
                  "out": ones(N, 2, T, C), "dtype": None},
    "attention_backward": {"dy": ones(N, 2, T, C), "q": ones(N, 2, T, C), "k": ones(N, 1, K, C),
                           "v": ones(N, 1, K, C), "mask": ones(T, K), "scale": 0.5,
                           "causal": False, "softcap": 2.0, "past": 0, "dtype": None},
    "linear": {"x": ones(N, C), "w": ones(K, C), "bias": ones(K), "activation": "relu",
               "out": ones(N, K)},
    "linear_backward": {"dy": ones(N, K), "x": ones(N, C), "w": ones(K, C), "z": ones(N, K),
                        "activation": "gelu"},
    "conv2d": {"x": ones(*IMAGE), "w": ones(*FILTER), "bias": ones(3), "stride": 1, "padding": 1,
               "dilation": 1, "groups": 1, "activation": "relu", "residual": ones(1, 3, 4, 4),
               "layout": "NCHW", "algorithm": "auto", "out": ones(1, 3, 4, 4), "accuracy": None},
    "conv2d_backward": {"dy": ones(1, 3, 2, 2), "x": ones(*IMAGE), "w": ones(*FILTER),
                        "y": ones(1, 3, 2, 2), "activation": "relu"},
    **{
        f"conv{axes}d": {"x": ones(1, 2, *(4,) * axes), "w": ones(3, 2, *(3,) * axes),
                         "bias": ones(3), **STEPS, "out": ones(1, 3, *(4,) * axes)}
        for axes in (1, 3)
    },
    **{
        f"conv{axes}d_backward": {"dy": ones(1, 3, *(4,) * axes), "x": ones(1, 2, *(4,) * axes),
                                  "w": ones(3, 2, *(3,) * axes), **STEPS}
        for axes in (1, 3)
    },
    **{
        f"conv_transpose{axes}d": {"x": ones(1, 2, *(4,) * axes), "w": ones(2, 3, *(3,) * axes),
                                   "bias": ones(3), **SPREAD, "out": ones(1, 3, *(4,) * axes)}
        for axes in (1, 2, 3)
    },
    **{
        f"conv_transpose{axes}d_backward": {"dy": ones(1, 3, *(4,) * axes),
                                            "x": ones(1, 2, *(4,) * axes),
                                            "w": ones(2, 3, *(3,) * axes), **SPREAD}
        for axes in (1, 2, 3)
    },
    "softmax_cross_entropy": {"logits": ones(N, K), "targets": INDICES, "weight": ones(K),
                              "ignore_index": -1, "reduction": "sum", "label_smoothing": 0.1,
                              "gradient": True, "out": ones(N, K)},
    "mse_loss": {"x": ones(N, K), "y": ones(N, K), "reduction": "none", "out": ones(N, K)},
    "mse_loss_backward": {"dy": ones(N, K), "x": ones(N, K), "y": ones(N, K),
                          "reduction": "none", "out": ones(N, K)},
    **{
        f"binary_cross_entropy_with_logits{which}": {
            **given, "logits": ones(N, K), "targets": ones(N, K), "weight": ones(N, K),
            "pos_weight": ones(K), "reduction": "none", "out": ones(N, K)}
        for which, given in (("", {}), ("_backward", {"dy": ones(N, K)}))
    },
    "embedding": {"indices": INDICES, "w": ones(4, K), "out": ones(N, K)},
    "embedding_backward": {"dy": ones(N, K), "indices": INDICES, "rows": 4,
                           "out": ones(4, K)},
    "fold_batch_norm": {"w": ones(K, C), "bias": ones(K), "norm_weight": ones(K),
                        "norm_bias": ones(K),
                        "running_mean": ones(K), "running_var": ones(K), "eps": 1e-5},
    "pack_b": {"b": ones(4, 4), "dtype": "bfloat16", "transposed": False},
    "unpack_b": {"packed": np.ones((1, 4, 4), np.int8), "k": 4},
    "to_bfloat16": {"x": ones(3)},
    "to_float32": {"x": np.ones(3, np.uint16), "dtype": "bfloat16"},
    "brgemm": {"a": ones(1, 4, 4), "b": ones(1, 4, 4), "c": ones(4, 4), "bias": ones(4),
               "activation": "relu"},
    **{
        cell: {"x": ones(T, N, C), "w_ih": ones(g * K, C), "w_hh": ones(g * K, K),
               "b_ih": ones(g * K), "b_hh": ones(g * K), "h_0": ones(1, N, K),
               "lengths": INDICES, "reverse": False, "bidirectional": False, "num_layers": 1,
               "batch_first": False, **CELLS[cell]}
        for cell, g in GATES.items()
    },
    "Brgemm": {"m": 4, "n": 4, "k": 4, "dtype": "float32", "lda": 4, "ldb": 4, "ldc": 4,
               "trans_a": False, "beta": 0, "addressing": "stride", "bias": False,
               "activation": None, "b_dtype": None, "out_dtype": None, "scale": None,
               "residual": False, "relu_mask": False, "zero_point_a": False},
    "Conv2d": {"x_shape": IMAGE, "w_shape": FILTER, "stride": 1, "padding": 0, "dilation": 1,
               "groups": 1, "dtype": "float32", "layout": "blocked", "algorithm": "auto",
               "activation": None, "bias": False, "schedule": None, "accuracy": None},
    "Linear": {"x_shape": (N, C), "K": K, "dtype": "float32", "activation": None, "bias": False,
               "schedule": None, "layout": None, "dst_dtype": None},
    "MLP": {"x_shape": (N, C), "widths": [K], "dtype": "float32", "activation": "relu",
            "final_activation": None},
    **{
        cell.upper(): {"x_shape": (T, N, C), "K": K, "dtype": "float32", "reverse": False,
                       "bias": True, "schedule": None}
        | {name: value for name, value in CELLS[cell].items() if name != "training"}
        for cell in GATES
    },
    "BatchNorm": {"shape": IMAGE, "layout": "NHWC", "dtype": "float32", "activation": "relu",
                  "residual": False, "eps": 1e-5, "groups": 1},
    "Activations": {"shape": IMAGE, "layout": "NHWC", "dtype": "float32", "groups": 1},
    "MaxPool2d": {"shape": IMAGE, "kernel": 2, "stride": 2, "padding": 0, "groups": 1},
    "AvgPool2d": {"shape": IMAGE, "kernel": 2, "stride": 2, "padding": 0,
                  "count_include_pad": True},
    "GlobalAvgPool2d": {"shape": IMAGE, "layout": "NHWC", "dtype": "float32", "groups": 1},
    "matmul": {"a": ones(N, C), "b": ones(C, K), "out": ones(N, K)},
    "quantize_weights": {"w": ones(K, C), "bits": 4, "group": 32, "zero_points": False,
                         "x_bits": 15},
    "set_num_threads": {"n": 1},
    "threads": {"n": 1},
    "set_conv_algorithm": {"algorithm": "auto"},
    "warmup": {"specs": [{"m": 4, "n": 4, "k": 4}]},
}  # fmt: skip
# Of no argument that could be wrong, one that takes seconds, any number of arrays or a file:
# `tune`, formulas, `load` and what traces functions have tests of their own.
OTHERS = {"get_conv_algorithm", "get_num_threads", "isa", "kernel_cache_clear", "kernel_cache_info"}
OTHERS |= {"lstm_backward", "gru_backward", "tune", "__version__"}
OTHERS |= {"allowed_speedup", "compile", "contract", "define", "einsum", "grad", "load"}
OTHERS |= {"QuantizedWeights", "stop_gradient", "value_and_grad", "vjp"}
assert len(WRONG) >= 40
assert set(CALLS) | OTHERS == set(dlprim.__all__)


def complaint(call: Callable[..., Any], given: dict[str, Any], argument: str | None) -> str | None:
    """What is neither a result nor a TypeError or ValueError in words, with the argument's name."""
    try:
        call(**given)
    except (TypeError, ValueError) as error:
        text = str(error)
        if "incompatible" in text or "argument types" in text or len(text.split()) < 4:
            return text
        if argument and any(given[argument] is it for it in UNFIT):
            return None if re.search(rf"\b{argument}\b", text) else f"without the name: {text}"
    except Exception as error:
        return repr(error)
    return None


def main() -> int:
    warnings.simplefilter("ignore")
    count = 0
    for name, fine in CALLS.items():
        for argument in (None, *fine):
            for value in WRONG[: None if argument else 1]:
                given = fine | ({argument: value} if argument else {})
                found = complaint(getattr(dlprim, name), given, argument)
                if found:
                    count += 1
                    print(f"{name}({argument}={value!r}): {found}")
        dlprim.set_num_threads(1)
    return count


if __name__ == "__main__":
    sys.exit(main() > 0)
