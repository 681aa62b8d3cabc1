"""A call that is as it should be of every public method and function with state, by name.

Tests change one argument of each. Arrays that are written are among them; nothing is kept between
calls but what a call returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import dlprim

T, N, C, K = 2, 2, 3, 4
IMAGE, FILTER, RESULT = (1, C, 4, 4), (K, C, 3, 3), (1, K, 2, 2)


def ones(*shape: int, dtype: Any = np.float32) -> Any:
    return np.ones(shape, dtype)


Calls = dict[str, tuple[Callable[..., Any], dict[str, Any]]]


def _products() -> Calls:
    conv = dlprim.Conv2d(IMAGE, FILTER, layout="NHWC", activation="relu", bias=True)
    layer = dlprim.Linear((N, C), K, layout="plain", activation="relu", bias=True)
    src, dst = ones(*conv.src_shape), ones(*conv.dst_shape)
    weights, mask = conv.pack_weights(ones(*FILTER)), ones(*conv.relu_mask_shape, dtype=np.uint8)
    packed = layer.pack_weights(ones(K, C))
    calls: Calls = {
        "Conv2d.pack_weights": (conv.pack_weights, {"w": ones(*FILTER), "form": "direct"}),
        "Conv2d.forward": (
            conv.forward,
            {"src": src, "weights": weights, "bias": ones(K), "residual": dst.copy(),
             "out": dst.copy(), "relu_mask": mask},
        ),
        "Conv2d.backward_relu": (
            conv.backward_relu,
            {"diff_dst": dst, "dst": dst, "out": dst.copy(), "diff_bias": ones(K)},
        ),
        "Conv2d.backward_relu by mask": (
            conv.backward_relu, {"diff_dst": dst, "relu_mask": mask}
        ),
        "Conv2d.diff_bias": (conv.diff_bias, {"diff_dst": dst, "out": ones(K)}),
        "Linear.pack_weights": (layer.pack_weights, {"w": ones(K, C), "backward": True}),
        "Linear.forward": (
            layer.forward,
            {"src": ones(N, C), "weights": packed, "bias": ones(K), "out": ones(N, K),
             "training": True},
        ),
        "Linear.backward_activation": (
            layer.backward_activation,
            {"diff_dst": ones(N, K), "saved": ones(N, K), "out": ones(N, K), "diff_bias": ones(K)},
        ),
    }  # fmt: skip
    return calls | _packed("Conv2d", conv, weights) | _packed("Linear", layer, packed)


def _packed(name: str, it: Any, wts: Any) -> Calls:
    a, b, dw = ones(*it.src_shape), ones(*it.dst_shape), ones(*it.diff_weights_shape)
    return {
        f"{name}.pack_src": (it.pack_src, {"x": ones(*it.x_shape), "out": a.copy()}),
        f"{name}.pack_diff_dst": (it.pack_diff_dst, {"dy": ones(*it.y_shape), "out": b.copy()}),
        f"{name}.unpack_dst": (it.unpack_dst, {"dst": b, "out": ones(*it.y_shape)}),
        f"{name}.unpack_diff_src": (
            it.unpack_diff_src, {"diff_src": a, "out": ones(*it.x_shape)}
        ),
        f"{name}.unpack_diff_weights": (
            it.unpack_diff_weights, {"diff_weights": dw, "out": ones(*it.w_shape)}
        ),
        f"{name}.backward_data": (
            it.backward_data, {"diff_dst": b, "weights": wts, "out": a.copy()}
        ),
        f"{name}.backward_weights": (
            it.backward_weights, {"src": a, "diff_dst": b, "out": dw, "dtype": "float32"}
        ),
    }  # fmt: skip


def _mlp() -> Calls:
    net = dlprim.MLP((N, C), [K, 2])
    weights, biases = net.pack_weights([ones(K, C), ones(2, K)]), [ones(K), ones(2)]
    src, diff = net.pack_src(ones(N, C)), net.pack_diff_dst(ones(N, 2))
    saved = net.forward(src, weights, biases, training=True).saved
    backward = net.backward(diff, saved, weights)
    return {
        "MLP.pack_weights": (net.pack_weights, {"weights": [ones(K, C), ones(2, K)]}),
        "MLP.unpack_diff_weights": (
            net.unpack_diff_weights, {"diff_weights": backward.diff_weights}
        ),
        "MLP.forward": (
            net.forward, {"src": src, "weights": weights, "biases": biases, "training": False}
        ),
        "MLP.backward": (
            net.backward,
            {"diff_dst": diff, "saved": saved, "weights": weights, "needs_diff_src": True},
        ),
    }  # fmt: skip


def _recurrent() -> Calls:
    calls: Calls = {}
    for name, gates in (("lstm", 4), ("gru", 3)):
        it: Any = getattr(dlprim, name.upper())((T, N, C), K)
        plain = {"w_ih": ones(gates * K, C), "w_hh": ones(gates * K, K),
                 "b_ih": ones(gates * K), "b_hh": ones(gates * K)}  # fmt: skip
        weights = it.pack_weights(**plain)
        c = {"c_0": ones(N, K)} if name == "lstm" else {}
        diff_c = {"diff_c_n": ones(N, K)} if name == "lstm" else {}
        forward = {"x": ones(T, N, C), "weights": weights, "h_0": ones(N, K), **c,
                   "lengths": np.array([1, 2]), "training": True, "out": ones(T, N, K)}  # fmt: skip
        saved = it.forward(**forward).saved
        kept = getattr(dlprim, name)(ones(T, N, C), **plain, training=True).saved
        last = {f"diff_{each}_n": ones(1, N, K) for each in ("hc" if name == "lstm" else "h")}
        calls |= {
            f"{name.upper()}.pack_weights": (it.pack_weights, plain),
            f"{name.upper()}.pack_weights into": (
                it.pack_weights, plain | {"out": it.pack_weights(**plain)}
            ),
            f"{name.upper()}.forward": (it.forward, forward),
            f"{name.upper()}.backward": (
                it.backward,
                {"dy": ones(T, N, K), "saved": saved, "weights": weights,
                 "diff_h_n": ones(N, K), **diff_c},
            ),
            f"{name}_backward": (
                getattr(dlprim, f"{name}_backward"),
                {"dy": ones(T, N, K), "saved": kept, **last},
            ),
        }  # fmt: skip
    plain = {"w_ih": ones(K, C), "w_hh": ones(K, K), "b_ih": ones(K), "b_hh": ones(K)}
    layer = dlprim.RNN((T, N, C), K)
    weights = layer.pack_weights(**plain)
    calls["RNN.pack_weights"] = layer.pack_weights, plain
    calls["RNN.forward"] = (
        layer.forward,
        {"x": ones(T, N, C), "weights": weights, "h_0": ones(N, K), "lengths": np.array([1, 2]),
         "out": ones(T, N, K)},
    )  # fmt: skip
    return calls


def _layers() -> Calls:
    norm = dlprim.BatchNorm(IMAGE, activation="relu", residual=True, layout="NHWC")
    src = ones(*norm.src_shape)
    mask, saved = ones(*norm.relu_mask_shape, dtype=np.uint8), ones(2, C)
    parameters = {"weights": ones(C), "bias": ones(C)}
    most = dlprim.MaxPool2d(IMAGE, 2, layout="NHWC")
    mean = dlprim.AvgPool2d(IMAGE, 2, layout="NHWC")
    whole = dlprim.GlobalAvgPool2d(IMAGE, layout="NHWC")
    shape = dlprim.Activations(IMAGE)
    small, indices = ones(*most.dst_shape), most.new_indices()
    forward, pixel = {"src": src, "out": small.copy()}, ones(*whole.dst_shape)
    return {
        "BatchNorm.forward": (
            norm.forward,
            {"src": src, "running_mean": ones(C), "running_var": ones(C), **parameters,
             "residual": src.copy(), "training": True, "momentum": 0.1, "out": src.copy(),
             "relu_mask": mask, "saved": saved},
        ),
        "BatchNorm.backward": (
            norm.backward,
            {"diff_dst": src, "src": src.copy(), "saved": saved, **parameters, "dst": src.copy(),
             "training": True, "out": ones(*src.shape), "diff_residual": ones(*src.shape),
             "diff_weights": ones(C), "diff_bias": ones(C), "diff_addend": src.copy()},
        ),
        "BatchNorm.backward by mask": (
            norm.backward, {"diff_dst": src, "src": src.copy(), "saved": saved, "relu_mask": mask}
        ),
        "MaxPool2d.forward": (most.forward, forward | {"indices": indices}),
        "MaxPool2d.backward": (
            most.backward, {"diff_dst": small, "indices": indices, "out": src.copy()}
        ),
        "AvgPool2d.forward": (mean.forward, forward),
        "AvgPool2d.backward": (mean.backward, {"diff_dst": small, "out": src.copy()}),
        "GlobalAvgPool2d.forward": (whole.forward, {"src": src, "out": pixel.copy()}),
        "GlobalAvgPool2d.backward": (whole.backward, {"diff_dst": pixel, "out": src.copy()}),
        "GlobalAvgPool2d.features": (whole.features, {"dst": pixel}),
        "GlobalAvgPool2d.from_features": (
            whole.from_features, {"features": ones(1, C), "out": pixel.copy()}
        ),
        "Activations.pack": (shape.pack, {"x": ones(*IMAGE), "out": shape.pack(ones(*IMAGE))}),
        "Activations.unpack": (
            shape.unpack, {"packed": shape.pack(ones(*IMAGE)), "out": ones(*IMAGE)}
        ),
        "Activations.empty": (shape.empty, {"like": None}),
    }  # fmt: skip


def _kernel() -> Calls:
    full = dlprim.Brgemm(4, 4, 4, bias=True, scale="column", residual=True, activation="relu",
                         relu_mask=True)  # fmt: skip
    operands = {"a": ones(2, 4, 4), "b": ones(2, 4, 4), "c": ones(4, 4)}
    others = {"bias": ones(4), "scale": ones(4), "residual": ones(4, 4),
              "relu_mask": ones(4, 1, dtype=np.uint8)}  # fmt: skip
    steps = {"batch": 2, "stride_a": 64, "stride_b": 64}
    apart = dlprim.Brgemm(4, 4, 4, addressing="offset")
    places = np.array([0, 64])
    offsets = {"batch": 2, "offsets_a": places, "offsets_b": places}
    return {
        "Brgemm.__call__": (full, operands | others | steps),
        "Brgemm.__call__ at offsets": (apart, operands | offsets),
        "Brgemm.measure": (full.measure, operands | others | steps | {"repeats": 1}),
    }


METHODS: Calls = {**_products(), **_mlp(), **_recurrent(), **_layers(), **_kernel()}
