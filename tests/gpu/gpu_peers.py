"""What tests of `dlprim.gpu` share: a device, drawn arrays on it, and how far off results may be.

Kernels run natively where there is a GPU, else in Triton's interpreter, which has to be chosen
before Triton is imported. Where Triton or PyTorch is missing every module of these is skipped.
"""

from __future__ import annotations

import math
import os
from typing import Any

import pytest

from drawing import RNG

torch = pytest.importorskip("torch", reason="dlprim.gpu needs PyTorch: pip install 'dlprim[gpu]'")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton", reason="dlprim.gpu needs Triton: pip install 'dlprim[gpu]'")

# Of a sum's own rounding, times the root of its terms; of the elements that it is stored as, which
# the interpreter truncates where they are bfloat16.
SUM_ROUNDOFF = {"ieee": 2.0**-24, "tf32": 2.0**-10}
STORED = {"float32": 0.0, "bfloat16": 2.0 ** (-8 if DEVICE == "cuda" else -7), "float16": 2.0**-11}


def drawn(*shape: int, dtype: str = "float32") -> Any:
    values = torch.from_numpy(RNG.standard_normal(shape)).to(torch.float32)
    return values.to(device=DEVICE, dtype=getattr(torch, dtype))


def drawn_bytes(*shape: int) -> Any:
    return torch.from_numpy(RNG.integers(-128, 128, shape, "int8")).to(DEVICE)


def exact(it: Any) -> Any:
    return it.detach().cpu().to(torch.float64)


def assert_close(found: Any, expected: Any, size: Any, terms: int, precision: str = "ieee") -> None:
    """``size`` is what the absolute values of the terms add up to."""
    dtype = str(found.dtype).removeprefix("torch.")
    assert found.shape == expected.shape
    limit = 2 * min(math.sqrt(terms), terms) * SUM_ROUNDOFF[precision] * size
    error = (exact(found) - expected).abs()
    wrong = ~(error <= limit + STORED[dtype] * expected.abs() + 1e-30)
    assert not wrong.any(), f"{int(wrong.sum())} of {wrong.numel()} wrong, {error.max():.3g}"
