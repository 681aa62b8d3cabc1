"""The same kernel and the same formulas on a GPU, by Triton: a proof of concept.

`Brgemm`, `linear`, `conv2d` with their gradients, and `contract` for every formula and definition.
"""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401 (Triton's launcher takes its tensors)
    import triton as _triton  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"dlprim.gpu needs Triton and PyTorch, and {error.name} is not installed: "
        'expected `pip install "dlprim[gpu]"`'
    ) from error

from dlprim.gpu.brgemm import Brgemm
from dlprim.gpu.formulas import Formula, compile, contract
from dlprim.gpu.layers import conv2d, conv2d_backward, linear, linear_backward

__all__ = [
    "Brgemm", "Formula", "compile", "contract", "conv2d", "conv2d_backward", "linear",
    "linear_backward",
]  # fmt: skip
