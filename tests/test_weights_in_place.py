"""Weights are packed from where they lie: transposed, or at any byte, as in a file."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dlprim


def anywhere(plain: np.ndarray, shift: int) -> np.ndarray:
    """The array so many bytes behind the begin of memory."""
    octets = np.full(plain.nbytes + 64, 0xFF, np.uint8)
    made = octets[shift : shift + plain.nbytes].view(plain.dtype).reshape(plain.shape)
    made[...] = plain
    return made


def placed(plain: np.ndarray) -> list[np.ndarray]:
    """The same elements in other places."""
    turned = np.ascontiguousarray(plain.T)
    return [turned.T, anywhere(plain, 1), anywhere(turned, 3).T, plain[::-1][::-1], plain[...]]


def drawn(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    random = np.random.default_rng(sum(shape))
    if dtype == "int8":
        return random.integers(-127, 128, shape).astype(np.int8)
    return random.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("layout", ["blocked", "plain"])
@pytest.mark.parametrize(
    ("dtype", "given"),
    [
        ("float32", "float32"),
        ("bfloat16", "float32"),
        ("bfloat16", "bfloat16"),
        ("uint8", "int8"),
    ],
)
def test_linear(layout: Any, dtype: Any, given: str) -> None:
    for k, c in [(1, 1), (1, 7), (5, 1), (31, 17), (64, 48), (300, 129), (768, 257)]:
        if dtype == "uint8" and layout == "blocked":
            continue
        layer = dlprim.Linear((3, c), k, dtype=dtype, layout=layout, bias=False)
        plain = drawn((k, c), np.dtype(getattr(ml_dtypes, given, given)))
        for backward in (False, True):
            expected = layer.pack_weights(plain, backward=backward)
            for w in placed(plain):
                packed = layer.pack_weights(w, backward=backward)
                assert packed.tobytes() == expected.tobytes()


@pytest.mark.parametrize("layout", ["blocked", "NHWC"])
@pytest.mark.parametrize(("dtype", "given"), [("float32", "float32"), ("bfloat16", "float32")])
def test_convolutions(layout: Any, dtype: Any, given: str) -> None:
    for c, k, size, groups in [(3, 5, 1, 1), (16, 32, 3, 1), (64, 64, 3, 1), (32, 32, 3, 4)]:
        for algorithm in ("direct", "winograd") if size == 3 and groups == 1 else ("direct",):
            conv = dlprim.Conv2d(
                (1, c, 14, 14), (k, c // groups, size, size), padding=size // 2, groups=groups,
                dtype=dtype, layout=layout, algorithm=algorithm,
            )  # fmt: skip
            plain = drawn((k, c // groups, size, size), given)
            expected = conv.pack_weights(plain, form="direct")
            x = drawn(conv.x_shape, given).astype(conv.dtype)
            y = conv.forward(conv.pack_src(x), conv.pack_weights(plain, form="forward"))
            for w in placed(plain):
                assert conv.pack_weights(w, form="direct").tobytes() == expected.tobytes()
                # Between transformed parts there may be anything.
                packed = conv.pack_weights(w, form="forward")
                np.testing.assert_array_equal(conv.forward(conv.pack_src(x), packed), y)


def test_an_axis_of_one_element_may_have_any_stride() -> None:
    layer = dlprim.Linear((2, 5), 1)
    plain = drawn((1, 5), "float32")
    odd = np.lib.stride_tricks.as_strided(plain, strides=(0, 4))
    assert layer.pack_weights(odd).tobytes() == layer.pack_weights(plain).tobytes()
    layer = dlprim.Linear((2, 1), 5)
    plain = drawn((5, 1), "float32")
    odd = np.lib.stride_tricks.as_strided(plain, strides=(4, -400))
    assert layer.pack_weights(odd).tobytes() == layer.pack_weights(plain).tobytes()
