"""Compiles kernels for GPUs that are not here, and prints a record of each as a line of JSON.

A program of its own: where Triton is imported to interpret, it compiles nothing.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

from assembled import codes

import dlprim
from dlprim.gpu import Brgemm, layers
from dlprim.gpu.formulas import Formula, dense
from dlprim.gpu.steps import Steps
from dlprim.gpu.tree import Array
from dlprim.lang.definitions import Definition, contraction

MATRIX = r"wgmma\.mma_async|mma\.sync|v_mfma"
SOFTMAX = """
def softmax(float(N,D) x) -> (y) {
    highest(n) max=! x(n,d)
    power(n,d) = exp(x(n,d) - highest(n))
    total(n) +=! power(n,d)
    y(n,d) = power(n,d) / total(n)
}
"""


def formula(
    it: Definition | str, shapes: list[tuple[int, ...]], dtype: str, tf32: bool = False
) -> Formula:
    definition = contraction(it) if isinstance(it, str) else it
    arrays = {n: dense(dtype, s) for n, s in zip(definition.parameters, shapes, strict=True)}
    return Formula(definition, arrays, {}, "tf32" if tf32 else "ieee")


def channels_last(dtype: str, n: int, c: int, h: int, w: int) -> Array:
    """In one group."""
    return Array(dtype, (n, 1, c, h, w), (c * h * w, c, 1, w * c, c))


def convolutions(dtype: str) -> Iterator[tuple[str, Formula]]:
    text = layers.CONVOLUTION.format(u=2, d=1, t=1, v=2, e=1, l=1)
    named = tuple((it, layers._Convolution.axes[it]) for it in ("src", "weights"))
    layer = layers.layer(f"{text} where p in 0:28, q in 0:28", named, "none")
    src, dst = channels_last(dtype, 8, 64, 56, 56), channels_last(dtype, 8, 128, 28, 28)
    weights = Array(dtype, (1, 128, 64, 3, 3), (73728, 576, 1, 192, 64))
    arrays = {"src": src, "weights": weights}
    precision = "tf32" if dtype == "float32" else "ieee"
    yield "forward", Formula(layer, {**arrays, "dst": dst}, {}, precision)
    arrays["d_dst"] = dst
    for name, out in (("src", src), ("weights", weights)):
        gradient = layer.gradient(name)
        yield f"by {name}", Formula(gradient, {**arrays, f"d_{name}": out}, {}, precision)


def cases() -> Iterator[tuple[str, bool, Steps]]:
    """A name, whether a matrix instruction is expected, and what is compiled."""
    for dtype in ("bfloat16", "float16", "int8"):
        yield f"brgemm {dtype}", True, Brgemm(1024, 1024, 1024, dtype)
    yield "brgemm tf32", True, Brgemm(1024, 1000, 1024, tf32=True, bias=True, activation="relu")
    yield "brgemm ieee", False, Brgemm(1024, 1024, 1024)
    yield "brgemm offsets", True, Brgemm(
        2048, 2048, 64, "bfloat16", addressing="offset", multiple=8, trans_b=True, scale="column",
        bias=True, residual=True, activation="gelu", out_dtype="bfloat16",
    )  # fmt: skip
    yield "linear", True, formula(layers.LINEAR, [(4096, 1024), (1000, 1024)], "bfloat16")
    for dtype in ("bfloat16", "float32"):
        for name, made in convolutions(dtype):
            yield f"convolution {name} {dtype}", True, made
    layer = dlprim.define(SOFTMAX).softmax
    yield "softmax", False, formula(layer, [(4096, 1000)], "float32")
    for columns in (33, 8192):
        name = f"softmax of {columns}"
        yield name, False, formula(layer, [(4096, columns)], "bfloat16")
    yield "sum of columns", False, formula("y(c) +=! x(n,c)", [(8192, 1000)], "float32")
    yield "sum", False, formula("y() +=! x(n,c)", [(4096, 1000)], "float32")
    yield "map", False, formula("y(n,c) = gelu(x(n,c))", [(4096, 1000)], "bfloat16")


def main(targets: list[str]) -> None:
    for name, is_matrix, steps in cases():
        for target in targets:
            made = codes(steps, target)
            found: set[Any] = set().union(*(re.findall(MATRIX, it.assembly) for it in made))
            record = {
                "name": name, "target": target, "is_matrix": is_matrix, "found": sorted(found),
                "spills": sum(it.spills for it in made), "shared": max(it.shared for it in made),
            }  # fmt: skip
            print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
