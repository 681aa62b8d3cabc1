"""A convolution whose loops are TVM's and whose inner product is dlprim's kernel.

`around_kernel` is the way to call it; `defined` and `by_hand` are what TVM does without it, on the
same arrays. measure.py runs and compares them.
"""

import ctypes
from dataclasses import dataclass, replace

import numpy as np
import tvm
from tvm import te, topi
from tvm.script import tirx as T  # noqa: N812, TVM's own name for it

BLOCK = 64  # channels side by side, of the image and of the result


def target() -> tvm.target.Target:
    """One core of this CPU, with whole registers also where LLVM vectorizes by itself."""
    cpu = tvm.target.codegen.llvm_get_system_cpu()
    return tvm.target.Target(
        {"kind": "llvm", "mcpu": cpu, "mattr": ["-prefer-256-bit"], "num-cores": 1}
    )


@dataclass(frozen=True)
class Layer:
    """One image; channels are multiples of BLOCK. x brings its padding along."""

    C: int
    K: int
    H: int
    W: int
    R: int
    S: int
    stride: int
    pad: int

    @property
    def P(self) -> int:
        return (self.H + 2 * self.pad - self.R) // self.stride + 1

    @property
    def Q(self) -> int:
        return (self.W + 2 * self.pad - self.S) // self.stride + 1

    @property
    def flops(self) -> int:
        return 2 * self.C * self.K * self.R * self.S * self.P * self.Q

    @property
    def x_shape(self) -> tuple[int, ...]:
        rows, columns = self.H + 2 * self.pad, self.W + 2 * self.pad
        return (1, self.C // BLOCK, rows, columns, BLOCK)

    @property
    def w_shape(self) -> tuple[int, ...]:
        return (self.K // BLOCK, self.C // BLOCK, self.R, self.S, BLOCK, BLOCK)

    @property
    def y_shape(self) -> tuple[int, ...]:
        return (1, self.K // BLOCK, self.P, self.Q, BLOCK)

    def with_rows_of(self, pixels: int) -> "Layer":
        """The same layer on the same memory, its image this wide if it is pointwise."""
        if (self.R, self.S, self.stride, self.pad) != (1, 1, 1, 0):
            return self
        return replace(self, H=self.H * self.W // pixels, W=pixels)


class Product:
    """y[m, BLOCK] = the sum of x_i[m, BLOCK] times w_i[BLOCK, BLOCK] over blocks of C and taps.

    One kernel with its table of offsets, at an address that generated code holds as a constant.
    """

    def __init__(self, library: ctypes.CDLL, layer: Layer, m: int) -> None:
        self._release = library.dlprim_tvm_release
        self._release.argtypes, self._release.restype = [ctypes.c_int64], None
        make = library.dlprim_tvm_product
        pointer = np.ctypeslib.ndpointer(np.int64)
        make.argtypes, make.restype = [ctypes.c_int64] * 5 + [pointer] * 2, ctypes.c_int64
        blocks, taps_r, taps_s = np.meshgrid(*map(np.arange, layer.w_shape[1:4]), indexing="ij")
        _, _, rows, columns, _ = layer.x_shape
        pixels = (blocks * rows + taps_r) * columns + taps_s
        offsets_x = (pixels * BLOCK * 4).ravel().astype(np.int64)
        offsets_w = np.arange(offsets_x.size) * (BLOCK * BLOCK * 4)
        lda = layer.stride * BLOCK
        self.address = make(m, BLOCK, BLOCK, lda, offsets_x.size, offsets_x, offsets_w)
        if not self.address:
            raise ValueError(f"dlprim has no kernel for {layer} in rows of {m} pixels")

    def __del__(self) -> None:
        if getattr(self, "address", 0):
            self._release(self.address)


def around_kernel(layer: Layer, m: int, weights_outside: bool, address: int) -> tvm.IRModule:
    """Loops over blocks of K and over rows in pieces of m pixels; inside, a call of the kernel."""
    x_shape, w_shape, y_shape = layer.x_shape, layer.w_shape, layer.y_shape
    K, P, pieces = layer.K // BLOCK, layer.P, layer.Q // m
    stride, rows, columns = layer.stride, layer.R, (m - 1) * layer.stride + layer.S

    @T.prim_func(s_tir=True)
    def main(
        x: T.Buffer(x_shape, "float32"),
        w: T.Buffer(w_shape, "float32"),
        y: T.Buffer(y_shape, "float32"),
    ):
        for k, p, q in T.grid(K, P, pieces):
            with T.sblock("product"):
                vk, vp, vq = T.axis.remap("SSS", [k, p, q])
                row, column = T.meta_var(vp * stride), T.meta_var(vq * m * stride)
                T.reads(
                    x[0, 0 : x_shape[1], row : row + rows, column : column + columns, 0:BLOCK],
                    w[vk, 0 : w_shape[1], 0 : w_shape[2], 0 : w_shape[3], 0:BLOCK, 0:BLOCK],
                )
                T.writes(y[0, vk, vp, vq * m : vq * m + m, 0:BLOCK])
                T.evaluate(
                    T.call_extern(
                        "int32",
                        "dlprim_tvm_brgemm",
                        T.int64(address),
                        T.address_of(x[0, 0, row, column, 0]),
                        T.address_of(w[vk, 0, 0, 0, 0, 0]),
                        T.address_of(y[0, vk, vp, vq * m, 0]),
                    )
                )

    schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": main}))
    k, p, q = schedule.get_loops(schedule.get_sblock("product"))
    schedule.reorder(*((k, p, q) if weights_outside else (p, q, k)))
    return schedule.mod


def defined(layer: Layer) -> tvm.IRModule:
    """What TVM says a convolution of blocked arrays is: unscheduled."""
    with target():
        x, w = te.placeholder(layer.x_shape, name="x"), te.placeholder(layer.w_shape, name="w")
        layout = f"NCHW{BLOCK}c"
        y = topi.nn.conv2d_NCHWc(x, w, layer.stride, 0, 1, layout, layout)
        return tvm.IRModule({"main": te.create_prim_func([x, w, y])})


def by_hand(layer: Layer, m: int, lanes: int, weights_outside: bool) -> tvm.IRModule:
    """TVM's definition with m pixels by `lanes` channels in registers for the whole sum."""
    schedule = tvm.s_tir.Schedule(defined(layer))
    block = schedule.get_sblock("conv2d_NCHWc")
    tile = schedule.cache_write(block, 0, "local")
    n, k, p, q, kk, c, r, s = schedule.get_loops(block)
    q, qq = schedule.split(q, [None, m])
    k_vector, kk = schedule.split(kk, [None, lanes])
    c, cc = schedule.split(c, [None, BLOCK])
    order = (n, k, k_vector, p, q) if weights_outside else (n, p, q, k, k_vector)
    schedule.reorder(*order, c, r, s, cc, qq, kk)
    schedule.reverse_compute_at(tile, order[-1])
    schedule.unroll(qq)
    schedule.vectorize(kk)
    zero = schedule.decompose_reduction(block, c)
    for part in (zero, tile):
        *_, pixel, lane = schedule.get_loops(part)
        schedule.unroll(pixel)
        schedule.vectorize(lane)
    return schedule.mod
