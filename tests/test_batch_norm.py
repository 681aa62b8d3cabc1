"""Batch normalisation against float64, in both layouts and types."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import batch_norm_reference as reference
import dlprim
from batch_norm_reference import broadcast

pytestmark = pytest.mark.every_level

SHAPES = [(2, 64, 5, 7), (3, 3, 1, 1), (1, 17, 4, 4), (2, 130, 3, 3), (5, 96, 2, 1), (2, 1, 40, 9)]
LAYOUTS = ["blocked", "NHWC"]
TOLERANCE = {"float32": 4e-6, "bfloat16": 1e-2}
DTYPES = list(TOLERANCE)


def as_dtype(x: NDArray, dtype: str) -> NDArray:
    x = np.ascontiguousarray(x, np.float32)
    return dlprim.to_bfloat16(x) if dtype == "bfloat16" else x


def wide(x: NDArray) -> NDArray:
    return (x if x.dtype == np.float32 else dlprim.to_float32(x)).astype(np.float64)


class Problem:
    """Random operands of a layer, plain in float64 and packed."""

    def __init__(self, shape, layout="blocked", dtype="float32", offset=0.5, **options):
        self.norm = dlprim.BatchNorm(shape, layout=layout, dtype=dtype, **options)
        random = np.random.default_rng(sum(shape))
        pack, channels = self.norm.activations.pack, shape[1]
        operands = [as_dtype(random.standard_normal(shape), dtype) for _ in range(3)]
        operands[0] = as_dtype(wide(operands[0]) * 2 + offset, dtype)
        self.x, self.residual, self.dy = (wide(operand) for operand in operands)
        self.src, self.packed_residual, self.diff_dst = (pack(operand) for operand in operands)
        self.weight = random.uniform(0.5, 2, channels).astype(np.float32)
        self.bias = random.standard_normal(channels).astype(np.float32)
        self.tolerance = TOLERANCE[dtype]
        if not self.norm.residual:
            self.residual, self.packed_residual = 0.0, None

    def expected(self, given=None) -> reference.Normalized:
        return reference.forward(self.x, self.weight, self.bias, self.residual, given)

    def forward(self, **options):
        return self.norm.forward(
            self.src, weights=self.weight, bias=self.bias, residual=self.packed_residual, **options
        )

    def plain(self, packed: NDArray) -> NDArray:
        return wide(self.norm.activations.unpack(packed))

    def check(self, packed: NDArray, exact: NDArray) -> None:
        scale = max(1.0, np.abs(exact).max(initial=0))
        np.testing.assert_allclose(self.plain(packed), exact, 0, self.tolerance * scale)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("relu", [False, True])
def test_forward_training(shape, layout, dtype, relu, residual):
    it = Problem(shape, layout, dtype, activation="relu" if relu else None, residual=residual)
    exact = it.expected()
    dst, saved = it.forward()
    it.check(dst, np.maximum(exact.sum, 0) if relu else exact.sum)
    np.testing.assert_allclose(saved[0], exact.mean, 1e-5, 1e-6)
    np.testing.assert_allclose(saved[1], 1 / np.sqrt(exact.variance + 1e-5), 1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES[:4], ids=str)
def test_inference_uses_the_running_statistics(shape, layout, dtype):
    it = Problem(shape, layout, dtype, activation="relu")
    mean = np.linspace(-1, 1, shape[1]).astype(np.float32)
    var = np.linspace(0.5, 3, shape[1]).astype(np.float32)
    before = mean.copy(), var.copy()
    dst, saved = it.forward(running_mean=mean, running_var=var, training=False)
    it.check(dst, np.maximum(it.expected((mean, var)).sum, 0))
    np.testing.assert_array_equal(mean, before[0])
    np.testing.assert_array_equal(var, before[1])
    np.testing.assert_allclose(saved[1], 1 / np.sqrt(var + 1e-5), 1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("gate", ["none", "again", "dst", "mask", "residual dst", "residual mask"])
def test_backward(shape, layout, dtype, gate):
    it = Problem(
        shape,
        layout,
        dtype,
        activation=None if gate == "none" else "relu",
        residual="residual" in gate,
    )
    mask = np.full(it.norm.relu_mask_shape, 0xAA, np.uint8) if "mask" in gate else None
    dst, saved = it.forward(relu_mask=mask)
    exact = it.expected()
    passed = np.where(it.plain(dst) > 0, it.dy, 0) if gate != "none" else it.dy
    diff_src, diff_weight, diff_bias = reference.backward(passed, it.x, exact, it.weight)
    got = it.norm.backward(
        it.diff_dst, it.src, saved, weights=it.weight, bias=it.bias,
        dst=dst if "dst" in gate else None, relu_mask=mask,
    )  # fmt: skip
    it.check(got.diff_src, diff_src)
    pixels = it.x.size / shape[1]
    np.testing.assert_allclose(got.diff_weights, diff_weight, 1e-5, 1e-5 * pixels**0.5)
    np.testing.assert_allclose(got.diff_bias, diff_bias, 1e-5, 1e-5 * pixels**0.5)
    if it.norm.residual:
        np.testing.assert_array_equal(it.plain(got.diff_residual), passed)
    else:
        assert got.diff_residual is None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("by_mask", [False, True])
def test_backward_of_two_terms(shape, layout, dtype, by_mask):
    it = Problem(shape, layout, dtype, activation="relu", residual=True)
    mask = np.empty(it.norm.relu_mask_shape, np.uint8)
    dst, saved = it.forward(relu_mask=mask)
    gate = {"relu_mask": mask} if by_mask else {"dst": dst}
    addend = as_dtype(np.random.default_rng(1).standard_normal(shape), dtype)
    total = as_dtype(it.dy + wide(addend), dtype)
    packed = it.norm.activations.pack(addend)
    parameters = {"saved": saved, "weights": it.weight, "bias": it.bias}
    got = it.norm.backward(it.diff_dst, it.src, **parameters, **gate, diff_addend=packed)
    of_sum = it.norm.activations.pack(total)
    expected = it.norm.backward(of_sum, it.src, **parameters, **gate)
    np.testing.assert_array_equal(it.plain(got.diff_residual), it.plain(expected.diff_residual))
    it.check(got.diff_src, it.plain(expected.diff_src))
    bound = it.tolerance * (it.x.size / shape[1]) ** 0.5 * 4
    np.testing.assert_allclose(got.diff_weights, expected.diff_weights, bound, bound)
    np.testing.assert_allclose(got.diff_bias, expected.diff_bias, bound, bound)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_backward_with_given_statistics(layout):
    it = Problem((2, 20, 3, 5), layout, activation="relu")
    mean, var = np.full(20, 0.25, np.float32), np.full(20, 2, np.float32)
    dst, saved = it.forward(running_mean=mean, running_var=var, training=False)
    passed = np.where(it.plain(dst) > 0, it.dy, 0)
    exact = reference.backward(passed, it.x, it.expected((mean, var)), it.weight, False)
    got = it.norm.backward(
        it.diff_dst, it.src, saved, weights=it.weight, bias=it.bias, training=False
    )
    it.check(got.diff_src, exact[0])
    np.testing.assert_allclose(got.diff_weights, exact[1], 1e-5, 1e-5)


def test_running_statistics_follow_as_in_pytorch():
    it = Problem((4, 33, 5, 3))
    mean, var = np.full(33, 3, np.float32), np.full(33, 2, np.float32)
    it.forward(running_mean=mean, running_var=var, momentum=0.25)
    unbiased = it.x.var((0, 2, 3), ddof=1)
    np.testing.assert_allclose(mean, 0.75 * 3 + 0.25 * it.x.mean((0, 2, 3)), 1e-5)
    np.testing.assert_allclose(var, 0.75 * 2 + 0.25 * unbiased, 1e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_large_mean_costs_no_accuracy(layout):
    it = Problem((8, 40, 30, 30), layout, offset=1000)
    exact = it.expected()
    _, saved = it.forward()
    np.testing.assert_allclose(saved[0], exact.mean, 2e-7)
    np.testing.assert_allclose(saved[1], 1 / np.sqrt(exact.variance + 1e-5), 5e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_bits_for_any_number_of_threads(layout, dtype):
    it = Problem((6, 100, 17, 19), layout, dtype, activation="relu", residual=True)

    def everything() -> list[NDArray]:
        dst, saved = it.forward()
        got = it.norm.backward(it.diff_dst, it.src, saved, weights=it.weight, dst=dst)
        return [dst, saved, *(part for part in got if part is not None)]

    with dlprim.threads(1):
        alone = everything()
    with dlprim.threads(3):
        together = everything()
    for one, other in zip(alone, together, strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_in_place(layout):
    it = Problem((2, 24, 6, 6), layout, activation="relu", residual=True)
    dst, saved = it.forward()
    got = it.norm.backward(it.diff_dst, it.src, saved, weights=it.weight, dst=dst)
    mask = np.empty(it.norm.relu_mask_shape, np.uint8)
    src, diff_dst = it.src.copy(), it.diff_dst.copy()
    again, _ = it.forward(out=it.packed_residual, relu_mask=mask)
    assert again.tobytes() == dst.tobytes()
    in_place = it.norm.backward(
        diff_dst, src, saved, weights=it.weight, relu_mask=mask, out=src, diff_residual=diff_dst
    )
    assert in_place.diff_src.tobytes() == got.diff_src.tobytes()
    assert in_place.diff_residual.tobytes() == got.diff_residual.tobytes()


def test_an_empty_minibatch():
    it = Problem((0, 20, 3, 3), activation="relu")
    mean, var = np.ones(20, np.float32), np.ones(20, np.float32)
    dst, saved = it.forward(running_mean=mean, running_var=var)
    assert dst.shape == it.norm.src_shape
    got = it.norm.backward(it.diff_dst, it.src, saved, weights=it.weight, bias=it.bias)
    assert not got.diff_weights.any()
    assert not got.diff_bias.any()
    assert (mean == 1).all()
    assert (var == 1).all()


def test_constant_channels_and_single_values():
    it = Problem((1, 5, 1, 1))
    var = np.zeros(5, np.float32)
    dst, _ = it.forward(running_mean=np.zeros(5, np.float32), running_var=var)
    np.testing.assert_allclose(it.plain(dst)[0, :, 0, 0], it.bias)
    assert not var.any()


def test_nan_stays_in_its_channel():
    it = Problem((2, 40, 3, 3), activation="relu")
    plain = it.norm.activations.unpack(it.src)
    plain[1, 7, 2, 1] = np.nan
    dst, saved = it.norm.forward(it.norm.activations.pack(plain), weights=it.weight, bias=it.bias)
    hit = np.isnan(it.plain(dst)).any((0, 2, 3))
    assert hit[7]
    assert hit.sum() == 1
    assert np.isnan(saved).sum() == 2


def test_wrong_arguments_are_refused():
    it = Problem((2, 8, 3, 3), activation="relu")
    with pytest.raises(ValueError, match=r"^weights has shape"):
        it.norm.forward(it.src, weights=np.ones(7, np.float32))
    with pytest.raises(ValueError, match="residual is given"):
        it.norm.forward(it.src, residual=it.src)
    with pytest.raises(ValueError, match="running_mean or running_var is missing"):
        it.forward(training=False)
    with pytest.raises(TypeError, match="src has dtype"):
        it.norm.forward(it.src.astype(np.float64))
    with pytest.raises(ValueError, match="running_mean has shape"):
        it.forward(running_mean=np.ones(3, np.float32), running_var=np.ones(8, np.float32))
    memory = np.zeros(it.src.size + 8, np.float32)
    src, overlapping = (part.reshape(it.src.shape) for part in (memory[:-8], memory[8:]))
    with pytest.raises(ValueError, match="shares memory"):
        it.norm.forward(src, out=overlapping)
    dst, saved = it.forward()
    for name in ("diff_residual", "diff_addend"):
        with pytest.raises(ValueError, match=f"{name} is given, expected None"):
            it.norm.backward(it.diff_dst, it.src, saved, **{name: dst})
    both = Problem((2, 8, 3, 3), activation="relu", residual=True)
    with pytest.raises(ValueError, match="shares memory"):
        both.norm.backward(both.diff_dst, both.src, saved, dst=dst, diff_addend=dst, out=dst)
    with pytest.raises(ValueError, match=r"^eps is"):
        dlprim.BatchNorm((1, 2, 3, 4), eps=-1)
    with pytest.raises(ValueError, match="expected N >= 0"):
        dlprim.BatchNorm((1, 0, 3, 4))


def test_folding_into_a_convolution():
    random = np.random.default_rng(5)
    x = random.standard_normal((2, 6, 7, 7), np.float32)
    w, b = random.standard_normal((9, 6, 3, 3), np.float32), random.random(9, np.float32)
    weight, bias, mean, var = random.uniform(0.5, 2, (4, 9)).astype(np.float32)
    folded = dlprim.fold_batch_norm(
        w, b, norm_weight=weight, norm_bias=bias, running_mean=mean, running_var=var
    )
    y = dlprim.conv2d(x, w, b).astype(np.float64)
    exact = (y - broadcast(mean)) / np.sqrt(broadcast(var) + 1e-5) * broadcast(weight)
    np.testing.assert_allclose(dlprim.conv2d(x, *folded), exact + broadcast(bias), 0, 1e-4)
    with pytest.raises(ValueError, match="running_mean has shape"):
        dlprim.fold_batch_norm(
            w, b, norm_weight=weight, norm_bias=bias, running_mean=mean[:3], running_var=var
        )


def test_relu_masks_have_a_bit_for_nan() -> None:
    """Its gradient passes, as that of what relu leaves as it is."""
    norm = dlprim.BatchNorm((1, 9, 2, 2), layout="NHWC", activation="relu")
    src, mask = np.full(norm.src_shape, np.nan, np.float32), np.zeros(norm.relu_mask_shape, "u1")
    kept = {"running_mean": np.zeros(9, np.float32), "running_var": np.ones(9, np.float32)}
    dst, _ = norm.forward(src, **kept, training=False, relu_mask=mask)
    assert np.isnan(dst).all()
    assert np.unpackbits(mask.reshape(4, -1), axis=1, bitorder="little")[:, :9].all()
