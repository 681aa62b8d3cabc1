"""Weights of linear layers in 4, 8 or 16 bits, packed as products of a few rows read them.

Groups of neighbours along C share a scale: ``w = (q - zero_point) * scale``. With one row of x a
product takes as long as reading its weights, so that its time is their size.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dlprim import _core as core
from dlprim.arguments.arrays import (
    Array,
    FloatArray,
    aligned,
    contiguous,
    require_shape,
    result_array,
    taken,
    viewed,
)
from dlprim.arguments.floats import float_operand, to_bfloat16, widened
from dlprim.arguments.scalars import shown

# Bits, group, zero points, type of scales, bits of x.
Form: TypeAlias = tuple[int, int, bool, str, int]

_BITS, _GROUPS, _X_BITS = (4, 8, 16), (32, 64, 128), (15, 8)
_MOST_CHANNELS = 1 << 24  # as of other linear layers


class QuantizedWeights:
    """Weights (K, C) of a linear layer as `quantize_weights` packs them.

    `dlprim.linear` takes them in place of w. They can be pickled, and do not change.

    Attributes
    ----------
    shape : tuple of int
        (K, C), of the weights that were packed.
    bits : int
        Of a weight: 4, 8, or 16 for bfloat16.
    group : int
        Weights of a row that share a scale.
    zero_points : bool
        Whether groups have a zero point of their own.
    x_bits : int
        In which `dlprim.linear` rounds x, group by group: 15 or 8.
    nbytes : int
        That the packed weights take, with padding: to 64 rows and whole groups.
    """

    __slots__ = ("_core", "_form", "_packed", "shape")

    shape: tuple[int, int]
    _core: core.PanelLinear
    _form: Form
    _packed: Array

    def __init__(self) -> None:
        """Never: `quantize_weights` and `from_integers` make them."""
        raise TypeError(
            "QuantizedWeights has no constructor, expected dlprim.quantize_weights(w) or "
            "QuantizedWeights.from_integers(q, scales)"
        )

    @property
    def bits(self) -> int:
        """Of a weight: 4, 8, or 16 for bfloat16."""
        return self._form[0]

    @property
    def group(self) -> int:
        """Weights of a row that share a scale."""
        return self._form[1]

    @property
    def zero_points(self) -> bool:
        """Whether groups have a zero point of their own."""
        return self._form[2]

    @property
    def x_bits(self) -> int:
        """In which x is rounded, group by group."""
        return self._form[4]

    @property
    def nbytes(self) -> int:
        """That the packed weights take."""
        return self._core.bytes

    def dequantize(self) -> FloatArray:
        """What the weights stand for.

        Returns
        -------
        ndarray of float32, (K, C)
        """
        values: FloatArray = self._core.unpack(self._packed)
        return values

    @classmethod
    def from_integers(
        cls, q: Any, scales: Any, zero_points: Any = None, *, bits: int = 4, x_bits: int = 15
    ) -> QuantizedWeights:
        """Weights that were quantised elsewhere: ``w = (q - zero_point) * scale``.

        Parameters
        ----------
        q : array of uint8, (K, C)
            Below 16 for 4 bits.
        scales : array of float32 or float16, (K, C / group)
            The last group may be shorter than the others. Kept in two bytes where float16 or
            bfloat16 holds all of them exactly, else as float32.
        zero_points : array of uint8, (K, C / group), optional
            By default 8 for 4 bits and 128 for 8.
        bits : 4 or 8
        x_bits : 15 or 8
            As for `quantize_weights`.

        Returns
        -------
        QuantizedWeights

        Raises
        ------
        TypeError, ValueError
            An array has another type or shape, or q holds what `bits` cannot.
        """
        weights = _bytes("q", q, bits)
        if weights.ndim != 2:
            raise ValueError(f"q has shape {weights.shape}, expected two dimensions (K, C)")
        exact = contiguous(viewed("scales", scales, "float32 or float16"))
        group = _group_of(weights.shape, exact.shape)
        bits = _one_of("bits", bits, (4, 8))
        name, kept = _kept_scales(exact)
        form = (bits, group, zero_points is not None, name, _one_of("x_bits", x_bits, _X_BITS))
        made = _made((weights.shape[0], weights.shape[1]), form, cls)
        zeros = None
        if zero_points is not None:
            zeros = _bytes("zero_points", zero_points, bits)
            require_shape("zero_points", zeros, exact.shape, "that of scales")
        made._packed = made._core.pack_given(weights, kept, zeros)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        """Shape, form and bytes."""
        return _unpickled, (self.shape, self._form, np.asarray(self._packed))

    def __repr__(self) -> str:
        """For people."""
        zeros = ", zero_points=True" if self.zero_points else ""
        groups = f", group={self.group}" if self.bits < 16 else ""
        return (
            f"QuantizedWeights(shape={self.shape}, bits={self.bits}{groups}{zeros}, "
            f"nbytes={self.nbytes})"
        )


def quantize_weights(
    w: Any, bits: int = 4, group: int = 32, zero_points: bool = False, *, x_bits: int = 15
) -> QuantizedWeights:
    """Weights of a linear layer in few bits, packed for products of a few rows.

    Parameters
    ----------
    w : array of float32, bfloat16 or float16, (K, C)
        As `dlprim.linear` takes it.
    bits : 4, 8 or 16
        Of a weight. 16 are bfloat16, without scales.
    group : 32, 64 or 128
        Neighbours along C that share a scale, which is bfloat16: 4 bits in groups of 32 take 4.5
        bits a weight. A C that is no multiple is padded with zeros.
    zero_points : bool
        Whether a group's range may lie anywhere, for 8 more bits of each group.
    x_bits : 15 or 8
        `dlprim.linear` rounds x to so many bits, group by group, where weights have 4 or 8.
        15 are exact to 1e-4 of a result, at the same speed for one row; 8 are faster for many.

    Returns
    -------
    QuantizedWeights
        Which `dlprim.linear` takes in place of w.

    Raises
    ------
    TypeError, ValueError
        w is no such array, or holds what is not finite; a setting is none of those above.

    Examples
    --------
    >>> import numpy as np
    >>> import dlprim
    >>> w = np.random.randn(256, 512).astype(np.float32)
    >>> packed = dlprim.quantize_weights(w, bits=4)
    >>> y = dlprim.linear(np.ones((1, 512), np.float32), packed)
    >>> y.shape, packed.nbytes
    ((1, 256), 73728)
    """
    bits, group = _one_of("bits", bits, _BITS), _one_of("group", group, _GROUPS)
    if not isinstance(zero_points, bool):
        raise TypeError(f"zero_points is {shown(zero_points)}, expected True or False")
    if bits == 16 and zero_points:
        raise ValueError("zero_points is True, expected False for 16 bits, which have no scales")
    plain, dtype = _plain_weights(w)
    form = (bits, 32 if bits == 16 else group, zero_points, "bfloat16",
            _one_of("x_bits", x_bits, _X_BITS))  # fmt: skip
    made = _made((plain.shape[0], plain.shape[1]), form, QuantizedWeights)
    made._packed = made._core.pack(plain, dtype)
    if made._packed is None:
        raise ValueError("w holds infinity or NaN, expected finite values: they have no scale")
    return made


def linear(
    w: QuantizedWeights,
    x: Any,
    bias: Any,
    activation: str | None,
    out: Array | None,
    bits: bool,
) -> Array:
    """What `dlprim.linear` does with such weights; ``bits`` says that uint16 is bfloat16."""
    named = activation or "none"
    y: Array | None = None
    if bias is None or type(bias) is np.ndarray:
        y = w._core.forward(w._packed, x, bias, named, out, bits)
    if y is not None:
        return y
    src = float_operand("x", x, bits)
    require_channels(src, w.shape)
    offset = None
    if bias is not None:
        offset = widened(float_operand("bias", bias, src.dtype == np.uint16))
        require_shape("bias", offset, w.shape[:1], "K from w")
    dst = result_array(out, (*src.shape[:-1], w.shape[0]), {"x": src, "bias": offset}, src.dtype)
    plain = None if offset is None else offset.view(np.ndarray)
    found: Array = taken(w._core.forward(w._packed, src.view(np.ndarray), plain, named, dst, True))
    return found


def require_channels(x: Any, w_shape: tuple[int, int]) -> None:
    """ValueError unless the last axis of x is that of w."""
    if x.ndim == 0 or x.shape[-1] != w_shape[1]:
        raise ValueError(
            f"x has shape {x.shape}, expected (..., {w_shape[1]}): the last axis holds the C input "
            f"channels of w, whose shape is {w_shape}"
        )


def _made(shape: tuple[int, int], form: Form, of: type[QuantizedWeights]) -> QuantizedWeights:
    """With room for what is packed."""
    made = of.__new__(of)
    made.shape = shape
    made._form = form
    made._core = core.PanelLinear(shape, *form)
    return made


def _unpickled(shape: tuple[int, int], form: Form, packed: Array) -> QuantizedWeights:
    made = _made(shape, form, QuantizedWeights)
    made._packed = aligned(packed.shape, packed.dtype)
    made._packed[...] = packed
    return made


def _one_of(name: str, value: Any, values: tuple[int, ...]) -> int:
    if isinstance(value, bool) or value not in values:
        listed = ", ".join(map(str, values[:-1])) + f" or {values[-1]}"
        raise ValueError(f"{name} is {shown(value)}, expected {listed}")
    return int(value)


def _plain_weights(w: Any) -> tuple[Array, str]:
    found = viewed("w", w, "float32, bfloat16 or float16")
    if found.dtype == np.float16:
        plain, dtype = contiguous(found).view(np.uint16), "float16"
    else:
        plain = float_operand("w", found)
        dtype = "float32" if plain.dtype == np.float32 else "bfloat16"
    if plain.ndim != 2:
        raise ValueError(f"w has shape {plain.shape}, expected two dimensions (K, C)")
    if max(plain.shape) > _MOST_CHANNELS:
        raise ValueError(f"w has shape {plain.shape}, expected at most 2^24 channels on an axis")
    return plain.view(np.ndarray), dtype


def _bytes(name: str, value: Any, bits: int) -> npt.NDArray[np.uint8]:
    found = contiguous(viewed(name, value, "uint8"))
    if found.dtype != np.uint8:
        raise TypeError(f"{name} has dtype {found.dtype}, expected uint8")
    if bits == 4 and found.size > 0 and found.max() > 15:
        raise ValueError(f"{name} holds {found.max()}, expected at most 15, which 4 bits hold")
    return found.view(np.ndarray)


def _group_of(shape: tuple[int, ...], of_scales: tuple[int, ...]) -> int:
    for group in _GROUPS:
        if of_scales == (shape[0], -(-shape[1] // group)):
            return group
    raise ValueError(
        f"scales has shape {of_scales}, expected (K, groups) for q of shape {shape}, with groups "
        "of 32, 64 or 128 along C"
    )


def _kept_scales(scales: Array) -> tuple[str, Array]:
    """As the type in which they stay what they are, in two bytes where that is one."""
    if scales.dtype not in (np.float32, np.float16):
        raise TypeError(f"scales has dtype {scales.dtype}, expected float32 or float16")
    if not np.isfinite(scales).all():
        raise ValueError("scales holds infinity or NaN, expected finite values")
    with np.errstate(over="ignore"):
        halves = scales.astype(np.float16)
    if np.array_equal(halves, scales):
        return "float16", halves.view(np.uint16)
    exact = np.ascontiguousarray(scales, np.float32)
    if not (exact.view(np.uint32) & 0xFFFF).any():
        return "bfloat16", to_bfloat16(exact)
    return "float32", exact
