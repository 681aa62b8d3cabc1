"""A result may take the place of the residual: the same sum, whatever is left in between."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlprim
from conv_cases import Conv, padded

F4 = np.float32
CASES = {
    "pointwise": (Conv(2, 70, 9, 8, 48, 1, 1), {}),
    # float32 sums that stand in dst until they are complete: taps beside the image, ragged
    # channels, a split sum
    "taps": (Conv(2, 64, 9, 8, 48, 3, 3, (2, 1), padded(1, 1)), {}),
    "ragged": (Conv(2, 70, 9, 8, 70, 3, 3, (1, 1), padded(1, 1)), {"algorithm": "direct"}),
    "winograd": (Conv(2, 70, 9, 8, 48, 3, 3, (1, 1), padded(1, 1)), {"algorithm": "winograd"}),
    "gelu": (Conv(2, 64, 9, 8, 48, 3, 3, (1, 1), padded(1, 1)), {"activation": "gelu"}),
}


def rounded(array: np.ndarray, dtype: str) -> np.ndarray:
    return array if dtype == "float32" else dlprim.to_bfloat16(array)


def pair_of_results(
    case: Conv, dtype: str, layout: str, **more: Any
) -> tuple[np.ndarray, np.ndarray, dlprim.Conv2d]:
    """Beside the residual and in its place, as float32."""
    random = np.random.default_rng(3)
    keywords: dict[str, Any] = {"activation": "relu", **more}
    conv = dlprim.Conv2d(
        case.x_shape, case.w_shape, **case.keywords, dtype=dtype, layout=layout, **keywords
    )
    w = rounded(random.standard_normal(case.w_shape, F4), dtype)
    weights = conv.pack_weights(w)
    src = conv.pack_src(rounded(random.standard_normal(case.x_shape, F4), dtype))
    residual = rounded(random.standard_normal(conv.dst_shape, F4), dtype)
    beside = conv.forward(src, weights, residual=residual)
    place = residual.copy()
    assert conv.forward(src, weights, residual=place, out=place) is place
    plain = [np.asarray(conv.unpack_dst(it)) for it in (beside, place)]
    if dtype == "bfloat16":
        plain = [dlprim.to_float32(it) for it in plain]
    return plain[0], plain[1], conv


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("layout", ["blocked", "NHWC"])
def test_in_place_of_the_residual(name: str, dtype: str, layout: str) -> None:
    case, more = CASES[name]
    beside, place, _ = pair_of_results(case, dtype, layout, **more)
    # a float32 sum that continues the residual is rounded in another order
    tolerance = 3e-6 if dtype == "float32" else 0
    np.testing.assert_allclose(place, beside, atol=tolerance * np.abs(beside).max(), rtol=0)


def test_in_place_with_a_split_sum() -> None:
    case = Conv(1, 256, 6, 6, 64, 1, 1)
    beside, place, conv = pair_of_results(case, "float32", "blocked", schedule="N P c2 K G Q")
    assert "c2" in conv.schedules["forward"]
    np.testing.assert_allclose(place, beside, atol=3e-6 * np.abs(beside).max(), rtol=0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_in_place_depthwise(dtype: str) -> None:
    random = np.random.default_rng(4)
    conv = dlprim.Conv2d((2, 40, 9, 8), (40, 1, 3, 3), padding=1, groups=40, dtype=dtype)
    weights = conv.pack_weights(rounded(random.standard_normal((40, 1, 3, 3), F4), dtype))
    src = conv.pack_src(rounded(random.standard_normal((2, 40, 9, 8), F4), dtype))
    residual = rounded(random.standard_normal(conv.dst_shape, F4), dtype)
    beside = conv.unpack_dst(conv.forward(src, weights, residual=residual))
    place = conv.unpack_dst(conv.forward(src, weights, residual=residual, out=residual))
    assert place.tobytes() == beside.tobytes()


def test_a_part_of_the_residual_is_refused() -> None:
    conv = dlprim.Conv2d((1, 16, 4, 4), (16, 16, 1, 1))
    size = int(np.prod(conv.dst_shape))
    memory = np.zeros(2 * size, F4)
    residual = memory[:size].reshape(conv.dst_shape)
    out = memory[16 : 16 + size].reshape(conv.dst_shape)
    weights = np.ones(conv.weights_shape, F4)
    with pytest.raises(ValueError, match=r"^out shares memory with residual"):
        conv.forward(np.ones(conv.src_shape, F4), weights, residual=residual, out=out)
