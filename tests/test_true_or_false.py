"""Arguments that are True or False: nothing else is taken for one of them, however true it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlprim

pytestmark = pytest.mark.any_level

T, N, C, K = 3, 2, 5, 4
NO_FLAGS = ["False", "no", 1.0, 0, 1, None, (), np.int64(1), np.array([True])]


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def recurrent(name: str, gates: int, **more: Any) -> Any:
    weights = ones(gates * K, C), ones(gates * K, K)
    return getattr(dlprim, name)(ones(T, N, C), *weights, **more)


def linear(**more: Any) -> Any:
    layer = dlprim.Linear((N, C), K, activation="gelu")
    return layer.forward(layer.pack_src(ones(N, C)), layer.pack_weights(ones(K, C)), **more)


def linear_weights(**more: Any) -> Any:
    return dlprim.Linear((N, C), K).pack_weights(ones(K, C), **more)


def mlp(**more: Any) -> Any:
    net = dlprim.MLP((N, C), [K])
    weights, biases = net.pack_weights([ones(K, C)]), [ones(K)]
    return net.forward(net.pack_src(ones(N, C)), weights, biases, **more)


def mlp_backward(**more: Any) -> Any:
    net = dlprim.MLP((N, C), [K])
    weights = net.pack_weights([ones(K, C)])
    src = net.pack_src(ones(N, C))
    _, saved = net.forward(src, weights, [ones(K)], training=True)
    return net.backward(net.pack_diff_dst(ones(N, K)), saved, weights, **more)


def lstm_layer(**more: Any) -> Any:
    layer = dlprim.LSTM((T, N, C), K)
    return layer.forward(ones(T, N, C), layer.pack_weights(ones(4 * K, C), ones(4 * K, K)), **more)


def norm(**more: Any) -> Any:
    layer = dlprim.BatchNorm((N, C, 1, 1))
    running = {"running_mean": ones(C), "running_var": ones(C)}
    return layer.forward(layer.activations.pack(ones(N, C, 1, 1)), **running, **more)


def norm_backward(**more: Any) -> Any:
    layer = dlprim.BatchNorm((N, C, 1, 1))
    src = layer.activations.pack(ones(N, C, 1, 1))
    return layer.backward(src, src, ones(2, C), **more)


def made(kind: str, *shapes: Any) -> Callable[..., Any]:
    return lambda **more: getattr(dlprim, kind)(*shapes, **more)


FLAGS: list[tuple[str, Callable[..., Any]]] = [
    ("gradient", lambda **more: dlprim.softmax_cross_entropy(ones(2, 3), np.zeros(2, int), **more)),
    ("symmetric", lambda **more: dlprim.quantization_parameters(ones(3), **more)),
    (
        "align_corners",
        lambda **more: dlprim.interpolate(ones(1, 1, 2, 2), 3, mode="bilinear", **more),
    ),
    ("transposed", lambda **more: dlprim.pack_b(ones(4, 4), "bfloat16", **more)),
    *(
        (flag, lambda name=name, gates=gates, **more: recurrent(name, gates, **more))
        for name, gates in (("lstm", 4), ("gru", 3))
        for flag in ("reverse", "batch_first", "training")
    ),
    ("bidirectional", lambda **more: recurrent("lstm", 4, **more)),
    ("reset_after", lambda **more: recurrent("gru", 3, **more)),
    ("reset_after", made("GRU", (T, N, C), K)),
    ("bias", made("Conv2d", (1, 2, 3, 3), (4, 2, 1, 1))),
    ("bias", made("Linear", (N, C), K)),
    ("bias", made("LSTM", (T, N, C), K)),
    ("reverse", made("GRU", (T, N, C), K)),
    ("residual", made("BatchNorm", (N, C, 1, 1))),
    ("count_include_pad", made("AvgPool2d", (1, 2, 4, 4), 2)),
    ("training", linear),
    ("backward", linear_weights),
    ("training", mlp),
    ("needs_diff_src", mlp_backward),
    ("training", lstm_layer),
    ("training", norm),
    ("training", norm_backward),
    *(
        (flag, made("Brgemm", 4, 4, 4))
        for flag in ("trans_a", "bias", "residual", "relu_mask", "zero_point_a", "zero_point_b")
    ),
]


@pytest.mark.parametrize(("name", "call"), FLAGS)
def test_only_booleans_are_taken_for_true_or_false(name: str, call: Callable[..., Any]) -> None:
    for value in NO_FLAGS:
        with pytest.raises(TypeError, match=rf"^{name} is .*, expected True or False"):
            call(**{name: value})
    if name not in ("bidirectional", "residual", "relu_mask", "zero_point_a", "zero_point_b"):
        call(**{name: np.bool_(True)})
    call(**{name: np.bool_(False)})


@pytest.mark.parametrize(
    ("kind", "shapes", "taker"),
    [
        ("Brgemm", (4, 4, 4), "the call of the kernel"),
        ("Conv2d", ((1, 2, 3, 3), (4, 2, 1, 1)), "forward"),
        ("Linear", ((N, C), K), "forward"),
        ("LSTM", ((T, N, C), K), "pack_weights"),
    ],
)
def test_an_operand_in_place_of_its_flag_is_told_where_it_goes(
    kind: str, shapes: Any, taker: str
) -> None:
    expected = rf"bias is an array of shape \(4,\), expected True or False: .* argument of {taker}"
    with pytest.raises(TypeError, match=expected):
        getattr(dlprim, kind)(*shapes, bias=ones(4))
