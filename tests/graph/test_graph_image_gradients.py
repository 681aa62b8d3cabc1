"""Networks of images, forward and backward: blocks of channels throughout, norms as one step."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dlprim
from dlprim.graph import Builder, Graph, Value, gradient, interpret
from dlprim.graph.compiled import CompiledGraph, compile_graph
from dlprim.graph.passes.layers import join_layers
from drawing import RNG

Arrays = list[np.ndarray[Any, Any]]
Shape = tuple[int, ...]
_FORM = {"strides": (1, 1), "dilations": (1, 1), "padding": ((1, 1), (1, 1)), "groups": 1}


def _drawn(values: Sequence[Value]) -> Arrays:
    return [RNG.standard_normal(it.shape).astype(it.dtype) for it in values]


def _kinds(compiled: CompiledGraph) -> list[str]:
    """Of the steps, in their order."""
    return re.findall(r": (\w+)\(", compiled.explain())


def _joint(make: Callable[..., Value], *shapes: Shape, dtype: Any = "float32") -> Graph:
    b = Builder()
    inputs = [b.input(f"x{place}", shape, dtype) for place, shape in enumerate(shapes)]
    y = make(b, *inputs)
    return gradient(join_layers(b.graph([y])), [y], inputs)


def _check(joint: Graph, arrays: Arrays, tolerance: float, dtype: str = "float32") -> list[str]:
    """No call of Python, and what the interpreter computes in float64; the kinds of steps."""
    compiled = compile_graph(joint, dtype=dtype)
    assert compiled.steps()[1] == 0, compiled.explain()
    for found, right in zip(compiled.run(arrays), interpret(joint, arrays), strict=True):
        right = np.float64(right)
        error = np.sqrt(np.mean((np.float64(found) - right) ** 2))
        assert error <= tolerance * (1e-3 + np.sqrt(np.mean(right**2))), compiled.explain()
    return _kinds(compiled)


def _norm(b: Builder, x: Value, weight: Value | None, bias: Value | None) -> Value:
    return b.emit("batch_norm", [x, weight, bias], epsilon=1e-5)[0]


# ---------------------------------------------------------------- one convolution


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("x", "w", "form"),
    [
        ((2, 16, 9, 8), (32, 16, 3, 3), {}),
        ((3, 3, 13, 11), (20, 3, 5, 5), {"strides": (2, 2), "padding": ((2, 2), (2, 2))}),
        ((2, 19, 7, 7), (21, 19, 3, 3), {"dilations": (2, 1), "padding": ((2, 2), (1, 1))}),
        ((2, 24, 6, 5), (24, 1, 3, 3), {"groups": 24}),
        ((2, 24, 9, 9), (24, 1, 3, 3), {"groups": 24, "strides": (2, 2)}),
        ((2, 12, 8, 8), (18, 4, 3, 3), {"groups": 3, "strides": (1, 2)}),
        ((2, 10, 1, 1), (7, 10, 1, 1), {"padding": ((0, 0), (0, 0))}),
        ((1, 40, 7, 6), (33, 40, 1, 1), {"padding": ((0, 0), (0, 0)), "strides": (2, 2)}),
        ((2, 5, 7, 9), (6, 5, 2, 3), {"padding": ((0, 1), (1, 2))}),
    ],
)
def test_a_convolution_between_norms(x: Shape, w: Shape, form: dict[str, Any], dtype: str) -> None:
    """All passes are on blocks, with weights that are packed once."""
    kind = np.dtype(np.float32 if dtype == "float32" else ml_dtypes.bfloat16)

    def make(b: Builder, x: Value, w: Value) -> Value:
        (y,) = b.emit("convolution", [b.apply("tanh", x), w], **{**_FORM, **form})
        (y,) = b.emit("convolution", [b.apply("tanh", y), w_of_one(b, y)], **_POINT)
        return y

    def w_of_one(b: Builder, y: Value) -> Value:
        eye = np.eye(y.shape[1])[:, :, None, None]
        return b.constant(eye.astype(y.dtype))

    joint = _joint(make, x, w, dtype=kind)
    kinds = _check(joint, _drawn(joint.inputs), 2e-5 if dtype == "float32" else 2e-2)
    assert not any(it.startswith("plain") for it in kinds), kinds
    assert kinds.count("conv2d_backward_data") == 2
    assert kinds.count("conv2d_backward_weights") == 1


_POINT = {**_FORM, "padding": ((0, 0), (0, 0))}


def test_weights_are_packed_once() -> None:
    def make(b: Builder, x: Value, w: Value) -> Value:
        (y,) = b.emit("convolution", [x, w], **_FORM)
        return b.emit("convolution", [b.apply("relu", y), w], **_FORM)[0]

    joint = _joint(make, (2, 16, 8, 8), (16, 16, 3, 3))
    compiled = compile_graph(joint)
    assert len(re.findall(r"x1 packed: pack\(", compiled.explain())) == 1
    _check(joint, _drawn(joint.inputs), 2e-5)


# ---------------------------------------------------------------- norms


@pytest.mark.parametrize(
    "shape",
    [(6, 5), (3, 7, 9), (2, 3, 4, 5), (2, 20, 3, 3), (1, 33, 1, 2), (2, 4, 1, 1), (2, 3, 2, 3, 2)],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_norms_of_any_rank_are_one_step_each_way(shape: Shape, dtype: str) -> None:
    kind = np.dtype(np.float32 if dtype == "float32" else ml_dtypes.bfloat16)

    def make(b: Builder, x: Value, weight: Value, bias: Value) -> Value:
        return _norm(b, x, weight, bias)

    joint = _joint(make, shape, shape[1:2], shape[1:2], dtype=kind)
    arrays = _drawn(joint.inputs)
    kinds = _check(joint, arrays, 1e-4 if dtype == "float32" else 3e-2)
    assert kinds.count("batch_norm") == kinds.count("batch_norm_backward") == 1


def test_statistics_are_results_with_gradients() -> None:
    b = Builder()
    x = b.input("x", (4, 6, 3, 3), "float32")
    results = b.emit("batch_norm", [x, None, None], epsilon=1e-3)
    joint = gradient(b.graph(results), results, [x])
    arrays = _drawn(joint.inputs)
    _check(joint, arrays, 1e-4)
    mean, variance = compile_graph(joint).run(arrays)[1:3]
    np.testing.assert_allclose(mean, np.float64(arrays[0]).mean((0, 2, 3)), atol=1e-6)
    np.testing.assert_allclose(variance, np.float64(arrays[0]).var((0, 2, 3)), rtol=1e-5)


def _block(b: Builder, x: Value, w: Value, *parameters: Value) -> Value:
    """Two convolutions with norms, the first result added to x, relu behind both."""
    weight, bias, v, other, more = parameters
    (y,) = b.emit("convolution", [x, w], **_FORM)
    y = b.apply("relu", _norm(b, y, weight, bias))
    (y,) = b.emit("convolution", [y, v], **_FORM)
    y = b.apply("add", _norm(b, y, other, more), x)
    return b.map(("maximum", ("input", 0), ("number", 0.0)), y)


def _blocks(count: int) -> tuple[Callable[..., Value], list[Shape]]:
    def make(b: Builder, x: Value, *parameters: Value) -> Value:
        for place in range(0, 6 * count, 6):
            x = _block(b, x, *parameters[place : place + 6])
        return b.reduce("mean", b.apply("multiply", x, x), (0, 1, 2, 3))

    of_one: list[Shape] = [(20, 20, 3, 3), (20,), (20,)]
    return make, [(3, 20, 6, 7), *of_one * 2 * count]


def test_residual_blocks_run_in_as_few_steps_as_layers_do() -> None:
    """Sums, relus and what comes of them backward are part of the norms."""
    make, shapes = _blocks(2)
    joint = _joint(make, *shapes)
    kinds = _check(joint, _drawn(joint.inputs), 2e-4)
    expected = {"conv2d": 4, "conv2d_backward_data": 4, "conv2d_backward_weights": 4}
    expected |= {"batch_norm": 4, "batch_norm_backward": 4}
    assert {kind: kinds.count(kind) for kind in expected} == expected
    # x into blocks and weights; the gradient by x out of them and those of weights.
    assert kinds.count("pack") == 5
    assert kinds.count("unpack") == 5


def test_results_are_the_same_bits_for_any_number_of_threads() -> None:
    make, shapes = _blocks(1)
    joint = _joint(make, *shapes)
    compiled, arrays = compile_graph(joint), _drawn(joint.inputs)
    before, results = dlprim.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            dlprim.set_num_threads(count)
            results.append([it.tobytes() for it in compiled.run(arrays)])
    finally:
        dlprim.set_num_threads(before)
    assert results[0] == results[1] == results[2]


def test_in_bfloat16_parameters_have_gradients_of_float32() -> None:
    """Arrays between are bfloat16, weights are rounded as they are packed."""
    make, shapes = _blocks(1)
    joint = _joint(make, *shapes)
    kinds = _check(joint, _drawn(joint.inputs), 8e-2, "bfloat16")
    assert kinds.count("batch_norm") == kinds.count("batch_norm_backward") == 2
    compiled = compile_graph(joint, dtype="bfloat16")
    text = compiled.explain()
    norms = [line for line in text.splitlines() if "batch_norm" in line]
    assert norms, text
    assert all("bfloat16" in line for line in norms), text
    assert len(re.findall(r"packed: pack\(\d+ float32", text)) == 2, text


def test_in_bfloat16_sums_for_biases_are_not_rounded() -> None:
    def make(b: Builder, x: Value, w: Value, bias: Value) -> Value:
        (y,) = b.emit("convolution", [x, w, bias], **_FORM)
        return b.emit("convolution", [b.apply("relu", y), w], **_FORM)[0]

    joint = _joint(make, (2, 16, 9, 9), (16, 16, 3, 3), (16,))
    arrays = _drawn(joint.inputs)
    _check(joint, arrays, 5e-2, "bfloat16")
    *_, by_bias = compile_graph(joint, dtype="bfloat16").run(arrays)
    assert by_bias.dtype == np.float32
    assert np.any(by_bias.view(np.uint32) & 0xFFFF)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("axes", [1, 3])
def test_sequences_and_volumes(axes: int, dtype: str) -> None:
    """Convolutions along one or three axes with a norm behind them."""
    form = {"strides": (2,) * axes, "dilations": (1,) * axes, "padding": ((1, 1),) * axes}

    def make(b: Builder, x: Value, w: Value, weight: Value, bias: Value) -> Value:
        (y,) = b.emit("convolution", [x, w], groups=1, **form)
        return b.apply("tanh", _norm(b, y, weight, bias))

    joint = _joint(make, (2, 5, *[7] * axes), (6, 5, *[3] * axes), (6,), (6,))
    arrays = _drawn(joint.inputs)
    compiled = compile_graph(joint, dtype=dtype)
    tolerance = 1e-4 if dtype == "float32" else 6e-2
    for found, right in zip(compiled.run(arrays), interpret(joint, arrays), strict=True):
        assert found.dtype == np.float32
        error = np.sqrt(np.mean((np.float64(found) - right) ** 2))
        assert error <= tolerance * (1e-3 + np.sqrt(np.mean(np.float64(right) ** 2)))


def test_the_way_back_of_a_network_in_two_parts() -> None:
    """What it keeps is plain, and the bits of relu are not there."""

    def net(w: Any, x: Any) -> Any:
        y = dlprim.batch_norm(dlprim.conv2d(x, w, padding=1), training=True)
        return np.maximum(y + x, 0)

    w, x = (np.float32(RNG.standard_normal(it)) for it in ((6, 6, 3, 3), (2, 6, 5, 4)))
    by = np.float32(RNG.standard_normal(x.shape))
    y, pullback = dlprim.vjp(net, w, x)
    expected = dlprim.grad(lambda w, x: (net(w, x) * by).sum(), wrt=(0, 1))(w, x)
    np.testing.assert_allclose(y, dlprim.compile(net)(w, x), rtol=1e-5, atol=1e-6)
    for found, right in zip(pullback(by), expected, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5)


def test_what_a_norm_may_not_take_stays() -> None:
    """A sum with what follows from the statistics, or that is read twice."""
    b = Builder()
    x, more = b.input("x", (2, 3, 4, 4), "float32"), b.input("more", (2, 3, 4, 4), "float32")
    y, mean, _ = b.emit("batch_norm", [x, None, None], epsilon=1e-5)
    spread = b.expand(b.reshape(mean, (3, 1, 1)), x.shape)
    z = b.apply("relu", b.apply("add", y, b.apply("multiply", spread, more)))
    twice, *_ = b.emit("batch_norm", [z, None, None], epsilon=1e-5)
    total = b.apply("add", twice, more)
    last = b.apply("multiply", b.apply("relu", total), total)
    graph = b.graph([last])
    joined = join_layers(graph)
    norms = [it for it in joined.nodes if it.operator == "batch_norm"]
    assert [len(it.inputs) for it in norms] == [3, 4]
    assert not any(it.attributes.get("activation") for it in norms)
    arrays = _drawn(graph.inputs)
    for one, other in zip(interpret(graph, arrays), interpret(joined, arrays), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
    _check(gradient(joined, [last], [x, more]), [*arrays, np.ones_like(arrays[0])], 1e-4)


# ---------------------------------------------------------------- what stands between


def test_pools_means_and_sums_stay_in_blocks() -> None:
    """The gradient of maxima reads where they stand, which the pooling has written."""
    how = {"kernel": (3, 3), "strides": (2, 2), "dilations": (1, 1), "padding": ((1, 1), (1, 1))}

    def make(b: Builder, x: Value, w: Value, bias: Value, last: Value) -> Value:
        (y,) = b.emit("convolution", [x, w, bias], **_FORM)
        (y,) = b.emit("pool", [b.apply("relu", y)], function="max", counts=(4, 5),
                      counts_padding=False, **how)  # fmt: skip
        (y,) = b.emit("convolution", [y, last], **_FORM)
        (y,) = b.emit("pool", [y], function="mean", counts=(2, 3), counts_padding=True, **how)
        return b.reduce("mean", b.apply("tanh", y), (2, 3))

    joint = _joint(make, (2, 3, 8, 9), (20, 3, 3, 3), (20,), (24, 20, 3, 3))
    kinds = _check(joint, _drawn(joint.inputs), 1e-4)
    assert kinds.count("pool") == kinds.count("pool_backward") == 2
    assert not any(it.startswith("plain") for it in kinds), kinds


def test_gradients_of_a_traced_network_are_pytorchs() -> None:
    torch = pytest.importorskip("torch", reason="gradients are compared with PyTorch's")

    def net(p: dict[str, Any], x: Any) -> Any:
        y = dlprim.batch_norm(dlprim.conv2d(x, p["w"], p["c"], padding=1), None, None, p["g"],
                              p["b"], True)  # fmt: skip
        y = np.maximum(y, 0)
        z = dlprim.batch_norm(dlprim.conv2d(y, p["v"], padding=1), None, None, None, None, True)
        y = np.maximum(z + y, 0)
        return (y.mean(axis=(2, 3)) @ p["m"]).sum()

    shapes = {"w": (18, 5, 3, 3), "c": (18,), "g": (18,), "b": (18,), "v": (18, 18, 3, 3)}
    shapes["m"] = (18, 4)
    p = {name: np.float32(RNG.standard_normal(it)) for name, it in shapes.items()}
    x = np.float32(RNG.standard_normal((4, 5, 7, 6)))
    loss, grads = dlprim.value_and_grad(net)(p, x)
    f = torch.nn.functional
    q = {name: torch.tensor(np.float64(it), requires_grad=True) for name, it in p.items()}
    y = f.conv2d(torch.tensor(np.float64(x)), q["w"], q["c"], padding=1)
    y = torch.relu(f.batch_norm(y, None, None, q["g"], q["b"], training=True))
    z = f.batch_norm(f.conv2d(y, q["v"], padding=1), None, None, None, None, training=True)
    right = (torch.relu(z + y).mean((2, 3)) @ q["m"]).sum()
    right.backward()
    np.testing.assert_allclose(loss, right.item(), rtol=1e-4)
    for name, it in q.items():
        size = float(np.abs(it.grad.numpy()).max())
        np.testing.assert_allclose(grads[name], it.grad.numpy(), rtol=1e-3, atol=1e-4 * (1 + size))
