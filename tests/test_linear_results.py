"""Linear layers of bfloat16 whose sums are not rounded."""

from __future__ import annotations

import numpy as np
import pytest

import dlprim


@pytest.mark.every_level
@pytest.mark.parametrize(
    ("shape", "activation"), [((5, 700, 33), "relu"), ((64, 96, 1), None), ((1, 513, 130), None)]
)
def test_sums_of_bfloat16_that_stay_float32(
    shape: tuple[int, int, int], activation: str | None
) -> None:
    n, c, k = shape
    random = np.random.default_rng(2)
    x, w = random.integers(-9, 10, (n, c)), random.integers(-9, 10, (k, c))
    bias = random.standard_normal(k).astype(np.float32)
    kind = dlprim.to_bfloat16(np.ones(1, np.float32)).dtype
    layer = dlprim.Linear(
        (n, c), k, dtype="bfloat16", activation=activation, bias=True, dst_dtype="float32"
    )
    halves = [dlprim.to_bfloat16(it.astype(np.float32)) for it in (x, w)]
    src, packed = layer.pack_src(halves[0]), layer.pack_weights(halves[1], backward=False)
    y = layer.unpack_dst(layer.forward(src, packed, bias))
    assert (layer.dtype, layer.dst_dtype, y.dtype) == (kind, np.float32, np.float32)
    exact = (x @ w.T).astype(np.float32) + bias
    np.testing.assert_array_equal(y, exact if activation is None else np.maximum(exact, 0))
    sentence = r"^the layer is of dtype bfloat16 and its result of float32, which has the forward"
    with pytest.raises(TypeError, match=sentence):
        layer.backward_data(y, layer.pack_weights(halves[1]))
