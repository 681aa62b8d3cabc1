"""What Conv2d says of itself, and what it refuses: geometries, names, arrays that do not fit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import dlprim
from bfloat16 import random_floats
from conftest import level_of_float32
from conv_cases import Conv, padded

F4 = np.float32
CASE = Conv(2, 70, 9, 8, 48, 3, 3, (2, 1), padded(1, 1))
FINE: dict[str, Any] = {"x_shape": CASE.x_shape, "w_shape": CASE.w_shape, **CASE.keywords}
PASSES = {"forward", "backward_data", "backward_weights"}

both_layouts = pytest.mark.parametrize("layout", ["blocked", "NHWC"])


# ---------------------------------------------------------------- attributes


@both_layouts
@pytest.mark.parametrize("dtype", ["float32", F4, np.dtype("f4"), "bfloat16"], ids=str)
def test_attributes(layout: str, dtype: Any) -> None:
    conv = dlprim.Conv2d(**FINE, layout=layout, dtype=dtype)
    n, k, p, q = CASE.y_shape
    assert (conv.x_shape, conv.w_shape, conv.y_shape) == (CASE.x_shape, CASE.w_shape, CASE.y_shape)
    assert conv.dtype.itemsize == (2 if dtype == "bfloat16" else 4)
    assert conv.flops == 2 * n * k * p * q * 70 * 9
    assert conv.schedules.keys() == PASSES
    assert conv.scratch_bytes.keys() == PASSES | {"backward_relu"}
    assert all(bytes_ >= 0 for bytes_ in conv.scratch_bytes.values())
    assert conv.relu_mask_shape == (*conv.dst_shape[:-1], math.ceil(conv.dst_shape[-1] / 8))
    if layout == "NHWC":
        assert (conv.src_shape, conv.dst_shape) == ((2, 9, 8, 70), (n, p, q, k))
    else:
        assert (conv.src_shape[2:4], conv.dst_shape[2:4]) == ((9, 8), (p, q))
        assert conv.src_shape[1] * conv.src_shape[4] >= 70


@both_layouts
def test_description_says_what_runs(layout: str) -> None:
    conv = dlprim.Conv2d(**FINE, layout=layout)
    text = str(conv)
    assert level_of_float32(dlprim.isa()) in text
    assert all(schedule in text for schedule in conv.schedules.values())
    assert repr(conv).startswith("<dlprim.Conv2d (2, 70, 9, 8) * (48, 70, 3, 3) float32")


def test_the_result_of_one_is_the_operand_of_the_next() -> None:
    first = dlprim.Conv2d((1, 5, 8, 8), (130, 5, 3, 3))
    second = dlprim.Conv2d((1, 130, 6, 6), (7, 130, 1, 1))
    assert first.dst_shape == second.src_shape


@both_layouts
def test_unpacking_is_the_inverse_of_packing(layout: str, random: np.random.Generator) -> None:
    conv = dlprim.Conv2d((2, 70, 5, 6), (70, 70, 3, 3), padding=1, layout=layout)
    x = random.standard_normal((2, 70, 5, 6), F4)
    packed = conv.pack_src(x[:, ::-1])
    np.testing.assert_array_equal(conv.unpack_diff_src(packed), x[:, ::-1])
    np.testing.assert_array_equal(conv.unpack_dst(conv.pack_diff_dst(x)), x)
    if layout == "NHWC":
        np.testing.assert_array_equal(packed, x[:, ::-1].transpose(0, 2, 3, 1))


@both_layouts
def test_schedule_is_taken(layout: str) -> None:
    conv = dlprim.Conv2d(**FINE, layout=layout)
    again = dlprim.Conv2d(**FINE, layout=layout, schedule=conv.schedules)
    assert again.schedules == conv.schedules
    forward = conv.schedules["forward"]
    assert dlprim.Conv2d(**FINE, layout=layout, schedule=forward).schedules == conv.schedules


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"x_shape": (2, 70, 9)}, ValueError, r"^x_shape is \(2, 70, 9\), expected four int"),
        ({"x_shape": 3}, TypeError, r"^x_shape is of type int, expected four integers"),
        ({"x_shape": (2, 70, 9.0, 8)}, TypeError, r"^x_shape holds 9\.0"),
        ({"x_shape": (-1, 70, 9, 8)}, ValueError, r"^N=-1, expected"),
        ({"x_shape": (2, 70, 0, 8)}, ValueError, r"^H=0, expected"),
        ({"x_shape": (2**30, 70, 2**15, 2**15)}, ValueError, r"elements"),
        ({"w_shape": (0, 70, 3, 3)}, ValueError, r"^K=0, expected"),
        ({"w_shape": (48, 70, 3, 0)}, ValueError, r"^S=0, expected"),
        ({"w_shape": (48, 35, 3, 3)}, ValueError, r"35 \* 1 = 35 input channels, but x has C = 70"),
        ({"w_shape": (48, 70, 12, 3)}, ValueError, r"covers 12 .*only 11 \(H=9, padding 2\)"),
        ({"w_shape": (48, 70, 3, 6), "dilation": (1, 2)}, ValueError, r"covers 11 .*only 10"),
        ({"w_shape": (47, 35, 3, 3), "groups": 2}, ValueError, r"^groups=2 must divide K=47"),
        ({"stride": (1, 0)}, ValueError, r"^stride is \(1, 0\), expected integers of at least 1"),
        ({"dilation": 0}, ValueError, r"^dilation is 0, expected"),
        ({"padding": (1, -2)}, ValueError, r"^padding is -2, expected"),
        (
            {"dtype": "float64"},
            TypeError,
            r"^dtype is float64, expected float32, bfloat16, uint8 or int8",
        ),
        ({"dtype": "floaty"}, TypeError, r"^dtype is 'floaty', which is no dtype"),
        ({"layout": "NCHW"}, ValueError, r"^layout is 'NCHW', expected 'blocked' or 'NHWC'"),
        ({"layout": None}, ValueError, r"^layout is None"),
        ({"algorithm": "winograd"}, ValueError, r"^algorithm is 'winograd', which cannot"),
        ({"algorithm": "fft"}, ValueError, r"^algorithm is 'fft', expected one of auto, "),
        ({"accuracy": "low"}, ValueError, r"^accuracy is 'low', expected None or 'high'"),
        ({"activation": "elu"}, ValueError, r"^activation is 'elu', expected one of"),
        ({"schedule": {"sideways": ""}}, ValueError, r"^schedule names 'sideways', expected"),
        ({"schedule": {"forward": 3}}, TypeError, r"^schedule\['forward'\] is of type int"),
        ({"schedule": 3}, TypeError, r"^schedule is of type int"),
        ({"schedule": "?!"}, ValueError, r"\?!"),
    ],
)
def test_conv2d_refuses(change: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        dlprim.Conv2d(**(FINE | change))


class Arrays:
    """Operands that fit, and a call of every method with one of them changed."""

    def __init__(self, layout: str) -> None:
        self.conv = conv = dlprim.Conv2d(**FINE, layout=layout, activation="relu", bias=True)
        self.fine = {
            "src": np.zeros(conv.src_shape, F4),
            "weights": np.zeros(conv.weights_shape, F4),
            "bias": np.zeros(48, F4),
            "residual": np.zeros(conv.dst_shape, F4),
            "diff_dst": np.zeros(conv.dst_shape, F4),
            "dst": np.zeros(conv.dst_shape, F4),
            "relu_mask": np.full(conv.relu_mask_shape, 7, np.uint8),
            "diff_bias": np.full(48, 7, F4),
        }
        out = (conv.dst_shape, conv.src_shape, conv.diff_weights_shape, conv.dst_shape)
        self.out = [np.full(shape, 7, F4) for shape in out]

    def call(self, number: int, **changed: Any) -> None:
        t = {**self.fine, "out": self.out[number], **changed}
        names = (
            ("src", "weights", "bias", "residual", "out", "relu_mask"),
            ("diff_dst", "weights", "out"),
            ("src", "diff_dst", "out"),
            ("diff_dst", "dst", "out", "diff_bias"),
        )[number]
        methods = ("forward", "backward_data", "backward_weights", "backward_relu")
        getattr(self.conv, methods[number])(**{name: t[name] for name in names})


OPERANDS = [
    *((0, name) for name in ("src", "weights", "bias", "residual", "out", "relu_mask")),
    *((1, name) for name in ("diff_dst", "weights", "out")),
    *((2, name) for name in ("src", "diff_dst", "out")),
    *((3, name) for name in ("diff_dst", "dst", "out", "diff_bias")),
]


@both_layouts
@pytest.mark.parametrize(("number", "name"), OPERANDS)
def test_array_that_does_not_fit_is_refused(number: int, name: str, layout: str) -> None:
    arrays = Arrays(layout)
    fine = {**arrays.fine, "out": arrays.out[number]}[name]
    wider = np.zeros((*fine.shape[:-1], 2 * fine.shape[-1]), fine.dtype)
    unaligned = np.zeros(fine.nbytes + 1, np.uint8)[1:].view(fine.dtype).reshape(fine.shape)
    wrong = [
        (fine.astype(np.float64), TypeError, rf"^{name} has dtype float64"),
        (wider, ValueError, rf"^{name} has shape"),
        (fine[..., None], ValueError, rf"^{name} has "),
        (wider[..., ::2], ValueError, rf"^{name} "),
        ([1.0], TypeError, rf"^{name} is of type list"),
    ]
    if fine.itemsize > 1:
        wrong.append((unaligned, ValueError, rf"^{name} "))
    if name in ("out", "relu_mask", "diff_bias"):
        locked = fine.copy()
        locked.flags.writeable = False
        wrong.append((locked, ValueError, rf"^{name} is read-only"))
    for array, error, match in wrong:
        with pytest.raises(error, match=match):
            arrays.call(number, **{name: array})
    written = (arrays.out[number], arrays.fine["relu_mask"], arrays.fine["diff_bias"])
    assert all((array == 7).all() for array in written)


@both_layouts
def test_results_share_no_memory_with_operands(layout: str) -> None:
    arrays = Arrays(layout)
    fine = arrays.fine
    with pytest.raises(ValueError, match=r"^diff_bias shares memory with diff_dst"):
        arrays.call(3, diff_bias=fine["diff_dst"].reshape(-1)[:48])
    mask = fine["residual"].view(np.uint8).reshape(-1)[: fine["relu_mask"].size]
    with pytest.raises(ValueError, match=r"^relu_mask shares memory with residual"):
        arrays.call(0, relu_mask=mask.reshape(fine["relu_mask"].shape))
    square = dlprim.Conv2d((1, 16, 4, 4), (16, 16, 1, 1), layout=layout)
    ones, weights = np.ones(square.src_shape, F4), np.ones(square.weights_shape, F4)
    with pytest.raises(ValueError, match=r"^out shares memory with src"):
        square.forward(ones, weights, out=ones)
    with pytest.raises(ValueError, match=r"^out shares memory with diff_dst"):
        square.backward_data(ones, weights, out=ones)
    with pytest.raises(ValueError, match=r"^out shares memory with src"):
        square.backward_weights(
            ones, ones.copy(), out=ones.reshape(-1)[:256].reshape(square.diff_weights_shape)
        )


@both_layouts
def test_what_is_missing_or_superfluous_is_refused(layout: str) -> None:
    arrays = Arrays(layout)
    with pytest.raises(ValueError, match=r"^bias is missing"):
        arrays.call(0, bias=None)
    with pytest.raises(TypeError, match=r"^src is of type NoneType"):
        arrays.call(0, src=None)
    conv, fine = arrays.conv, arrays.fine
    for given in ({}, {"dst": fine["dst"], "relu_mask": fine["relu_mask"]}):
        with pytest.raises(ValueError, match=r"^of dst and relu_mask (neither|both) is given"):
            conv.backward_relu(fine["diff_dst"], **given)
    without = dlprim.Conv2d(**FINE, layout=layout)
    with pytest.raises(ValueError, match=r"^bias was given"):
        without.forward(fine["src"], fine["weights"], fine["bias"])
    with pytest.raises(
        ValueError, match=r"^relu_mask was given, but the activation of the convolution is 'none'"
    ):
        without.forward(fine["src"], fine["weights"], relu_mask=fine["relu_mask"])
    with pytest.raises(TypeError, match=r"^dtype is bfloat16, expected float32"):
        without.backward_weights(fine["src"], fine["diff_dst"], dtype="bfloat16")


def test_gradient_of_bfloat16_weights_has_either_type() -> None:
    conv = dlprim.Conv2d(**FINE, dtype="bfloat16")
    src = conv.pack_src(dlprim.to_bfloat16(np.ones(conv.x_shape, F4)))
    diff_dst = conv.pack_diff_dst(dlprim.to_bfloat16(np.ones(conv.y_shape, F4)))
    full = conv.backward_weights(src, diff_dst)
    rounded = conv.backward_weights(src, diff_dst, dtype="bfloat16")
    assert (full.dtype, rounded.dtype) == (F4, conv.dtype)
    plain = conv.unpack_diff_weights(full)
    assert plain.shape == CASE.w_shape
    expected = dlprim.to_bfloat16(plain)
    assert conv.unpack_diff_weights(rounded).tobytes() == expected.tobytes()
    with pytest.raises(TypeError, match=r"^dtype is float16, expected float32 or"):
        conv.backward_weights(src, diff_dst, dtype="float16")
    with pytest.raises(TypeError, match=r"^out has dtype float32, expected bfloat16 as dtype says"):
        conv.backward_weights(src, diff_dst, out=full, dtype="bfloat16")
    with pytest.raises(
        TypeError, match=r"^out has dtype (bfloat|uint)16, expected float32 as dtype says"
    ):
        conv.backward_weights(src, diff_dst, out=rounded, dtype="float32")
    assert conv.backward_weights(src, diff_dst, out=rounded, dtype="bfloat16") is rounded


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("size", [1, 3])
def test_float32_weights_are_rounded_while_they_are_packed(size: int, groups: int) -> None:
    shapes = (1, 6, 9, 9), (18, 6 // groups, size, size)
    conv = dlprim.Conv2d(*shapes, groups=groups, dtype="bfloat16", algorithm="direct")
    w = random_floats(math.prod(conv.w_shape)).reshape(conv.w_shape)
    packed = conv.pack_weights(w)
    expected = conv.pack_weights(dlprim.to_bfloat16(w))
    assert packed.dtype == conv.dtype
    assert packed.tobytes() == expected.tobytes()
    again = np.empty_like(packed)
    assert conv.pack_weights(w, again) is again
    assert again.tobytes() == expected.tobytes()
    with pytest.raises(TypeError, match=r"^w has dtype float64, expected bfloat16"):
        conv.pack_weights(np.zeros(conv.w_shape))
    with pytest.raises(TypeError, match=r"^w has dtype (bfloat|uint)16, expected float32"):
        dlprim.Conv2d(conv.x_shape, conv.w_shape, groups=groups).pack_weights(dlprim.to_bfloat16(w))
