"""Layers as formulas: `contract`, `define`, and on top of them `einsum` and `matmul`."""

from dlprim.lang.compiled import CompiledFormula
from dlprim.lang.definitions import Definition, Definitions, contract, define
from dlprim.lang.subscripts import einsum, matmul

__all__ = [
    "CompiledFormula",
    "Definition",
    "Definitions",
    "contract",
    "define",
    "einsum",
    "matmul",
]
