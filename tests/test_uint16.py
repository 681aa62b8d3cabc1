"""uint16 arrays: numbers as likely as bits of bfloat16, so taken only where it is said which."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlprim
from conftest import RunPython
from public_methods import METHODS
from wrong_values import CALLS, SETTINGS

pytestmark = pytest.mark.any_level

ml_dtypes = pytest.importorskip("ml_dtypes", reason="it has the type of bfloat16 arrays")

# What each of them takes as float32 by the name of the array; `out` follows from the operands.
FLOATS = [
    (name, argument)
    for name, fine in CALLS.items()
    if name[0].islower()
    for argument, value in fine.items()
    if isinstance(value, np.ndarray) and value.dtype == np.float32
]
OF_METHODS = [
    (name, argument)
    for name, (_, fine) in METHODS.items()
    for argument, value in fine.items()
    if isinstance(value, np.ndarray) and value.dtype == np.float32
]
BFLOAT16 = {  # functions on bfloat16 operands, and which of the arguments these are
    "attention": ("q", "k", "v", "mask", "out"),
    "attention_backward": ("dy", "q", "k", "v", "mask"),
    "linear": ("x", "w", "out"),
    "linear_backward": ("dy", "x", "w", "z"),
    "conv2d": ("x", "w", "residual", "out"),
    "conv2d_backward": ("dy", "x", "w", "y"),
    **{f"conv{axes}": ("x", "w", "out") for axes in ("1d", "3d")},
    **{f"conv{axes}_backward": ("dy", "x", "w") for axes in ("1d", "3d")},
    **{f"conv_transpose{axes}": ("x", "w", "out") for axes in ("1d", "2d", "3d")},
    **{f"conv_transpose{axes}_backward": ("dy", "x", "w") for axes in ("1d", "2d", "3d")},
    "lstm": ("x", "w_ih", "w_hh", "h_0"),
    "gru": ("x", "w_ih", "w_hh", "h_0"),
    "rnn": ("x", "w_ih", "w_hh", "h_0"),
    "relu": ("x", "out"),
    "relu_backward": ("dy", "y", "out"),
    "add": ("x", "other", "out"),
    "dropout": ("x", "out"),
    **{name: ("x", "out") for name in (*SETTINGS, "softmax", "log_softmax")},
    **{f"{name}_backward": ("dy", "x", "out") for name in SETTINGS},
    **{f"{name}_backward": ("dy", "y", "out") for name in ("softmax", "log_softmax")},
    **{name: ("x", "weight", "out") for name in ("rms_norm", "layer_norm")},
    **{f"{name}_backward": ("dy", "x", "out") for name in ("rms_norm", "layer_norm")},
    **{name: ("x", "out") for name in ("pad", "interpolate", "adaptive_avg_pool2d")},
    **{f"{name}_backward": ("dy", "out") for name in ("pad", "interpolate", "adaptive_avg_pool2d")},
    "split": ("x",),
    "embedding": ("w", "out"),
    "embedding_backward": ("dy",),
    "softmax_cross_entropy": ("logits", "weight", "out"),
    "mse_loss": ("x", "y", "out"),
    "mse_loss_backward": ("dy", "x", "y", "out"),
    "binary_cross_entropy_with_logits": ("logits", "targets", "weight", "pos_weight", "out"),
    "binary_cross_entropy_with_logits_backward": ("dy", "logits", "targets", "weight", "out"),
}


@pytest.mark.parametrize(("name", "argument"), FLOATS)
def test_functions_refuse_them_and_say_what_to_do(name: str, argument: str) -> None:
    given = CALLS[name] | {argument: CALLS[name][argument].astype(np.uint16), "dtype": None}
    if name not in (*BFLOAT16, "pack_b", "to_float32"):
        given.pop("dtype")
    expected = rf"^{argument} has dtype uint16, expected "
    if argument not in ("out", "c"):
        expected += r".*\.astype\(np\.float32\).*\.view\(ml_dtypes\.bfloat16\)"
    with pytest.raises(TypeError, match=expected):
        getattr(dlprim, name)(**given)


@pytest.mark.parametrize(("name", "argument"), OF_METHODS)
def test_primitives_of_float32_refuse_them(name: str, argument: str) -> None:
    method, fine = METHODS[name]
    with pytest.raises(TypeError, match=rf"^{argument} has dtype uint16, expected .*float32"):
        method(**fine | {argument: fine[argument].astype(np.uint16)})


def results(found: Any) -> list[Any]:
    return [each for each in (found if isinstance(found, tuple) else [found]) if each is not None]


@pytest.mark.parametrize("name", BFLOAT16)
def test_functions_take_them_where_it_is_said(name: str) -> None:
    fine = CALLS[name] | {"training": False} if name in ("lstm", "gru") else CALLS[name]
    halves = {
        argument: fine[argument].astype(ml_dtypes.bfloat16)
        for argument in BFLOAT16[name]
        if argument in fine
    }
    bits = {argument: half.view(np.uint16) for argument, half in halves.items()}
    function = getattr(dlprim, name)
    expected = results(function(**fine | halves))
    expected = [np.array(each) for each in expected]  # `out` is written again
    for dtype in ("bfloat16", ml_dtypes.bfloat16):
        found = results(function(**fine | bits | {"dtype": dtype}))
        for one, other in zip(found, expected, strict=True):
            half = other.dtype == ml_dtypes.bfloat16
            assert np.asarray(one).dtype == (np.uint16 if half else other.dtype)
            assert np.asarray(one).tobytes() == other.tobytes()
    with pytest.raises(TypeError, match=r"^dtype is 'float32', expected None or 'bfloat16'"):
        function(**fine | bits | {"dtype": "float32"})


def test_gradients_of_recurrent_layers_follow_the_forward_pass() -> None:
    x, w_ih, w_hh = np.ones((2, 3, 4), np.uint16), np.ones((20, 4), np.uint16), np.ones((20, 5))
    saved = dlprim.lstm(x, w_ih, w_hh.astype(np.uint16), dtype="bfloat16", training=True).saved
    dy = np.ones((2, 3, 5), np.uint16)
    assert dlprim.lstm_backward(dy, saved).diff_src.dtype == np.uint16
    exact = dlprim.lstm(*(each.astype(np.float32) for each in (x, w_ih, w_hh)), training=True)
    with pytest.raises(TypeError, match=r"^dy has dtype uint16, expected float32 or bfloat16: "):
        dlprim.lstm_backward(dy, exact.saved)


def test_conversions_and_packed_matrices() -> None:
    numbers = np.arange(8, dtype=np.uint16).reshape(1, 4, 2)
    for call in (
        lambda: dlprim.to_float32(numbers),
        lambda: dlprim.to_bfloat16(numbers),
        lambda: dlprim.pack_b(numbers),
        lambda: dlprim.unpack_b(numbers, 2),
    ):
        with pytest.raises(TypeError, match=r"^(x|b|packed) has dtype uint16, .*astype\(np\.flo"):
            call()
    half = numbers.view(ml_dtypes.bfloat16)
    same = dlprim.to_float32(numbers, dtype="bfloat16")
    np.testing.assert_array_equal(same, dlprim.to_float32(half))
    plain = dlprim.unpack_b(numbers, 2, dtype="bfloat16")
    np.testing.assert_array_equal(plain, dlprim.unpack_b(half, 2).view(np.uint16))


def test_primitives_of_bfloat16_take_them() -> None:
    """For that was said, in the constructor."""
    x = np.random.default_rng(1).standard_normal((2, 3, 5, 5)).astype(ml_dtypes.bfloat16)
    w = np.random.default_rng(2).standard_normal((4, 3, 3, 3)).astype(ml_dtypes.bfloat16)
    conv = dlprim.Conv2d(x.shape, w.shape, dtype="bfloat16")
    expected = conv.unpack_dst(conv.forward(conv.pack_src(x), conv.pack_weights(w)))
    src, weights = (pack(each.view(np.uint16)) for pack, each in
                    ((conv.pack_src, x), (conv.pack_weights, w)))  # fmt: skip
    found = conv.unpack_dst(conv.forward(src, weights))
    assert found.view(np.uint16).tobytes() == expected.view(np.uint16).tobytes()
    pool = dlprim.GlobalAvgPool2d(x.shape, dtype="bfloat16")
    packed = pool.activations.pack(x.view(np.uint16))
    assert pool.features(pool.forward(packed)).dtype == np.uint16


def test_without_ml_dtypes_it_has_to_be_said_too(run_python: RunPython) -> None:
    result = run_python(
        "import sys; sys.modules['ml_dtypes'] = None\n"
        "import numpy as np, dlprim\n"
        "from dlprim import nn\n"
        "x, w = (dlprim.to_bfloat16(np.ones(s, np.float32)) for s in ((2, 3), (4, 3)))\n"
        "assert dlprim.linear(x, w, dtype='bfloat16').tolist() == [[0x4040] * 4] * 2\n"
        "for call in (dlprim.relu, dlprim.to_float32, lambda x: dlprim.linear(x, w)):\n"
        "    try: call(x)\n"
        "    except TypeError as error: assert 'has dtype uint16' in str(error), error\n"
        "    else: raise AssertionError(call)\n"
        "layer = dlprim.Linear((2, 3), 4, bias=True)\n"
        "packed = layer.pack_weights(np.ones((4, 3), np.float32))\n"
        "try: layer.forward(layer.pack_src(np.ones((2, 3), np.float32)), packed, x[0])\n"
        "except TypeError as error: assert 'bias has dtype uint16' in str(error), error\n"
        "else: raise AssertionError(layer)\n"
        "model = nn.Sequential({'one': nn.Linear(3, 4), 'two': nn.ReLU(), 'three': nn.Linear(4, 2),"
        " 'four': nn.Dropout(0.5, seed=1)})\n"
        "model.use(nn.Context('bfloat16'), 'model')\n"
        "y = model.forward(np.ones((2, 3), np.float32))\n"
        "model.backward(y)\n"
    )
    assert result.returncode == 0, result.stderr
