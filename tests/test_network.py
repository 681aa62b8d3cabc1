"""Steps of whole networks in the compiled core: each does what its function does."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dlprim
from drawing import RNG
from network_cases import FLOATS, SmallConvNet, core, formula, normal


def network_of(*arrays: np.ndarray) -> tuple[core.Network, list[int]]:
    network = core.Network()
    return network, [network.input(it.shape, it.dtype) for it in arrays]


def result_like(network: core.Network, array: np.ndarray) -> int:
    return network.temporary(array.shape, array.dtype)


def test_a_convolution_network() -> None:
    small = SmallConvNet()
    network = small.network()
    for _ in range(3):
        x = normal(*small.shape)
        (y,) = network.run([x])
        np.testing.assert_allclose(y, small.expected(x), 1e-4, 1e-4)
    assert 0 < network.live_bytes <= network.peak_bytes
    assert "second: conv2d(" in network.describe()
    times = network.profile([x])
    assert [label for label, _, _ in times][-1] == "plain again"
    assert all(seconds >= 0 for _, seconds, _ in times)


def test_a_residual_may_be_the_result() -> None:
    conv = dlprim.Conv2d((1, 16, 8, 8), (16, 16, 1, 1))
    src, residual, weights = normal(*conv.src_shape), normal(*conv.dst_shape), normal(16, 16, 1, 1)
    network, (x, z) = network_of(src, residual)
    packed = network.constant(conv.pack_weights(weights))
    dst = network.temporary(conv.dst_shape, FLOATS)
    network.copy(z, dst)
    network.conv2d(conv._core, src=x, weights=packed, residual=dst, dst=dst)
    with pytest.raises(ValueError, match=r"step 2 \(conv2d\) writes value 3 on memory of value 3"):
        network.conv2d(conv._core, src=dst, weights=packed, dst=dst)
    network.finish([dst])
    expected = conv.forward(src, conv.pack_weights(weights), residual=residual)
    np.testing.assert_array_equal(network.run([src, residual])[0], expected)


@pytest.mark.parametrize("accuracy", [None, "high"])
def test_transformed_weights(accuracy: str | None) -> None:
    conv = dlprim.Conv2d(
        (1, 64, 28, 28), (64, 64, 3, 3), padding=1, algorithm="winograd", accuracy=accuracy
    )
    src, weights = normal(*conv.src_shape), conv.pack_weights(normal(64, 64, 3, 3))
    network, (x,) = network_of(src)
    dst = network.temporary(conv.dst_shape, FLOATS)
    network.conv2d(conv._core, src=x, weights=network.constant(weights), dst=dst)
    plain = network.constant(np.array(weights))
    with pytest.raises(ValueError, match="weights does not say how it was packed"):
        network.conv2d(conv._core, src=x, weights=plain, dst=dst)
    network.finish([dst])
    np.testing.assert_array_equal(network.run([src])[0], conv.forward(src, weights))


def test_linear_layers() -> None:
    first = dlprim.Linear((8, 20), 32, bias=True, activation="relu")
    second = dlprim.Linear((8, 32), 5)
    w1, w2, bias, x = normal(32, 20), normal(5, 32), normal(32), normal(8, 20)
    network, (src,) = network_of(x)
    packed = network.temporary(first._core.shapes["src"], FLOATS)
    hidden = network.temporary(first._core.shapes["dst"], FLOATS)
    dst = network.temporary(second._core.shapes["dst"], FLOATS)
    y = network.temporary((8, 5), FLOATS)
    network.pack(first._core, "src", src, packed)
    weights = [network.constant(it.pack_weights(w)) for it, w in ((first, w1), (second, w2))]
    network.linear(
        first._core, src=packed, weights=weights[0], bias=network.constant(bias), dst=hidden
    )
    network.linear(second._core, src=hidden, weights=weights[1], dst=dst)
    network.unpack(second._core, "dst", dst, y)
    network.finish([y])
    expected = np.maximum(x @ w1.T + bias, 0) @ w2.T
    np.testing.assert_allclose(network.run([x])[0], expected, 1e-4, 1e-4)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_recurrent_layers(cell: str) -> None:
    kind = dlprim.LSTM if cell == "lstm" else dlprim.GRU
    gates = 4 if cell == "lstm" else 3
    rnn = kind((5, 3, 8), 6)
    x, lengths = normal(5, 3, 8), np.array([5, 0, 3])
    packed = rnn.pack_weights(normal(gates * 6, 8), normal(gates * 6, 6))
    expected = rnn.forward(x, packed, lengths=lengths)
    network, (src, steps) = network_of(x, lengths)
    weights = {name: network.constant(array) for name, array in packed.operands().items()}
    results = {"dst": (5, 3, 6), "h_n": (3, 6), "c_n": (3, 6)}
    if cell == "gru":
        results.pop("c_n")
    made = {name: network.temporary(shape, FLOATS) for name, shape in results.items()}
    network.rnn(rnn._core, "cell", src=src, lengths=steps, **weights, **made)
    network.finish(list(made.values()))
    for result, wanted in zip(network.run([x, lengths]), expected, strict=True):
        np.testing.assert_array_equal(result, wanted)
    with pytest.raises(ValueError, match=r"in step cell \(rnn\): lengths\[1\] is 6"):
        network.run([x, np.array([1, 6, 2])])


def test_formulas_and_row_programs() -> None:
    x, w = normal(6, 8), normal(5, 8)
    network, (src, weights) = network_of(x, w)
    product, chances = network.temporary((6, 5), FLOATS), network.temporary((6, 5), FLOATS)
    network.formula(formula("y(n,k) +=! x(n,c) * w(k,c)", x, w), [src, weights], [product])
    network.rows("softmax", "float32", (6, 5), [product, chances])
    sums = network.temporary((5,), FLOATS)
    network.rows("sum_of_columns", "float32", (6, 5), [chances, sums])
    network.finish([chances, sums])
    for _ in range(2):  # sums begin with zeros
        made, total = network.run([x, w])
        np.testing.assert_allclose(made, dlprim.softmax(x @ w.T), 1e-5, 1e-6)
        np.testing.assert_allclose(total, made.sum(0), 1e-5)


def test_numbers_of_row_programs_and_results_on_operands() -> None:
    x = normal(4, 7)
    network, (src,) = network_of(x)
    dst = result_like(network, x)
    network.copy(src, dst)
    network.rows("leaky_relu", "float32", (4, 7), [dst, 0.25, dst])
    network.finish([dst])
    np.testing.assert_array_equal(network.run([x])[0], np.where(x > 0, x, x * np.float32(0.25)))


@pytest.mark.parametrize("columns", [7, 3000, 40_000])
def test_row_programs_on_their_operands(columns: int) -> None:
    x, scale = normal(3, columns), normal(columns)
    network, (src, gamma) = network_of(x, scale)
    values = [network.temporary((3, columns), FLOATS) for _ in range(4)]
    network.copy(src, values[0])
    for i, (name, *others) in enumerate((["gelu"], ["softmax"], ["rms_norm", gamma, 1e-5])):
        operands = [values[i], *others, values[i + 1]]
        network.rows(name, "float32", (3, columns), operands)
    again = network.view(values[3], (columns, 3), FLOATS)
    network.rows("tanh", "float32", (columns, 3), [values[3], again])
    flat = network.temporary((columns, 3), FLOATS)
    network.copy(again, flat)
    network.finish([flat])
    assert network.peak_bytes == -(-x.nbytes // 64) * 64
    expected = dlprim.tanh(dlprim.rms_norm(dlprim.softmax(dlprim.gelu(x)), scale, eps=1e-5))
    np.testing.assert_array_equal(network.run([x, scale])[0].ravel(), expected.ravel())


def test_pooling() -> None:
    pool = dlprim.MaxPool2d((2, 16, 9, 9), 3, stride=2, padding=1)
    x = normal(2, 16, 9, 9)
    network, (src,) = network_of(x)
    packed, dst = (network.temporary(it, FLOATS) for it in (pool.src_shape, pool.dst_shape))
    y = network.temporary(pool.y_shape, FLOATS)
    network.pack(pool.activations._core, "packed", src, packed)
    network.pool(pool._core, src=packed, dst=dst)
    network.unpack(pool.dst_activations._core, "packed", dst, y)
    network.finish([y])
    expected = pool.dst_activations.unpack(pool.forward(pool.activations.pack(x)))
    np.testing.assert_array_equal(network.run([x])[0], expected)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("row", [(), (5,), (2, 3)])
def test_rows_of_tables(dtype: Any, row: tuple[int, ...]) -> None:
    table, indices = normal(7, *row), np.array([[0, -7, 6], [-1, 3, 3]], dtype)
    network, (src, places) = network_of(table, indices)
    dst = network.temporary((2, 3, *row), FLOATS)
    network.gather(src, places, dst, "embed")
    network.finish([dst])
    np.testing.assert_array_equal(network.run([table, indices])[0], table[indices])
    for outside in (7, -8):
        with pytest.raises(IndexError, match=rf"in step embed \(gather\): index {outside} is"):
            network.run([table, np.full_like(indices, outside)])


def drawn_view(array: np.ndarray) -> np.ndarray:
    """Some of an array, its axes in any order, some of them backwards."""
    steps = [slice(None, None, int(RNG.choice([1, 1, 2, -1]))) for _ in array.shape]
    return array[tuple(steps)].transpose(RNG.permutation(array.ndim))


def view_of(network: core.Network, value: int, whole: np.ndarray, part: np.ndarray) -> int:
    offset = part.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    return network.view(value, part.shape, part.dtype, part.strides, offset)


DTYPES = [np.float32, np.uint8, np.int16, ml_dtypes.bfloat16, np.int64, np.bool_, np.complex128]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda it: np.dtype(it).name)
def test_copies_between_any_views(dtype: Any) -> None:
    for _ in range(60):
        shape = RNG.integers(1, 9, RNG.integers(0, 6))
        whole = RNG.integers(0, 2, shape) if dtype is np.bool_ else RNG.integers(0, 99, shape)
        whole = whole.astype(dtype)
        part = drawn_view(whole) if whole.ndim else whole[...]
        room = np.zeros([extent + 1 for extent in part.shape], dtype)
        inside = room[(..., *(slice(1, None) for _ in room.shape))]
        network, (src, before) = network_of(whole, room)
        dst = result_like(network, room)
        network.copy(before, dst)
        network.copy(view_of(network, src, whole, part), view_of(network, dst, room, inside))
        network.finish([dst])
        expected = room.copy()
        expected[(..., *(slice(1, None) for _ in room.shape))] = part
        np.testing.assert_array_equal(network.run([whole, room])[0], expected)


@pytest.mark.parametrize("shape", [(0, 4), (3, 0)])
def test_values_of_no_size(shape: tuple[int, int]) -> None:
    x, w = normal(*shape), normal(5, shape[1])
    network, (src, weights) = network_of(x, w)
    y, again = network.temporary((shape[0], 5), FLOATS), network.temporary(shape, FLOATS)
    network.formula(formula("y(n,k) +=! x(n,c) * w(k,c)", x, w), [src, weights], [y])
    network.copy(src, again)
    network.finish([again, y, src])
    results = network.run([x, w])
    for result, expected in zip(results, [x, x @ w.T, x], strict=True):
        np.testing.assert_array_equal(result, expected)


def test_results_may_be_any_values() -> None:
    x, table = normal(3, 4), normal(2, 5).T
    network, (src,) = network_of(x)
    fixed = network.constant(table)
    made = result_like(network, x)
    network.copy(src, made)
    turned = network.view(made, (4, 3), FLOATS, (4, 16))
    row = network.view(made, (4,), FLOATS, offset=16)
    network.finish([src, fixed, made, made, turned, row, src])
    expected = [x, table, x, x, x.T, x[1], x]
    for count in (1, 2):
        with dlprim.threads(count):
            results = network.run([x])
        for result, wanted in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result, wanted)
            assert result.flags.owndata or not np.shares_memory(result, x)
            assert not np.shares_memory(result, table)
    assert not np.shares_memory(results[2], results[3])


def test_the_bits_of_relu_are_for_convolutions_that_end_with_it() -> None:
    conv = dlprim.Conv2d((1, 4, 3, 3), (4, 4, 1, 1))
    network = core.Network()
    x = network.input(conv.src_shape, np.float32)
    weights = network.constant(conv.pack_weights(np.ones((4, 4, 1, 1), np.float32)))
    mask = network.temporary(conv.relu_mask_shape, np.uint8)
    dst = network.temporary(conv.dst_shape, np.float32)
    with pytest.raises(ValueError, match="relu_mask is for convolutions that end with relu"):
        network.conv2d(conv._core, src=x, weights=weights, dst=dst, relu_mask=mask)
