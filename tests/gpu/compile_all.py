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
from dlprim.gpu.functions import REAL
from dlprim.gpu.steps import Steps
from dlprim.gpu.tree import Array
from dlprim.lang.definitions import Definition, contraction

OPERANDS = {"pow": 2, "hypot": 2, "fdim": 2, "fmax": 2, "fmin": 2, "fdivide": 2, "fma": 3}
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
    yield "brgemm gelu", True, Brgemm(4096, 4096, 4096, "bfloat16", bias=True, activation="gelu")
    yield "linear", True, formula(layers.LINEAR, [(4096, 1024), (1000, 1024)], "bfloat16")
    for dtype in ("bfloat16", "float32"):
        for name, made in convolutions(dtype):
            yield f"convolution {name} {dtype}", True, made
    layer = dlprim.define(SOFTMAX).softmax
    for name, made in (*rows(), *products()):
        yield name, False, made
    yield "softmax", False, formula(layer, [(4096, 1000)], "float32")
    for columns in (33, 8192):
        name = f"softmax of {columns}"
        yield name, False, formula(layer, [(4096, columns)], "bfloat16")
    yield "sum of columns", False, formula("y(c) +=! x(n,c)", [(8192, 1000)], "float32")
    yield "sum", False, formula("y() +=! x(n,c)", [(4096, 1000)], "float32")
    yield "map", False, formula("y(n,c) = gelu(x(n,c))", [(4096, 1000)], "bfloat16")


def rows() -> Iterator[tuple[str, Formula]]:
    """What formulas can say beside products: functions, conditions, integers, tables, bytes."""
    for arity, values in ((1, "x(n,c)"), (2, "x(n,c), z(n,c)"), (3, "x(n,c), z(n,c), x(n,c)")):
        called = [f"{name}({values})" for name in REAL if OPERANDS.get(name, 1) == arity]
        for at in range(0, len(called), 12):
            text = f"y(n,c) = {' + '.join(called[at : at + 12])}"
            yield called[at], formula(text, [(64, 100)] * min(arity, 2), "float32")
    places = "(c > 3 && n % 3 == 1 || !(x(n,c) > 0)) ? int(x(n,c)) / 2 : c / 2 - max(n, 7)"
    yield "conditions", formula(f"y(n,c) = ({places}) + fmax(-1, 3 + 4)", [(64, 100)], "bfloat16")
    yield "branches", formula("y(n) = n > 2 ? x(n-3) : 7 where n in 0:66", [(64,)], "float16")
    for reduction in ("max", "min", "*"):
        yield reduction, formula(f"y(n) {reduction}=! x(n,c)", [(64, 3000)], "float32")
    table = dlprim.define("def f(float(E,D) x, int64(B,L) i) -> (y) { y(n,d) +=! x(i(n,l),d) }").f
    arrays = {"x": dense("bfloat16", (90, 33)), "i": dense("int64", (50, 7))}
    yield "tables", Formula(table, arrays, {})
    place = dlprim.define("def f(float(E,D) x, int32 i) -> (y) { y(d) = x?(i,d) }").f
    yield "a place", Formula(place, {"x": dense("float32", (9, 33)), "i": dense("int32", ())}, {})
    for dtype in ("int8", "uint8"):
        arrays = {"x": dense(dtype, (64, 100)), "s": dense("float32", (100,))}
        scaled = contraction("y(n,c) = (x(n,c) - 128) * s(c)")
        yield f"{dtype} scaled", Formula(scaled, arrays, {})
    nothing = dlprim.define(SOFTMAX).softmax
    yield "columns of nothing", formula(nothing, [(64, 0)], "float32")


def products() -> Iterator[tuple[str, Steps]]:
    """Whose factors are masked, spread, mixed, of bytes, or added up in parts."""
    spread = {"a": Array("bfloat16", (64, 100), (1, 0)), "b": dense("bfloat16", (100, 70))}
    yield "spread", Formula(contraction("y(m,n) +=! a(m,k) * b(k,n)"), spread, {})
    mixed = {"a": dense("float16", (64, 100)), "b": dense("float32", (100, 70))}
    yield "mixed", Formula(contraction("y(m,n) +=! a(m,k) * b(k,n)"), mixed, {}, "tf32")
    end = {"bias": True, "residual": True, "scale": "tensor", "activation": "hardswish"}
    for out in ("int8", "uint8", "float16"):
        yield f"bytes to {out}", Brgemm(100, 70, 90, "int8", out_dtype=out, **end)
    yield "added to", Brgemm(100, 70, 90, "int8", beta=1)
    yield "in parts", Brgemm(16, 16, 8192, "bfloat16", bias=True, addressing="offset")


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
