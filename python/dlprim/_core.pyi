"""The compiled core. Private: use the functions of the package instead."""

from typing import Any

import numpy as np
import numpy.typing as npt

class Kernel:
    def __init__(self, request: dict[str, int | bool | str]) -> None: ...
    def __call__(
        self,
        a: Any,
        b: Any,
        c: npt.NDArray[Any],
        *,
        batch: int | None = None,
        stride_a: int | None = None,
        stride_b: int | None = None,
        offsets_a: npt.NDArray[np.int64] | None = None,
        offsets_b: npt.NDArray[np.int64] | None = None,
        bias: Any = None,
        scale: Any = None,
        residual: Any = None,
        relu_mask: npt.NDArray[np.uint8] | None = None,
        zero_point_a: int | None = None,
        zero_point_b: int | None = None,
    ) -> None: ...
    def measure(
        self, a: Any, b: Any, c: npt.NDArray[Any], *, repeats: int, **others: Any
    ) -> float: ...
    @property
    def isa(self) -> str: ...
    @property
    def tile(self) -> tuple[int, int]: ...
    @property
    def name(self) -> str: ...
    @property
    def plan(self) -> str: ...
    @property
    def code(self) -> bytes: ...

def isa() -> str: ...
def detected_isa() -> str: ...
def num_threads() -> int: ...
def set_num_threads(count: int) -> None: ...
def fma_peak(dtype: str, isa: str, seconds: float) -> float: ...
def read_bandwidth(isa: str, bytes: int, seconds: float) -> float: ...
def kernel_cache_info() -> dict[str, int]: ...
def kernel_cache_clear() -> None: ...
def linear_forward(
    src: npt.NDArray[np.float32],
    weights: npt.NDArray[np.float32],
    bias: npt.NDArray[np.float32] | None,
    activation: str,
    dst: npt.NDArray[np.float32],
) -> None: ...
def linear_backward(
    diff_dst: npt.NDArray[np.float32],
    src: npt.NDArray[np.float32],
    weights: npt.NDArray[np.float32],
    dst: npt.NDArray[np.float32] | None,
    activation: str,
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.float32]]: ...
def pack_b(
    b: npt.NDArray[Any],
    from_dtype: str,
    packed: npt.NDArray[Any],
    to_dtype: str,
    transposed: bool,
) -> None: ...
def round_to_bfloat16(src: npt.NDArray[np.float32], dst: npt.NDArray[Any]) -> None: ...
def widen_to_float32(src: npt.NDArray[Any], dst: npt.NDArray[np.float32]) -> None: ...
