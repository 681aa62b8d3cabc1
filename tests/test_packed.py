"""Packed operands say in which form they are: whoever cannot use that form refuses them by name."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim.arguments.packed import Packed

F4 = np.float32
# Of one packed shape each, for the blocks of both are as large.
CHANNELS = (100, 101)
WINOGRAD = {"x_shape": (2, 20, 24, 24), "w_shape": (33, 20, 3, 3), "padding": 1}


def convolutions(**keywords: Any) -> tuple[dlprim.Conv2d, dlprim.Conv2d]:
    one, other = (
        dlprim.Conv2d((2, C, 5, 5), (C, C, 1, 1), algorithm="direct", **keywords) for C in CHANNELS
    )
    assert one.src_shape == other.src_shape
    assert one.weights_shape == other.weights_shape
    return one, other


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_operands_of_another_convolution_of_the_same_shape_are_refused(dtype: str) -> None:
    one, other = convolutions(dtype=dtype)
    src, weights = one._core.new("src", None), one._core.new("weights", None)
    result = one.forward(src, weights)
    for layer in (one, other):
        layer.forward(np.asarray(src), np.asarray(weights))  # which say nothing
    own = other._core.new("weights", None)
    with pytest.raises(ValueError, match=r"^src is packed as \[n2 .*\] of \(2, 100, 5, 5\), exp"):
        other.forward(src, own)
    with pytest.raises(ValueError, match=r"^weights is packed as .*expected .* of \(101, 101, 1"):
        other.forward(np.asarray(src), weights)
    with pytest.raises(ValueError, match=r"^diff_dst is packed as "):
        other.backward_data(result, own)
    with pytest.raises(ValueError, match=r"^dst is packed as .*expected .*\(2, 101, 5, 5\)$"):
        other.unpack_dst(result)
    gradient = one.backward_weights(src, result)
    with pytest.raises(ValueError, match=r"^diff_weights is packed as "):
        other.unpack_diff_weights(gradient)


def test_operands_of_another_linear_layer_of_the_same_shape_are_refused() -> None:
    layers = [dlprim.Linear((4, C), 8) for C in (7, 8)]
    one, other = layers
    assert one.weights_shape == other.weights_shape
    packed = [
        (it.pack_src(np.ones(it.x_shape, F4)), it.pack_weights(np.ones(it.w_shape, F4)))
        for it in layers
    ]
    one.forward(*packed[0])
    with pytest.raises(ValueError, match=r"^src is packed as .*\(4, 7\), expected .*\(4, 8\)$"):
        other.forward(packed[0][0], packed[1][1])
    with pytest.raises(ValueError, match=r"^weights is packed as .*\(8, 7\), expected .*\(8, 8\)$"):
        other.forward(packed[1][0], packed[0][1])
    with pytest.raises(ValueError, match=r"^weights is packed as "):
        other.backward_data(other.forward(*packed[1]), packed[0][1])


def test_activations_of_other_channels_are_refused_by_layers() -> None:
    first, second = (dlprim.Activations((2, C, 4, 4)) for C in CHANNELS)
    packed = first.pack(np.ones(first.shape, F4))
    assert first.packed_shape == second.packed_shape
    for refusing in (
        lambda: second.unpack(packed),
        lambda: dlprim.MaxPool2d(second.shape, 2).forward(packed),
        lambda: dlprim.BatchNorm(second.shape).forward(packed),
        lambda: dlprim.add(second.empty(), packed),
    ):
        with pytest.raises(ValueError, match=r"^(src|packed|other) is packed as .*\(2, 10"):
            refusing()


def test_the_result_of_one_is_an_operand_of_the_next() -> None:
    conv = dlprim.Conv2d((2, 100, 6, 6), (100, 100, 3, 3), padding=1)
    grouped = dlprim.Conv2d((2, 128, 3, 3), (128, 64, 1, 1), groups=2)
    whole = dlprim.Conv2d((2, 128, 3, 3), (100, 128, 1, 1))
    dst = conv.forward(conv.pack_src(np.ones(conv.x_shape, F4)), conv._core.new("weights", None))
    normalized, _ = dlprim.BatchNorm(conv.y_shape).forward(dst)
    pool = dlprim.MaxPool2d(conv.y_shape, 2)
    pooled = pool.forward(dlprim.relu(dlprim.add(normalized, dst)))
    assert isinstance(pooled, Packed)
    assert pooled.packed_as == dlprim.Activations(pool.y_shape).empty().packed_as is not None
    # groups of whole blocks are blocks as any
    src = whole.pack_src(np.ones(whole.x_shape, F4))
    dst = grouped.forward(src, grouped.pack_weights(np.ones(grouped.w_shape, F4)))
    whole.forward(dst, whole.pack_weights(np.ones(whole.w_shape, F4)))


def test_plain_arrays_say_nothing() -> None:
    x = np.ones((2, 5, 6, 6), F4)
    conv = dlprim.Conv2d(x.shape, (7, 5, 3, 3), layout="NHWC")
    linear = dlprim.Linear((4, 5), 6, layout="plain")
    assert type(conv.pack_src(x)) is np.ndarray
    assert type(linear.forward(np.ones((4, 5), F4), linear.pack_weights(np.ones((6, 5), F4)))) is (
        np.ndarray
    )
    assert type(dlprim.conv2d(x, np.ones((7, 5, 3, 3), F4))) is np.ndarray
    pool = dlprim.GlobalAvgPool2d((2, 16, 3, 3))
    assert type(pool.features(pool.forward(pool.activations.empty()))) is np.ndarray


def test_copies_and_pickles_keep_the_name_and_views_and_results_have_none() -> None:
    it = dlprim.Activations((2, 20, 3, 3))
    packed = it.pack(np.random.default_rng(0).random(it.shape, F4))
    assert isinstance(packed, Packed)
    assert packed.packed_as == "[n2 h3 w3 c20] of (2, 20, 3, 3)"
    for kept in (
        packed.copy(),
        copy.copy(packed),
        copy.deepcopy(packed),
        *(pickle.loads(pickle.dumps(packed, protocol)) for protocol in range(6)),
    ):
        assert kept.packed_as == packed.packed_as
        assert it.unpack(kept).tobytes() == it.unpack(packed).tobytes()
    for lost in (packed[:], packed + packed, packed.reshape(-1), packed.view(np.int32), packed[0]):
        assert lost.packed_as is None
    it.unpack(packed[:])


def test_weights_for_other_tiles_are_refused_by_name() -> None:
    fast = dlprim.Conv2d(**WINOGRAD, algorithm="winograd")
    w = np.random.default_rng(0).standard_normal(fast.w_shape, F4)
    src = fast.pack_src(np.ones(fast.x_shape, F4))
    weights = fast.pack_weights(w, form="forward")
    assert isinstance(weights, Packed)
    tiles = fast.algorithms["forward"]
    assert f", transformed for forward in {tiles}" in str(weights.packed_as)
    # That of another choice, whose array happens to be as long.
    other = weights.copy()
    other.packed_as = str(weights.packed_as).replace(tiles, "winograd3")
    with pytest.raises(ValueError, match=r"^weights is packed as .*winograd3, expected .*winograd"):
        fast.forward(src, other)
    with pytest.raises(ValueError, match=r"^weights does not say how it was packed, expected what"):
        fast.forward(src, np.asarray(weights))
    # Memory of the caller's that cannot say it is shown by an array that can.
    memory = np.empty(weights.shape, F4)
    view = fast.pack_weights(w, out=memory)
    assert np.shares_memory(view, memory)
    assert fast.forward(src, view).tobytes() == fast.forward(src, weights).tobytes()
    kept = pickle.loads(pickle.dumps(weights))
    assert fast.forward(src, kept).tobytes() == fast.forward(src, weights).tobytes()


def test_an_array_that_is_written_becomes_of_the_new_form() -> None:
    one, other = convolutions()
    src = one.pack_src(np.ones(one.x_shape, F4))
    assert other.pack_src(np.ones(other.x_shape, F4), out=src) is src
    weights = other.pack_weights(np.ones(other.w_shape, F4))
    other.forward(src, weights)
    with pytest.raises(ValueError, match=r"^src is packed as "):
        one.forward(src, one.pack_weights(np.ones(one.w_shape, F4)))
    with pytest.raises(ValueError, match=r"^out shares memory with src"):
        other.forward(src, weights, out=src)
    assert "101" in str(getattr(src, "packed_as", None))


PACKED_ARGUMENTS: dict[str, Callable[[np.ndarray], object]] = {
    "softmax": dlprim.softmax,
    "softmax_backward": lambda p: dlprim.softmax_backward(p, p),
    "layer_norm": dlprim.layer_norm,
    "rms_norm": dlprim.rms_norm,
    "group_norm": lambda p: dlprim.group_norm(p, 1),
    "instance_norm": dlprim.instance_norm,
    "add_rms_norm": lambda p: dlprim.add_rms_norm(np.asarray(p), p),
    "reduce_sum": dlprim.reduce_sum,
    "argmax": dlprim.argmax,
    "pad": lambda p: dlprim.pad(p, (1, 1)),
    "concat": lambda p: dlprim.concat([p, p]),
    "split": lambda p: dlprim.split(p, 1),
    "quantize": lambda p: dlprim.quantize(p, 1.0),
    "interpolate": lambda p: dlprim.interpolate(p, (2, 2)),
}


@pytest.mark.parametrize("name", PACKED_ARGUMENTS)
def test_where_axes_mean_something_packed_arrays_are_refused(name: str) -> None:
    packed = dlprim.Activations((2, 40, 4, 4)).pack(np.ones((2, 40, 4, 4), np.float32))
    with pytest.raises(TypeError, match=r"is packed as .*, expected a plain array"):
        PACKED_ARGUMENTS[name](packed)
