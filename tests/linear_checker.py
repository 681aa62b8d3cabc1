"""The one checker of linear layers: all passes, on operands next to forbidden pages.

What fills up the last block of channels belongs to nobody: in operands it holds NaN, which would
show in a result, in results a pattern that must still be there afterwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import dlprim
import reference
from cases import Linear
from conv_reference import ACTIVATIONS as CURVES
from conv_reference import activated, assert_close, doubles
from guarded import guarded

ACTIVATIONS = (None, "relu", *CURVES)
_NAN = {2: 0x7FC1, 4: 0x7FC0DEAD}  # bits that no arithmetic makes, by size of the element
_ERF = np.vectorize(math.erf, otypes=[np.float64])
# Of a slope, which is at most 1.5 everywhere, in float32.
_SLOPE_ERROR = 1e-6


@dataclass(frozen=True)
class Variant:
    """What a layer is besides its shape."""

    dtype: str = "float32"
    layout: str = "blocked"
    bias: bool = False
    activation: str | None = None
    edge: str = "end"


VARIANTS = [(dtype, layout) for dtype in ("float32", "bfloat16") for layout in ("blocked", "plain")]


def drawn_variant(dtype: str, layout: str, seed: int) -> Variant:
    random = np.random.default_rng(seed)
    activation = ACTIVATIONS[random.integers(len(ACTIVATIONS))]
    bias, end = (bool(bit) for bit in random.integers(0, 2, 2))
    return Variant(dtype, layout, bias, activation, "end" if end else "begin")


def slope(activation: str | None, argument: NDArray) -> NDArray:
    """The derivative of an activation at `argument`, in float64."""
    z = np.clip(argument, -50, 50)
    sigmoid = 1 / (1 + np.exp(-z))
    if activation == "relu":
        return np.where(argument <= 0, 0.0, 1.0)
    if activation == "relu6":
        return np.where((argument <= 0) | (argument >= 6), 0.0, 1.0)
    if activation == "sigmoid":
        return sigmoid * (1 - sigmoid)
    if activation == "hardsigmoid":
        return np.where(abs(z) < 3, 1 / 6, 0)
    if activation == "tanh":
        return 1 - np.tanh(z) ** 2
    if activation == "swish":
        return sigmoid + z * sigmoid * (1 - sigmoid)
    if activation == "gelu":
        density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
        return (1 + _ERF(z / math.sqrt(2))) / 2 + z * density
    if activation == "gelu_tanh":
        root = math.sqrt(2 / math.pi)
        tanh = np.tanh(root * (z + 0.044715 * z**3))
        return (1 + tanh) / 2 + z * (1 - tanh**2) / 2 * root * (1 + 3 * 0.044715 * z * z)
    if activation == "hardswish":
        return np.select([z <= -3, z >= 3], [0, 1], z / 3 + 0.5)
    return np.ones_like(z)


def slope_from_saved(activation: str | None, saved: NDArray) -> NDArray:
    """From what a forward pass in training saves."""
    if activation == "sigmoid":
        return saved * (1 - saved)
    if activation == "hardsigmoid":
        return np.where((saved <= 0) | (saved >= 1), 0, 1 / 6)
    if activation == "tanh":
        return 1 - saved**2
    return slope(activation, saved)


class Checked:
    """A layer with operands in guarded memory."""

    def __init__(
        self, case: Linear, variant: Variant, seed: int, schedule: dict[str, str] | None = None
    ) -> None:
        self.case, self.variant = case, variant
        self.random = np.random.default_rng(seed)
        self.layer = layer = dlprim.Linear(
            (case.N, case.C),
            case.K,
            dtype=variant.dtype,
            activation=variant.activation,
            bias=variant.bias,
            schedule=schedule,
            layout=variant.layout,
        )
        self.x, self.w, self.dy = (
            self.draw(shape) for shape in (layer.x_shape, layer.w_shape, layer.y_shape)
        )
        self.src = layer.pack_src(self.x, out=self.empty(layer.src_shape))
        self.weights = layer.pack_weights(self.w, out=self.empty(layer.weights_shape))
        self.diff_dst = layer.pack_diff_dst(self.dy, out=self.empty(layer.dst_shape))
        for packed, channels in ((self.src, case.C), (self.diff_dst, case.K)):
            behind = self.behind(packed, channels)
            assert not behind.any()
            behind.fill(_NAN[packed.itemsize])

    def draw(self, shape: tuple[int, ...]) -> NDArray:
        values = self.random.standard_normal(shape, np.float32)
        return values if self.variant.dtype == "float32" else dlprim.to_bfloat16(values)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype | type | None = None) -> NDArray:
        """Poisoned memory that ends or begins at a forbidden page."""
        kind = np.dtype(self.layer.dtype if dtype is None else dtype)
        memory = guarded(math.prod(shape), self.variant.edge, kind)
        memory.view(f"u{kind.itemsize}").fill(_NAN[kind.itemsize])
        return memory.reshape(shape)

    def behind(self, packed: NDArray, channels: int) -> NDArray:
        """The bits of what fills up the last block of channels."""
        bits = packed.view(f"u{packed.itemsize}")
        if self.variant.layout == "plain" or len(bits) == 0:
            return bits[..., :0]
        return bits[-1, :, channels - (len(bits) - 1) * bits.shape[-1] :]

    def assert_untouched_behind(self, packed: NDArray, channels: int) -> None:
        assert (self.behind(packed, channels) == _NAN[packed.itemsize]).all()

    def forward(self) -> None:
        layer, case = self.layer, self.case
        bias = None
        expected = reference.product(doubles(self.x), doubles(self.w).T)
        if self.variant.bias:
            bias = self.empty((case.K,), np.float32)
            bias[...] = self.random.standard_normal(case.K)
            expected = expected.plus(bias)
        dst = self.empty(layer.dst_shape)
        assert layer.forward(self.src, self.weights, bias, out=dst) is dst
        self.assert_untouched_behind(dst, case.K)
        y = layer.unpack_dst(dst)
        assert_close(y, activated(expected, self.variant.activation))
        one_form = layer.pack_weights(self.w, backward=False)
        np.testing.assert_array_equal(
            layer.unpack_dst(layer.forward(self.src, one_form, bias)).view("u1"), y.view("u1")
        )
        dst, saved = layer.forward(self.src, self.weights, bias, training=True)
        if self.variant.dtype == "float32":
            assert_close(layer.unpack_dst(dst), activated(expected, self.variant.activation))
        if saved is not dst:
            assert_close(layer.unpack_dst(saved), expected)
        self.backward_activation(saved)

    def backward_activation(self, saved: NDArray) -> None:
        layer, case = self.layer, self.case
        diff_dst = self.empty(layer.dst_shape)
        db = self.empty((case.K,), np.float32)
        diff, total = layer.backward_activation(self.diff_dst, saved, out=diff_dst, diff_bias=db)
        assert diff is diff_dst
        assert total is db
        self.assert_untouched_behind(diff, case.K)
        kept = doubles(layer.unpack_dst(saved))
        with np.errstate(invalid="ignore"):
            value = doubles(self.dy) * slope_from_saved(self.variant.activation, kept)
        error = _SLOPE_ERROR / reference.UNIT_ROUNDOFF * np.abs(doubles(self.dy))
        passed = layer.unpack_dst(diff)
        assert_close(passed, reference.Expected(value, error, 1))
        ones = np.ones((1, case.N))
        assert_close(db[None], reference.product(ones, doubles(passed)))

    def backward(self) -> None:
        layer = self.layer
        x, w, dy = (doubles(each) for each in (self.x, self.w, self.dy))
        diff_src = self.empty(layer.src_shape)
        assert layer.backward_data(self.diff_dst, self.weights, out=diff_src) is diff_src
        self.assert_untouched_behind(diff_src, self.case.C)
        assert_close(layer.unpack_diff_src(diff_src), reference.product(dy, w))
        expected = reference.product(dy.T, x)
        for dtype in {np.dtype(np.float32), layer.dtype}:
            diff_weights = self.empty(layer.diff_weights_shape, dtype)
            layer.backward_weights(self.src, self.diff_dst, out=diff_weights)
            assert_close(layer.unpack_diff_weights(diff_weights), expected)


def check(
    case: Linear, variant: Variant, seed: int = 0, schedule: dict[str, str] | None = None
) -> None:
    """Run every pass of `case` and raise AssertionError unless the contract held."""
    checked = Checked(case, variant, seed, schedule)
    operands = [checked.src, checked.weights, checked.diff_dst]
    before = [each.tobytes() for each in operands]
    checked.forward()
    checked.backward()
    assert [each.tobytes() for each in operands] == before, "an operand was changed"


def random_layers(count: int, seed: int) -> list[Linear]:
    random = np.random.default_rng(seed)
    extents = [0, 1, 2, 15, 16, 17, 31, 37, 63, 64, 65, 97, 101, 128, 130, 149, 200]
    return [Linear(*random.choice(extents, 3).tolist()) for _ in range(count)]


def check_on_this_level(count: int, seed: int) -> None:
    """Random shapes, for a process that was told its ISA level."""
    for number, case in enumerate(random_layers(count, seed)):
        for dtype, layout in VARIANTS:
            check(case, drawn_variant(dtype, layout, number), number)
