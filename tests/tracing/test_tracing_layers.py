"""dlprim's functions in a trace: what they give of arrays, their gradients, their refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from layer_cases import CASES, LAYERS, WITH_CORNERS, WITHOUT_GRADIENT, floats, positive

import dlprim
from drawing import RNG


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
