"""Layers that take what stands behind them, and bits of relu between layers of other blocks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dlprim
from dlprim.graph import Builder, Graph, Value, interpret
from dlprim.graph.compiled import compile_graph
from dlprim.graph.passes.layers import join_layers
from dlprim.graph.verify import verify
from networks import drawn

SHAPE = (2, 3, 4, 4)


def norm(b: Builder, x: Value) -> tuple[Value, Value]:
    """The result and the mean, as large."""
    y, mean, _ = b.emit("batch_norm", [x, None, None], epsilon=1e-5)
    return y, b.expand(b.reshape(mean, (x.shape[1], 1, 1)), x.shape)


def norms_with_sums(graph: Graph) -> list[bool]:
    """Of the norms in a joined graph whether they add something; they compute the same."""
    joined = join_layers(graph)
    verify(joined)
    arrays = [drawn(*it.shape, seed=place) for place, it in enumerate(graph.inputs)]
    for found in (interpret(joined, arrays), compile_graph(graph).run(arrays)):
        for one, other in zip(interpret(graph, arrays), found, strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-4)
    return [len(it.inputs) == 4 for it in joined.nodes if it.operator == "batch_norm"]


@pytest.mark.parametrize("count", [2, 3, 4])
def test_norms_in_a_ring_do_not_wait_for_each_other(count: int) -> None:
    """Each is added to what is made of the statistics of the next: the last one stays."""
    b = Builder()
    arrays = [b.input(f"x{place}", SHAPE, "float32") for place in range(count)]
    made = [norm(b, it) for it in arrays]
    others = [
        b.apply("multiply", x, made[(place + 1) % count][1]) for place, x in enumerate(arrays)
    ]
    sums = [b.apply("add", y, other) for (y, _), other in zip(made, others, strict=True)]
    assert sorted(norms_with_sums(b.graph(sums))) == [False] + [True] * (count - 1)


def test_two_norms_that_add_what_a_third_one_is_made_of_are_joined() -> None:
    """Statistics of earlier layers in later sums are no ring."""
    b = Builder()
    x = y = b.input("x", SHAPE, "float32")
    for _ in range(6):
        y, mean = norm(b, y)
        y = b.apply("add", y, x)
        x = b.apply("add", b.apply("tanh", x), mean)
    found = norms_with_sums(b.graph([y, x]))
    assert found == [True] * 6


def test_a_norm_whose_statistics_come_first_takes_a_sum() -> None:
    """Running statistics are made in front of the sum, and behind the norm that has it."""
    b = Builder()
    x, more = b.input("x", SHAPE, "float32"), b.input("more", SHAPE, "float32")
    y, mean = norm(b, x)
    halved = b.apply("tanh", mean)
    late = b.apply("tanh", b.apply("tanh", more))
    z, _ = norm(b, b.apply("add", y, late))
    assert norms_with_sums(b.graph([b.apply("add", z, halved)])) == [True, True]


def _loss(x: Any, w: Any, v: Any, groups: tuple[int, int], share: float) -> Any:
    y = np.maximum(dlprim.conv2d(x, w, padding=1, groups=groups[0]), 0)
    z = np.maximum(dlprim.conv2d(y, v, padding=1, groups=groups[1]), 0)
    return np.sum(z * z) + share * np.sum(y) if share else np.sum(z * z)


@pytest.mark.parametrize("share", [0.0, 1.0])
@pytest.mark.parametrize("groups", list(product((1, 2, 4, 20), repeat=2)))
def test_relu_between_convolutions_of_other_groups(groups: tuple[int, int], share: float) -> None:
    """The gradient is in blocks of what relu made, whatever those of its gradient are."""
    channels = 20
    x = drawn(2, channels, 5, 4)
    w, v = (0.3 * drawn(channels, channels // it, 3, 3, seed=it) for it in groups)
    slope = dlprim.grad(lambda x, w, v: _loss(x, w, v, groups, share), wrt=(0, 1, 2))
    found = slope(x, w, v)
    assert "steps in Python: 0" in slope.explain(x, w, v)
    y = dlprim.conv2d(x, w, padding=1, groups=groups[0], activation="relu")
    z = dlprim.conv2d(y, v, padding=1, groups=groups[1], activation="relu")
    by_y, by_v, _ = dlprim.conv2d_backward(
        2 * z, y, v, padding=1, groups=groups[1], y=z, activation="relu"
    )
    by_x, by_w, _ = dlprim.conv2d_backward(
        by_y + share, x, w, padding=1, groups=groups[0], y=y, activation="relu"
    )
    for ours, right in zip(found, (by_x, by_w, by_v), strict=True):
        np.testing.assert_allclose(ours, right, rtol=1e-4, atol=1e-4 * np.abs(right).max())


def _biased(b: Builder, arrays: Sequence[Value]) -> Value:
    x, w, bias = arrays
    form = {"strides": (1, 1), "dilations": (1, 1), "padding": ((1, 1), (1, 1)), "groups": 1}
    (y,) = b.emit("convolution", [x, w, b.apply("tanh", bias)], **form)
    return y


@pytest.mark.parametrize("is_near", [False, True])
def test_a_bias_that_is_computed_in_bfloat16_is_widened(is_near: bool) -> None:
    """On plain arrays and on blocks, without calling Python."""
    b = Builder()
    shapes = [(2, 5, 6, 7), (4, 5, 3, 3), (4,)]
    values = [b.input(f"x{place}", it, ml_dtypes.bfloat16) for place, it in enumerate(shapes)]
    y = _biased(b, values)
    graph = b.graph([b.apply("tanh", y) if is_near else y])
    compiled = compile_graph(graph)
    assert compiled.steps()[1] == 0, compiled.explain()
    arrays = [drawn(*it).astype(ml_dtypes.bfloat16) for it in shapes]
    ((found,), (right,)) = compiled.run(arrays), interpret(graph, arrays)
    np.testing.assert_allclose(
        found.astype(np.float32), right.astype(np.float32), rtol=2e-2, atol=2e-2
    )
