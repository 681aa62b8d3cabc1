"""dlprim's functions in a trace: what they give of arrays, their gradients, their refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlprim
from drawing import RNG


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def positive(*shape: int) -> Any:
    return np.abs(floats(*shape)) + np.float32(0.5)


LAYERS = dlprim.define(
    """
def fc(float(N,C) x, float(K,C) w, float(K) b) -> (y) {
    y(n,k) +=! x(n,c) * w(k,c)
    y(n,k) = tanh(y(n,k) + b(k))
}
def both(float(N) a, float(N) b) -> (s, p) { s(n) = a(n) + b(n)  p(n) = a(n) * b(n) }
def rows(float(V,K) w, int64(N) at) -> (y) { y(n,k) = w(at(n),k) }
"""
)

Case = tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]


def images() -> tuple[Any, ...]:
    return (floats(2, 4, 8, 8),)


def convolved(*filters: int) -> Callable[[], tuple[Any, ...]]:
    return lambda: (*images(), floats(*filters), floats(filters[0]))


def normed(*columns: int) -> Callable[[], tuple[Any, ...]]:
    return lambda: (*images(), positive(*columns), floats(*columns))


CASES: dict[str, Case] = {
    "linear": (
        lambda x, w, b: dlprim.linear(x, w, b, activation="gelu"),
        lambda: (floats(2, 3, 5), floats(4, 5), floats(4)),
    ),
    "linear by name": (lambda x, w: dlprim.linear(w=w, x=x), lambda: (floats(3, 5), floats(2, 5))),
    "matmul": (dlprim.matmul, lambda: (floats(2, 3, 4), floats(4, 5))),
    "einsum": (
        lambda a, b: dlprim.einsum("bij,jk->kb", a, b),
        lambda: (floats(2, 3, 4), floats(4, 5)),
    ),
    "contract": (
        lambda a, b: dlprim.contract("y(n,k) +=! x(n,c) * w(k,c)", a, b),
        lambda: (floats(3, 4), floats(5, 4)),
    ),
    "define": (LAYERS.fc, lambda: (floats(3, 4), floats(5, 4), floats(5))),
    "define of two results": (LAYERS.both, lambda: (floats(6), floats(6))),
    "define with places": (LAYERS.rows, lambda: (floats(4, 3), np.array([2, 0, 2]))),
    "conv1d": (
        lambda x, w, b: dlprim.conv1d(x, w, b, padding="same"),
        lambda: (floats(2, 4, 9), floats(5, 4, 3), floats(5)),
    ),
    "conv2d": (
        lambda x, w, b: dlprim.conv2d(x, w, b, 2, 1, activation="tanh"),
        convolved(6, 4, 3, 3),
    ),
    "conv2d in groups": (
        lambda x, w, b: dlprim.conv2d(x, w, b, padding=((1, 0), (2, 2)), groups=2),
        convolved(6, 2, 3, 3),
    ),
    "conv2d channels last": (
        lambda x, w, b, r: dlprim.conv2d(x, w, b, 1, 1, layout="NHWC", residual=r),
        lambda: (floats(2, 5, 6, 4), floats(3, 4, 3, 3), floats(3), floats(2, 5, 6, 3)),
    ),
    "conv3d": (dlprim.conv3d, lambda: (floats(1, 3, 4, 4, 4), floats(2, 3, 2, 2, 2), floats(2))),
    "conv_transpose1d": (
        lambda x, w: dlprim.conv_transpose1d(x, w, stride=2, output_padding=1),
        lambda: (floats(2, 4, 5), floats(4, 3, 3)),
    ),
    "conv_transpose2d": (
        lambda x, w, b: dlprim.conv_transpose2d(x, w, b, 2, 1),
        lambda: (floats(2, 4, 5, 5), floats(4, 6, 3, 3), floats(6)),
    ),
    "max_pool1d": (lambda x: dlprim.max_pool1d(x, 3, 2), lambda: (floats(2, 3, 9),)),
    "max_pool2d": (lambda x: dlprim.max_pool2d(x, 3, 2, 1), images),
    "max_pool3d": (lambda x: dlprim.max_pool3d(x, 2), lambda: (floats(1, 2, 4, 4, 4),)),
    "avg_pool2d": (lambda x: dlprim.avg_pool2d(x, 3, 2, 1, count_include_pad=False), images),
    "avg_pool3d": (lambda x: dlprim.avg_pool3d(x, 2), lambda: (floats(1, 2, 4, 4, 4),)),
    "adaptive": (lambda x: dlprim.adaptive_avg_pool2d(x, (3, 8)), images),
    "adaptive to one": (lambda x: dlprim.adaptive_avg_pool2d(x, 1, layout="NHWC"), images),
    "bilinear": (lambda x: dlprim.interpolate(x, (5, 11), mode="bilinear"), images),
    "corners": (
        lambda x: dlprim.interpolate(x, 5, mode="bilinear", align_corners=True, layout="NHWC"),
        images,
    ),
    "nearest": (lambda x: dlprim.interpolate(x, scale_factor=1.5), images),
    "softmax": (lambda x: dlprim.softmax(x, 1), images),
    "log_softmax": (dlprim.log_softmax, images),
    "layer_norm": (dlprim.layer_norm, normed(8)),
    "layer_norm of planes": (lambda x, w, b: dlprim.layer_norm(x, bias=b), normed(8, 8)),
    "rms_norm": (lambda x, w, b: dlprim.rms_norm(x, w), normed(8)),
    "group_norm": (lambda x, w, b: dlprim.group_norm(x, 2, w, b), normed(4)),
    "instance_norm": (lambda x, w, b: dlprim.instance_norm(x, w, b), normed(4)),
    "batch_norm": (lambda x, w, b: dlprim.batch_norm(x, None, None, w, b, True), normed(4)),
    "batch_norm by statistics": (lambda x, v, m: dlprim.batch_norm(x, m, v), normed(4)),
    "add_layer_norm": (
        lambda x, r, w, b: dlprim.add_layer_norm(x, r, w, b),
        lambda: (floats(3, 8), floats(3, 8), positive(8), floats(8)),
    ),
    "add_rms_norm": (lambda x, r: tuple(dlprim.add_rms_norm(x, r)), lambda: (*images(), *images())),
    "attention": (
        lambda q, k, v: dlprim.attention(q, k, v, causal=True),
        lambda: (floats(2, 4, 5, 6), floats(2, 2, 5, 6), floats(2, 2, 5, 3)),
    ),
    "attention after others": (
        lambda q, k, v: dlprim.attention(q, k, v, causal=True, past=2),
        lambda: (floats(3, 5, 6), floats(3, 7, 6), floats(3, 7, 6)),
    ),
    "attention with a mask": (
        lambda q, k, v, m: dlprim.attention(q, k, v, m, scale=0.3, softcap=5.0),
        lambda: (floats(5, 6), floats(7, 6), floats(7, 3), floats(5, 7)),
    ),
    "embedding": (
        lambda w: dlprim.embedding(np.array([[1, 2], [0, 1]]), w),
        lambda: (floats(4, 5),),
    ),
    "mse_loss": (lambda x, y: dlprim.mse_loss(x, y), lambda: (floats(3, 4), floats(3, 4))),
    "mse_loss of each": (
        lambda x, y: dlprim.mse_loss(x, y, reduction="none"),
        lambda: (floats(3, 4), floats(3, 4)),
    ),
    "binary_cross_entropy": (
        lambda x, y, w: dlprim.binary_cross_entropy_with_logits(
            x, y, w, pos_weight=w, reduction="sum"
        ),
        lambda: (floats(3, 4), positive(3, 4), positive(4)),
    ),
    "reductions": (
        lambda x: (dlprim.reduce_sum(x, (1, 2)), dlprim.reduce_mean(x), dlprim.reduce_max(x, -1)),
        images,
    ),
    "joins": (lambda x, y: dlprim.concat([x, y], 1), lambda: (floats(2, 3), floats(2, 1))),
    "splits": (lambda x: dlprim.split(x, [3, 5], 2), images),
    "splits alike": (lambda x: dlprim.split(x, 3, -1), images),
    "pad": (lambda x: dlprim.pad(x, (1, 2, 0, 1), value=3.0), images),
    "pad by reflection": (lambda x: dlprim.pad(x, (1, 2), "reflect"), images),
    "pad by edges": (lambda x: dlprim.pad(x, (1, 2), mode="replicate"), images),
    "prelu": (dlprim.prelu, lambda: (*images(), positive(4))),
    "add": (lambda x, y: dlprim.add(x, y), lambda: (floats(3), floats(3))),
    "gelu_tanh": (lambda x: dlprim.gelu(x, "tanh"), images),
    "leaky_relu": (lambda x: dlprim.leaky_relu(x, 0.2), images),
    "elu": (lambda x: dlprim.elu(x, 0.5), images),
    "softplus": (lambda x: dlprim.softplus(x, 2.0, 3.0), images),
    **{
        name: (getattr(dlprim, name), images)
        for name in (
            "gelu", "hardsigmoid", "hardswish", "mish", "relu", "selu", "sigmoid", "silu", "tanh",
        )
    },
}  # fmt: skip
WITHOUT_GRADIENT = {"define with places"}  # the notation has no sums at places
# Whose slopes jump: differences are no measure unless they are small.
WITH_CORNERS = {"hardsigmoid", "hardswish", "leaky_relu", "prelu", "relu", "selu", "elu"}


def leaves(found: Any) -> list[Any]:
    if isinstance(found, tuple | list):
        return [leaf for it in found for leaf in leaves(it)]
    return [found]


def total(function: Callable[..., Any], *arrays: Any) -> Any:
    return sum(np.sum(np.sin(it)) for it in leaves(function(*arrays)))


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_function_of_arrays(name: str) -> None:
    function, drawn = CASES[name]
    arrays = drawn()
    expected = function(*arrays)
    found = dlprim.compile(function)(*arrays)
    if type(expected) is not float:
        assert type(found) is type(expected)
    for one, other in zip(leaves(found), leaves(expected), strict=True):
        assert np.shape(one) == np.shape(other)
        assert one.dtype == (other.dtype if hasattr(other, "dtype") else np.float32)
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", sorted(CASES.keys() - WITHOUT_GRADIENT))
def test_its_gradient_is_that_of_the_function(name: str) -> None:
    function, drawn = CASES[name]
    arrays = drawn()
    places = [place for place, it in enumerate(arrays) if it.dtype == np.float32]
    gradients = dlprim.grad(lambda *given: total(function, *given), places)(*arrays)
    step = 1e-3 if name in WITH_CORNERS else 1e-2
    for place, gradient in zip(places, gradients, strict=True):
        way = RNG.choice([-1.0, 1.0], gradient.shape)
        ends = []
        for sign in (1, -1):
            given = list(arrays)
            given[place] = (arrays[place] + sign * step * way).astype(np.float32)
            ends.append(
                sum(np.sum(np.sin(np.asarray(it, float))) for it in leaves(function(*given)))
            )
        expected, size = (ends[0] - ends[1]) / (2 * step), np.sum(np.abs(gradient))
        np.testing.assert_allclose(
            np.sum(gradient * way), expected, rtol=0, atol=0.02 * size + 0.01
        )


@pytest.mark.parametrize(
    "options", [{}, {"weight"}, {"ignore_index"}, {"label_smoothing", "weight"}]
)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_softmax_cross_entropy(options: set[str], reduction: str) -> None:
    every = {"weight": positive(5), "ignore_index": 2, "label_smoothing": 0.2}
    named = {name: every[name] for name in options}

    def function(scores: Any, labels: Any) -> Any:
        return dlprim.softmax_cross_entropy(scores, labels, reduction=reduction, **named)

    scores, labels = floats(4, 3, 5), RNG.integers(0, 5, (4, 3))
    expected = function(scores, labels)
    found = dlprim.compile(function)(scores, labels)
    np.testing.assert_allclose(found.loss, expected.loss, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.dx, expected.dx, rtol=1e-4, atol=1e-6)
    gradient = dlprim.grad(lambda x, y: np.sum(function(x, y).loss))(scores, labels)
    np.testing.assert_allclose(gradient, expected.dx, rtol=1e-4, atol=1e-6)


def test_labels_outside_are_refused_in_a_run() -> None:
    loss = dlprim.compile(lambda x, y: dlprim.softmax_cross_entropy(x, y, gradient=False).loss)
    with pytest.raises(IndexError, match="5"):
        loss(floats(2, 5), np.array([0, 5]))


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (dlprim.linear, (floats(2, 3), floats(4, 5))),
        (dlprim.linear, (floats(2, 3), floats(4, 3), floats(5))),
        (dlprim.linear, (floats(2, 3), floats(4, 3), floats(4), "nothing")),
        (dlprim.conv2d, (floats(1, 2, 5, 5), floats(3, 4, 3, 3))),
        (dlprim.conv2d, (floats(1, 2, 5, 5), floats(3, 2, 3, 3), None, 0)),
        (dlprim.max_pool2d, (floats(1, 2, 5, 5), 7)),
        (dlprim.max_pool2d, (floats(2, 5, 5), 2)),
        (dlprim.softmax, (floats(2, 3), 2)),
        (dlprim.softmax, (np.arange(3), 0)),
        (dlprim.layer_norm, (floats(2, 3), floats(2))),
        (dlprim.layer_norm, (floats(2, 3), None, None, -1.0)),
        (dlprim.group_norm, (floats(2, 3, 4), 2)),
        (dlprim.attention, (floats(2, 3), floats(2, 4), floats(2, 4))),
        (dlprim.embedding, (np.ones(3, np.float32), floats(2, 3))),
        (dlprim.gelu, (floats(2), "nothing")),
        (dlprim.mse_loss, (floats(2), floats(3))),
        (dlprim.softmax_cross_entropy, (floats(2, 3), np.array([0, 1, 2]))),
        (dlprim.concat, ([floats(2), floats(2, 1)],)),
        (dlprim.split, (floats(4), [1, 2])),
        (dlprim.pad, (floats(4), (1,))),
        (dlprim.interpolate, (floats(1, 2, 3, 3),)),
        (dlprim.matmul, (floats(2, 3), floats(2, 3))),
        (LAYERS.fc, (floats(2, 3), floats(2, 4), floats(2))),
    ],
)
def test_what_functions_refuse_is_refused_in_traces(function: Any, arguments: Any) -> None:
    """With an exception of the same kind."""
    with pytest.raises((TypeError, ValueError)) as eager:
        function(*arguments)
    x, *others = arguments  # numbers among the arguments of a traced function would be arrays
    with pytest.raises((TypeError, ValueError)) as found:
        dlprim.compile(lambda x: function(x, *others))(x)
    assert isinstance(found.value, TypeError) == isinstance(eager.value, TypeError)
    assert f"{__file__}, line " in str(found.value) or str(found.value) == str(eager.value)


def test_norms_by_parameters_that_vary_are_steps_of_the_core() -> None:
    x, w = floats(6, 8), positive(8)
    assert "in Python: 0 of 1" in dlprim.compile(dlprim.layer_norm).explain(x, w, w)


def test_a_transformer_block() -> None:
    """Heads by reshape and transpose, attention, norms, an activation, as people write it."""

    def block(p: Any, x: Any) -> Any:
        n, c = x.shape[:2], x.shape[-1]
        h = dlprim.layer_norm(x, p["g1"], p["b1"]) @ p["qkv"]
        q, k, v = (it.reshape(*n, 2, -1).transpose(0, 2, 1, 3) for it in np.split(h, 3, axis=-1))
        scores = np.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(c / 2)
        seen = np.tri(n[1], dtype=bool)
        weights = np.exp(scores - scores.max(-1, keepdims=True)) * seen
        weights = weights / weights.sum(-1, keepdims=True)
        x = x + (weights @ v).transpose(0, 2, 1, 3).reshape(*n, c) @ p["o"]
        h = dlprim.rms_norm(x.astype(np.float32), p["g2"])
        return x + dlprim.gelu(h @ p["up"]) @ p["down"]

    def again(p: Any, x: Any) -> Any:
        n, c = x.shape[:2], x.shape[-1]
        h = dlprim.layer_norm(x, p["g1"], p["b1"]) @ p["qkv"]
        q, k, v = (it.reshape(*n, 2, -1).transpose(0, 2, 1, 3) for it in np.split(h, 3, axis=-1))
        y = dlprim.attention(q, k, v, causal=True)
        x = x + y.transpose(0, 2, 1, 3).reshape(*n, c) @ p["o"]
        return dlprim.add(x, dlprim.gelu(dlprim.rms_norm(x, p["g2"]) @ p["up"]) @ p["down"])

    c = 8
    p = {
        "g1": positive(c), "b1": floats(c), "qkv": floats(c, 3 * c) / 3, "o": floats(c, c) / 3,
        "g2": positive(c), "up": floats(c, 4 * c) / 3, "down": floats(4 * c, c) / 6,
    }  # fmt: skip
    x = floats(2, 5, c)
    expected = block(p, x)
    np.testing.assert_allclose(dlprim.compile(block)(p, x), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(dlprim.compile(again)(p, x), expected, rtol=1e-4, atol=1e-4)
    one = dlprim.grad(lambda p, x: np.mean(block(p, x) ** 2))(p, x)
    other = dlprim.grad(lambda p, x: np.mean(again(p, x) ** 2))(p, x)
    for name, gradient in one.items():
        np.testing.assert_allclose(gradient, other[name], rtol=2e-3, atol=2e-4)
