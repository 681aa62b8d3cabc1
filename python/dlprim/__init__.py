"""Deep-learning primitives for NumPy on one JIT-assembled batch-reduce GEMM kernel.

Every multiply-add runs in kernels that are generated for the machine at hand:
``C = epilogue(beta*C + sum_i A_i @ B_i)`` (arXiv 1906.06440). Arrays go in, arrays come out.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    from dlprim import _core as _core
except ImportError as error:
    if "libgomp" in str(error):
        message = "dlprim needs the OpenMP runtime libgomp.so.1: apt-get install libgomp1"
    else:
        message = (
            "dlprim's compiled core is missing or does not fit this Python; "
            "build it with: pip install ."
        )
    raise ImportError(f"{message} ({error})") from error

from dlprim.cache import kernel_cache_clear, kernel_cache_info, warmup
from dlprim.conv import Conv2d
from dlprim.convolution import conv2d, conv2d_backward
from dlprim.functional import linear, linear_backward
from dlprim.kernel import Brgemm, brgemm
from dlprim.linear import Linear
from dlprim.machine import get_num_threads, isa, set_num_threads, threads
from dlprim.mlp import MLP
from dlprim.packing import pack_b, to_bfloat16, to_float32, unpack_b
from dlprim.tuning import tune

try:
    __version__ = version("dlprim")
except PackageNotFoundError:
    __version__ = "unknown"

__all__ = [
    "MLP",
    "Brgemm",
    "Conv2d",
    "Linear",
    "__version__",
    "brgemm",
    "conv2d",
    "conv2d_backward",
    "get_num_threads",
    "isa",
    "kernel_cache_clear",
    "kernel_cache_info",
    "linear",
    "linear_backward",
    "pack_b",
    "set_num_threads",
    "threads",
    "to_bfloat16",
    "to_float32",
    "tune",
    "unpack_b",
    "warmup",
]
