"""The one checker of convolutions: every pass on operands next to forbidden pages, against float64.

What fills up the last block of channels belongs to nobody: in operands it holds NaN, which would
show in a result, in results a pattern that must still be there afterwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import conv_reference as reference
import dlprim
from conv_cases import FIXED, Conv, random_convs
from guarded import guarded
from levels import few

_ACTIVATIONS = (None, None, "relu", "relu", *reference.ACTIVATIONS)
_WINOGRAD = 3  # times the bound of a direct sum
_NAN = {2: 0x7FC1, 4: 0x7FC0DEAD}  # bits that no arithmetic makes, by size of the element


@dataclass(frozen=True)
class Variant:
    """What a convolution is besides its shape."""

    layout: str = "blocked"
    dtype: str = "float32"
    bias: bool = False
    residual: bool = False
    activation: str | None = None
    relu_mask: bool = False
    edge: str = "end"
    algorithm: str = "direct"


VARIANTS = [(layout, dtype) for layout in ("blocked", "NHWC") for dtype in ("float32", "bfloat16")]


def drawn_variant(layout: str, dtype: str, seed: int) -> Variant:
    """An epilogue and a side for the guard that vary with the seed."""
    random = np.random.default_rng(seed)
    activation = _ACTIVATIONS[random.integers(len(_ACTIVATIONS))]
    bias, residual, mask, end = (bool(bit) for bit in random.integers(0, 2, 4))
    mask = mask and activation == "relu"
    return Variant(layout, dtype, bias, residual, activation, mask, "end" if end else "begin")


class Checked:
    """A convolution with operands in guarded memory."""

    def __init__(
        self, case: Conv, variant: Variant, seed: int, schedule: dict[str, str] | None = None
    ) -> None:
        self.case, self.variant = case, variant
        self.random = np.random.default_rng(seed)
        self.conv = dlprim.Conv2d(
            case.x_shape,
            case.w_shape,
            **case.keywords,
            dtype=variant.dtype,
            layout=variant.layout,
            activation=variant.activation,
            bias=variant.bias,
            schedule=schedule,
            algorithm=variant.algorithm,
        )
        conv = self.conv
        assert conv.y_shape == case.y_shape
        self.x, self.w, self.dy = (
            self.draw(shape) for shape in (case.x_shape, case.w_shape, case.y_shape)
        )
        self.src = conv.pack_src(self.x, out=self.empty(conv.src_shape))
        self.weights = conv.pack_weights(self.w, out=self.empty(conv.weights_shape))
        self.diff_dst = conv.pack_diff_dst(self.dy, out=self.empty(conv.dst_shape))
        for packed, channels in ((self.src, case.C), (self.diff_dst, case.K)):
            behind = self.behind(packed, channels)
            assert not behind.any()
            behind.fill(_NAN[packed.itemsize])

    def draw(self, shape: tuple[int, ...]) -> NDArray:
        values = self.random.standard_normal(shape, np.float32)
        return values if self.variant.dtype == "float32" else dlprim.to_bfloat16(values)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype | type | None = None) -> NDArray:
        """Poisoned memory that ends or begins at a forbidden page."""
        kind = np.dtype(self.conv.dtype if dtype is None else dtype)
        memory = guarded(math.prod(shape), self.variant.edge, kind)
        if kind.itemsize > 1:
            memory.view(f"u{kind.itemsize}").fill(_NAN[kind.itemsize])
        return memory.reshape(shape)

    def behind(self, packed: NDArray, channels: int) -> NDArray:
        """The bits of what fills up the last block of every group of channels."""
        bits = packed.view(f"u{packed.itemsize}")
        if self.variant.layout == "NHWC":
            return bits[..., channels:]
        images, count, *others = bits.shape
        depthwise = self.case.groups == self.case.C == self.case.K
        groups = 1 if depthwise else self.case.groups
        blocks = bits.reshape(images, groups, count // groups, *others)
        return blocks[:, :, -1, ..., channels // groups - (count // groups - 1) * others[-1] :]

    def assert_untouched_behind(self, packed: NDArray, channels: int) -> None:
        assert (self.behind(packed, channels) == _NAN[packed.itemsize]).all()

    def bounded(self, expected: reference.Expected) -> reference.Expected:
        """Errors of Winograd's transforms are in proportion to the largest numbers of a tile."""
        if self.variant.algorithm == "direct" or expected.magnitude.size == 0:
            return expected
        spread = np.full_like(expected.magnitude, _WINOGRAD * expected.magnitude.max())
        return reference.Expected(expected.value, spread, expected.terms)

    def forward(self) -> tuple[NDArray, NDArray | None]:
        """Checks the pass; the packed result and its mask."""
        conv, case, variant = self.conv, self.case, self.variant
        bias = residual = mask = None
        expected = reference.forward(case, self.x, self.w)
        if variant.bias:
            bias = self.empty((case.K,), np.float32)
            bias[...] = self.random.standard_normal(case.K)
            expected = expected.plus(bias[:, None, None])
        if variant.residual:
            plain = self.draw(case.y_shape)
            residual = conv.pack_diff_dst(plain, out=self.empty(conv.dst_shape))
            self.behind(residual, case.K).fill(_NAN[residual.itemsize])
            expected = expected.plus(reference.doubles(plain))
        if variant.relu_mask:
            mask = self.empty(conv.relu_mask_shape, np.uint8)
        dst = self.empty(conv.dst_shape)
        result = conv.forward(self.src, self.weights, bias, residual, dst, relu_mask=mask)
        assert result is dst
        self.assert_untouched_behind(dst, case.K)
        y = conv.unpack_dst(dst)
        reference.assert_close(y, reference.activated(self.bounded(expected), variant.activation))
        if mask is not None:
            self.check_mask(mask, y)
        return dst, mask

    def check_mask(self, mask: NDArray, y: NDArray) -> None:
        conv = self.conv
        bits = np.unpackbits(mask, axis=-1, bitorder="little")[..., : conv.dst_shape[-1]]
        packed = np.zeros(conv.dst_shape, np.float32)
        packed[...] = bits
        if self.variant.dtype == "bfloat16":
            packed = dlprim.to_bfloat16(packed)
        let_through = reference.doubles(conv.unpack_dst(packed))
        np.testing.assert_array_equal(let_through, reference.doubles(y) > 0)

    def backward(self) -> None:
        conv, case = self.conv, self.case
        diff_src = self.empty(conv.src_shape)
        assert conv.backward_data(self.diff_dst, self.weights, out=diff_src) is diff_src
        self.assert_untouched_behind(diff_src, case.C)
        expected = reference.backward_data(case, self.dy, self.w)
        reference.assert_close(conv.unpack_diff_src(diff_src), self.bounded(expected))

        expected = reference.backward_weights(case, self.x, self.dy)
        for dtype in {np.dtype(np.float32), conv.dtype}:
            diff_weights = self.empty(conv.diff_weights_shape, dtype)
            conv.backward_weights(self.src, self.diff_dst, out=diff_weights)
            reference.assert_close(conv.unpack_diff_weights(diff_weights), self.bounded(expected))

    def backward_relu(self, dst: NDArray, mask: NDArray | None) -> None:
        """The gradient in front of relu, where there is one, and that of the bias."""
        conv, case = self.conv, self.case
        db = self.empty((case.K,), np.float32)
        dy = self.dy
        if self.variant.activation == "relu":
            dy = reference.relu_backward(dy, conv.unpack_dst(dst))
            masked = self.empty(conv.dst_shape)
            source = {"dst": dst} if mask is None else {"relu_mask": mask}
            conv.backward_relu(self.diff_dst, **source, out=masked, diff_bias=db)
            self.assert_untouched_behind(masked, case.K)
            np.testing.assert_array_equal(conv.unpack_dst(masked), dy)
        else:
            conv.diff_bias(self.diff_dst, out=db)
        reference.assert_close(db, reference.diff_bias(dy))


def check(
    case: Conv, variant: Variant, seed: int = 0, schedule: dict[str, str] | None = None
) -> None:
    """Run every pass of `case` and raise AssertionError unless the contract held."""
    checked = Checked(case, variant, seed, schedule)
    operands = [checked.src, checked.weights, checked.diff_dst]
    before = [each.tobytes() for each in operands]
    checked.backward_relu(*checked.forward())
    checked.backward()
    assert [each.tobytes() for each in operands] == before, "an operand was changed"


def check_on_this_level(count: int, seed: int) -> None:
    """The fixed shapes and `count` random ones, for a process that was told its ISA level."""
    for number, case in few([*FIXED, *random_convs(count, seed)], dlprim.isa()):
        for layout, dtype in VARIANTS:
            check(case, drawn_variant(layout, dtype, number), number)
