"""Maps of integers and conditions, as a list of operations that the core computes exactly."""

from __future__ import annotations

import numpy as np

from dlprim.graph.expressions import Expression, evaluate
from dlprim.graph.graph import Node
from dlprim.graph.lowering.lowering import Lowering

# Function, type of the result, operations that it reads, the number.
Operation = tuple[str, str, list[int], float]

_CONDITIONS = ("and", "or", "xor", "not")
_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
_INTEGERS = ("add", "subtract", "multiply", "maximum", "minimum")
_BITS = ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not")
_TYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "float32", "float64",
)  # fmt: skip
_MOST_OPERATIONS = 64


class _UnknownError(Exception):
    """There is no operation for a part of an expression."""


class _Operations:
    """Operations of an expression whose operands have known types."""

    def __init__(self, dtypes: list[np.dtype[np.generic]]) -> None:
        self.listed: list[Operation] = []
        self._operands = [np.empty(0, dtype) for dtype in dtypes]

    def add(self, expression: Expression, dtype: str | None = None) -> int:
        """The operation that makes the expression, of the type that NumPy gives it or another."""
        name, *parts = expression
        own = np.asarray(evaluate(expression, self._operands)).dtype.name
        if name == "number":
            if np.dtype(dtype or own).kind in "iub" and not abs(parts[0]) <= 2**53:
                raise _UnknownError("a number that is no double")
            return self._emit("number", dtype or own, [], float(parts[0]))
        if name == "input":
            made = self._emit("input", own, [parts[0]])
        elif name in _CONDITIONS:
            made = self._emit(name, own, [self.add(it, "bool") for it in parts])
        elif name in _COMPARISONS:
            types = [evaluate(it, self._operands) for it in parts]
            common = np.result_type(*types).name
            made = self._emit(name, own, [self.add(it, common) for it in parts])
        elif name == "where":
            operands = [self.add(parts[0], "bool"), *(self.add(it, own) for it in parts[1:])]
            made = self._emit(name, own, operands)
        elif (name in _INTEGERS and np.dtype(own).kind in "iu") or name in _BITS:
            made = self._emit(name, own, [self.add(it, own) for it in parts])
        else:
            raise _UnknownError(name)
        if dtype in (None, own):
            return made
        if np.dtype(own).kind == "f" and np.dtype(dtype).kind in "iu":
            raise _UnknownError(f"{own} to {dtype}")
        assert dtype is not None
        return self._emit("cast", dtype, [made])

    def _emit(self, function: str, dtype: str, operands: list[int], number: float = 0.0) -> int:
        if dtype not in _TYPES or len(self.listed) == _MOST_OPERATIONS:
            raise _UnknownError(dtype)
        self.listed.append((function, dtype, operands, number))
        return len(self.listed) - 1


def lower_integer_map(to: Lowering, node: Node) -> bool:
    """One step of the core, where floats are only chosen and compared."""
    if any(it.dtype.name not in _TYPES for it in (*node.operands, node.output)):
        return False
    operations = _Operations([it.dtype for it in node.operands])
    try:
        operations.add(node.attributes["expression"], node.output.dtype.name)
    except (_UnknownError, OverflowError):  # or NumPy has none that holds a number
        return False
    shape = node.output.shape
    operands = [to.number(to.place(it).expanded(shape)) for it in node.operands]
    result = to.number(to.result(node.output))
    to.network.map(operations.listed, operands, result, f"map {node.name}")
    return True
